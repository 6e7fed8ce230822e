// Hugging Face's `config.json` as keys of one of our families, and back. Each `model_type` is a table
// of rows, their key beside ours, that is used in both directions. What would change the function
// computed and has no counterpart here (another activation, scaled rotary positions) is an error;
// what only matters in use (token ids, dropout, caches) is passed over. Spellings of transformers 4
// and 5 are read.
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

// The text of a config.json of the first model type that computes the function of the spec, which
// has every key of its family (Model::spec); `dtype` is that of the weights. Left out is what only
// matters in training: dropout, ends of documents, slots of experts. Error: no model type has all
// else; the message names the key.
Result<std::string> huggingface_config(std::string_view spec, DType dtype);

}  // namespace tessera
