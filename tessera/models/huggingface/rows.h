// The tables with which Hugging Face's `config.json` is read and written (models/huggingface/huggingface.h), and
// the reader that applies them. A model type is a row of model_types(): its family, its rows of
// keys, and functions for what rows cannot express.
//
//   {"llama", "llama", "LlamaForCausalLM", {same("hidden_size", "hidden"), ...}, read_rotary}
//
// What our models cannot say exactly is said in plain sentences ("queries and keys are normed by
// head, not over all heads"), which planning commands print and others turn into an error.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/models/config.h"
#include "tessera/models/huggingface/read_model.h"

namespace tessera::huggingface {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
using Texts = std::vector<std::string>;
using Keys = std::map<std::string, std::string, std::less<>>;  // keys of ours with their values

// One key of a config.json ("theirs") and the keys of our family ("ours") that it sets. If the file
// lacks the key, its value is the default of the model type in transformers
// (huggingface_defaults.h), or without one `otherwise` (JSON). The forms of a row are:
//   {"n_layer", "layers"}                        a number, equal in ours, or a boolean if `written`
//                                                says so
//   {"n_inner", "ffn", "", true}                 a number; if it is null, ours is computed
//   {"act", "", "", false, {{"\"gelu\"", "activation=gelu_erf"}, ...}}
//                                                the allowed values (JSON), each with the keys of
//                                                ours that it sets; "": it sets none
//   {"", "qkv_bias", "1"}                        no key of theirs: ours has this value, or that of
//                                                another key of ours ("=heads")
// With `near`, a value that is not allowed is approximated, which that sentence says; "{}" in it is
// the value. A row that has only `near` always says it.
enum class Written : uint8_t { kInteger, kReal, kBoolean };
struct ConfigRow {
  std::string theirs, ours;
  std::string otherwise = "";
  bool may_be_null = false;
  std::vector<std::pair<std::string, std::string>> values = {};
  Written written = Written::kInteger;
  std::string near = "";
};

ConfigRow must_be(std::string theirs, const Texts& values, std::string otherwise = "");
ConfigRow same(std::string theirs, std::string ours, std::string otherwise = "");
ConfigRow same_or_null(std::string theirs, std::string ours, std::string otherwise = "");
ConfigRow real(std::string theirs, std::string ours);
ConfigRow boolean(std::string theirs, std::string ours);
ConfigRow implied(std::string ours, std::string value);
// Returns the row of an activation. If it has several names, the first is written.
ConfigRow activation(std::string theirs);
// Returns a row whose values other than `values` are approximated, and one of what always is.
ConfigRow near(std::string theirs, const Texts& values, std::string sentence,
               std::string otherwise = "");
ConfigRow always_near(std::string sentence);
std::vector<ConfigRow> with(std::vector<ConfigRow> rows, const std::vector<ConfigRow>& more);

// Returns the part of huggingface_defaults() for a model type.
const json& defaults_of(const std::string& type);
inline constexpr const char* kOtherNames = "(other names)";

struct ModelType;

// Looks keys up in the configuration and keeps the first error.
class ConfigReader {
 public:
  ConfigReader(const json& config, const std::string& type, std::string_view file);

  // Returns the value that the file gives a key; it may be null. A value under the key's second
  // name comes first, as in transformers. Returns a null pointer if the file has none.
  const json* given(const std::string& key);
  // Returns the file's value, else the type's default, else `otherwise` (JSON).
  json value(const std::string& key, const std::string& otherwise = "");
  const std::set<std::string>& asked() const { return asked_; }

  void read(const ConfigRow& row);
  // Adds the keys of ours that a row gives for the value `found`.
  void translate(const ConfigRow& row, const json& found);
  // Adds a key of ours, or gives it this value in place of an earlier one.
  void add(const std::string& key, const std::string& value);
  // Adds a key for planning, which there has this value in place of the exact one, and the sentence
  // that says so.
  void add_for_planning(const std::string& key, const std::string& value, std::string sentence);
  // Says that the model is not what the file asks for. A sentence is kept once.
  void approximate(std::string sentence);
  // Says something of the model that is exact nevertheless: that transformers leaves it out too, or
  // that sequences are shorter. The sentence holds unless a caller sets our key `unless`.
  void remark(std::string sentence, std::string unless = "");
  // Returns the value of a key, or "" if none was added.
  std::string get(std::string_view key) const;
  // Returns the value of a key of ours as a whole number of at least 1, or 0 if it is none. The
  // family reports wrong values, so readers may pass over them.
  int64_t count(std::string_view key) const;
  void fail(const std::string& message);
  void unsupported(const std::string& key, const json& found, std::string_view known);
  // Says of each key of an object of the file that is not in `known` that it is not read. A key
  // without a value and a private one ("_name_or_path") say nothing about the model. `inside` is ""
  // for the file itself, whose keys may also be those of huggingface_passed_over(), or
  // "rope_parameters.".
  void name_unknown(const json& object, const std::string& inside, const Texts& known);
  // Returns the model, after naming the unknown keys of the file.
  Result<HuggingFaceModel> finish(const ModelType& type);
  // Returns a number as the text of a key of ours. Fails for other values.
  std::string text_of(const std::string& name, const json& value);
  // Returns "1" or "0" for a boolean, or for the number 1 or 0. Fails for other values.
  std::string flag_of(const std::string& name, const json& value);

