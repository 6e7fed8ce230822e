// Reads the numbers of special tokens that a model needs from the tokenizer that stands beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

// Returns the number of the token that the tokenizer of a folder names as `role` ("mask_token"), or
// else of the token written `text` ("[MASK]"). No value: the folder has no tokenizer with it.
// Returns an error (invalid input) if a file of the tokenizer cannot be read.
Result<std::optional<int64_t>> number_of_token(const std::string& folder, const std::string& role,
                                               std::string text);

}  // namespace tessera
