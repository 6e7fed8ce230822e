#include "tessera/plan/recipe_aliases.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/data_file.h"

namespace tessera {

const TextFiles& recipe_data();  // made by CMake (tessera_embed)

namespace {

Result<RecipeAlias> read_alias(const DataTable& table) {
  RecipeAlias out;
  std::vector<std::string> set;
  for (const char* key : {"name", "recipe"}) TESSERA_TRY_VOID(table.require(key));
  TESSERA_TRY_VOID(table.text("name", out.name));
  TESSERA_TRY_VOID(table.text("recipe", out.recipe));
  TESSERA_TRY_VOID(table.texts("set", set));
  TESSERA_TRY_VOID(table.texts("needs", out.needs));
  for (const std::string& one : set) {
    const size_t equals = one.find('=');
    if (equals == std::string::npos)
      return table.error("set", fmt::format("expected KEY=VALUE, found '{}'", one));
    out.set.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  TESSERA_TRY_VOID(table.done());
  return out;
}

bool sets(const RecipeAlias& alias, const std::string& argument) {
  return std::any_of(alias.set.begin(), alias.set.end(),
                     [&](const auto& one) { return one.first == argument; });
}

}  // namespace

Result<std::vector<RecipeAlias>> parse_recipe_aliases(std::string_view toml,
                                                      std::string_view file) {
  TESSERA_TRY(const DataTable root, parse_data(toml, file));
  TESSERA_TRY(const auto tables, root.tables("alias"));
  std::vector<RecipeAlias> out;
  for (const DataTable& table : tables) {
    TESSERA_TRY(RecipeAlias alias, read_alias(table));
    const bool twice = std::any_of(
        out.begin(), out.end(), [&](const RecipeAlias& known) { return known.name == alias.name; });
    if (twice) return table.error("name", fmt::format("'{}' is there twice", alias.name));
    out.push_back(std::move(alias));
  }
  TESSERA_TRY_VOID(root.done());
  return out;
}

const std::vector<RecipeAlias>& recipe_aliases() {
  static const std::vector<RecipeAlias> all = [] {
    auto parsed = parse_recipe_aliases(text_of(recipe_data(), "aliases"), "aliases.toml");
    TESSERA_CHECK(parsed.has_value(), "{}", parsed.error().message);
    return *std::move(parsed);
  }();
  return all;
}

const RecipeAlias* find_recipe_alias(std::string_view name) {
  for (const RecipeAlias& alias : recipe_aliases()) {
    if (alias.name == name) return &alias;
  }
  return nullptr;
}

Result<Call> without_alias(Call call, const PositionsOf& positions_of) {
  const RecipeAlias* alias = find_recipe_alias(call.name);
  if (alias == nullptr) return call;
  std::vector<std::string> positions = positions_of(alias->recipe);
  std::erase_if(positions, [&](const std::string& argument) { return sets(*alias, argument); });
  const auto failed = [&](const std::string& message) {
    return invalid_input(fmt::format(
        "recipe {} ({} with {}): {}", alias->name, alias->recipe,
        alias->set.empty() ? "its own arguments" : alias->set[0].first + "=" + alias->set[0].second,
        message));
  };
  Call out{alias->recipe, alias->set};
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    auto [key, value] = call.arguments[i];
    if (key.empty() && i < positions.size()) key = positions[i];
    if (sets(*alias, key)) return failed(fmt::format("the argument '{}' is set already", key));
    out.arguments.emplace_back(key, value);
  }
  for (const std::string& needed : alias->needs) {
    const bool given = std::any_of(out.arguments.begin(), out.arguments.end(),
                                   [&](const auto& one) { return one.first == needed; });
    if (!given) {
      return failed(fmt::format("argument '{0}' is missing, as {1}({2}=4, {0}=2)", needed,
                                alias->name, positions.front()));
    }
  }
  return out;
}

}  // namespace tessera
