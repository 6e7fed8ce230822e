#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// A `Mixture` has patterns of the ops of mixtures of experts; "" for ops that a model lacks. A slot
// is room for one token at an expert.
struct Mixture {
  std::string experts;   // ops on slots at the ranks of their experts
  std::string slots;     // ops that send slots to the experts and receive them back
  std::string shared;    // experts that all tokens share
  std::string narrowed;  // products between hidden and the width of tokens at experts
  std::string whole;     // ops that need whole sequences, such as routing
  std::string cut;       // ops that `whole` selects but that may be cut by tokens
};

constexpr const char* kExperts = "blocks.*.moe.{arrive*,gate,act,up,mul,weigh,down}";

Mixture named_mixture() {
  return {.experts = kExperts,
          .slots = "blocks.*.moe.{dispatch,return,combine}",
          .shared = "blocks.*.moe.shared",
          .narrowed = "blocks.*.moe.{narrow,widen}",
          .whole = "blocks.*.moe",
          .cut = "blocks.*.moe.{residual,sum}"};
}

// Finds the ops of a mixture by their dims and kinds. Slots are tensors [experts, batch, capacity,
// ...]. All ops on slots between the op that dispatches them and the op that combines them are at
// the experts. A copy of the dispatched slots is at the experts, too, but a copy that the combining
// op reads is not (models/language/mixtral.cc: `arrive`, `return`).
Mixture found_mixture(const Blocked& blocks) {
  const Graph& graph = blocks.graph;
  const auto routes = [&](OpId op) { return info_of(graph.op(op)).work == WorkClass::kRouting; };
  const auto consumers = graph.consumers();
  std::vector<OpId> at_experts, beside;
  for (const Op& op : graph.ops()) {
    const auto has = [&](const char* dim) { return op.annotation.find(dim) >= 0; };
    if (!blocks.holds(op) || !has("experts") || !has("capacity")) continue;
    const std::vector<OpId>& readers = consumers[op.outputs.at(0).index()];
    const bool comes_back =
        info_of(op).scales && std::any_of(readers.begin(), readers.end(), routes);
    (routes(op.id) || comes_back ? beside : at_experts).push_back(op.id);
  }
  // `shared` is empty, because experts that all tokens share have the dim ffn, by which
  // tensor_parallel cuts them like an MLP.
  return {.experts = pattern_in_blocks(blocks, at_experts),
          .slots = pattern_in_blocks(blocks, beside),
          .shared = "",
          .narrowed = ops_with(graph, "latent,hidden"),
          .whole = ops_with(graph, "experts,seq"),
          .cut = ""};
}

Status check(const RecipeArguments& arguments, const Graph& graph, const Mixture& mixture) {
  const bool over_tp = arguments.flag("experts_over_tp");
  const int64_t ep = arguments.number("ep"), experts = size_of(graph, mixture.experts, "experts");
  if (experts == 0) {
    return invalid_input(fmt::format(
        "expected ops {} with the dim 'experts' (as mixtral has), found none", kExperts));
  }
  if (ep > experts) {
    return invalid_input(fmt::format("ep = {} is more than the {} experts", ep, experts));
  }
  const int64_t tp = arguments.number("tp");
  if (over_tp && ep * tp > experts) {
    return invalid_input(
        fmt::format("ep tp = {} is more than the {} experts, which "
                    "experts_over_tp leaves whole",
                    ep * tp, experts));
  }
  return check_zero(arguments);
}

// Emits expert parallelism. The batch is cut over dp and ep, but in the ops of the experts
// (`arrive` to `down`) the experts are cut over ep and the batch over dp alone. With tp, each
// expert is cut as an MLP is, or the experts are cut over ep and tp and each stays whole
// (`experts_over_tp`). A slot is sent in tp pieces of hidden.
Result<PlanText> emit_expert_parallel(const RecipeArguments& arguments, const Graph& graph) {
  const Blocked blocks(graph);
  const Mixture mixture = blocks.named ? named_mixture() : found_mixture(blocks);
  TESSERA_TRY_VOID(check(arguments, graph, mixture));
  const int64_t pp = arguments.number("pp");
  PlanText text{.mesh = {{"pp", pp},
                         {"dp", arguments.number("dp")},
                         {"ep", arguments.number("ep")},
                         {"tp", arguments.number("tp")}},
                .micro_batches = arguments.number("micro_batches")};
  const bool replicated = text.has("dp") || text.has("ep");
  TESSERA_TRY_VOID(named_pipeline(text, graph, arguments));
  if (replicated) text.split("*", "batch", "dp,ep");
  const bool over_tp = arguments.flag("experts_over_tp") && text.has("tp");
  if (text.has("ep")) text.split(mixture.experts, "batch", "dp");
  if (text.has("ep") || over_tp) text.split(mixture.experts, "experts", over_tp ? "ep,tp" : "ep");
  const bool sequence_shard = arguments.flag("sequence_shard");
  TESSERA_TRY_VOID(tensor_parallel(text, graph, sequence_shard));
  if (sequence_shard) {  // routing needs whole sequences
    text.split(mixture.whole, "seq", "none");
    text.split(mixture.cut, "seq", "tp");
  }
  text.split(mixture.experts, "ffn", over_tp ? "none" : "tp");
  if (has_dim(graph, mixture.shared, "ffn")) text.split(mixture.shared, "ffn", "tp");
  const bool latent = has_dim(graph, mixture.slots, "latent");
  text.split(mixture.slots, latent ? "latent" : "hidden", "tp");
  if (latent) text.split(mixture.narrowed, "latent", "tp");
  TESSERA_TRY_VOID(recompute(text, graph, arguments.text("recompute")));
  // Each tensor rests in shards over its replicas. For an expert's weights these are the ranks of
  // dp, because ep cuts the experts already.
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
        flag("sequence_shard", false, "between the split ops, seq over tp"), recompute_argument(),
        flag("experts_over_tp", false,
             "whole experts lie over ep and tp, in place of being cut over tp")},
       emit_expert_parallel},
  };
}

}  // namespace tessera::recipes
