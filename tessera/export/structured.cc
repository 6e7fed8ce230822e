#include "tessera/export/structured.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Objects in objects may be this deep.
constexpr int kMostDepth = 32;

void add_keys(const Json& json, const std::string& path, int depth, SaidKeys& out) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = path.empty() ? key : fmt::format("{}.{}", path, key);
    if (value.is_object() && !value.empty() && depth < kMostDepth) {
      add_keys(value, name, depth + 1, out);
    } else {
      out.push_back({name, value.is_string() ? value.get<std::string>() : value.dump(), 0});
    }
  }
}

}  // namespace

Result<SaidKeys> keys_of_json(const std::string& text, std::string_view target) {
  const Json json =
      Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (json.is_discarded() || !json.is_object())
    return invalid_input(fmt::format("{}: expected a JSON object", target));
  SaidKeys out;
  add_keys(json, "", 0, out);
  return out;
}

std::string plain_value(std::string_view value) {
  char quote = 0;
  size_t end = value.size();
  for (size_t i = 0; i < value.size(); ++i) {
    if (quote == 0 && value[i] == '#' && (i == 0 || value[i - 1] == ' ')) {
      end = i;
      break;
    }
    if (value[i] == quote) {
      quote = 0;
    } else if (quote == 0 && (value[i] == '"' || value[i] == '\'')) {
      quote = value[i];
    }
  }
  std::string out(trim(value.substr(0, end)));
  if (out.size() >= 2 && (out.front() == '"' || out.front() == '\'') && out.back() == out.front())
    out = out.substr(1, out.size() - 2);
  if (out.starts_with('[') && out.ends_with(']')) {
    out = out.substr(1, out.size() - 2);
    std::string words;
    for (const std::string& word : split_text(out, ',')) {
      if (!words.empty()) words += ' ';
      words += trim(word);
    }
    return words;
  }
  return out;
}

Result<SaidKeys> keys_of_yaml(const std::string& text, std::string_view target) {
  SaidKeys out;
  std::string group;
  int number = 0;
  for (const std::string& line : split_text(text, '\n')) {
    ++number;
    const std::string_view rest = trim(line);
    constexpr std::string_view kScript = "# script: ";
    if (rest.starts_with(kScript)) {
      for (const std::string& word : split_text(std::string(rest.substr(kScript.size())), ' ')) {
        const size_t equals = word.find('=');
        if (equals != std::string::npos)
          out.push_back({"script." + word.substr(0, equals), word.substr(equals + 1), number});
      }
      continue;
    }
    if (rest.empty() || rest.starts_with('#') || rest == "---") continue;
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) {
      return invalid_input(
          fmt::format("{}: line {}: expected 'key: value', found '{}'", target, number, rest));
    }
    const std::string key(rest.substr(0, colon)), value = plain_value(rest.substr(colon + 1));
    const bool inside = line.starts_with(' ');
    if (!inside) group = value.empty() ? key : "";
    if (value.empty()) continue;
    out.push_back({inside ? fmt::format("{}.{}", group, key) : key, value, number});
  }
  return out;
}

}  // namespace tessera
