// Internal to the runtime: the parts of a run whose state has checkpoints of its own. A run without
// outer steps is one part. In a run with outer steps (plan/outer_steps.h) each island is a part,
// whose parameters and optimizer states differ from those of the others, and each fragment is one,
// with the parameters of its last outer step and the states of the outer optimizer. The part's
// checkpoints are in a folder of its own below that of the run file: "island0", "outer0".
//
//   TESSERA_TRY(const RunParts parts, open_parts(config, compiled, storage));   // each process
//   for (const RunPart& part : parts) if (part.concerns(island)) ...             // each rank
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/runtime/checkpoint/checkpointing.h"
#include "tessera/runtime/run_config.h"

namespace tessera {

struct RunPart {
  RunConfig config;  // that of the run, with the part's folders
  Compiled compiled;
  RunOrigin origin;
  std::vector<std::pair<std::string, int64_t>> left_out;  // folder and step of what was left out
  std::optional<int> island;                              // a part of this island only
  std::optional<size_t> fragment;  // the state of this fragment's outer steps
  bool concerns(int of_island) const { return !island || *island == of_island; }
};
using RunParts = std::deque<RunPart>;  // a deque, because jobs refer to its elements

// Opens what each part continues from. A checkpoint that not all parts have, because the run ended
// while it was being written, is left out; set_aside_left_out() moves it out of the way, so that the
// run can write a checkpoint of that step. Errors: those of open_origin().
Result<RunParts> open_parts(const RunConfig& config, const Compiled& compiled, Storage& storage);
// Returns a line for each checkpoint that was moved. One rank of the run calls this.
Result<std::vector<std::string>> set_aside_left_out(const RunParts& parts, Storage& storage);

}  // namespace tessera
