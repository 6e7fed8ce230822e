#include "tessera/models/huggingface.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/json_text.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/models/families.h"
#include "tessera/models/huggingface_defaults.h"

namespace tessera {
namespace {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using Texts = std::vector<std::string>;
using Keys = std::map<std::string, std::string, std::less<>>;  // keys of ours with their values

// One key of a config.json ("theirs") and the keys of our family ("ours") that it sets. If the file
// lacks the key, its value is the default of the model type in transformers
// (huggingface_defaults.h), or without one `otherwise` (JSON). The forms of a row are:
//   {"n_layer", "layers"}                        a number or boolean, equal in ours
//   {"n_inner", "ffn", "", true}                 a number; if it is null, ours is computed
//   {"act", "", "", false, {{"\"gelu\"", "activation=gelu_erf"}, ...}}
//                                                the allowed values (JSON), each with the keys of
//                                                ours that it sets; "": it sets none
//   {"", "qkv_bias", "1"}                        no key of theirs: ours has this value, or that of
//                                                another key of ours ("=heads")
enum class Written : uint8_t { kInteger, kReal, kBoolean };
struct ConfigRow {
  std::string theirs, ours;
  std::string otherwise = "";
  bool may_be_null = false;
  std::vector<std::pair<std::string, std::string>> values = {};
  Written written = Written::kInteger;
};

ConfigRow must_be(std::string theirs, const Texts& values, std::string otherwise = "") {
  ConfigRow row{std::move(theirs), "", std::move(otherwise)};
  for (const std::string& value : values) row.values.emplace_back(value, "");
  return row;
}
ConfigRow same(std::string theirs, std::string ours, std::string otherwise = "") {
  return {std::move(theirs), std::move(ours), std::move(otherwise)};
}
ConfigRow same_or_null(std::string theirs, std::string ours, std::string otherwise = "") {
  return {std::move(theirs), std::move(ours), std::move(otherwise), true};
}
ConfigRow real(std::string theirs, std::string ours) {
  return {std::move(theirs), std::move(ours), "", false, {}, Written::kReal};
}
ConfigRow boolean(std::string theirs, std::string ours) {
  return {std::move(theirs), std::move(ours), "", false, {}, Written::kBoolean};
}
ConfigRow implied(std::string ours, std::string value) {
  return {"", std::move(ours), std::move(value)};
}
// Returns the row of an activation. If it has several names, the first is written.
ConfigRow activation(std::string theirs) {
  return {std::move(theirs),
          "",
          "",
          false,
          {{"\"gelu_new\"", "activation=gelu"},
           {"\"gelu_pytorch_tanh\"", "activation=gelu"},
           {"\"gelu\"", "activation=gelu_erf"},
           {"\"relu\"", "activation=relu"},
           {"\"silu\"", "activation=silu"},
           {"\"swish\"", "activation=silu"}}};
}

// Returns the part of huggingface_defaults() for a model type.
const json& defaults_of(const std::string& type) {
  static const json all = json::parse(huggingface_defaults());
  return all[type];
}
constexpr const char* kOtherNames = "(other names)";

// Looks keys up in the configuration and keeps the first error.
class ConfigReader {
 public:
  ConfigReader(const json& config, const std::string& type, std::string_view file)
      : config_(config), defaults_(defaults_of(type)), file_(file) {}

  // Returns the value that the file gives a key; it may be null. A value under the key's second
  // name comes first, as in transformers. Returns a null pointer if the file has none.
  const json* given(const std::string& key) {
    asked_.insert(key);
    for (const auto& [other, name] : defaults_[kOtherNames].items()) {
      if (name == key && config_.contains(other)) return &config_[other];
    }
    const auto at = config_.find(key);
    return at == config_.end() ? nullptr : &*at;
  }
  // Returns the file's value, else the type's default, else `otherwise` (JSON).
  json value(const std::string& key, const std::string& otherwise = "") {
    if (const json* found = given(key)) return *found;
    if (const auto at = defaults_.find(key); at != defaults_.end()) return *at;
    TESSERA_CHECK(!otherwise.empty(), "no default of {}", key);
    return json::parse(otherwise);
  }
  const std::set<std::string>& asked() const { return asked_; }

