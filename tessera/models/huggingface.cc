#include "tessera/models/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/models/families.h"

namespace tessera {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using Texts = std::vector<std::string>;
using Keys = std::map<std::string, std::string, std::less<>>;  // of ours, with their values

// One key of theirs and what it says of ours. Of the forms:
//   {{"n_layer"}, "layers"}                      a number or boolean, the same in ours
//   {{"n_types"}, "types", "2"}                  the same, of this value where it is absent
//   {{"n_inner"}, "ffn", kLeftOut}               the same, which ours computes where it is absent
//   {{"act"}, "", "\"gelu\"", {{"\"gelu\"", "activation=gelu_erf"}, ...}}
//                                                each value (JSON) stands for keys of ours; without
//                                                any it is a value that must be
//   {{}, "qkv_bias", "1"}                        theirs has no key: ours has this value, or that of
//                                                another key of ours ("=heads")
enum class Written : uint8_t { kInteger, kReal, kBoolean };
struct ConfigRow {
  Texts theirs;  // the first is written, all are read
  std::string ours;
  std::string otherwise = "";  // "": theirs must be there
  std::vector<std::pair<std::string, std::string>> values = {};
  Written written = Written::kInteger;
};
constexpr std::string_view kLeftOut = "-";

ConfigRow must_be(std::string theirs, const Texts& values) {
  ConfigRow row{{std::move(theirs)}, "", values.front(), {}};
  for (const std::string& value : values) row.values.emplace_back(value, "");
  return row;
}
ConfigRow same(std::string theirs, std::string ours, std::string otherwise = "") {
  return {{std::move(theirs)}, std::move(ours), std::move(otherwise)};
}
ConfigRow real(std::string theirs, std::string ours, std::string otherwise) {
  return {{std::move(theirs)}, std::move(ours), std::move(otherwise), {}, Written::kReal};
}
ConfigRow boolean(std::string theirs, std::string ours, std::string otherwise) {
  return {{std::move(theirs)}, std::move(ours), std::move(otherwise), {}, Written::kBoolean};
}
ConfigRow implied(std::string ours, std::string value) {
  return {{}, std::move(ours), std::move(value)};
}
// Their names of the activations; the first of a value is written.
ConfigRow activation(std::string theirs, const std::string& otherwise) {
  return {{std::move(theirs)},
          "",
          '"' + otherwise + '"',
          {{"\"gelu_new\"", "activation=gelu"},
           {"\"gelu_pytorch_tanh\"", "activation=gelu"},
           {"\"gelu\"", "activation=gelu_erf"},
           {"\"relu\"", "activation=relu"},
           {"\"silu\"", "activation=silu"},
           {"\"swish\"", "activation=silu"}}};
}

// Looks keys up in the configuration and keeps the first error.
class ConfigReader {
 public:
  ConfigReader(const json& config, std::string_view file) : config_(config), file_(file) {}

  // The value of the first of `names` that is there and not null. Null: none is.
  const json* find(const Texts& names) const {
    for (const std::string& name : names) {
      const auto at = config_.find(name);
      if (at != config_.end() && !at->is_null()) return &*at;
    }
    return nullptr;
  }

  void read(const ConfigRow& row) {
    if (row.theirs.empty()) {
      if (!row.otherwise.starts_with('=')) add(row.ours, row.otherwise);
    } else if (row.values.empty()) {
      copy(row);
    } else {
      translate(row);
    }
  }

  void add(const std::string& key, const std::string& value) {
    arguments_.emplace_back(key, value);
  }
  std::string get(std::string_view key) const {
    for (const auto& [name, value] : arguments_) {
      if (name == key) return value;
    }
    return "";
  }
  void fail(const std::string& message) {
    if (error_.empty()) error_ = fmt::format("{}: {}", file_, short_line(message));
  }
  Result<HuggingFaceModel> finish(std::string family) {
    if (!error_.empty()) return invalid_input(error_);
    return HuggingFaceModel{std::move(family), std::move(arguments_)};
  }

