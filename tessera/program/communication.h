// What reports and traces say of a program's communication, the same for a step that was simulated
// and for one that ran.
#pragma once

#include <string>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/program.h"

namespace tessera {

// What the member of the group sends for an issue.
Traffic sent_traffic(const Issue& issue, size_t member);

// "blocks.0.attn.q.weight", "blocks.0.attn.q.weight and 3 more": what an issue moves.
std::string moved_tensors(const Issue& issue, const Graph& graph);

}  // namespace tessera