  void read(const ConfigRow& row) {
    if (row.theirs.empty()) {
      if (!row.otherwise.starts_with('=')) add(row.ours, row.otherwise);
    } else if (row.values.empty()) {
      const json found = value(row.theirs, row.otherwise);
      if (!found.is_null() || !row.may_be_null) add(row.ours, text_of(row.theirs, found));
    } else {
      translate(row, value(row.theirs, row.otherwise));
    }
  }
  // Adds the keys of ours that a row gives for the value `found`.
  void translate(const ConfigRow& row, const json& found) {
    Texts known;
    for (const auto& [theirs, ours] : row.values) {
      known.push_back(theirs);
      if (json::parse(theirs) != found) continue;
      for (const std::string& assignment : split_text(ours, ',')) {
        const size_t equals = assignment.find('=');
        if (equals != std::string::npos)
          add(assignment.substr(0, equals), assignment.substr(equals + 1));
      }
      return;
    }
    unsupported(row.theirs, found, join(known, ", "));
  }

  void add(const std::string& key, const std::string& value) {
    arguments_.emplace_back(key, value);
  }
  // Returns the last value added for a key, which overrides earlier ones, or "".
  std::string get(std::string_view key) const {
    std::string found;
    for (const auto& [name, value] : arguments_) {
      if (name == key) found = value;
    }
    return found;
  }
  void fail(const std::string& message) {
    if (error_.empty()) error_ = fmt::format("{}: {}", file_, short_line(message));
  }
  void unsupported(const std::string& key, const json& found, std::string_view known) {
    fail(fmt::format("{} {} is not supported (supported: {})", key, shown(found), known));
  }
  Result<HuggingFaceModel> finish(std::string family) {
    if (!error_.empty()) return invalid_input(error_);
    return HuggingFaceModel{std::move(family), std::move(arguments_)};
  }

  // Returns a number or boolean as the text of a key of ours. Fails for other values.
  std::string text_of(const std::string& name, const json& value) {
    if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
    if (value.is_number_integer()) return value.dump();
    if (value.is_number()) return fmt::format("{}", value.get<double>());
    fail(fmt::format("{} must be a number, found {}", name, shown(value)));
    return "0";
  }