  // The number or boolean as the text of a key; fails at all else.
  std::string text_of(const std::string& name, const json& value) {
    if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
    if (value.is_number_integer()) return value.dump();
    if (value.is_number()) return fmt::format("{}", value.get<double>());
    fail(fmt::format("{} must be a number, found {}", name, shown(value)));
    return "0";
  }

 private:
  void copy(const ConfigRow& row) {
    const json* value = find(row.theirs);
    if (value != nullptr) return add(row.ours, text_of(row.theirs.front(), *value));
    if (row.otherwise.empty()) fail(fmt::format("expected key '{}'", row.theirs.front()));
    if (row.otherwise != kLeftOut) add(row.ours, row.otherwise);
  }

  void translate(const ConfigRow& row) {
    const json* found = find(row.theirs);
    const json value = found != nullptr ? *found : json::parse(row.otherwise);
    Texts known;
    for (const auto& [theirs, ours] : row.values) {
      known.push_back(theirs);
      if (json::parse(theirs) != value) continue;
      for (const std::string& assignment : split_text(ours, ',')) {
        const size_t equals = assignment.find('=');
        if (equals != std::string::npos)
          add(assignment.substr(0, equals), assignment.substr(equals + 1));
      }
      return;
    }
    fail(fmt::format("{} {} is not supported (supported: {})", row.theirs.front(), shown(value),
                     join(known, ", ")));
  }

