#include <fmt/format.h>

#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// docs/theory/tensor-parallel-3d.md sections 2-4, its axes i, j, l being x, y, z. Of each product x
// cuts the rows, y and z its features, in turn as inputs and as outputs: what one product makes is
// what the next one reads. Between products the rows are also cut over the axis that does not cut
// the features, and weights rest over x: gathered for a product, scattered after it.
Result<PlanText> emit_3d(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t y = arguments.number("y");
  TESSERA_TRY(PlanText text,
              outer(arguments, graph,
                    {{"z", arguments.number("z")}, {"y", y}, {"x", arguments.number("x")}}));
  for (const char* dim : {"batch", "hidden"}) {
    if (!has_dim(graph, "*", dim))
      return invalid_input(fmt::format("expected ops with the dim '{}', found none", dim));
  }
  if (text.has("z") && has_dim(graph, "blocks", "lora")) {
    return invalid_input(
        "expected z = 1, or blocks without the dim 'lora' (low-rank factors), found z above 1 and "
        "the dim");
  }
  text.split("*", "batch", "dp,x,y");
  text.split("*", "hidden", "z");
  const auto features = [&](const std::string& inner, const std::string& over) {
    text.split(ops_with(graph, over + ",hidden"), "batch", "dp,x");
    text.split(ops_with(graph, over, "hidden"), "batch", "dp,x,z");
    text.split(inner, over, "y");
  };
  if (has_dim(graph, "blocks.*.attn", "heads")) {
    TESSERA_TRY(const std::string heads, heads_dim(graph, "y", y));
    features("blocks.*.attn", "heads");
    if (heads != "heads") text.splits.back()[1].second = "\"" + heads + "\"";
  }
  if (has_dim(graph, "blocks.*.mlp", "ffn")) features("blocks.*.mlp", "ffn");
  std::vector<std::string> with_vocab = ops_outside(graph, "vocab,hidden");
  if (!with_vocab.empty()) {
    text.split(alternatives(with_vocab), "batch", "dp,x");
    text.split("loss", "batch", "dp,x,z");
    with_vocab.emplace_back("loss");
    text.split(alternatives(with_vocab), "vocab", "y");
  }
  text.store("role:parameter", "x");
  zero(text, arguments.number("zero"));
  return text;
}

}  // namespace

std::vector<Recipe> tensor_parallel_3d_recipes() {
  return {{"tensor_parallel_3d",
           "rows, inputs and outputs of each product over three axes; everything is stored once",
           with_outer({number("x", std::nullopt, "cuts the rows: batch"),
                       number("y", std::nullopt, "cuts heads, ffn and vocab"),
                       number("z", std::nullopt, "cuts hidden")}),
           emit_3d}};
}

}  // namespace tessera::recipes
