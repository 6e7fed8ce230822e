// Reads a Hugging Face `config.json` as keys of one of our families. What would change the function
// computed and has no counterpart here (another activation, sliding windows, scaled rotary
// positions, attention biases) is an error; what only matters in use (token ids, dropout, caches)
// is passed over. transformers 4 and 5 spellings are read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/models/config.h"

namespace tessera {

struct HuggingFaceModel {
  std::string family;  // "gpt", "llama"
  ModelArguments arguments;
};

// The values of `model_type` that are read.
std::vector<std::string> huggingface_model_types();

// `file` is the name to put in errors.
Result<HuggingFaceModel> parse_huggingface_config(std::string_view text, std::string_view file);

}  // namespace tessera
