#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<std::string> emit_recompute(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {}, .micro_batches = arguments.number("micro_batches")};
  recompute(text, graph, arguments.text("recompute"));
  return text.str();
}

}  // namespace

std::vector<Recipe> recompute_recipes() {
  return {{"recompute",
           "one rank; activations of the blocks are computed again in the backward pass",
           {recompute_argument(), micro_batches_argument("1")},
           emit_recompute}};
}

}  // namespace tessera::recipes
