#include "tessera/base/json_text.h"

#include <algorithm>

namespace tessera {
namespace {

template <class Json>
std::optional<Json> parse(std::string_view text) {
  if (json_depth(text) > kMostJsonDepth) return std::nullopt;
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

template <class Json>
std::string show(const Json& value) {
  constexpr size_t kMost = 40;
  if (value.is_null()) return "none";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost - 3) + "...";
  return text;
}

}  // namespace

int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string) {
      if (letter == '\\') ++i;  // an escaped quote does not end the string
      if (letter == '"') in_string = false;
      continue;
    }
    if (letter == '"') in_string = true;
    if (letter == '[' || letter == '{') deepest = std::max(deepest, ++depth);
    if (letter == ']' || letter == '}') --depth;
  }
  return deepest;
}

std::optional<nlohmann::json> parse_json(std::string_view text) {
  return parse<nlohmann::json>(text);
}
std::optional<nlohmann::ordered_json> parse_ordered_json(std::string_view text) {
  return parse<nlohmann::ordered_json>(text);
}

std::string dumped(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string dumped(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string shown(const nlohmann::json& value) { return show(value); }
std::string shown(const nlohmann::ordered_json& value) { return show(value); }

}  // namespace tessera
