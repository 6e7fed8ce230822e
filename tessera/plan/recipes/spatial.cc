// Recipes that cut the maps of convolutional networks in space and by channels
// (docs/strategies/spatial.md).
#include "tessera/base/text.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/maps.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

// Emits a data parallel plan whose replicas cut maps as the arguments say.
Result<PlanText> emit_maps(const RecipeArguments& arguments, const Graph& graph) {
  Axes axes;
  for (const std::string& name : split_text(std::string(kMapAxes), ','))
    axes.emplace_back(name, arguments.number(name));
  TESSERA_TRY(PlanText text, outer(arguments, graph, axes));
  TESSERA_TRY(CutMaps cut, uncut_maps(arguments, graph));
  const std::string all = "dp," + std::string(kMapAxes);
  const size_t before = text.splits.size();
  TESSERA_TRY_VOID(data_parallel(text, graph));
  const size_t replicas = text.splits.size() - before;
  TESSERA_TRY_VOID(cut_space(text, graph, arguments, cut));
  TESSERA_TRY_VOID(cut_channels(text, graph, arguments, cut));
  // After the last op that is cut, the batch is cut over all ranks, so that each rank has samples
  // of its own.
  const std::vector<OpId> behind = cut.behind(graph);
  if (text.splits.size() > before + replicas && !behind.empty() && arguments.flag("samples"))
    text.split(alternatives(patterns_of(graph, behind, "batch")), "batch", all);
  zero(text, arguments.number("zero"), all);
  return text;
}

}  // namespace

std::vector<Recipe> spatial_recipes() {
  return {{"spatial",
           "samples cut in space: convolutions and pools exchange halos, norms their statistics",
           map_arguments(""), emit_maps},
          {"channel_parallel",
           "convolutions cut by the channels that they sum over: what they make is summed and "
           "scattered",
           map_arguments("channels"), emit_maps},
          {"filter_parallel",
           "convolutions cut by the channels that they make: what they read is gathered",
           map_arguments("filters"), emit_maps}};
}

}  // namespace tessera::recipes
