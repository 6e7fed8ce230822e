// Reads the keys of configurations that are JSON or YAML, as paths: {"zero_optimization.stage", "2"}.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/export/keys.h"

namespace tessera {

// Returns the keys of a JSON object; comments are allowed. Texts have no quotes, an empty object or
// list is "{}" or "[]".
Result<SaidKeys> keys_of_json(const std::string& text, std::string_view target);

// Returns the keys of a YAML text of two levels, which is what such files have. A list in brackets is
// a text of its parts with spaces between. A line "# script: key=value" is the key "script.key": for
// what a framework's file cannot have, and its script must.
Result<SaidKeys> keys_of_yaml(const std::string& text, std::string_view target);

// Returns a value without quotes and comment; a list in brackets as its parts with spaces between.
std::string plain_value(std::string_view value);

}  // namespace tessera
