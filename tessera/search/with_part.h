// Applies a part of a plan (plan/part.h) to a search: every plan that the search emits contains the
// part. Settings of the search that the part fixes are not searched; a plan in which the part
// cannot stand is no candidate.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/plan/part.h"
#include "tessera/search/choice.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns the axes of plans that planners write, which entries of a part may name.
const std::vector<std::string>& planned_axes();

// Returns the question with the text's entries added to its part, in front of the part's own
// entries, so that the text decides. The text has entries only. `name`: of the text, for people.
// Errors: those of the text.
Result<PlanQuestion> with_more(const PlanQuestion& question, std::string_view text,
                               const std::string& name);

// Returns the question with the sizes of axes, the micro-batches and the schedule of its part among
// what is fixed. An axis that planners do not write is the part's own affair: the search has the
// devices that are left, each of which then stands for so many. Errors (with file and line):
// something else is fixed, more devices than there are.
Result<PlanQuestion> fixed_by_part(PlanQuestion question);

// Checks that the part's entries select something of the model that may be cut or kept so. Errors:
// as resolve(), with file and line.
Status check_part(const PlanPart& part, const std::shared_ptr<const Graph>& forward,
                  Compiler& compiler, const OptimizerSpec& optimizer);

// Checks that plans of the choice have the axes and stages that the part names, in its sizes.
// Errors: what they lack, with file and line.
Status goes_with(const PlanPart& part, const Choice& choice);

// Returns whether the part has only keys that say neither where nor when something is computed. It
// then goes with what a recipe writes, whatever axes and entries that has.
bool goes_with_recipes(const PlanPart& part);

// Returns the part as far as it concerns the plan of a single stage in which units are priced: all
// but stages, micro-batches and entries over axes that this plan lacks.
PlanPart part_for_units(const PlanPart& part, const Plan& plan);

}  // namespace tessera
