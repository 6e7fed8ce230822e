#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// The matrix products of a model without blocks, by the dims that they make and that they sum over.
struct Products2d {
  std::vector<std::string> made;
  std::map<std::string, std::vector<std::string>> summed;  // paths
};

Products2d products_without_blocks(const Graph& graph) {
  Products2d out;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || info_of(op).work != WorkClass::kMatmul) continue;
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const auto dim = static_cast<int>(d);
      if (!op.annotation.inputs[1].contains(dim)) continue;  // rows
      const std::string& name = op.annotation.dims[d].name;
      if (op.annotation.reduces(dim, 0)) {
        out.summed[name].push_back(op.path);
      } else if (std::find(out.made.begin(), out.made.end(), name) == out.made.end()) {
        out.made.push_back(name);
      }
    }
  }
  return out;
}

// Optimus 2-D: each matrix product as steps over its reduction dim, its output features over the
// columns, the batch over depth and rows; the residual stream is cut over the columns
// (docs/theory/optimus-2d.md sections 3-5; with depth: docs/theory/tesseract-2.5d.md). On a
// rectangle the steps are the least common multiple of its sides. Rotated steps make the operands
// move around rings (Cannon).
Result<PlanText> emit_grid(const RecipeArguments& arguments, const Graph& graph, bool rotated) {
  const int64_t rows = arguments.number("q");
  const int64_t cols = arguments.number("cols") > 0 ? arguments.number("cols") : rows;
  const int64_t steps = std::lcm(rows, cols);
  TESSERA_TRY(PlanText text,
              outer(arguments, graph,
                    {{"depth", arguments.number("depth")}, {"row", rows}, {"col", cols}}));
  const Rotation rotation{rotated ? "row,col" : ""};
  TESSERA_TRY_VOID(data_parallel(text, graph, "dp,depth,row"));
  if (rows * cols > 1 && !has_dim(graph, "*", "hidden"))
    return invalid_input("expected ops with the dim 'hidden', found none");
  text.split("*", "hidden", "col");
  const auto split_if = [&](const std::string& ops, const std::string& dim,
                            const std::string& over) {
    if (!ops.empty() && has_dim(graph, ops, dim)) text.split(ops, dim, over, rotation);
  };
  // A dim of fewer elements than steps is not walked: its pieces are gathered.
  const auto walk = [&](const std::string& ops, const std::string& dim) {
    const bool enough = !ops.empty() && size_of(graph, ops, dim) >= steps;
    split_if(ops, dim, enough ? fmt::format("time:{}", steps) : "");
  };
  const std::string_view side = arguments.number("cols") > 0 ? "cols" : "q";
  std::string heads = "heads";
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    TESSERA_TRY(heads, heads_dim(graph, side, cols));
    if (size_of(graph, "blocks.*.attn", heads) < cols) {
      return invalid_input(fmt::format("{} = {} is more than both heads = {} and group = {}", side,
                                       cols, size_of(graph, "blocks.*.attn", "heads"),
                                       size_of(graph, "blocks.*.attn", "group")));
    }
  }
  walk(products(graph, "heads", Products::kInto), "hidden");
  walk(products(graph, "ffn", Products::kInto), "hidden");
  split_if("blocks.*.attn", heads, "col");
  split_if("blocks.*.mlp", "ffn", "col");
  walk(products(graph, "heads", Products::kOutOf), heads);
  walk(products(graph, "ffn", Products::kOutOf), "ffn");
  walk(alternatives(ops_outside(graph, "vocab,hidden")), "vocab");
  split_if("loss", "vocab", "col");
  if (block_count(graph) == 0) {
    const Products2d layers = products_without_blocks(graph);
    for (const std::string& dim : layers.made) {
      if (dim != "hidden") text.split("*", dim, "col");
    }
    for (const auto& [dim, paths] : layers.summed) walk(alternatives(paths), dim);
  }
  text.store("role:parameter", "row");
  zero(text, arguments.number("zero"), "dp,depth");
  return text;
}

}  // namespace

std::vector<Recipe> summa_recipes() {
  const auto grid = [](bool rotated) {
    return [rotated](const RecipeArguments& a, const Graph& g) { return emit_grid(a, g, rotated); };
  };
  const RecipeArgument q = number("q", std::nullopt, "rows of the mesh, and columns");
  const RecipeArgument cols = number("cols", "0", "columns if not as many as rows", 0);
  RecipeArgument depth = number("depth", "1", "copies of the mesh; each works on its own batch");
  std::vector<Recipe> recipes{
      {"summa", "Optimus 2-D: batch over rows, features over columns, products in q aligned steps",
       with_outer({q, cols, depth}), grid(false)},
      {"cannon", "2-D as summa, but operands move around rings: rotated steps",
       with_outer({q, cols, depth}), grid(true)}};
  depth.otherwise = std::nullopt;
  recipes.push_back({"tesseract",
                     "2.5-D: depth copies of a q x q mesh; gradients summed over depth",
                     with_outer({q, depth, cols}), grid(false)});
  return recipes;
}

}  // namespace tessera::recipes
