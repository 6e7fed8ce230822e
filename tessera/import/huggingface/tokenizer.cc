#include "tessera/import/huggingface/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Reads a JSON file that holds an object. Returns an empty object if there is no such file.
Result<Json> read_object(const std::string& folder, const char* name) {
  const std::string path = (fs::path(folder) / name).string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return Json::object();
  TESSERA_TRY(const std::string text, read_file(path));
  auto parsed = parse_json(text);
  if (!parsed || !parsed->is_object())
    return invalid_input(fmt::format("{}: expected a JSON object (of a tokenizer)", path));
  return std::move(*parsed);
}

// Returns the text of a token. In the file a token is a string, or an object with the string as its
// "content". Returns no value for anything else.
std::optional<std::string> content_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return std::nullopt;
}

std::optional<int64_t> whole(const Json& number) {
  if (!number.is_number_integer()) return std::nullopt;
  return number.get<int64_t>();
}

std::optional<int64_t> in_vocabulary(const Json& numbers, const std::string& text) {
  if (!numbers.is_object() || !numbers.contains(text)) return std::nullopt;
  return whole(numbers[text]);
}

// Returns the token's number in tokenizer_config.json: {"added_tokens_decoder": {"103": {"content":
// "[MASK]", ...}, ...}}. Returns no value if it is not there.
std::optional<int64_t> in_added(const Json& config, const std::string& text) {
  const auto added = config.find("added_tokens_decoder");
  if (added == config.end() || !added->is_object()) return std::nullopt;
  for (const auto& [number, token] : added->items()) {
    if (const auto value = parse_int(number); value && content_of(token) == text) return *value;
  }
  return std::nullopt;
}

// Returns the token's number in tokenizer.json: {"added_tokens": [{"id": 103, "content": "[MASK]"},
// ...], "model": {"vocab": {...}}}. Looks in the added tokens first. Returns no value if it is not
// there.
std::optional<int64_t> in_tokenizer(const Json& tokenizer, const std::string& text) {
  if (const auto added = tokenizer.find("added_tokens");
      added != tokenizer.end() && added->is_array()) {
    for (const Json& token : *added) {
      if (content_of(token) == text && token.is_object() && token.contains("id"))
        return whole(token["id"]);
    }
  }
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->is_object() || !model->contains("vocab"))
    return std::nullopt;
  return in_vocabulary((*model)["vocab"], text);
}

// Returns the token's number in vocab.txt, which has one token on each line, numbered from 0.
// Returns no value if there is no such file or line.
Result<std::optional<int64_t>> in_lines(const std::string& folder, const std::string& text) {
  const std::string path = (fs::path(folder) / "vocab.txt").string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::optional<int64_t>();
  TESSERA_TRY(const std::string lines, read_file(path));
  int64_t number = 0;
  for (size_t at = 0; at < lines.size(); ++number) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    std::string_view line = std::string_view(lines).substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line == text) return std::optional<int64_t>(number);
    at = end + 1;
  }
  return std::optional<int64_t>();
}

}  // namespace

Result<std::optional<int64_t>> number_of_token(const std::string& folder, const std::string& role,
                                               std::string text) {
  TESSERA_TRY(const Json config, read_object(folder, "tokenizer_config.json"));
  TESSERA_TRY(const Json special, read_object(folder, "special_tokens_map.json"));
  for (const Json* file : {&special, &config}) {
    if (!file->contains(role)) continue;
    if (const auto content = content_of((*file)[role])) text = *content;
  }
  if (const auto number = in_added(config, text)) return number;
  TESSERA_TRY(const Json tokenizer, read_object(folder, "tokenizer.json"));
  if (const auto number = in_tokenizer(tokenizer, text)) return number;
  for (const char* name : {"added_tokens.json", "vocab.json"}) {
    TESSERA_TRY(const Json numbers, read_object(folder, name));
    if (const auto number = in_vocabulary(numbers, text)) return number;
  }
  return in_lines(folder, text);
}

}  // namespace tessera
