// Finds plans that take fused ops apart. To take an op apart is to compute its expansion
// (KindInfo::expand) in its place: attention, for example, as products and a softmax. Which of the
// two is faster depends on the machine, the shapes and the dtype. The ops to take apart are written
// as a part of a plan (plan/layout/part.h), as a user would write it for --with: `expand =
// "blocks.*.attn.core"`. The search then finds the rest of the plan.
//   Expanded best = find_with_expansions(question, [](const PlanQuestion& with) { return find(with); });
//   best.answer, best.question.part;      // the part, if ops are taken apart
//
// For large models one search is enough if taking ops apart is clearly faster. Step 1 prices the
// folded model with a few sequences, uncut, on one device: as it is, and with each kind of ops
// taken apart. Step 2, for the kinds that are then clearly faster: a search with these kinds taken
// apart. Its answer is final if memory does not bind in it and these kinds are clearly faster also
// as this answer cuts them. Step 3, otherwise: a search of the model as it is, and then one more
// search with those kinds taken apart that are faster as the first answer cuts them. The better
// answer wins. Small models (is_small()) begin with step 3.
#pragma once

#include <functional>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

struct Expanded {
  PlanQuestion question;  // the question, with the part if taking ops apart is better
  PlanAnswer answer;
};

// Returns the best answer of `find` with or without ops taken apart. If the question's part has the
// key `expand`, asks only the question itself. Errors: those of the model's text, and of `find`.
Result<Expanded> find_with_expansions(
    const PlanQuestion& question,
    const std::function<Result<PlanAnswer>(const PlanQuestion&)>& find);

}  // namespace tessera
