// Hugging Face's `config.json` as keys of one of our families, and back. Each `model_type` is a table
// of rows, their key beside ours, that is used in both directions. A key that the file leaves out has
// the default of its type in transformers (huggingface_defaults.h). What would change the function
// computed and has no counterpart here (another activation, a window in some layers) is an error;
// what only matters in use (token ids, dropout, caches) is passed over. Spellings of transformers 4
// and 5 are read, and both are written.
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

// The values of `model_type` that are read and written.
std::vector<std::string> huggingface_model_types();

// `file` is the name to put in errors.
Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file);

// The keys of a config.json of the type that are looked at.
std::vector<std::string> huggingface_keys(const std::string& model_type);

// The text with other values of keys of ours, and all others as they were, also where they followed
// from those. Error: of the parser above, or the type has no key for one of them.
Result<std::string> change_huggingface_config(std::string_view text, std::string_view file,
                                              const ModelArguments& changes);
// The text of a file whose model is `spec` (with every key), for weights of the dtype: as it is, but for
// the dtype and for what transformers 4 and 5 spell in two ways, which stands there in both.
Result<std::string> spell_huggingface_config(std::string_view text, std::string_view file,
                                             std::string_view spec, DType dtype);

// The text of a config.json of the first model type that computes the function of the spec, which
// has every key of its family (Model::spec); `dtype` is that of the weights. Left out is what only
// matters in training: dropout, ends of documents, slots of experts. Error: no model type has all
// else; the message names the key.
Result<std::string> huggingface_config(std::string_view spec, DType dtype);

}  // namespace tessera
