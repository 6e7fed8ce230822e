#include "tessera/plan/recipes/families.h"

#include <fmt/format.h>

#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// Optimus 2-D: each matrix product as q aligned steps over its reduction dim, its output features
// over the columns, the batch over the rows; the residual stream is cut over the columns
// (optimus-2d.md sections 3-5).
Result<std::string> emit_summa(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t q = arguments.number("q");
  if (q == 1) return PlanText{}.str();
  const std::string steps = fmt::format("time:{}", q);
  PlanText text{.mesh = {{"row", q}, {"col", q}}};
  for (const char* dim : {"batch", "hidden"}) {
    if (!has_dim(graph, "*", dim))
      return invalid_input(fmt::format("expected ops with the dim '{}', found none", dim));
  }
  text.split("*", "batch", "row");
  text.split("*", "hidden", "col");
  const auto split_if = [&](const std::string& ops, const std::string& dim,
                            const std::string& over) {
    if (has_dim(graph, ops, dim)) text.split(ops, dim, over);
  };
  std::string heads = "heads";
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    TESSERA_TRY(heads, heads_dim(graph, "q", q));
    if (size_of(graph, "blocks.*.attn", heads) < q) {
      return invalid_input(fmt::format("q = {} is more than both heads = {} and group = {}", q,
                                       size_of(graph, "blocks.*.attn", "heads"),
                                       size_of(graph, "blocks.*.attn", "group")));
    }
  }
  split_if("blocks.*.attn.{q,k,v}", "hidden", steps);
  split_if("blocks.*.mlp.{up,gate}", "hidden", steps);
  split_if("blocks.*.attn", heads, "col");
  split_if("blocks.*.mlp", "ffn", "col");
  split_if("blocks.*.attn.out", heads, steps);
  split_if("blocks.*.mlp.down", "ffn", steps);
  split_if("{embed.token,head}", "vocab", steps);
  split_if("loss", "vocab", "col");
  text.store("role:parameter", "row");
  return text.str();
}

}  // namespace

std::vector<Recipe> summa_recipes() {
  return {
      {"summa",
       "Optimus 2-D on q x q ranks: batch over rows, features over columns, products in q steps",
       {number("q", std::nullopt, "rows, and columns, of the mesh")},
       emit_summa},
  };
}

}  // namespace tessera::recipes
