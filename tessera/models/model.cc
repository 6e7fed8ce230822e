#include "tessera/models/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/models/bert.h"
#include "tessera/models/evoformer.h"
#include "tessera/models/gpt.h"
#include "tessera/models/huggingface.h"
#include "tessera/models/llama.h"
#include "tessera/models/mixtral.h"
#include "tessera/models/mlp.h"
#include "tessera/models/nemotron_h.h"
#include "tessera/models/resnet.h"
#include "tessera/models/swin.h"
#include "tessera/models/t5.h"
#include "tessera/models/vit.h"

namespace tessera {
namespace {

const std::vector<std::string> kFamilies = {"gpt", "llama", "mixtral", "nemotron_h", "bert", "t5",
                                            "vit", "swin",  "resnet",  "evoformer",  "mlp"};

// Keeps element counts within 63 bits: the largest tensors are positions x width and width x width.
Status check_sizes(std::string_view family, const std::vector<ModelKey>& keys, int64_t batch) {
  constexpr double kMaxElements = 0x1p56;
  constexpr int64_t kMaxLayers = 100'000;
  double widest = 1, seq = 1, query = 1;
  for (const ModelKey& key : keys) {
    const auto* size = std::get_if<int64_t*>(&key.target);
    if (size == nullptr) continue;
    if (key.name == "layers" && **size > kMaxLayers) {
      return model_error(family, fmt::format("layers={} must be at most {}", **size, kMaxLayers));
    }
    if (key.name == "heads" || key.name == "head_dim") query *= static_cast<double>(**size);
    if (key.name == "seq" || key.name == "source" || key.name == "sequences") {
      seq *= static_cast<double>(**size);
    } else if (key.name == "image" || key.name == "residues") {
      seq *= static_cast<double>(**size) * static_cast<double>(**size);
    } else {
      widest = std::max(widest, static_cast<double>(**size));
    }
  }
  widest = std::max(widest, query);
  if (static_cast<double>(batch) * seq * widest > kMaxElements || widest * widest > kMaxElements) {
    return model_error(family,
                       fmt::format("batch={} is too large for these sizes: a tensor would have "
                                   "more than 2^56 elements",
                                   batch));
  }
  return {};
}

// What a model says of its samples beside the graph.
struct Samples {
  int64_t seq = 1, classes = 1, text = 0;
  std::vector<InputRule> inputs = {};
};

// Gpt, llama: a token more than the sequence, of which targets are the last ones.
template <class Config>
Samples samples_of(const Config& config) {
  return {config.seq, config.vocab, config.seq + 1};
}
Samples samples_of(const MlpConfig& config) { return {1, config.out}; }

// The masked tokens and their targets, of one stream.
std::vector<InputRule> masked_tokens(int64_t vocab, int64_t positions, int64_t masked) {
  const InputRule rule = {"tokens", vocab - 1, "tokens", positions, 0, InputRule::Mask::kHide,
                          masked};
  InputRule targets = rule;
  targets.input = "targets";
  targets.mask = InputRule::Mask::kKeep;
  return {rule, targets};
}

Samples samples_of(const BertConfig& config) {
  Samples samples = {config.seq, config.vocab, config.seq,
                     masked_tokens(config.vocab, config.seq, config.masked)};
  samples.inputs.push_back({"segments", config.types, "segments", config.seq});
  return samples;
}

Samples samples_of(const NemotronHConfig& config) {
  const int64_t row = config.seq + 1 + config.mtp;
  Samples samples = {config.seq, config.vocab, row, {}};
  if (config.mtp == 0) return samples;
  samples.inputs = {{"tokens", config.vocab, "tokens", row, 0},
                    {"targets", config.vocab, "tokens", row, 1}};
  for (int64_t depth = 1; depth <= config.mtp; ++depth) {
    samples.inputs.push_back(
        {fmt::format("targets_{}", depth), config.vocab, "tokens", row, 1 + depth});
  }
  return samples;
}

// The decoder goes on where the source ends.
Samples samples_of(const T5Config& config) {
  const int64_t row = config.source + config.seq;
  return {config.seq,
          config.vocab,
          row,
          {{"source", config.vocab, "tokens", row, 0},
           {"tokens", config.vocab, "tokens", row, config.source - 1},
           {"targets", config.vocab, "tokens", row, config.source}}};
}

int64_t squared(int64_t x) { return x * x; }

Samples samples_of(const VitConfig& config) {
  return {squared(config.image / config.patch) + (config.pool == "class" ? 1 : 0), config.classes};
}
Samples samples_of(const SwinConfig& config) {
  return {squared(config.image / config.patch), config.classes};
}
Samples samples_of(const ResnetConfig& config) { return {1, config.classes}; }

Samples samples_of(const EvoformerConfig& config) {
  Samples samples = {
      config.residues, config.vocab, 0,
      masked_tokens(config.vocab, config.sequences * config.residues, config.masked)};
  samples.inputs.push_back({"sequence", config.vocab, "sequence", config.residues});
  samples.inputs.push_back({"distances", config.bins, "distances", squared(config.residues)});
  return samples;
}

Status complete(MlpConfig&) { return {}; }

template <class Config, class Build>
Result<Model> build_family(std::string_view family, const ModelArguments& arguments, int64_t batch,
                           std::optional<DType> dtype, Build build) {
  Config config;
  const std::vector<ModelKey> keys = model_keys(config);
  TESSERA_TRY_VOID(set_keys(family, keys, arguments));
  if (dtype) config.dtype = *dtype;
  TESSERA_TRY_VOID(check_sizes(family, keys, batch));
  TESSERA_TRY_VOID(complete(config));
  Model model;
  TESSERA_TRY(model.graph, build(config, batch));
  model.family = std::string(family);
  model.spec = canonical_spec(family, keys);
  model.batch = batch;
  Samples samples = samples_of(config);
  model.seq = samples.seq;
  model.vocab = samples.classes;
  model.text = samples.text;
  model.inputs = std::move(samples.inputs);
  return model;
}

// "x/config.json" or "x/config.json:key=value,...": the path's length, 0 if the spec names no file.
size_t file_length(std::string_view spec) {
  constexpr std::string_view kSuffix = ".json";
  if (spec.ends_with(kSuffix)) return spec.size();
  const size_t at = spec.find(".json:");
  return at == std::string_view::npos ? 0 : at + kSuffix.size();
}

Result<Call> read_spec(std::string_view spec) {
  const size_t path_size = file_length(spec);
  if (path_size == 0) return parse_call(spec);
  const std::string path(spec.substr(0, path_size));
  TESSERA_TRY(const std::string text, read_file(path));
  TESSERA_TRY(HuggingFaceModel file, parse_huggingface_config(text, path));
  Call call{std::move(file.family), std::move(file.arguments)};
  if (path_size < spec.size()) {
    TESSERA_TRY(const Call changes, parse_call(call.name + std::string(spec.substr(path_size))));
    // Later arguments win over earlier ones.
    call.arguments.insert(call.arguments.end(), changes.arguments.begin(), changes.arguments.end());
  }
  return call;
}

template <class Config>
std::string family_help(std::string_view family, std::string_view summary) {
  Config config;
  return fmt::format("{}: {}\n{}", family, summary, keys_help(model_keys(config)));
}

}  // namespace

Result<Model> build_model(std::string_view spec, int64_t batch, std::optional<DType> dtype) {
  if (batch < 1)
    return invalid_input(fmt::format("expected a batch of at least 1, found {}", batch));
  if (dtype && !is_floating(*dtype)) {
    return invalid_input(
        fmt::format("expected a floating dtype for a model, found {}", dtype_name(*dtype)));
  }
  const std::string_view text = trim(spec);
  TESSERA_TRY(const Call call, read_spec(text));
  if (call.name == "gpt") {
    return build_family<GptConfig>(call.name, call.arguments, batch, dtype, build_gpt);
  }
  if (call.name == "llama") {
    return build_family<LlamaConfig>(call.name, call.arguments, batch, dtype, build_llama);
  }
  if (call.name == "bert") {
    return build_family<BertConfig>(call.name, call.arguments, batch, dtype, build_bert);
  }
  if (call.name == "t5") {
    return build_family<T5Config>(call.name, call.arguments, batch, dtype, build_t5);
  }
  if (call.name == "vit") {
    return build_family<VitConfig>(call.name, call.arguments, batch, dtype, build_vit);
  }
  if (call.name == "swin") {
    return build_family<SwinConfig>(call.name, call.arguments, batch, dtype, build_swin);
  }
  if (call.name == "resnet") {
    return build_family<ResnetConfig>(call.name, call.arguments, batch, dtype, build_resnet);
  }
  if (call.name == "evoformer") {
    return build_family<EvoformerConfig>(call.name, call.arguments, batch, dtype, build_evoformer);
  }
  if (call.name == "mixtral") {
    return build_family<MixtralConfig>(call.name, call.arguments, batch, dtype, build_mixtral);
  }
  if (call.name == "nemotron_h") {
    return build_family<NemotronHConfig>(call.name, call.arguments, batch, dtype, build_nemotron_h);
  }
  if (call.name == "mlp") {
    return build_family<MlpConfig>(call.name, call.arguments, batch, dtype, build_mlp);
  }
  return invalid_input(
      fmt::format("unknown model '{}', did you mean '{}'? (models: {}, or a path to a "
                  "Hugging Face config.json)",
                  call.name, nearest(call.name, kFamilies), join(kFamilies, ", ")));
}

std::vector<std::string> model_families() { return kFamilies; }

std::string model_help() {
  return "MODEL is name:key=value,key=value or a path to a Hugging Face config.json (gpt2, llama, "
         "mistral, mixtral),\n"
         "which may be followed by :key=value,key=value of its family (gpt, llama, mixtral).\n\n" +
         family_help<GptConfig>("gpt", "GPT-2") + "\n" +
         family_help<LlamaConfig>("llama", "Llama 1 to 3, Mistral without its sliding window") +
         "\n" + family_help<MixtralConfig>("mixtral", "Llama with a mixture of experts as MLP") +
         "\n" +
         family_help<NemotronHConfig>("nemotron_h",
                                      "state space, attention, MLP and experts in a "
                                      "pattern") +
         "\n" + family_help<BertConfig>("bert", "BERT with its masked-token loss") + "\n" +
         family_help<T5Config>("t5", "encoder-decoder like T5, with learned positions") + "\n" +
         family_help<VitConfig>("vit", "vision transformer, classification") + "\n" +
         family_help<SwinConfig>("swin", "window transformer like Swin, classification") + "\n" +
         family_help<ResnetConfig>("resnet", "residual convolutional network, classification") +
         "\n" + family_help<EvoformerConfig>("evoformer", "Evoformer blocks with recycling") +
         "\n" + family_help<MlpConfig>("mlp", "multi-layer perceptron with a cross entropy") +
         "\nExample: gpt:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304\n";
}

}  // namespace tessera
