#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

Result<std::string> emit_pipeline(const RecipeArguments& arguments, const Graph& graph,
                                  const std::string& schedule) {
  const int64_t pp = arguments.number("pp");
  PlanText text{.mesh = {{"pp", pp}}, .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(pipeline(text, graph, pp, schedule));
  return text.str();
}

}  // namespace

std::vector<Recipe> pipeline_recipes() {
  const auto pipeline_in = [](const std::string& schedule) {
    return [schedule](const RecipeArguments& a, const Graph& graph) {
      return emit_pipeline(a, graph, schedule);
    };
  };
  const std::vector<RecipeArgument> arguments{pp_argument(std::nullopt),
                                              micro_batches_argument(std::nullopt)};
  return {
      {"gpipe", "pipeline: all forwards, then all backwards", arguments, pipeline_in("gpipe")},
      {"one_f_one_b", "pipeline: one forward, one backward in turn", arguments,
       pipeline_in("1f1b")},
  };
}

}  // namespace tessera::recipes
