// Plans that take fused ops apart. A kind of ops with an expansion (KindInfo::expand: attention as
// products and a softmax) has two sets of kernels; which is faster depends on the machine, the shapes
// and the dtype. Which ops are taken apart is a part of a plan (plan/part.h), as a user would write
// it for --with: `expand = "blocks.*.attn.core"`; the rest is searched around it.
//
//   Expanded best = find_with_expansions(question, [](const PlanQuestion& with) { return find(with); });
//   best.answer, best.question.part;      // the part, if ops are taken apart
//
// Of large questions the search is made once where one of both is clearly faster. The folded model is
// priced first, as it is and with each kind of ops taken apart, a few sequences uncut on one device.
// Where taking apart is clearly faster, the search around it comes first. It is the only one if the
// passes of its answer are clearly faster, too, and memory does not bind. In all other cases, and of
// small questions, which are searched whole, the search of the model as it is decides which kinds are
// faster, cut as in its answer, and the search is made again around these.
#pragma once

#include <functional>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

struct Expanded {
  PlanQuestion question;  // with the part, if that is better
  PlanAnswer answer;
};

// The fastest of what `find` says. The question is asked as it is if its part has the key `expand`.
// Errors: those of the model's text, and of `find`.
Result<Expanded> find_with_expansions(
    const PlanQuestion& question,
    const std::function<Result<PlanAnswer>(const PlanQuestion&)>& find);

}  // namespace tessera
