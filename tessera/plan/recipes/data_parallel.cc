#include "tessera/plan/recipes/families.h"

#include <fmt/format.h>

#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<std::string> emit_data_parallel(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {{"dp", arguments.number("dp")}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  return text.str();
}

Result<std::string> emit_zero(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t stage = arguments.number("stage");
  if (stage > 3) return invalid_input(fmt::format("expected stage = 1, 2 or 3, found {}", stage));
  PlanText text{.mesh = {{"dp", arguments.number("dp")}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  zero(text, stage);
  return text.str();
}

}  // namespace

std::vector<Recipe> data_parallel_recipes() {
  return {
      {"data_parallel",
       "batch over ranks; gradients are summed",
       {dp_argument(std::nullopt)},
       emit_data_parallel},
      {"zero",
       "data parallel; optimizer state (1), gradients (2), parameters (3) sharded at rest",
       {number("stage", std::nullopt, "1, 2 or 3"), dp_argument(std::nullopt)},
       emit_zero},
  };
}

}  // namespace tessera::recipes
