#include "tessera/predict/constants.h"

#include <fmt/format.h>

#include <vector>

#include "tessera/base/text.h"
#include "tessera/base/toml.h"

namespace tessera {
namespace {

// "a.b.c=value" of all leaves; dotted keys are tables in TOML.
Status flatten(const toml::table& table, const std::string& prefix, std::vector<std::string>& out) {
  for (const auto& [key, node] : table) {
    const std::string name =
        prefix.empty() ? std::string(key.str()) : fmt::format("{}.{}", prefix, key.str());
    if (const toml::table* inner = node.as_table()) {
      TESSERA_TRY_VOID(flatten(*inner, name, out));
    } else if (const auto* text = node.as_string()) {
      out.push_back(name + "=" + text->get());
    } else if (const auto* flag = node.as_boolean()) {
      out.push_back(fmt::format("{}={}", name, flag->get()));
    } else if (const auto* whole = node.as_integer()) {
      out.push_back(fmt::format("{}={}", name, whole->get()));
    } else if (const auto* real = node.as_floating_point()) {
      out.push_back(fmt::format("{}={}", name, real->get()));
    } else {
      return invalid_input(fmt::format("'{}': expected a text, a number or true or false", name));
    }
  }
  return {};
}

Result<PredictSettings> settings_of(const toml::table& table) {
  std::vector<std::string> texts;
  TESSERA_TRY_VOID(flatten(table, "", texts));
  return parse_settings(texts);
}

tl::unexpected<Error> in_file(std::string_view file, Error error) {
  error.message = fmt::format("{}: {}", file, error.message);
  return tl::unexpected(std::move(error));
}

Status read_without(const toml::table& sources, Constants& constants) {
  for (const auto& [source, node] : sources) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return invalid_input(fmt::format("expected a table [without.\"{}\"]", source.str()));
    }
    TESSERA_TRY(constants.without[std::string(source.str())], settings_of(*table));
  }
  return {};
}

}  // namespace

const PredictSettings& Constants::for_source(const std::string& source) const {
  const auto found = without.find(source);
  return found == without.end() ? all : found->second;
}

Result<Constants> parse_constants(std::string_view toml_text, std::string_view file) {
  TESSERA_TRY(const toml::table root, parse_toml(toml_text, file));
  Constants constants;
  for (const auto& [key, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr || (key.str() != "all" && key.str() != "without")) {
      return invalid_input(
          fmt::format("{}: expected the tables [all] and [without], found '{}'", file, key.str()));
    }
    if (key.str() == "all") {
      auto settings = settings_of(*table);
      if (!settings) return in_file(file, settings.error());
      constants.all = std::move(*settings);
    } else if (auto status = read_without(*table, constants); !status) {
      return in_file(file, status.error());
    }
  }
  return constants;
}

Result<Constants> load_constants(const std::string& path) {
  if (path.empty()) return parse_constants(constants_file(), "constants.toml");
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_constants(text, path);
}

}  // namespace tessera
