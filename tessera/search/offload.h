// Tensors that rest in the host's memory. How much rests there is a level of a choice
// (Choice::offload), as recomputation is:
//
//   optimizer   the optimizer's state, which the host then updates
//   states      gradients and parameters too; parameters come to the device once a step
//   all         parameters for each use, and activations that the backward pass reads
//
//   add_offloaded(question, ranked);      // choices that fit with a level, beside those without one
//
// A step is never shorter for a level, so a choice needs one only if it does not fit without. The
// level's bounds on time and memory cost nothing. Only a choice that is about to be simulated is
// priced with its level (Ranking::refine).
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/recipes/writer.h"
#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

// Returns the values of `--fix offload=`: "none" and the names above.
const std::vector<std::string>& offload_names();
// Returns the name for people of the tensors that rest on the host: "optimizer state" for
// "optimizer"; "" for "none".
std::string offload_text(const std::string& name);
// Writes where the tensors of a level rest; nothing for the name "".
void write_offload(recipes::PlanText& text, const std::string& name);

// Adds to the ranked choices those that do not fit, are faster by formula than all that fit, and
// fit with a level: each with its least such level. If the question fixes a level, gives all
// choices that one. Machines whose devices are the host's own cores are left out, because they gain
// nothing.
void add_offloaded(const PlanQuestion& question, std::vector<PlanCandidate>& ranked);

}  // namespace tessera
