#include <fmt/format.h>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// The axes over which tensors rest in shards. dp is the outer axis, so a rank that gathers over
// `groups` gets one contiguous shard, which is the piece that it keeps for the backward pass.
constexpr const char* kShards = "dp,groups";

Result<PlanText> emit_data_parallel(const RecipeArguments& arguments, const Graph& graph) {
  PlanText text{.mesh = {{"dp", arguments.number("dp")}},
                .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(data_parallel(text, graph));
  return text;
}

Result<PlanText> emit_zero(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t stage = arguments.number("stage");
  if (stage > 3) return invalid_input(fmt::format("expected stage = 1, 2 or 3, found {}", stage));
  TESSERA_TRY(Axes mesh, dp_groups(arguments, stage == 3, "stage = 3"));
  PlanText text{.mesh = std::move(mesh), .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(data_parallel(text, graph, "groups,dp"));
  zero(text, stage, kShards);
  keep_in_groups(text);
  return text;
}

// Lets parameters be gathered so many blocks ahead. One block, the default, is none where there is
// nothing to gather ahead: in a model without blocks, and where parameters do not rest in shards.
Status prefetch(PlanText& text, const Graph& graph, int64_t ahead, bool reshard) {
  const Blocks blocks(graph);
  if (ahead > 1 && blocks.count() == 0) {
    return invalid_input(
        fmt::format("expected prefetch = 0 or 1 for a model without blocks, found {}", ahead));
  }
  if (ahead == 0 || blocks.count() == 0 || (ahead == 1 && !reshard)) return {};
  text.prefetch = blocks.each();
  text.ahead = ahead;
  return {};
}

// Emits hybrid sharding (docs/strategies/data-parallel.md sections 3 and 4): tensors at rest are
// cut over the inner axis dp and are whole over the outer axis, replicas.
Result<PlanText> emit_fsdp(const RecipeArguments& arguments, const Graph& graph) {
  const bool reshard = arguments.flag("reshard"), spread = arguments.flag("spread_state");
  TESSERA_TRY(const Axes shards, dp_groups(arguments, reshard, "reshard = true"));
  PlanText text{.mesh = {{"replicas", arguments.number("replicas")}},
                .micro_batches = arguments.number("micro_batches")};
  text.mesh.insert(text.mesh.end(), shards.begin(), shards.end());
  text.mesh.emplace_back("tp", arguments.number("tp"));
  TESSERA_TRY_VOID(data_parallel(text, graph, "replicas,groups,dp"));
  TESSERA_TRY_VOID(tensor_parallel(text, graph, arguments.flag("sequence_shard")));
  text.store("optimizer.*", std::string(kShards) + (spread ? ",replicas" : ""));
  if (arguments.text("accumulate") == "shards") text.store("role:gradient", kShards);
  if (reshard) text.store("role:parameter", kShards);
  keep_in_groups(text);
  TESSERA_TRY_VOID(prefetch(text, graph, arguments.number("prefetch"), reshard));
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  return text;
}

}  // namespace

std::vector<Recipe> data_parallel_recipes() {
  const RecipeArgument dp = dp_argument(std::nullopt);
  const RecipeArgument micro_batches = micro_batches_argument("1");
  return {
      {"data_parallel",
       "batch over ranks; gradients are summed",
       {dp, micro_batches},
       emit_data_parallel},
      {"zero",
       "data parallel; optimizer state (1), gradients (2), parameters (3) sharded at rest",
       {number("stage", std::nullopt, "1, 2 or 3"), dp, micro_batches, groups_argument()},
       emit_zero},
      {"fsdp",
       "parameters, gradients and optimizer state sharded over dp, whole over replicas",
       {dp, number("replicas", "1", "groups of dp ranks; each holds everything once"),
        tp_argument("1"), flag("sequence_shard", false, "between the split ops, seq over tp"),
        micro_batches,
        flag("reshard", true, "parameters rest in shards, gathered for each use; false: whole"),
        choice("accumulate", "shards", {"shards", "whole"},
               "gradients of micro-batches: reduced each time, or kept whole until the last"),
        flag("spread_state", false, "the optimizer state is cut over the replicas too"),
        recompute_argument(),
        number("prefetch", "1",
               "blocks between the gathering of parameters and their use, as FSDP2 does; 0: none",
               0),
        groups_argument()},
       emit_fsdp},
  };
}

}  // namespace tessera::recipes
