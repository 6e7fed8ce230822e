// Reads JSON of files that are not trusted. A text that is nested too deeply is refused, because
// functions that visit a value recursively (nlohmann's dump) would run out of stack on some hundred
// thousand opening brackets. Messages show values in a short form.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr int kMostJsonDepth = 64;

// Parses a text. Returns no value if the text is not JSON, or is nested deeper than kMostJsonDepth.
std::optional<nlohmann::json> parse_json(std::string_view text);
std::optional<nlohmann::ordered_json> parse_ordered_json(std::string_view text);

// Returns the value in a short form for messages, on one line of at most 40 characters: "none"
// (null), "12", "\"F32\"", "a list", "an object".
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);

// Returns the value as JSON text. Bytes that are not UTF-8 (file names may have any bytes) become
// U+FFFD, whereas nlohmann's dump() throws on them. Use this function for all JSON that is printed
// or written. `indent` -1 puts everything on one line.
std::string dumped(const nlohmann::json& value, int indent = -1);
std::string dumped(const nlohmann::ordered_json& value, int indent = -1);

// Returns how deeply the lists and objects of a JSON text are nested, without parsing it. Brackets
// inside strings are not counted.
int json_depth(std::string_view text);

}  // namespace tessera
