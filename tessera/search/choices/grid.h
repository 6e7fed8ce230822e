// Searches the grid of a framework's degrees (plan/degree_grid.h) for plans that the framework runs.
// The choices of the grid are ranked by formula as those of every planner are. Then the best of each
// kind are simulated, the most promising first; a kind is which sorts of ranks a plan has (tensor,
// context, experts, stages). Several plans may be as fast as the fastest within the uncertainty of
// the prediction; the answer begins with the simplest, which has the fewest sorts of ranks.
//
//   TESSERA_TRY(const GridAnswer answer, find_in_grid(question, grid, accepts));
//   answer.plans.front().text     // the simplest of the plans that are as good as the fastest
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/plan/degree_grid.h"
#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {

struct GridPlan {
  PlanCandidate candidate;  // simulated, and fits
  std::string text;         // of the plan
  int64_t sorts = 0;        // of ranks beside replicas: 0 to 4
};

struct GridAnswer {
  // The plans that fit. First the simplest that is as fast as the fastest within `uncertainty`; then
  // the others, the fastest first. Empty: nothing that the framework runs fits.
  std::vector<GridPlan> plans;
  double uncertainty = 0;  // relative, of the fastest plan's step
  size_t ranked = 0, simulated = 0, refused = 0;
  std::string refusal;  // the first reason for which a plan was refused
  // The least that a device needs under any simulated plan; a limit of 0 is none.
  double least_bytes = 0, limit_bytes = 0;
};

// Returns an error for a plan, given as its text, that the framework does not run.
using AcceptsPlan = std::function<Status(const std::string& plan)>;
// Returns the text of the framework's own plan for a choice that it lays out otherwise than
// write_plan() does; nothing for other choices.
using OwnPlan = std::function<std::optional<std::string>(const Choice& choice)>;
// Returns the plans. Errors: those of find_plan(); no choice of the grid can be made.
Result<GridAnswer> find_in_grid(const PlanQuestion& question, const DegreeGrid& grid,
                                const AcceptsPlan& accepts, const OwnPlan& own = {});

// Returns the choices of a grid for a model.
Space space_of_grid(const DegreeGrid& grid, Ranking& ranking);
// Returns Megatron's grid, the baseline of planners.
DegreeGrid megatron_grid();

}  // namespace tessera
