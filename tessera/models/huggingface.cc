#include "tessera/models/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using nlohmann::json;

// Looks keys up in the configuration and keeps the first error.
class ConfigReader {
 public:
  ConfigReader(const json& config, std::string_view file) : config_(config), file_(file) {}

  // The value of the first of `names` that is there and not null. Null: none is.
  const json* find(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      const auto at = config_.find(name);
      if (at != config_.end() && !at->is_null()) return &*at;
    }
    return nullptr;
  }

  // Copies the value (number or boolean) to `key`; `otherwise` if it is absent; "" = required, "-"
  // = leave out.
  void copy(const std::vector<std::string>& names, const std::string& key,
            const std::string& otherwise = "") {
    const json* value = find(names);
    if (value == nullptr) {
      if (otherwise.empty()) fail(fmt::format("expected key '{}'", names.front()));
      if (otherwise != "-") add(key, otherwise);
    } else if (value->is_boolean()) {
      add(key, value->get<bool>() ? "1" : "0");
    } else if (value->is_number_integer()) {
      add(key, value->dump());
    } else if (value->is_number()) {
      add(key, fmt::format("{}", value->get<double>()));
    } else {
      fail(fmt::format("{} must be a number, found {}", names.front(), value->dump()));
    }
  }

  // Fails unless `name` is absent or has one of the values.
  void require(const std::string& name, const std::vector<json>& values) {
    const json* value = find({name});
    if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
    std::vector<std::string> texts;
    for (const json& accepted : values) texts.push_back(accepted.dump());
    fail(fmt::format("{} {} is not supported (supported: {})", name, value->dump(),
                     join(texts, ", ")));
  }

  void add(const std::string& key, const std::string& value) {
    arguments_.emplace_back(key, value);
  }

  void fail(const std::string& message) {
    if (error_.empty()) error_ = fmt::format("{}: {}", file_, message);
  }

  Result<HuggingFaceModel> finish(std::string family) {
    if (!error_.empty()) return invalid_input(error_);
    return HuggingFaceModel{std::move(family), std::move(arguments_)};
  }

 private:
  const json& config_;
  std::string file_;
  std::string error_;
  ModelArguments arguments_;
};

Result<HuggingFaceModel> read_gpt2(const json& config, std::string_view file, std::string_view) {
  ConfigReader reader(config, file);
  reader.copy({"n_layer"}, "layers");
  reader.copy({"n_embd"}, "hidden");
  reader.copy({"n_head"}, "heads");
  reader.copy({"n_positions", "n_ctx"}, "seq");
  reader.copy({"vocab_size"}, "vocab");
  reader.copy({"n_inner"}, "ffn", "-");
  reader.copy({"layer_norm_epsilon"}, "eps", "1e-05");
  reader.copy({"tie_word_embeddings"}, "tied", "1");
  reader.require("activation_function", {"gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"});
  reader.require("scale_attn_weights", {true});
  reader.require("scale_attn_by_inverse_layer_idx", {false});
  const json* activation = reader.find({"activation_function"});
  const std::string name =
      activation != nullptr && activation->is_string() ? *activation : "gelu_new";
  reader.add("activation", name == "relu"                      ? "relu"
                           : name == "silu" || name == "swish" ? "silu"
                                                               : "gelu");
  return reader.finish("gpt");
}

// transformers 4: rope_theta and rope_scaling; 5: both in the object rope_parameters.
void read_rotary(const json& config, std::string_view file, ConfigReader& reader) {
  const json* scaling = reader.find({"rope_parameters", "rope_scaling"});
  const json nothing = json::object();
  if (scaling != nullptr && !scaling->is_object()) {
    reader.fail(fmt::format("rope_parameters must be an object, found {}", scaling->dump()));
    return;
  }
  ConfigReader rotary(scaling != nullptr ? *scaling : nothing, file);
  rotary.require("rope_type", {"default"});
  rotary.require("type", {"default"});
  rotary.require("partial_rotary_factor", {1.0});
  if (auto status = rotary.finish(""); !status) {
    reader.fail(status.error().message.substr(file.size() + 2));
  }
  const bool inside = scaling != nullptr && scaling->contains("rope_theta");
  ConfigReader theta(inside ? *scaling : config, file);
  theta.copy({"rope_theta"}, "theta", "10000");
  auto read = theta.finish("");
  if (!read) return reader.fail(read.error().message.substr(file.size() + 2));
  reader.add("theta", read->arguments.front().second);
}

// Of llama, mistral and mixtral; `name` is the model_type.
Result<HuggingFaceModel> read_llama(const json& config, std::string_view file,
                                    std::string_view name) {
  const bool mixtral = name == "mixtral", mistral = name == "mistral" || mixtral;
  ConfigReader reader(config, file);
  reader.copy({"num_hidden_layers"}, "layers");
  reader.copy({"hidden_size"}, "hidden");
  reader.copy({"num_attention_heads"}, "heads");
  reader.copy({"num_key_value_heads"}, "kv_heads", mistral ? "8" : "-");
  reader.copy({"head_dim"}, "head_dim", "-");
  reader.copy({"max_position_embeddings"}, "seq");
  reader.copy({"vocab_size"}, "vocab");
  reader.copy({"intermediate_size"}, "ffn");
  reader.copy({"rms_norm_eps"}, "eps", "1e-06");
  reader.copy({"tie_word_embeddings"}, "tied", "0");
  reader.require("hidden_act", {"silu", "swish"});
  reader.require("attention_bias", {false});
  reader.require("mlp_bias", {false});
  reader.require("partial_rotary_factor", {1.0});
  if (mixtral) {
    reader.copy({"num_local_experts"}, "experts", "8");
    reader.copy({"num_experts_per_tok"}, "top_k", "2");
    reader.copy({"router_aux_loss_coef"}, "balance", "0.001");
    reader.require("router_jitter_noise", {0.0});
  }
  read_rotary(config, file, reader);
  // A window of all positions is none.
  const json* window = mistral ? reader.find({"sliding_window"}) : nullptr;
  const json* positions = reader.find({"max_position_embeddings"});
  if (window != nullptr && positions != nullptr && window->is_number() && positions->is_number() &&
      window->get<double>() < positions->get<double>()) {
    reader.copy({"sliding_window"}, "window");
  }
  return reader.finish(mixtral ? "mixtral" : "llama");
}

struct ModelType {
  std::string_view name;
  Result<HuggingFaceModel> (*read)(const json&, std::string_view file, std::string_view name);
};
constexpr std::array kModelTypes = {ModelType{"gpt2", read_gpt2}, ModelType{"llama", read_llama},
                                    ModelType{"mistral", read_llama},
                                    ModelType{"mixtral", read_llama}};

}  // namespace

std::vector<std::string> huggingface_model_types() {
  std::vector<std::string> names;
  for (const ModelType& type : kModelTypes) names.emplace_back(type.name);
  return names;
}

Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file) {
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return invalid_input(
        fmt::format("{}: expected a JSON object (a Hugging Face config.json)", file));
  }
  const auto type = config.find("model_type");
  const std::string name =
      type != config.end() && type->is_string() ? type->get<std::string>() : "";
  for (const ModelType& known : kModelTypes) {
    if (known.name == name) return known.read(config, file, name);
  }
  return invalid_input(fmt::format("{}: model_type '{}' is not supported (supported: {})", file,
                                   name, join(huggingface_model_types(), ", ")));
}

}  // namespace tessera