  const json& config_;
  std::string file_;
  std::string error_;
  ModelArguments arguments_;
};

// A model type: the rows, and what rows cannot say.
struct ModelType {
  std::string name, family, architecture;
  std::vector<ConfigRow> rows;
  void (*read)(const json& config, std::string_view file, ConfigReader& reader) = nullptr;
  // Adds to `out`; the result is why the keys cannot be said, "" if they can.
  std::string (*write)(const Keys& keys, OrderedJson& out) = nullptr;
  Texts own = {};  // keys of ours that `read` and `write` handle
};

// What must be so in every language model that is read.
std::vector<ConfigRow> with(std::vector<ConfigRow> rows, const std::vector<ConfigRow>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

// ---- Llama and its relatives

json number(const std::string& text) { return json::parse(text, nullptr, false); }

struct RotaryType {
  const char* name;
  Texts keys;  // whole numbers
};
const std::vector<RotaryType>& rotary_types() {
  static const std::vector<RotaryType> types = {
      {"default", {}},
      {"linear", {"factor"}},
      {"llama3",
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}};
  return types;
}

// What rope_parameters say beside the base, as values of the key rope_scaling.
void read_scaling(const json& scaling, ConfigReader& rotary, ConfigReader& reader) {
  const json* type = rotary.find({"rope_type", "type"});
  const std::string name = type != nullptr && type->is_string() ? *type : "default";
  Texts known, values;
  for (const RotaryType& one : rotary_types()) {
    known.push_back(fmt::format("\"{}\"", one.name));
    if (name != one.name) continue;
    for (const std::string& key : one.keys) {
      const double value =
          scaling.contains(key) && scaling[key].is_number() ? scaling[key].get<double>() : 0;
      if (value < 1 || value > 1e9 || value != std::floor(value)) {
        return reader.fail(
            fmt::format("rope_parameters: {} must be a whole number of at least 1", key));
      }
      values.push_back(fmt::format("{}", static_cast<int64_t>(value)));
    }
    if (!values.empty()) reader.add("rope_scaling", join(values, "-"));
    return;
  }
  reader.fail(
      fmt::format("rope_type \"{}\" is not supported (supported: {})", name, join(known, ", ")));
}

// transformers 4: rope_theta and rope_scaling; 5: both in the object rope_parameters.
void read_rotary(const json& config, std::string_view file, ConfigReader& reader) {
  const json* scaling = reader.find({"rope_parameters", "rope_scaling"});
  const json nothing = json::object();
  if (scaling != nullptr && !scaling->is_object()) {
    reader.fail(fmt::format("rope_parameters must be an object, found {}", shown(*scaling)));
    return;
  }
  ConfigReader rotary(scaling != nullptr ? *scaling : nothing, file);
  read_scaling(scaling != nullptr ? *scaling : nothing, rotary, reader);
  rotary.read(must_be("partial_rotary_factor", {"1.0"}));
  if (auto status = rotary.finish(""); !status)
    return reader.fail(status.error().message.substr(file.size() + 2));
  const bool inside = scaling != nullptr && scaling->contains("rope_theta");
  ConfigReader theta(inside ? *scaling : config, file);
  theta.read(real("rope_theta", "theta", "10000"));
  reader.add("theta", theta.get("theta"));
  if (auto status = theta.finish(""); !status)
    return reader.fail(status.error().message.substr(file.size() + 2));
}

std::string write_rotary(const Keys& keys, OrderedJson& out) {
  const double theta = number(keys.find("theta")->second).get<double>();
  out["rope_theta"] = theta;
  OrderedJson parameters = {{"rope_type", "default"}, {"rope_theta", theta}};
  const std::string& scaling = keys.find("rope_scaling")->second;
  const Texts values = split_text(scaling, '-');
  for (const RotaryType& type : rotary_types()) {
    if (scaling == "1" || type.keys.size() != values.size()) continue;
    parameters["rope_type"] = type.name;
    for (size_t i = 0; i < values.size(); ++i) {
      const json value = number(values[i]);
      // Factors are real numbers there, positions are not.
      parameters[type.keys[i]] = i < 3 ? json(value.get<double>()) : value;
    }
  }
  out["rope_parameters"] = std::move(parameters);
  return "";
}

// A window of all positions is none.
void read_window(const json& config, std::string_view file, ConfigReader& reader) {
  read_rotary(config, file, reader);
  const json* window = reader.find({"sliding_window"});
  if (window == nullptr) return;
  const std::string text = reader.text_of("sliding_window", *window);
  const json positions = number(reader.get("seq")), size = number(text);
  if (size.is_number() && positions.is_number() && size.get<double>() < positions.get<double>())
    reader.add("window", text);
}

std::string write_window(const Keys& keys, OrderedJson& out) {
  const std::string& window = keys.find("window")->second;
  out["sliding_window"] = window == "0" ? json(nullptr) : number(window);
  return write_rotary(keys, out);
}

// Their mixture drops no token: every expert has a slot for each.
void read_mixtral(const json& config, std::string_view file, ConfigReader& reader) {
  read_window(config, file, reader);
  const json experts = number(reader.get("experts")), top_k = number(reader.get("top_k"));
  if (!experts.is_number() || !top_k.is_number() || top_k.get<double>() < 1) return;
  reader.add("capacity_factor",
             fmt::format("{}", std::max(1.0, experts.get<double>() / top_k.get<double>())));
}

const std::vector<ConfigRow>& decoder_rows() {
  static const std::vector<ConfigRow> rows = {
      same("num_hidden_layers", "layers"),
      same("hidden_size", "hidden"),
      same("num_attention_heads", "heads"),
      same("head_dim", "head_dim", "-"),
      same("max_position_embeddings", "seq"),
      same("vocab_size", "vocab"),
      same("intermediate_size", "ffn"),
      real("rms_norm_eps", "eps", "1e-06"),
      boolean("tie_word_embeddings", "tied", "0"),
      must_be("hidden_act", {"\"silu\"", "\"swish\""}),
      must_be("mlp_bias", {"false"}),
      must_be("partial_rotary_factor", {"1.0"}),
  };
  return rows;
}

const ConfigRow& attention_bias() {
  static const ConfigRow row = {
      {"attention_bias"},
      "",
      "false",
      {{"false", "qkv_bias=0,out_bias=0"}, {"true", "qkv_bias=1,out_bias=1"}}};
  return row;
}

std::vector<ModelType> decoders() {
  const ConfigRow no_bias = must_be("attention_bias", {"false"});
  const ConfigRow no_window = must_be("use_sliding_window", {"false"});
  const ConfigRow kv_heads = same("num_key_value_heads", "kv_heads", "-");
  const ConfigRow eight = same("num_key_value_heads", "kv_heads", "8");
  return {
      {"llama",
       "llama",
       "LlamaForCausalLM",
       with(decoder_rows(), {kv_heads, attention_bias()}),
       read_rotary,
       write_rotary,
       {"theta", "rope_scaling"}},
      {"mistral",
       "llama",
       "MistralForCausalLM",
       with(decoder_rows(), {eight, no_bias}),
       read_window,
       write_window,
       {"theta", "rope_scaling", "window"}},
      {"mixtral",
       "mixtral",
       "MixtralForCausalLM",
       with(decoder_rows(), {eight, no_bias, same("num_local_experts", "experts", "8"),
                             same("num_experts_per_tok", "top_k", "2"),
                             real("router_aux_loss_coef", "balance", "0.001"),
                             must_be("router_jitter_noise", {"0.0"})}),
       read_mixtral,
       write_window,
       {"theta", "rope_scaling", "window"}},
      {"qwen2",
       "llama",
       "Qwen2ForCausalLM",
       with(decoder_rows(), {kv_heads, implied("qkv_bias", "1"), no_window}),
       read_rotary,
       write_rotary,
       {"theta", "rope_scaling"}},
      {"qwen3",
       "llama",
       "Qwen3ForCausalLM",
       with(decoder_rows(), {kv_heads, attention_bias(), implied("qk_norm", "1"), no_window}),
       read_rotary,
       write_rotary,
       {"theta", "rope_scaling"}},
  };
}

// ---- the others

ModelType gpt2() {
  return {"gpt2",
          "gpt",
          "GPT2LMHeadModel",
          {same("n_layer", "layers"),
           same("n_embd", "hidden"),
           same("n_head", "heads"),
           implied("kv_heads", "=heads"),
           {{"n_positions", "n_ctx"}, "seq"},
           same("vocab_size", "vocab"),
           same("n_inner", "ffn", "-"),
           real("layer_norm_epsilon", "eps", "1e-05"),
           boolean("tie_word_embeddings", "tied", "1"),
           must_be("scale_attn_weights", {"true"}),
           must_be("scale_attn_by_inverse_layer_idx", {"false"}),
           must_be("add_cross_attention", {"false"}),
           activation("activation_function", "gelu_new")}};
}

ModelType bert() {
  return {"bert",
          "bert",
          "BertForMaskedLM",
          {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
           same("num_attention_heads", "heads"), same("max_position_embeddings", "seq"),
           same("vocab_size", "vocab"), same("intermediate_size", "ffn"),
           same("type_vocab_size", "types", "2"), real("layer_norm_eps", "eps", "1e-12"),
           must_be("tie_word_embeddings", {"true"}),
           must_be("position_embedding_type", {"\"absolute\""}), must_be("is_decoder", {"false"}),
           must_be("add_cross_attention", {"false"}), activation("hidden_act", "gelu")}};
}

// The number of classes is that of the names of classes.
void read_vit(const json&, std::string_view, ConfigReader& reader) {
  const json* names = reader.find({"id2label"});
  const json* count = reader.find({"num_labels"});
  if (names != nullptr && names->is_object()) {
    reader.add("classes", fmt::format("{}", names->size()));
  } else {
    reader.add("classes", count != nullptr ? reader.text_of("num_labels", *count) : "2");
  }
}

std::string write_vit(const Keys& keys, OrderedJson& out) {
  const auto classes = number(keys.find("classes")->second).get<int64_t>();
  OrderedJson names = OrderedJson::object(), numbers = OrderedJson::object();
  for (int64_t i = 0; i < classes; ++i) {
    const std::string name = fmt::format("LABEL_{}", i);
    names[fmt::format("{}", i)] = name;
    numbers[name] = i;
  }
  out["id2label"] = std::move(names);
  out["label2id"] = std::move(numbers);
  return "";
}

ModelType vit() {
  return {
      "vit",
      "vit",
      "ViTForImageClassification",
      {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
       same("num_attention_heads", "heads"), same("image_size", "image"),
       same("patch_size", "patch"), same("num_channels", "channels", "3"),
       same("intermediate_size", "ffn"), real("layer_norm_eps", "eps", "1e-12"),
       must_be("qkv_bias", {"true"}), implied("pool", "class"), activation("hidden_act", "gelu")},
      read_vit,
      write_vit,
      {"classes"}};
}

// Where the file does not say whether the head's input is divided, it is if the head is tied.
void read_t5(const json&, std::string_view, ConfigReader& reader) {
  const json* decoder = reader.find({"num_decoder_layers"});
  if (decoder != nullptr &&
      reader.text_of("num_decoder_layers", *decoder) != reader.get("layers")) {
    reader.fail(fmt::format("num_decoder_layers {} is not supported (supported: {}, num_layers)",
                            shown(*decoder), reader.get("layers")));
  }
  const json* scaled = reader.find({"scale_decoder_outputs"});
  reader.add("scaled_head", scaled != nullptr ? reader.text_of("scale_decoder_outputs", *scaled)
                                              : reader.get("tied"));
}

std::string write_t5(const Keys& keys, OrderedJson& out) {
  out["num_decoder_layers"] = number(keys.find("layers")->second);
  out["scale_decoder_outputs"] = keys.find("scaled_head")->second == "1";
  return "";
}

ModelType t5() {
  return {"t5",
          "t5",
          "T5ForConditionalGeneration",
          {same("num_layers", "layers"),
           same("d_model", "hidden"),
           same("num_heads", "heads"),
           same("d_kv", "head_dim"),
           same("n_positions", "source", "512"),
           same("n_positions", "seq", "512"),
           same("vocab_size", "vocab"),
           same("d_ff", "ffn"),
           same("relative_attention_num_buckets", "buckets", "32"),
           same("relative_attention_max_distance", "max_distance", "128"),
           real("layer_norm_epsilon", "eps", "1e-06"),
           boolean("tie_word_embeddings", "tied", "1"),
           {{"feed_forward_proj"},
            "",
            "\"relu\"",
            {{"\"relu\"", "gated=0,activation=relu"},
             {"\"gelu\"", "gated=0,activation=gelu_erf"},
             {"\"silu\"", "gated=0,activation=silu"},
             {"\"gelu_new\"", "gated=0,activation=gelu"},
             {"\"gated-gelu\"", "gated=1,activation=gelu"},
             {"\"gated-silu\"", "gated=1,activation=silu"},
             {"\"gated-relu\"", "gated=1,activation=relu"}}},
           implied("scaled_scores", "0")},
          read_t5,
          write_t5,
          {"scaled_head"}};
}

const std::vector<ModelType>& model_types() {
  static const std::vector<ModelType> types = [] {
    std::vector<ModelType> all = {gpt2()};
    for (ModelType& type : decoders()) all.push_back(std::move(type));
    all.insert(all.end(), {bert(), vit(), t5()});
    return all;
  }();
  return types;
}

// ---- writing

// What matters in training only.
const std::set<std::string, std::less<>>& keys_of_use() {
  static const std::set<std::string, std::less<>> keys = {
      "dtype",        "eod", "dropout", "attention_dropout", "masked", "capacity_factor",
      "weigh_inside", "seq", "source"};
  return keys;
}

bool holds(const Keys& keys, const std::string& assignments) {
  for (const std::string& assignment : split_text(assignments, ',')) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) continue;
    const auto key = keys.find(assignment.substr(0, equals));
    if (key == keys.end() || key->second != assignment.substr(equals + 1)) return false;
  }
  return true;
}

