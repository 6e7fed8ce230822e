// Applies a part of a plan (plan/layout/part.h) to a search, so that every plan that the search emits
// contains the part. Settings that the part fixes are not searched. Plans that cannot contain the
// part are no candidates.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/plan/layout/part.h"
#include "tessera/search/choices/choice.h"
#include "tessera/search/question/question.h"

namespace tessera {

// Returns the names of the axes that plans of planners have. Entries of a part may name these axes.
const std::vector<std::string>& planned_axes();

// Returns the question with the entries of `text` added to its part, before the part's own entries.
// The text has entries only. `name`: a name of the text for messages. Errors: those of the text.
Result<PlanQuestion> with_more(const PlanQuestion& question, std::string_view text,
                               const std::string& name);

// Returns the question with the axis sizes, the micro-batches and the schedule of its part added to
// `fixed`. For an axis that planners do not write, the search gets the number of devices divided by
// the axis's size, and the part alone uses the axis. Errors (with file and line): a setting is
// fixed to another value, the part's axes need more devices than there are.
Result<PlanQuestion> fixed_by_part(PlanQuestion question);

// Checks that each entry of the part selects ops or tensors of the model that may be cut or kept as
// the entry says. Errors: those of resolve(), with file and line.
Status check_part(const PlanPart& part, const std::shared_ptr<const Graph>& forward,
                  Compiler& compiler, const OptimizerSpec& optimizer);

// Checks that plans of the choice have the axes and stages that the part names, and in the part's
// sizes. Errors: what these plans lack, with file and line.
Status goes_with(const PlanPart& part, const Choice& choice);

// Returns whether the part has only keys that say neither where nor when something is computed.
// Such a part can be added to any plan that a recipe writes.
bool goes_with_recipes(const PlanPart& part);

// Returns the part without stages, micro-batches, and entries over axes that `plan` lacks. The
// result can be added to `plan`, which has a single stage and prices units.
PlanPart part_for_units(const PlanPart& part, const Plan& plan);

}  // namespace tessera
