// The planner `recipes` (docs/planners/recipes.md) tries every recipe that fits the model and the
// machine, with the arguments that are the fastest by simulation. It does not know what a recipe
// does, but takes the arguments from the table of recipes (recipe_sweep.h). So its answer is the
// best plan that users could write with recipes, which is a baseline for planners with spaces of
// their own. A new recipe takes part without further work.
//
// Left out are recipes with an argument that may be any text and has no default (per_op,
// per_layer), and plans that change values in transfers (codecs).
//
//   TESSERA_TRY(const PlanAnswer answer, find_by_recipes(question));
//   answer.simulated;      // the best call of each recipe, the fastest first
#pragma once

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Answers a question. Each recipe may simulate an equal share of PlanQuestion::evaluations or, if
// that is 0, 10 to 48 programs, fewer for models with more ops. Keys of PlanQuestion::fixed are
// names of arguments; recipes without such an argument are left out. Errors: no recipe makes a plan
// with the fixed arguments; a part of a plan with axes or entries; errors of PlanSearch::begin.
Result<PlanAnswer> find_by_recipes(const PlanQuestion& question);

// Returns the better of `answer`, the answer of a search, and the best plan of a race of recipes.
// The race gets the programs that the search was allowed and did not simulate; the last few of them
// go to edits of the best plan's transfers (transfer_choices.h). Returns `answer` as it is if too
// few programs are left, or the model is so small that the search simulated its whole space.
// `question`: the question that was answered, with the part that the search added to it. A part
// must satisfy goes_with_recipes().
Result<PlanAnswer> find_with_recipes(const PlanQuestion& question, PlanAnswer answer);

}  // namespace tessera