// Their spelling of a value of ours.
json their_value(const ConfigRow& row, const std::string& value) {
  switch (row.written) {
    case Written::kInteger: return number(value);
    case Written::kReal: return number(value).get<double>();
    case Written::kBoolean: return value == "1";
  }
  return nullptr;
}

// "" if the row can say the keys; what it says is in `out`, and the keys it speaks of in `said`.
std::string write_row(const ConfigRow& row, const Keys& keys, OrderedJson& out,
                      std::set<std::string>& said) {
  if (row.values.empty()) {
    said.insert(row.ours);
    const std::string& value = keys.find(row.ours)->second;
    if (!row.theirs.empty()) {
      if (!out.contains(row.theirs.front())) out[row.theirs.front()] = their_value(row, value);
      return "";
    }
    const bool other = row.otherwise.starts_with('=');
    const std::string expected = other ? keys.find(row.otherwise.substr(1))->second : row.otherwise;
    return value == expected ? "" : fmt::format("{}={}, found {}", row.ours, expected, value);
  }
  for (const auto& [theirs, ours] : row.values) {
    for (const std::string& assignment : split_text(ours, ','))
      said.insert(assignment.substr(0, assignment.find('=')));
    if (!holds(keys, ours)) continue;
    out[row.theirs.front()] = json::parse(theirs);
    return "";
  }
  std::string spoken;
  for (const std::string& assignment : split_text(row.values.front().second, ',')) {
    const std::string key = assignment.substr(0, assignment.find('='));
    spoken += fmt::format("{}{}={}", spoken.empty() ? "" : ",", key, keys.find(key)->second);
  }
  return fmt::format("a {} for {}, found none", row.theirs.front(), spoken);
}

