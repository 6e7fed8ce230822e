// A strategy of its own for each range of layers, on one mesh (docs/theory/galvatron.md section 2).
#include "tessera/base/text.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/recipes/per_layer_spec.h"

namespace tessera::recipes {
namespace {

// `before` and `after`: what lies around the blocks and is treated as the nearest one.
Status add_range(PlanText& text, const Graph& graph, const LayerRange& range, const Axes& axes,
                 const std::vector<std::string>& before, const std::vector<std::string>& after) {
  const auto [tp, dp] = axes_of(range, axes);
  const std::string layers = range.layers(), blocks = "blocks." + layers;
  std::vector<std::string> scopes = before, with_vocab;
  scopes.push_back(blocks);
  scopes.insert(scopes.end(), after.begin(), after.end());
  const std::string all = alternatives(scopes);
  for (const std::string& top : scopes) {
    if (has_dim(graph, top, "vocab")) with_vocab.push_back(top == "embed" ? "embed.token" : top);
  }
  const auto split = [&](const std::string& ops, const std::string& dim, const std::string& over) {
    if (!over.empty() && has_dim(graph, ops, dim)) text.split(ops, dim, over);
  };
  split(all, "batch", dp);
  if (range.sequence_shard && !tp.empty()) {
    split(all, "seq", tp);
    text.split(ops_with(graph, "heads,seq", "", layers), "seq", "");
    text.split(ops_with(graph, "ffn,seq", "", layers), "seq", "");
    if (!with_vocab.empty()) text.split(alternatives(with_vocab), "seq", "");
  }
  if (!tp.empty() && has_dim(graph, blocks + ".attn", "heads")) {
    TESSERA_TRY(const std::string heads, heads_dim(graph, "tp", range.degree("tp")));
    split(blocks + ".attn", heads, tp);
  }
  split(blocks + ".mlp", "ffn", tp);
  if (!with_vocab.empty()) split(alternatives(with_vocab), "vocab", tp);
  const std::string parameters = all + ".*{weight,bias}";
  if (range.zero >= 1) text.store("optimizer.*." + parameters, dp);
  if (range.zero >= 2) text.store("grad." + parameters, dp);
  if (range.zero >= 3) text.store(parameters, dp);
  TESSERA_TRY_VOID(recompute(text, graph, range.recompute, layers));
  return {};
}

Result<PlanText> emit_per_layer(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t layers = block_count(graph);
  if (layers == 0) return invalid_input("expected blocks (ops blocks.<i>), found none");
  TESSERA_TRY(const auto ranges, parse_layer_ranges(arguments.text("spec"), layers));
  TESSERA_TRY(const Axes axes, common_axes(ranges));
  PlanText text{.mesh = {{"pp", arguments.number("pp")}},
                .micro_batches = arguments.number("micro_batches")};
  text.mesh.insert(text.mesh.end(), axes.begin(), axes.end());
  TESSERA_TRY_VOID(pipeline(text, graph, arguments.number("pp"), "1f1b"));
  const auto [before, after] = around_blocks(graph);
  for (size_t r = 0; r < ranges.size(); ++r) {
    const auto none = std::vector<std::string>();
    TESSERA_TRY_VOID(add_range(text, graph, ranges[r], axes, r == 0 ? before : none,
                               r + 1 == ranges.size() ? after : none));
  }
  return text;
}

}  // namespace

std::vector<Recipe> per_layer_recipes() {
  return {{"per_layer",
           "Galvatron: its own tp, dp, sharding and recomputation for each range of layers",
           {{"spec", std::nullopt, "\"0-3:tp2,dp2;4-7:dp4,zero3,recompute\"", 0, true},
            pp_argument("1"),
            micro_batches_argument("1")},
           emit_per_layer}};
}

}  // namespace tessera::recipes
