// Reads the numbers of special tokens that a model needs, from the tokenizer in the model's folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

// Returns the number of the token that has the role `role` ("mask_token") in the tokenizer of a
// folder. If the tokenizer does not name this role, returns the number of the token `text`
// ("[MASK]"). Returns no value if the folder has no tokenizer or the tokenizer has no such token.
// Returns an error (invalid input) if a file of the tokenizer cannot be read.
Result<std::optional<int64_t>> number_of_token(const std::string& folder, const std::string& role,
                                               std::string text);

}  // namespace tessera
