// Splits of "step", the batches of a run, one for each step (docs/adr/0067-steps-ahead.md). `over =
// "ahead"` moves ops to the end of the step before, behind the updates of the tensors that they
// read; with "ahead_stale" the ops do not wait for these updates. Private to tessera/plan, except
// is_ahead.
//
// The vectors that are looked up ahead are kept until the next step, for its whole batch. Several
// micro-batches are therefore turned into the steps of a loop over the batch, which is written out
// in the graph, so that each step has look-ups and buffers of its own:
//
//   micro_batches = 4                  loop = [{ ops = "*", dim = "batch", steps = 4 }]
#pragma once

#include <string_view>

#include "tessera/graph/ahead.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/selection.h"

namespace tessera {

inline constexpr std::string_view kStepDim = "step", kAhead = "ahead", kStale = "ahead_stale";

inline bool is_ahead(const SplitEntry& entry) { return entry.dim == kStepDim; }
// Replaces several micro-batches by that loop, if the plan has such entries. Returns an error if
// the plan asks for a schedule in which a backward pass begins before the last forward pass.
Status write_out_micro_batches(Plan& plan);
// Returns the ops that the plan's entries move. A later entry overrides an earlier one for the same
// op.
Result<AheadOps> ops_ahead(const Plan& plan, const Graph& graph, GraphNames& names);

}  // namespace tessera
