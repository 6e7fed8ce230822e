#include "tessera/plan/recipes/families.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/schedule.h"

namespace tessera::recipes {
namespace {

Result<std::string> emit_megatron(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t pp = arguments.number("pp");
  const std::string& schedule = arguments.text("schedule");
  if (arguments.number("zero") > 3) {
    return invalid_input(
        fmt::format("expected zero = 0, 1, 2 or 3, found {}", arguments.number("zero")));
  }
  const auto names = schedule_names();
  if (std::find(names.begin(), names.end(), schedule) == names.end()) {
    return invalid_input(fmt::format("unknown schedule '{}', did you mean '{}'?", schedule,
                                     nearest(schedule, names)));
  }
  PlanText text{
      .mesh = {{"pp", pp}, {"dp", arguments.number("dp")}, {"tp", arguments.number("tp")}},
      .micro_batches = arguments.number("micro_batches")};
  TESSERA_TRY_VOID(pipeline(text, graph, pp, schedule));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  TESSERA_TRY_VOID(tensor_parallel(text, graph));
  zero(text, arguments.number("zero"));
  return text.str();
}

}  // namespace

std::vector<Recipe> megatron_recipes() {
  return {
      {"megatron",
       "pipeline of stages, each tensor parallel and data parallel",
       {tp_argument("1"),
        pp_argument("1"),
        dp_argument("1"),
        number("zero", "0", "0, or what is sharded over dp at rest: see zero", 0),
        micro_batches_argument("1"),
        {"schedule", "1f1b", "order of blocks: " + join(schedule_names(), ", "), 0, true}},
       emit_megatron},
  };
}

}  // namespace tessera::recipes