// "" if the type can say the keys.
std::string write_type(const ModelType& type, const Keys& keys, OrderedJson& out) {
  out["architectures"] = {type.architecture};
  out["model_type"] = type.name;
  std::set<std::string> said(type.own.begin(), type.own.end());
  for (const ConfigRow& row : type.rows) {
    if (std::string why = write_row(row, keys, out, said); !why.empty()) return why;
  }
  for (const ModelKeyText& key : find_family(type.family)->keys) {
    const std::string& value = keys.find(key.name)->second;
    if (value != key.value && !said.contains(key.name) && !keys_of_use().contains(key.name))
      return fmt::format("{}={}, found {}", key.name, key.value, value);
  }
  return type.write == nullptr ? "" : type.write(keys, out);
}

}  // namespace

std::vector<std::string> huggingface_model_types() {
  std::vector<std::string> names;
  for (const ModelType& type : model_types()) names.push_back(type.name);
  return names;
}

Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file) {
  const std::optional<json> parsed = parse_json(text);
  if (!parsed || !parsed->is_object()) {
    return invalid_input(
        fmt::format("{}: expected a JSON object (a Hugging Face config.json)", file));
  }
  const json& config = *parsed;
  const auto name_at = config.find("model_type");
  const std::string name =
      name_at != config.end() && name_at->is_string() ? name_at->get<std::string>() : "";
  for (const ModelType& type : model_types()) {
    if (type.name != name) continue;
    ConfigReader reader(config, file);
    for (const ConfigRow& row : type.rows) reader.read(row);
    if (type.read != nullptr) type.read(config, file, reader);
    return reader.finish(type.family);
  }
  return invalid_input(fmt::format("{}: model_type '{}' is not supported (supported: {})", file,
                                   short_line(name, 60), join(huggingface_model_types(), ", ")));
}

Result<std::string> huggingface_config(std::string_view spec, DType dtype) {
  TESSERA_TRY(const Call call, parse_call(spec));
  const Keys keys(call.arguments.begin(), call.arguments.end());
  Texts reasons;
  for (const ModelType& type : model_types()) {
    if (type.family != call.name) continue;
    OrderedJson out;
    const std::string why = write_type(type, keys, out);
    if (why.empty()) {
      out["dtype"] = dtype_name(dtype);
      return out.dump(2) + "\n";
    }
    reasons.push_back(fmt::format("{} has {}", type.name, why));
  }
  if (reasons.empty()) {
    return invalid_input(
        fmt::format("model '{}': expected a family of one of Hugging Face's model types {}",
                    call.name, join(huggingface_model_types(), ", ")));
  }
  return invalid_input(fmt::format("model '{}': expected what a model type of Hugging Face has: {}",
                                   call.name, join(reasons, "; ")));
}

}  // namespace tessera