 private:
  const json& config_;
  const json& defaults_;
  std::string file_;
  std::string error_;
  ModelArguments arguments_;
  std::set<std::string> asked_;
};

// A model type: its rows, and functions for what the rows cannot express.
struct ModelType {
  std::string name, family, architecture;
  std::vector<ConfigRow> rows;
  void (*read)(ConfigReader& reader) = nullptr;
  // Adds to `out` what rows do not express.
  void (*write)(const Keys& keys, OrderedJson& out) = nullptr;
  // Adds to `out` the keys that transformers 4 and 5 spell in two ways, in both spellings.
  void (*spell)(const Keys& keys, OrderedJson& out) = nullptr;
  Texts own = {};  // keys of ours that the functions handle, in addition to the rows
};

std::vector<ConfigRow> with(std::vector<ConfigRow> rows, const std::vector<ConfigRow>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

// ---- Llama and its relatives

json number(const std::string& text) { return json::parse(text, nullptr, false); }
const std::string& of(const Keys& keys, std::string_view key) { return keys.find(key)->second; }

struct RotaryType {
  const char* name;
  Texts keys;  // names of the numbers that the type has
};
constexpr const char* kFirstPositions = "original_max_position_embeddings";
const std::vector<RotaryType>& rotary_types() {
  static const std::vector<RotaryType> types = {
      {"default", {}},
      {"linear", {"factor"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", kFirstPositions}}};
  return types;
}

// Reads rope_parameters except the base, as values of our key rope_scaling. The number of positions
// of the first training may be outside the object. If it is missing, it is that of all positions.
void read_scaling(const json& rotary, ConfigReader& reader) {
  const json type = rotary.value("rope_type", rotary.value("type", json("default")));
  const json* outside = reader.given(kFirstPositions);
  Texts known, values;
  for (const RotaryType& one : rotary_types()) {
    known.push_back(fmt::format("\"{}\"", one.name));
    if (type != one.name) continue;
    for (const std::string& key : one.keys) {
      json found = rotary.value(key, json(nullptr));
      if (key == kFirstPositions && outside != nullptr && !outside->is_null()) found = *outside;
      if (key == kFirstPositions && found.is_null()) found = number(reader.get("seq"));
      const double value = found.is_number() ? found.get<double>() : 0;
      if (value < 1 || value > 1e9 || value != std::floor(value)) {
        return reader.fail(
            fmt::format("rope_parameters: {} must be a whole number of at least 1", key));
      }
      values.push_back(fmt::format("{}", static_cast<int64_t>(value)));
    }
    if (!values.empty()) reader.add("rope_scaling", join(values, "-"));
    return;
  }
  reader.unsupported("rope_type", type, join(known, ", "));
}

// Reads rope_theta and rope_scaling (transformers 4), or both in the object rope_parameters
// (transformers 5). If a file has both spellings, rope_scaling is read, unless it is empty.
void read_rotary(ConfigReader& reader) {
  const json* old = reader.given("rope_scaling");
  json rotary = reader.value("rope_parameters");
  if (old != nullptr && !old->is_null() && !old->empty()) rotary = *old;
  if (rotary.is_null()) rotary = json::object();
  if (!rotary.is_object())
    return reader.fail(fmt::format("rope_parameters must be an object, found {}", shown(rotary)));
  for (const auto& [key, value] : rotary.items()) {
    if (value.is_object()) {
      return reader.fail(fmt::format(
          "rope_parameters: expected one object for all layers, found one for '{}'", key));
    }
  }
  read_scaling(rotary, reader);
  const json part = reader.value("partial_rotary_factor", "1.0");
  reader.translate(must_be("partial_rotary_factor", {"1.0"}),
                   rotary.value("partial_rotary_factor", part));
  const json theta = reader.value("rope_theta");
  reader.add("theta", reader.text_of("rope_theta", rotary.value("rope_theta", theta)));
}

void spell_rotary(const Keys& keys, OrderedJson& out) {
  const double theta = number(of(keys, "theta")).get<double>();
  OrderedJson parameters = {{"rope_type", "default"}};
  const Texts values = split_text(of(keys, "rope_scaling"), '-');
  for (const RotaryType& type : rotary_types()) {
    if (values == Texts{"1"} || type.keys.size() != values.size()) continue;
    parameters["rope_type"] = type.name;
    for (size_t i = 0; i < values.size(); ++i) {
      const json value = number(values[i]);
      // In such files factors are written as real numbers, positions as integers.
      parameters[type.keys[i]] =
          type.keys[i] == kFirstPositions ? value : json(value.get<double>());
    }
  }
  out["rope_theta"] = theta;
  if (parameters.size() > 1) {
    out["rope_scaling"] = parameters;
  } else {
    out.erase("rope_scaling");
  }
  parameters["rope_theta"] = theta;
  out["rope_parameters"] = std::move(parameters);
}

// Adds the window to our keys. Null means that there is no window.
void add_window(const json& window, ConfigReader& reader) {
  if (window.is_null()) return;
  const json size = number(reader.text_of("sliding_window", window));
  if (size.get<double>() < 1)
    return reader.unsupported("sliding_window", window, "null, 1, 2, ...");
  reader.add("window", size.dump());
}

json window_of(const Keys& keys) {
  const std::string& window = of(keys, "window");
  return window == "0" ? json(nullptr) : number(window);
}

void read_window(ConfigReader& reader) {
  read_rotary(reader);
  add_window(reader.value("sliding_window"), reader);
}

void write_window(const Keys& keys, OrderedJson& out) { out["sliding_window"] = window_of(keys); }

// Reads a window that all layers have or none. Which layers have one is given by layer_types, or
// without that by max_window_layers, the number of the first layer with a window.
void read_layer_windows(ConfigReader& reader) {
  read_rotary(reader);
  const json uses = reader.value("use_sliding_window"), given = reader.value("layer_types");
  const json window = reader.value("sliding_window"), first = reader.value("max_window_layers");
  const json count = number(reader.get("layers"));
  if (!uses.is_boolean()) return reader.unsupported("use_sliding_window", uses, "true, false");
  if (!first.is_number_integer() || !count.is_number_integer())
    return reader.unsupported("max_window_layers", first, "a whole number");
  const auto layers = count.get<int64_t>();
  if (layers < 1) return;  // the family reports the error
  const bool windows = uses.get<bool>() && !window.is_null();
  int64_t with_window = windows ? layers - std::clamp<int64_t>(first.get<int64_t>(), 0, layers) : 0;
  if (!given.is_null()) {
    const auto named = [&](const char* name) {
      return given.is_array() ? std::count(given.begin(), given.end(), json(name)) : 0;
    };
    with_window = named("sliding_attention");
    if (with_window + named("full_attention") != layers ||
        static_cast<int64_t>(given.size()) != layers) {
      return reader.fail(fmt::format(
          "layer_types: expected \"full_attention\" or \"sliding_attention\" for each of {} layers",
          layers));
    }
  }
  if (with_window == 0) return;
  if (with_window < layers || !windows) {
    return reader.fail(
        fmt::format("sliding_window: expected a window in each layer or in none, found {} in {} of "
                    "{} layers",
                    windows ? "one" : "none", with_window, layers));
  }
  add_window(window, reader);
}

void write_layer_windows(const Keys& keys, OrderedJson& out) {
  const json window = window_of(keys), layers = number(of(keys, "layers"));
  const bool windows = !window.is_null();
  out["use_sliding_window"] = windows;
  out["sliding_window"] = window;
  out["max_window_layers"] = windows ? json(0) : layers;
  out["layer_types"] = std::vector<std::string>(layers.get<size_t>(),
                                                windows ? "sliding_attention" : "full_attention");
}

// Reads a mixture of experts. Their model drops no token, so our capacity gives every expert a slot
// for each token. Their balance loss is one number over the tokens of all layers, top_k if all
// experts get equally many, and counts only with output_router_logits. Ours is added for each
// layer, and is 1 if all experts get equally many, so the coefficient is converted.
void read_mixtral(ConfigReader& reader) {
  read_window(reader);
  const json experts = number(reader.get("experts")), top_k = number(reader.get("top_k")),
             layers = number(reader.get("layers"));
  const json asked = reader.value("output_router_logits");
  if (!asked.is_boolean()) return reader.unsupported("output_router_logits", asked, "true, false");
  const json balance =
      number(reader.text_of("router_aux_loss_coef", reader.value("router_aux_loss_coef")));
  for (const json* value : {&experts, &top_k, &layers}) {
    if (!value->is_number() || value->get<double>() < 1) return;  // the family reports the error
  }
  reader.add("capacity_factor",
             fmt::format("{}", std::max(1.0, experts.get<double>() / top_k.get<double>())));
  const double each =
      asked.get<bool>() ? balance.get<double>() * (top_k.get<double>() / layers.get<double>()) : 0;
  reader.add("balance", fmt::format("{}", each));
}

void write_mixtral(const Keys& keys, OrderedJson& out) {
  const double balance = number(of(keys, "balance")).get<double>();
  out["output_router_logits"] = balance > 0;
  out["router_aux_loss_coef"] = balance / (number(of(keys, "top_k")).get<double>() /
                                           number(of(keys, "layers")).get<double>());
  write_window(keys, out);
}

const std::vector<ConfigRow>& decoder_rows() {
  static const std::vector<ConfigRow> rows = {
      same("num_hidden_layers", "layers"),     same("hidden_size", "hidden"),
      same("num_attention_heads", "heads"),    same_or_null("num_key_value_heads", "kv_heads"),
      same("max_position_embeddings", "seq"),  same("vocab_size", "vocab"),
      same("intermediate_size", "ffn"),        real("rms_norm_eps", "eps"),
      boolean("tie_word_embeddings", "tied"),  must_be("hidden_act", {"\"silu\"", "\"swish\""}),
      must_be("mlp_bias", {"false"}, "false"), must_be("is_causal", {"true"}, "true"),
  };
  return rows;
}

const ConfigRow& attention_bias() {
  static const ConfigRow row = {
      "attention_bias",
      "",
      "",
      false,
      {{"false", "qkv_bias=0,out_bias=0"}, {"true", "qkv_bias=1,out_bias=1"}}};
  return row;
}

std::vector<ModelType> decoders() {
  const ConfigRow no_bias = must_be("attention_bias", {"false"}, "false");
  const ConfigRow head_dim = same_or_null("head_dim", "head_dim", "null");
  const Texts rotary = {"theta", "rope_scaling"}, windows = {"theta", "rope_scaling", "window"};
  return {
      {"llama", "llama", "LlamaForCausalLM", with(decoder_rows(), {head_dim, attention_bias()}),
       read_rotary, nullptr, spell_rotary, rotary},
      {"mistral", "llama", "MistralForCausalLM", with(decoder_rows(), {head_dim, no_bias}),
       read_window, write_window, spell_rotary, windows},
      {"mixtral",
       "mixtral",
       "MixtralForCausalLM",
       with(decoder_rows(), {head_dim, no_bias, same("num_local_experts", "experts"),
                             same("num_experts_per_tok", "top_k"), implied("normalize", "1"),
                             must_be("router_jitter_noise", {"0.0"})}),
       read_mixtral,
       write_mixtral,
       spell_rotary,
       {"theta", "rope_scaling", "window", "balance"}},
      {"qwen2", "llama", "Qwen2ForCausalLM",
       with(decoder_rows(), {head_dim, implied("qkv_bias", "1")}), read_layer_windows,
       write_layer_windows, spell_rotary, windows},
      {"qwen3", "llama", "Qwen3ForCausalLM",
       with(decoder_rows(),
            {same("head_dim", "head_dim"), attention_bias(), implied("qk_norm", "1")}),
       read_layer_windows, write_layer_windows, spell_rotary, windows},
  };
}

// ---- the other model types

ModelType gpt2() {
  return {"gpt2",
          "gpt",
          "GPT2LMHeadModel",
          {same("n_layer", "layers"), same("n_embd", "hidden"), same("n_head", "heads"),
           implied("kv_heads", "=heads"), same("n_positions", "seq"), same("vocab_size", "vocab"),
           same_or_null("n_inner", "ffn"), real("layer_norm_epsilon", "eps"),
           boolean("tie_word_embeddings", "tied"), must_be("scale_attn_weights", {"true"}),
           must_be("scale_attn_by_inverse_layer_idx", {"false"}),
           must_be("add_cross_attention", {"false"}), must_be("is_causal", {"true"}, "true"),
           activation("activation_function")}};
}

ModelType bert() {
  return {"bert",
          "bert",
          "BertForMaskedLM",
          {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
           same("num_attention_heads", "heads"), same("max_position_embeddings", "seq"),
           same("vocab_size", "vocab"), same("intermediate_size", "ffn"),
           same("type_vocab_size", "types"), real("layer_norm_eps", "eps"),
           same_or_null("mask_token_id", "mask", "null"), must_be("tie_word_embeddings", {"true"}),
           must_be("position_embedding_type", {"\"absolute\""}, "\"absolute\""),
           must_be("is_decoder", {"false"}), must_be("add_cross_attention", {"false"}),
           activation("hidden_act")}};
}

// Reads the number of classes: the number of names in id2label, or num_labels, or without both 2. A
// single class is refused, because transformers then uses the loss of a regression.
void read_vit(ConfigReader& reader) {
  const json names = reader.value("id2label"), count = reader.value("num_labels", "null");
  const bool named = names.is_object();
  const std::string classes = named             ? fmt::format("{}", names.size())
                              : count.is_null() ? "2"
                                                : reader.text_of("num_labels", count);
  if (named && !count.is_null() && reader.text_of("num_labels", count) != classes)
    return reader.unsupported("num_labels", count, classes + ", names in id2label");
  if (classes == "1") return reader.unsupported("num_labels", 1, "2, 3, ...");
  reader.add("classes", classes);
}

void write_vit(const Keys& keys, OrderedJson& out) {
  const auto classes = number(of(keys, "classes")).get<int64_t>();
  OrderedJson names = OrderedJson::object(), numbers = OrderedJson::object();
  for (int64_t i = 0; i < classes; ++i) {
    const std::string name = fmt::format("LABEL_{}", i);
    names[fmt::format("{}", i)] = name;
    numbers[name] = i;
  }
  out["id2label"] = std::move(names);
  out["label2id"] = std::move(numbers);
}

ModelType vit() {
  return {"vit",
          "vit",
          "ViTForImageClassification",
          {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
           same("num_attention_heads", "heads"), same("image_size", "image"),
           same("patch_size", "patch"), same("num_channels", "channels"),
           same("intermediate_size", "ffn"), real("layer_norm_eps", "eps"),
           must_be("qkv_bias", {"true"}),
           must_be("problem_type", {"null", "\"single_label_classification\""}),
           implied("pool", "class"), activation("hidden_act")},
          read_vit,
          write_vit,
          nullptr,
          {"classes"}};
}

// Reads T5. If the file does not say whether the head's input is divided, a tied head divides it.
// Keys that older versions derived from feed_forward_proj are read if the file has them.
void read_t5(ConfigReader& reader) {
  const json layers = number(reader.get("layers")), decoder = reader.value("num_decoder_layers");
  if (!decoder.is_null() && decoder != layers)
    reader.unsupported("num_decoder_layers", decoder, reader.get("layers") + ", num_layers");
  if (reader.get("scaled_head").empty()) reader.add("scaled_head", reader.get("tied"));
  if (reader.given("dense_act_fn") != nullptr) reader.read(activation("dense_act_fn"));
  if (reader.given("is_gated_act") != nullptr) reader.read(boolean("is_gated_act", "gated"));
}

void write_t5(const Keys& keys, OrderedJson& out) {
  out["num_decoder_layers"] = number(of(keys, "layers"));
}

// Spells whether the head's input is divided. transformers 4 divides it if the head is tied, 5 if
// scale_decoder_outputs is true; 5 also ties the head if the file has no other head.
void spell_t5(const Keys& keys, OrderedJson& out) {
  const bool scaled = of(keys, "scaled_head") == "1";
  out["scale_decoder_outputs"] = scaled;
  out["tie_word_embeddings"] = scaled;
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
           same("relative_attention_num_buckets", "buckets"),
           same("relative_attention_max_distance", "max_distance"),
           real("layer_norm_epsilon", "eps"),
           {"tie_word_embeddings",
            "",
            "true",
            false,
            {{"true", "tied=1"}, {"false", "tied=0"}, {"null", "tied=1"}}},
           {"scale_decoder_outputs", "scaled_head", "null", true, {}, Written::kBoolean},
           must_be("is_causal", {"true"}, "true"),
           {"feed_forward_proj",
            "",
            "",
            false,
            {{"\"relu\"", "gated=0,activation=relu"},
             {"\"gelu\"", "gated=0,activation=gelu_erf"},
             {"\"silu\"", "gated=0,activation=silu"},
             {"\"gelu_new\"", "gated=0,activation=gelu"},
             {"\"gated-gelu\"", "gated=1,activation=gelu"},
             {"\"gated-gelu_new\"", "gated=1,activation=gelu"},
             {"\"gated-silu\"", "gated=1,activation=silu"},
             {"\"gated-relu\"", "gated=1,activation=relu"}}},
           implied("scaled_scores", "0")},
          read_t5,
          write_t5,
          spell_t5};
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

// Returns our keys that do not change the function of a trained model.
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

// Returns the JSON value by which their file expresses a value of ours.
json their_value(const ConfigRow& row, const std::string& value) {
  switch (row.written) {
    case Written::kInteger: return number(value);
    case Written::kReal: return number(value).get<double>();
    case Written::kBoolean: return value == "1";
  }
  return nullptr;
}

// Writes the key of a row to `out`, and adds our keys that the row covers to `said`. Returns "" if
// the row can express our values, else what would be needed.
std::string write_row(const ConfigRow& row, const Keys& keys, OrderedJson& out,
                      std::set<std::string>& said) {
  if (row.values.empty()) {
    said.insert(row.ours);
    const std::string& value = of(keys, row.ours);
    if (!row.theirs.empty()) {
      if (!out.contains(row.theirs)) out[row.theirs] = their_value(row, value);
      return "";
    }
    const bool other = row.otherwise.starts_with('=');
    const std::string expected = other ? of(keys, row.otherwise.substr(1)) : row.otherwise;
    return value == expected ? "" : fmt::format("{}={}, found {}", row.ours, expected, value);
  }
  for (const auto& [theirs, ours] : row.values) {
    for (const std::string& assignment : split_text(ours, ','))
      said.insert(assignment.substr(0, assignment.find('=')));
    if (!holds(keys, ours)) continue;
    // A key need not be written if the type's class lacks it and its value is the only allowed one.
    if (!ours.empty() || row.otherwise.empty()) out[row.theirs] = json::parse(theirs);
    return "";
  }
  std::string spoken;
  for (const std::string& assignment : split_text(row.values.front().second, ',')) {
    const std::string key = assignment.substr(0, assignment.find('='));
    spoken += fmt::format("{}{}={}", spoken.empty() ? "" : ",", key, of(keys, key));
  }
  return fmt::format("a {} for {}, found none", row.theirs, spoken);
}

// Writes the keys to `out`. Returns "" if the type can express them, else why not.
std::string write_type(const ModelType& type, const Keys& keys, OrderedJson& out) {
  out["architectures"] = {type.architecture};
  out["model_type"] = type.name;
  std::set<std::string> said(type.own.begin(), type.own.end());
  for (const ConfigRow& row : type.rows) {
    if (std::string why = write_row(row, keys, out, said); !why.empty()) return why;
  }
  for (const ModelKeyText& key : find_family(type.family)->keys) {
    const std::string& value = of(keys, key.name);
    if (value != key.value && !said.contains(key.name) && !keys_of_use().contains(key.name))
      return fmt::format("{}={}, found {}", key.name, key.value, value);
  }
  if (type.write != nullptr) type.write(keys, out);
  if (type.spell != nullptr) type.spell(keys, out);
  return "";
}

// Sets the key of theirs that expresses this key of ours. Returns false if there is none.
bool set_key(const ModelType& type, const std::string& key, const std::string& value,
             OrderedJson& out) {
  const std::string said = fmt::format("{}={}", key, value);
  for (const ConfigRow& row : type.rows) {
    if (row.theirs.empty()) continue;
    if (row.ours == key) return out[row.theirs] = their_value(row, value), true;
    for (const auto& [theirs, ours] : row.values) {
      if (ours != said) continue;
      out[row.theirs] = json::parse(theirs);
      return true;
    }
  }
  return false;
}

tl::unexpected<Error> no_object(std::string_view file) {
  return invalid_input(
      fmt::format("{}: expected a JSON object (a Hugging Face config.json)", file));
}

// Returns the model type that the file names, or null if it is none of the types that can be read.
template <class Json>
const ModelType* type_of(const Json& config) {
  const auto at = config.find("model_type");
  for (const ModelType& type : model_types()) {
    if (at != config.end() && *at == type.name) return &type;
  }
  return nullptr;
}

void read_all(const ModelType& type, ConfigReader& reader) {
  for (const ConfigRow& row : type.rows) reader.read(row);
  if (type.read != nullptr) type.read(reader);
}

Result<Keys> keys_of(std::string_view text, std::string_view file) {
  TESSERA_TRY(HuggingFaceModel model, parse_huggingface_config(text, file));
  Keys keys;
  for (auto& [key, value] : model.arguments) keys[key] = std::move(value);
  return keys;
}

}  // namespace

std::vector<std::string> huggingface_model_types() {
  std::vector<std::string> names;
  for (const ModelType& type : model_types()) names.push_back(type.name);
  return names;
}

std::vector<std::string> huggingface_keys(const std::string& model_type) {
  const json config = {{"model_type", model_type}};
  const ModelType* type = type_of(config);
  TESSERA_CHECK(type != nullptr, "model type {}", model_type);
  ConfigReader reader(config, type->name, "");
  read_all(*type, reader);
  return {reader.asked().begin(), reader.asked().end()};
}

Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file) {
  const std::optional<json> parsed = parse_json(text);
  if (!parsed || !parsed->is_object()) return no_object(file);
  const json& config = *parsed;
  if (const ModelType* type = type_of(config); type != nullptr) {
    ConfigReader reader(config, type->name, file);
    read_all(*type, reader);
    return reader.finish(type->family);
  }
  const auto at = config.find("model_type");
  const std::string name = at != config.end() && at->is_string() ? at->get<std::string>() : "";
  return invalid_input(fmt::format("{}: model_type '{}' is not supported (supported: {})", file,
                                   short_line(name, 60), join(huggingface_model_types(), ", ")));
}

Result<std::string> change_huggingface_config(std::string_view text, std::string_view file,
                                              const ModelArguments& changes) {
  TESSERA_TRY(Keys wanted, keys_of(text, file));
  for (const auto& [key, value] : changes) wanted[key] = value;
  auto parsed = parse_ordered_json(text);
  const ModelType* type = parsed && parsed->is_object() ? type_of(*parsed) : nullptr;
  if (type == nullptr) return no_object(file);
  ModelArguments next = changes;  // in later passes: keys whose values changed as a result
  for (int pass = 0; pass < 3 && !next.empty(); ++pass) {
    for (const auto& [key, value] : next) {
      if (!set_key(*type, key, value, *parsed)) break;
    }
    next.clear();
    TESSERA_TRY(const Keys found, keys_of(parsed->dump(), file));
    for (const auto& [key, value] : wanted) {
      const auto at = found.find(key);
      if (at == found.end() || at->second != value) next.emplace_back(key, value);
    }
  }
  if (!next.empty()) {
    return invalid_input(fmt::format("{}: expected keys that can say {}={}, found none", file,
                                     next.front().first, next.front().second));
  }
  return parsed->dump(2) + "\n";
}

Result<std::string> spell_huggingface_config(std::string_view text, std::string_view file,
                                             std::string_view spec, DType dtype) {
  TESSERA_TRY(const Call call, parse_call(spec));
  const Keys keys(call.arguments.begin(), call.arguments.end());
  const auto parsed = parse_ordered_json(text);
  const ModelType* type = parsed && parsed->is_object() ? type_of(*parsed) : nullptr;
  if (type == nullptr) return no_object(file);
  OrderedJson out = *parsed;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (out.contains(key)) out[key] = dtype_name(dtype);
  }
  // One version of transformers may know only the first name, so both are written.
  for (const auto& [other, name] : defaults_of(type->name)[kOtherNames].items())
    if (out.contains(other)) out[name.get<std::string>()] = out[other];
  if (type->spell != nullptr) type->spell(keys, out);
  return out == *parsed ? std::string(text) : out.dump(2) + "\n";
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
