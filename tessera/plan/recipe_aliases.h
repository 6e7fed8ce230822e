// Names that other frameworks give to strategies: ddp, hsdp, zero1, zero2, zero3, tp. Each stands for
// a recipe with some arguments set, "zero3(dp=8)" for "zero(stage=3, dp=8)". The table is
// recipes/aliases.toml.
//
//   TESSERA_TRY(const Call call, without_alias(*parse_call("zero3(8)"), positions_of));
//   // call.name == "zero", call.arguments == {{"stage", "3"}, {"dp", "8"}}
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/base/text.h"

namespace tessera {

struct RecipeAlias {
  std::string name, recipe;
  std::vector<std::pair<std::string, std::string>> set = {};  // arguments and values
  std::vector<std::string> needs = {};                        // arguments that must be given
};

// Reads the table. Errors have file:line: an unknown key, a name twice, a value without '='.
Result<std::vector<RecipeAlias>> parse_recipe_aliases(std::string_view toml, std::string_view file);
const std::vector<RecipeAlias>& recipe_aliases();             // of the program's table
const RecipeAlias* find_recipe_alias(std::string_view name);  // null: there is none

// Returns the names of the arguments that calls of the recipe may give by position, in their order.
using PositionsOf = std::function<std::vector<std::string>(std::string_view recipe)>;

// Returns the call of the recipe that the call's name stands for. Arguments by position take those
// of the recipe that the alias does not set, in their order. A call whose name is no alias is
// returned as it is. Errors: an argument that the alias sets is given, or one that it needs is not.
Result<Call> without_alias(Call call, const PositionsOf& positions_of);

}  // namespace tessera
