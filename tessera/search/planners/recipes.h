// The planner `recipes` (docs/planners/recipes.md) takes every recipe that fits the model and the
// machine, with the arguments that are the fastest by simulation. It knows nothing of what a recipe
// does: its arguments and their choices are those of the table of recipes, and which of its numbers
// count ranks is found by writing plans. So the answer is the best of what users write by hand, a
// baseline for planners with spaces of their own, and a new recipe is in it at once.
//
// Recipes with an argument that is any text without a default (per_op, per_layer) are left out, and
// plans that change values on their way (codecs).
//
//   TESSERA_TRY(const PlanAnswer answer, find_by_recipes(question));
//   answer.simulated;      // the best call of each recipe, the fastest first
#pragma once

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

// Answers a question. Each recipe may simulate an equal share of PlanQuestion::evaluations; 10 to
// 48 programs, by the number of the model's ops, if none is given. `fixed`: arguments of recipes by
// their names; a recipe without such an argument is left out. Errors: no recipe has what is fixed;
// a part of a plan, which recipes do not take; what PlanSearch::begin says.
Result<PlanAnswer> find_by_recipes(const PlanQuestion& question);

// Returns the answer of a search, or a recipe's plan that is faster. The programs that the search
// was allowed and did not simulate go to recipes, and the last of them to edits of how the best
// plan transfers. The answer is returned as it is if too few programs are left, or the model is so
// small that the search simulated its whole space. `question`: the one that was answered, with what
// the search added to it as a part. Recipes do not take a part of the user's, so such questions are
// not asked here.
Result<PlanAnswer> find_with_recipes(const PlanQuestion& question, PlanAnswer answer);

}  // namespace tessera
