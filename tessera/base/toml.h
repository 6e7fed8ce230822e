// Parses TOML text to toml++ tables. All TOML is parsed by parse_toml(), which first refuses some
// malformed table headers and lists. On these toml++ 3.3 stops the process (or, without assertions,
// has undefined behaviour). Errors are one line "file:line: reason".
#pragma once

#include <toml++/toml.h>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

Result<toml::table> parse_toml(std::string_view text, std::string_view file);

}  // namespace tessera
