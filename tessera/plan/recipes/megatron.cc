#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

RecipeArgument sequence_shard_argument() {
  return flag("sequence_shard", false, "between the split ops, seq over tp");
}

Result<PlanText> emit_tensor_parallel(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {{"tp", arguments.number("tp")}}};
  TESSERA_TRY_VOID(tensor_parallel(text, graph, arguments.flag("sequence_shard")));
  return text;
}

Result<PlanText> emit_megatron(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t cp = arguments.number("cp");
  TESSERA_TRY(PlanText text, outer(arguments, graph, {{"cp", cp}, {"tp", arguments.number("tp")}}));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  if (cp > 1) TESSERA_TRY_VOID(ring_attention(text, graph, "cp", arguments.text("order")));
  TESSERA_TRY_VOID(tensor_parallel(text, graph, arguments.flag("sequence_shard")));
  zero(text, arguments.number("zero"), "dp,cp");
  return text;
}

}  // namespace

std::vector<Recipe> tensor_parallel_recipes() {
  return {{"tensor_parallel",
           "Megatron 1-D: heads, ffn and vocab over ranks",
           {tp_argument(std::nullopt), sequence_shard_argument()},
           emit_tensor_parallel}};
}

std::vector<Recipe> megatron_recipes() {
  std::vector<RecipeArgument> arguments = with_outer({tp_argument("1")});
  arguments.push_back(sequence_shard_argument());
  arguments.push_back(number("cp", "1", "ranks that share a sequence; rings of keys in attention"));
  arguments.push_back(order_argument());
  return {{"megatron", "pipeline of stages, each tensor, data and context parallel", arguments,
           emit_megatron}};
}

}  // namespace tessera::recipes
