#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<std::string> emit_tensor_parallel(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {{"tp", arguments.number("tp")}}};
  TESSERA_TRY_VOID(tensor_parallel(text, graph));
  return text.str();
}

}  // namespace

std::vector<Recipe> tensor_parallel_recipes() {
  return {{"tensor_parallel",
           "Megatron 1-D: heads, ffn and vocab over ranks",
           {tp_argument(std::nullopt)},
           emit_tensor_parallel}};
}

}  // namespace tessera::recipes
