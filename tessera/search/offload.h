// Finds plans whose tensors rest in the host's memory. The offloaded tensors are a part of a plan
// (plan/part.h), as a user would write it for --with; the rest is searched around it, with prices
// of programs that have this part. So there is no second cost model, and no planner knows what a
// copy to the host costs.
//
//   optimizer   the optimizer's state, which the host then updates
//   states      gradients and parameters too; parameters come to the device once a step
//   all         parameters for each use, and activations that the backward pass reads
//
//   TESSERA_TRY(PlanAnswer answer, find_in_space(question, whole_space));
//   TESSERA_TRY(answer, find_with_offload(question, std::move(answer)));
//
// These plans are searched only where they can help, because each level is a search of its own:
// where nothing fits, or where memory binds and a good part of it is optimizer state. A machine
// whose devices are the host's own cores gains nothing.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns the values of `--fix offload=`: "none" and the names above.
const std::vector<std::string>& offload_names();
// Returns a readable name of the tensors that rest on the host: "optimizer state".
std::string offload_text(const std::string& name);

// Returns the best of `plain` and the answers with offload: one that fits, then the faster one. If
// nothing fits, returns the one that lacks least memory. Errors: those of a search whose `offload`
// is fixed.
Result<PlanAnswer> find_with_offload(const PlanQuestion& question, PlanAnswer plain);
// Returns the answer to a question that fixes `offload` to another name than "none".
Result<PlanAnswer> find_offloaded(const PlanQuestion& question, const std::string& name);

}  // namespace tessera
