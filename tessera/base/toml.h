// Parses TOML text to toml++ tables. Everything goes through parse_toml: toml++ 3.3 stops the
// process (or, without assertions, has undefined behaviour) on some malformed table headers and
// lists, which are therefore refused first. Errors are one line "file:line: reason".
#pragma once

#include <toml++/toml.h>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

Result<toml::table> parse_toml(std::string_view text, std::string_view file);

}  // namespace tessera
