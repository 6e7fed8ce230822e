// Writes plans that split tokens over ranks and compute attention with rings
// (docs/strategies/sequence-parallel.md section 2).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/order.h"
#include "tessera/graph/transform.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

bool is_causal(const Graph& graph) {
  return std::any_of(graph.ops().begin(), graph.ops().end(),
                     [](const Op& op) { return tessera::is_causal(op); });
}

}  // namespace

std::string attention_cores(const Graph& graph, const std::string& layers) {
  return scope_with(graph, "attn.core", "kv", layers);
}

Status tokens(PlanText& text, const Graph& graph, const std::string& axes) {
  if (attention_cores(graph).empty())
    return invalid_input("expected ops blocks.*.attn.core with the dim 'kv', found none");
  text.split("*", "seq", axes);
  return {};
}

// Puts the tokens in an order that balances the work, or does nothing without a causal mask,
// because every order then has balanced work.
void balance(PlanText& text, const Graph& graph, const std::string& order, int64_t ranks) {
  if (order == "none" || ranks == 1 || !is_causal(graph)) return;
  const int64_t pieces = order == "zigzag" ? 2 * ranks : ranks;
  const Status may = check_reorder(graph, "seq", fmt::format("{}:{}", order, pieces));
  if (!may) {
    text.notes.push_back(fmt::format("order = none, not {}: {}", order, may.error().message));
    return;
  }
  text.reorder = order;
  text.pieces = pieces;
}

Status ring_attention(PlanText& text, const Graph& graph, const std::string& rings,
                      const std::string& order) {
  TESSERA_TRY_VOID(tokens(text, graph, rings));
  balance(text, graph, order, text.product(rings));
  text.rotate(attention_cores(graph), "kv", rings);
  return {};
}

RecipeArgument order_argument() {
  return choice("order", "zigzag", {"zigzag", "striped", "none"},
                "of the tokens under a causal mask, if they are cut and the model allows it");
}

}  // namespace tessera::recipes
