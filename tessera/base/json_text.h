// JSON of files that are not trusted: nesting is bounded when a text is parsed, and what a message
// shows of a value is short. Functions that visit a value recursively (nlohmann's dump) would run
// out of stack on a text of some hundred thousand opening brackets.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr int kMostJsonDepth = 64;

// No value: the text is no JSON, or is nested deeper than kMostJsonDepth.
std::optional<nlohmann::json> parse_json(std::string_view text);
std::optional<nlohmann::ordered_json> parse_ordered_json(std::string_view text);

// The value as a message shows it, on one line and of at most 40 characters: "none" (null), "12",
// "\"F32\"", "a list", "an object".
std::string shown(const nlohmann::json& value);
std::string shown(const nlohmann::ordered_json& value);

// Returns the value as JSON, whatever bytes the texts in it have: names of files may hold any, and
// those that are no UTF-8 become U+FFFD, where dump() of nlohmann throws. For all that is printed or
// written; `indent` -1: on one line.
std::string dumped(const nlohmann::json& value, int indent = -1);
std::string dumped(const nlohmann::ordered_json& value, int indent = -1);

// How deep lists and objects are nested, counted without building anything. Brackets inside of
// strings do not count.
int json_depth(std::string_view text);

}  // namespace tessera
