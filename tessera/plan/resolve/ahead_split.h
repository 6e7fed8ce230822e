// Split entries with the dim "step", which stands for the sequence of training steps
// (docs/adr/0067-steps-ahead.md). With `over = "ahead"` the selected ops of a step run at the end
// of the step before, after the updates of the tensors that these ops read. With `over =
// "ahead_stale"` they do not wait for these updates and read the old values. Private to
// tessera/plan, except is_ahead.
//
// Embedding vectors that are looked up ahead are kept until the next training step, and they are
// those of its whole batch. A plan with such an entry therefore cannot run its micro-batches
// through the same ops one after the other. Its micro-batches are replaced by the steps of a time
// loop over the batch. The loop is written out in the graph, so that each of its steps has look-ups
// and buffers of its own:
//
//   micro_batches = 4                  loop = [{ ops = "*", dim = "batch", steps = 4 }]
#pragma once

#include <string_view>

#include "tessera/graph/ahead.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/resolve/selection.h"

namespace tessera {

inline constexpr std::string_view kStepDim = "step", kAhead = "ahead", kStale = "ahead_stale";

inline bool is_ahead(const SplitEntry& entry) { return entry.dim == kStepDim; }
// Replaces the micro-batches by the loop that is shown above, if the plan has several micro-batches
// and a split entry with the dim "step"; else changes nothing. Returns an error if a plan with
// several stages asks for another schedule than "gpipe", because in the loop all forward passes run
// before the first backward pass.
Status write_out_micro_batches(Plan& plan);
// Returns the ops that the plan's entries with the dim "step" move ahead. If two entries select the
// same op, the later entry decides.
Result<AheadOps> ops_ahead(const Plan& plan, const Graph& graph, GraphNames& names);

}  // namespace tessera
