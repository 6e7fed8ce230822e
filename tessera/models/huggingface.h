// Reads Hugging Face's `config.json` as keys of one of our families, and writes it. Each
// `model_type` is a table of rows, their key beside ours, that is used in both directions. A key
// that the file leaves out has the default of its type in transformers (huggingface_defaults.h). A
// value that would change the computed function and has no counterpart here (another activation, a
// window in some layers) is an error; keys that only matter in use (token ids, dropout, caches) are
// passed over. Spellings of transformers 4 and 5 are read, and both are written.
//
//   TESSERA_TRY(const HuggingFaceModel file, parse_huggingface_config(text, "llama/config.json"));
//   TESSERA_TRY(const std::string json, huggingface_config(model.spec, DType::kBFloat16));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/models/config.h"

namespace tessera {

struct HuggingFaceModel {
  std::string family;  // "gpt", "llama"
  ModelArguments arguments;
};

// Returns the values of `model_type` that are read and written.
std::vector<std::string> huggingface_model_types();

// Reads a configuration. `file` is the name to put in errors.
Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file);

// Returns the keys of a config.json of the type that are read.
std::vector<std::string> huggingface_keys(const std::string& model_type);

// Returns the text with `changes` to keys of ours, and all other keys of ours as they were, also
// keys whose values followed from the changed ones. Returns the errors of the parser above, or an
// error if the type has no key for a change.
Result<std::string> change_huggingface_config(std::string_view text, std::string_view file,
                                              const ModelArguments& changes);
// Returns the text of a file whose model is `spec` (with every key), for weights of the dtype: as
// it is, except for the dtype and for what transformers 4 and 5 spell in two ways, which it then
// has in both.
Result<std::string> spell_huggingface_config(std::string_view text, std::string_view file,
                                             std::string_view spec, DType dtype);

// Returns the text of a config.json of the first model type that computes the function of the spec,
// which has every key of its family (Model::spec); `dtype` is that of the weights. Keys that only
// matter in training are left out: dropout, ends of documents, slots of experts. Returns an error
// that names the key if no model type has all other keys.
Result<std::string> huggingface_config(std::string_view spec, DType dtype);

}  // namespace tessera
