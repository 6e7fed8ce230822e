// Plans that take fused ops apart. A kind of ops with an expansion (KindInfo::expand: attention as
// products and a softmax) has two sets of kernels; which is faster depends on the machine, the shapes
// and the dtype. Which ops are taken apart is a part of a plan (plan/part.h), as a user would write
// it for --with: `expand = "blocks.*.attn.core"`; the rest is searched around it.
//
//   Expanded best = find_with_expansions(question, find_plan(question));
//   best.answer, best.question.part;      // the part, if ops are taken apart
//
// Asked only where it can help: the folded model is priced with each kind of ops taken apart, cut as
// in the answer, and the search is made again with the kinds that make its passes faster.
#pragma once

#include "tessera/search/planner.h"

namespace tessera {

struct Expanded {
  PlanQuestion question;  // with the part, if that is better
  PlanAnswer answer;
};

// The faster of the answer and of what `find` says around the expansions. Nothing is tried if the
// answer is none, or the question's part has the key `expand`. Errors: those of the model's text.
Result<Expanded> find_with_expansions(
    const PlanQuestion& question, PlanAnswer plain,
    const std::function<Result<PlanAnswer>(const PlanQuestion&)>& find);

}  // namespace tessera
