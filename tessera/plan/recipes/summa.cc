#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// `Products2d` describes the matrix products of a model. `made` has the names of the dims of
// results that come from the second operand. `summed` has for each dim that products sum over the
// paths of these products.
struct Products2d {
  std::vector<std::string> made;
  std::map<std::string, std::vector<std::string>> summed;
};

Products2d all_products(const Graph& graph) {
  Products2d out;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || info_of(op).work != WorkClass::kMatmul) continue;
    // The op has one operand, which it transposes or renames.
    if (op.annotation.inputs.size() < 2) continue;
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const auto dim = static_cast<int>(d);
      const bool summed = op.annotation.reduces(dim, 0);
      // If it is not summed, a dim of stacked products.
      const bool shared = op.annotation.inputs[0].contains(dim);
      // A dim of the first operand alone, or of stacked products.
      if (!op.annotation.inputs[1].contains(dim) || (shared && !summed)) continue;
      const std::string& name = op.annotation.dims[d].name;
      if (summed) {
        out.summed[name].push_back(op.path);
      } else if (std::find(out.made.begin(), out.made.end(), name) == out.made.end()) {
        out.made.push_back(name);
      }
    }
  }
  return out;
}

Status enough_heads(const Graph& graph, const std::string& attention, const std::string& dim,
                    std::string_view side, int64_t cols) {
  if (size_of(graph, attention, dim) >= cols) return {};
  return invalid_input(fmt::format("{} = {} is more than both heads = {} and group = {}", side,
                                   cols, size_of(graph, attention, "heads"),
                                   size_of(graph, attention, "group")));
}

// Emits the 2-D scheme of Optimus (docs/strategies/summa.md sections 2 to 4; section 8 for
// `depth`). Each matrix product is a time loop over the dim that it sums over. Its output features
// are cut over the columns of the mesh, as is the residual stream; the batch is cut over depth and
// rows. On a rectangular mesh the number of steps is the least common multiple of its sides. If
// `rotated`, the operands move around rings (Cannon's scheme).
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
  // Makes the products a loop over the dim. If the dim has fewer elements than steps, there is no
  // loop, and its pieces are gathered.
  const auto walk = [&](const std::string& ops, const std::string& dim) {
    const bool enough = !ops.empty() && size_of(graph, ops, dim) >= steps;
    split_if(ops, dim, enough ? fmt::format("time:{}", steps) : "");
  };
  const std::string_view side = arguments.number("cols") > 0 ? "cols" : "q";
  const std::string attention = scope_with(graph, "attn", "heads");
  // The model is a chain of products without a known structure.
  const bool chain = attention.empty() && !Blocked(graph).named;
  if (chain) {
    const Products2d layers = all_products(graph);
    for (const std::string& dim : layers.made) {
      if (dim != "hidden") text.split("*", dim, "col");
    }
    for (const auto& [dim, paths] : layers.summed) walk(alternatives(paths), dim);
  } else {
    std::string heads = "heads";
    if (!attention.empty()) {
      TESSERA_TRY(heads, heads_dim(graph, side, cols));
      TESSERA_TRY_VOID(enough_heads(graph, attention, heads, side, cols));
    }
    walk(products(graph, "heads", Products::kInto), "hidden");
    walk(products(graph, "ffn", Products::kInto), "hidden");
    split_if(attention, heads, "col");
    split_if(scope_with(graph, "mlp", "ffn"), "ffn", "col");
    walk(products(graph, "heads", Products::kOutOf), heads);
    walk(products(graph, "ffn", Products::kOutOf), "ffn");
    walk(alternatives(ops_outside(graph, "vocab,hidden")), "vocab");
    split_if(alternatives(loss_ops(graph)), "vocab", "col");
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
