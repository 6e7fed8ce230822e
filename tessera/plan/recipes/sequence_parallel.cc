// Recipes for long sequences. Tokens are cut over ranks in all ops; attention exchanges data by
// rings, by all-to-alls, or by both (docs/strategies/sequence-parallel.md sections 2 to 4).
#include <fmt/format.h>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<PlanText> emit_ring_attention(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t cp = arguments.number("cp"), inner = arguments.number("inner");
  if (cp % inner != 0)
    return invalid_input(fmt::format("inner = {} does not divide cp = {}", inner, cp));
  PlanText text{.mesh = {{"dp", arguments.number("dp")}}};
  std::string rings = "cp";
  if (inner > 1 && inner < cp) {
    text.mesh.emplace_back("outer", cp / inner);
    text.mesh.emplace_back("inner", inner);
    rings = "outer,inner";
  } else {
    text.mesh.emplace_back("cp", cp);
  }
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(ring_attention(text, graph, rings, arguments.text("order")));
  TESSERA_TRY_VOID(check_zero(arguments));
  zero(text, arguments.number("zero"), "dp," + rings);
  return text;
}

Result<PlanText> emit_rsa(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {{"dp", arguments.number("dp")}, {"sp", arguments.number("sp")}},
                .expand = attention_cores(graph)};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tokens(text, graph, "sp"));
  text.rotate(text.expand + ".{scores,values}", "kv", "sp");
  return text;
}

// Emits a plan in whose attention a rank has some of the heads and, for these, the whole sequence.
// With rings it has only the piece of the sequence that its coordinate on the ring gives it.
Result<PlanText> emit_ulysses(const RecipeArguments& arguments, const Graph& graph) {
  const bool rings = arguments.numbers.contains("ring");
  const int64_t ring = rings ? arguments.number("ring") : 1, sp = arguments.number("sp");
  PlanText text{.mesh = {{"dp", arguments.number("dp")}, {"ring", ring}, {"sp", sp}}};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tokens(text, graph, "ring,sp"));
  if (sp > 1) {
    TESSERA_TRY(const std::string heads, heads_dim(graph, "sp", sp));
    text.split(attention_cores(graph), "seq", "ring");
    text.split(attention_cores(graph), heads, "sp");
  }
  if (rings) balance(text, graph, arguments.text("order"), ring);
  text.rotate(attention_cores(graph), "kv", "ring");
  TESSERA_TRY_VOID(check_zero(arguments));
  zero(text, arguments.number("zero"), "dp,ring,sp");
  return text;
}

const RecipeArgument kZero =
    number("zero", "0", "0, or what is sharded at rest over all ranks: see zero", 0);
const RecipeArgument kSequenceRanks = number("sp", std::nullopt, "ranks that share a sequence");

}  // namespace

std::vector<Recipe> sequence_parallel_recipes() {
  return {
      {"ring_attention",
       "tokens over ranks; keys and values travel around a ring (context parallelism)",
       {number("cp", std::nullopt, "ranks that share a sequence"), dp_argument("1"),
        order_argument(), number("inner", "1", "ranks of an inner ring; 1: one ring"), kZero},
       emit_ring_attention},
      {"rsa",
       "ring self-attention: rings for scores and for their product with the values; whole rows",
       {kSequenceRanks, dp_argument("1")},
       emit_rsa},
      {"ulysses",
       "tokens over ranks; all-to-alls give attention whole sequences of some heads",
       {kSequenceRanks, dp_argument("1"), kZero},
       emit_ulysses},
      {"ring_ulysses",
       "rings of groups of ranks, all-to-alls inside the groups",
       {number("ring", std::nullopt, "groups in the ring"),
        number("sp", std::nullopt, "ranks of a group, which share the heads"), dp_argument("1"),
        order_argument(), kZero},
       emit_ulysses},
  };
}

}  // namespace tessera::recipes
