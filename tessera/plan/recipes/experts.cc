#include <fmt/format.h>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// The ops that work on slots where their experts are.
constexpr const char* kExperts = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}";

constexpr const char* kSlots = "blocks.*.moe.{dispatch,return,combine}";
// What every token passes beside the experts.
constexpr const char* kShared = "blocks.*.moe.shared";

Status check(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t ep = arguments.number("ep"), experts = size_of(graph, kExperts, "experts");
  if (experts == 0) {
    return invalid_input(fmt::format(
        "expected ops {} with the dim 'experts' (as mixtral has), found none", kExperts));
  }
  if (ep > experts) {
    return invalid_input(fmt::format("ep = {} is more than the {} experts", ep, experts));
  }
  return check_zero(arguments);
}

// The batch over dp and ep, but between `arrive` and `down` the experts over ep. With tp, an expert
// is cut as an MLP is, and slots travel in tp pieces of hidden.
Result<PlanText> emit_expert_parallel(const RecipeArguments& arguments, const Graph& graph) {
  TESSERA_TRY_VOID(check(arguments, graph));
  const int64_t pp = arguments.number("pp");
  PlanText text{.mesh = {{"pp", pp},
                         {"dp", arguments.number("dp")},
                         {"ep", arguments.number("ep")},
                         {"tp", arguments.number("tp")}},
                .micro_batches = arguments.number("micro_batches")};
  const bool replicated = text.has("dp") || text.has("ep");
  TESSERA_TRY_VOID(named_pipeline(text, graph, arguments));
  if (replicated) text.split("*", "batch", "dp,ep");
  if (text.has("ep")) {
    text.split(kExperts, "batch", "dp");
    text.split(kExperts, "experts", "ep");
  }
  const bool sequence_shard = arguments.flag("sequence_shard");
  TESSERA_TRY_VOID(tensor_parallel(text, graph, sequence_shard));
  if (sequence_shard) {  // routing is by whole sequences
    text.split("blocks.*.moe", "seq", "none");
    text.split("blocks.*.moe.{residual,sum}", "seq", "tp");
  }
  text.split(kExperts, "ffn", "tp");
  if (has_dim(graph, kShared, "ffn")) text.split(kShared, "ffn", "tp");
  const bool latent = has_dim(graph, kSlots, "latent");
  text.split(kSlots, latent ? "latent" : "hidden", "tp");
  if (latent) text.split("blocks.*.moe.{narrow,widen}", "latent", "tp");
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  // At rest over the replicas of each; an expert's weights are cut over ep already.
  zero(text, arguments.number("zero"), "dp,ep");
  return text;
}

}  // namespace

std::vector<Recipe> expert_recipes() {
  return {
      {"expert_parallel",
       "mixture of experts: experts over ep, the batch over dp and ep elsewhere",
       {number("ep", std::nullopt, "ranks that share the experts of a block"), dp_argument("1"),
        tp_argument("1"), pp_argument("1"),
        number("zero", "0", "0, or what is sharded at rest over its replicas: see zero", 0),
        micro_batches_argument("1"), schedule_argument(), chunks_argument(),
        flag("sequence_shard", false, "between the split ops, seq over tp"), recompute_argument()},
       emit_expert_parallel},
  };
}

}  // namespace tessera::recipes
