// Finds plans whose tensors rest in the host's memory. The offloaded tensors are written as a part
// of a plan (plan/part.h), as a user would write it for --with. The search finds the rest of the
// plan, and prices programs that contain the part. So there is no second cost model, and planners
// need not know the cost of a copy to the host. The names of the parts, each with the tensors that
// rest on the host:
//
//   optimizer   the optimizer's state, which the host then updates
//   states      gradients and parameters too; parameters come to the device once a step
//   all         parameters for each use, and activations that the backward pass reads
//
//   TESSERA_TRY(PlanAnswer answer, find_in_space(question, whole_space));
//   TESSERA_TRY(answer, find_with_offload(question, std::move(answer)));
//
// Each part costs a search of its own. It is searched only where it can help: where nothing fits
// otherwise, or where memory binds and a good part of the memory is optimizer state. Machines whose
// devices are the host's own cores are left out, because they gain nothing.
#pragma once

#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns the values of `--fix offload=`: "none" and the names above.
const std::vector<std::string>& offload_names();
// Returns the name for people of the tensors that rest on the host: "optimizer state" for
// "optimizer"; "" for "none".
std::string offload_text(const std::string& name);

// Returns the best of `plain`, the answer without offload, and the answers with offload: the
// fastest answer that fits or, if none fits, the one that needs the least memory.
Result<PlanAnswer> find_with_offload(const PlanQuestion& question, PlanAnswer plain);
// Returns the answer of a search whose plans offload the tensors of `name`, which is not "none".
// Errors: those of the search.
Result<PlanAnswer> find_offloaded(const PlanQuestion& question, const std::string& name);

}  // namespace tessera
