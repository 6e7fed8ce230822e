// Reads JSON of files that are not trusted: nesting is bounded when a text is parsed, and messages
// show values in short form. Functions that visit a value recursively (nlohmann's dump) would run
// out of stack on a text of some hundred thousand opening brackets.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr int kMostJsonDepth = 64;

// Returns no value if the text is not JSON, or is nested deeper than kMostJsonDepth.
std::optional<nlohmann::json> parse_json(std::string_view text);
std::optional<nlohmann::ordered_json> parse_ordered_json(std::string_view text);

// Returns the value as a message shows it, on one line and of at most 40 characters: "none" (null),
// "12", "\"F32\"", "a list", "an object".
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);

// Returns the value as JSON, whatever bytes its texts have: file names may hold any bytes, and
// bytes that are not UTF-8 become U+FFFD, where nlohmann's dump() throws. Use it for all JSON that
// is printed or written. `indent` -1 puts everything on one line.
std::string dumped(const nlohmann::json& value, int indent = -1);
std::string dumped(const nlohmann::ordered_json& value, int indent = -1);

// Counts how deep lists and objects are nested, without building them. Brackets inside of strings
// do not count.
int json_depth(std::string_view text);

}  // namespace tessera
