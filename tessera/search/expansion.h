// Finds plans that take fused ops apart. A kind of ops with an expansion (KindInfo::expand:
// attention as products and a softmax) has two sets of kernels; which is faster depends on the
// machine, the shapes and the dtype. The ops that are taken apart are a part of a plan
// (plan/part.h), as a user would write it for --with: `expand = "blocks.*.attn.core"`; the rest is
// searched around it.
//   Expanded best = find_with_expansions(question, [](const PlanQuestion& with) { return find(with); });
//   best.answer, best.question.part;      // the part, if ops are taken apart
//
// For large questions one search is enough where one of the two sets is clearly faster. The folded
// model is priced first, as it is and with each kind of ops taken apart, for a few sequences uncut
// on one device. Where taking apart is clearly faster, the search around it comes first. It stays
// the only search if the passes of its answer are clearly faster, too, and memory does not bind. In
// all other cases, and for small questions, which are searched whole, the search of the model as it
// is comes first; the kinds that are faster taken apart, cut as in its answer, are then searched
// around.
#pragma once

#include <functional>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

struct Expanded {
  PlanQuestion question;  // with the part, if that is better
  PlanAnswer answer;
};

// Returns the fastest answer of `find`. The question is asked as it is if its part has the key
// `expand`. Errors: those of the model's text, and of `find`.
Result<Expanded> find_with_expansions(
    const PlanQuestion& question,
    const std::function<Result<PlanAnswer>(const PlanQuestion&)>& find);

}  // namespace tessera
