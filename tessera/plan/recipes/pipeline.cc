#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {

std::vector<Recipe> pipeline_recipes() {
  const auto text_of = [](const RecipeArguments& arguments) {
    return PlanText{.mesh = {{"pp", arguments.number("pp")}},
                    .micro_batches = arguments.number("micro_batches")};
  };
  const auto pipeline_in = [=](const std::string& schedule) {
    return [=](const RecipeArguments& arguments, const Graph& graph) -> Result<PlanText> {
      PlanText text = text_of(arguments);
      TESSERA_TRY_VOID(pipeline(text, graph, arguments.number("pp"), schedule));
      return text;
    };
  };
  const auto named = [=](const RecipeArguments& arguments, const Graph& graph) -> Result<PlanText> {
    PlanText text = text_of(arguments);
    TESSERA_TRY_VOID(named_pipeline(text, graph, arguments));
    return text;
  };
  std::vector<RecipeArgument> arguments{pp_argument(std::nullopt),
                                        micro_batches_argument(std::nullopt)};
  std::vector<Recipe> recipes{
      {"gpipe", "pipeline: all forwards, then all backwards", arguments, pipeline_in("gpipe")},
      {"one_f_one_b", "pipeline: one forward, one backward in turn", arguments,
       pipeline_in("1f1b")},
  };
  arguments.push_back(schedule_argument());
  arguments.push_back(chunks_argument());
  recipes.push_back({"pipeline", "pipeline with any schedule: stages and places as it wants them",
                     arguments, named});
  return recipes;
}

}  // namespace tessera::recipes