 private:
  const json& config_;
  const json& defaults_;
  std::string file_;
  std::string error_;
  HuggingFaceModel model_;
  std::set<std::string> asked_;
};

// A model type: its rows, and functions for what the rows cannot express.
struct ModelType {
  std::string name, family;
  std::string architecture;  // "": the type is read and never written
  std::vector<ConfigRow> rows;
  void (*read)(ConfigReader& reader) = nullptr;
  // Adds to `out` what rows do not express. Returns "", or what the type would need of our keys.
  std::string (*write)(const Keys& keys, OrderedJson& out) = nullptr;
  // Adds to `out` the keys that transformers 4 and 5 spell in two ways, in both spellings.
  void (*spell)(const Keys& keys, OrderedJson& out) = nullptr;
  Texts own = {};         // keys of ours that the functions handle, in addition to the rows
  OrderedJson also = {};  // keys that are written as they are
};

// Returns all model types, in the order in which they are tried for writing.
const std::vector<ModelType>& model_types();
std::vector<ModelType> decoders();          // Llama and its relatives, read and written
std::vector<ModelType> recent_decoders();   // those since 2024, read and written
std::vector<ModelType> planned_decoders();  // further ones, which are read only
std::vector<ModelType> gpts();              // GPT-2
std::vector<ModelType> encoders();          // BERT, ViT, T5

json number(const std::string& text);
const std::string& of(const Keys& keys, std::string_view key);

// ---- parts of decoders

// Returns the rows that decoders with RMS norms share.
const std::vector<ConfigRow>& decoder_rows();
// Returns the row of a key that gives all products of attention biases or none.
const ConfigRow& attention_bias();
// Reads rope_theta and rope_scaling (transformers 4), or both in the object rope_parameters
// (transformers 5). If a file has both spellings, rope_scaling is read, unless it is empty.
void read_rotary(ConfigReader& reader);
// Reads them for types that turn a part of each head, partial_rotary_factor, whose default is
// `otherwise` (JSON).
void read_partial_rotary(ConfigReader& reader, const char* otherwise);
void spell_rotary(const Keys& keys, OrderedJson& out);
// Writes them for types that turn a part of each head.
void spell_partial_rotary(const Keys& keys, OrderedJson& out);
// Returns the factor that YaRN gives queries and keys for positions that are `factor` times as many
// (Peng et al. 2023, arXiv 2309.00071, section 3.4), with the weight `weight` of its logarithm.
double yarn_factor(double factor, double weight = 1);
// Returns whether the settings that spell_rotary() writes say the value of our key beside rope_scaling.
bool rotary_says(const Keys& keys, std::string_view key);
// Adds the window to our keys. Null means that there is no window.
void add_window(const json& window, ConfigReader& reader);
// Reads rotary positions, and a window that all layers have.
void read_window(ConfigReader& reader);
// Adds the window `window` of those blocks that `full` does not name. Where the blocks without one
// do not follow each other at equal distances, the model has as many at equal distances, and that
// is said.
void add_layer_windows(const json& window, const std::vector<bool>& full, ConfigReader& reader);
// Reads which layers have full attention from layer_types, whose other layers are called `other`.
// Returns `otherwise` if the file has no such list.
std::vector<bool> full_layers(const char* other, std::vector<bool> otherwise, ConfigReader& reader);
// Reads what mixtures share: the slots of experts and the balance loss.
void read_experts(ConfigReader& reader);
// Returns for each layer whether its number, from 1, is a multiple of `every`.
std::vector<bool> each_of(int64_t layers, int64_t every);
// Writes whether the balance loss counts, and its coefficient.
void write_balance(const Keys& keys, OrderedJson& out);
json window_of(const Keys& keys);  // null if there is none
std::string write_window(const Keys& keys, OrderedJson& out);
// Returns the list layer_types: full_attention where a layer has no window, else `other`.
Texts layer_types_of(const Keys& keys, const char* other);
double real_of(const Keys& keys, std::string_view key);

}  // namespace tessera::huggingface
