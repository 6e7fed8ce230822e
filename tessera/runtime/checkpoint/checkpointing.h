// Internal to the runtime: finds the state that a run continues from (a checkpoint or given
// weights), and writes the checkpoints of the run. A process makes its RunOrigin before its ranks
// start, so that wrong input is reported before anything runs; each rank has a Checkpointing.
//
//   TESSERA_TRY(const RunOrigin origin, open_origin(config, compiled, *storage));
//   ...on each rank:
//   Checkpointing checkpoints(job, program, world);
//   TESSERA_TRY_VOID(checkpoints.prepare(*executor));                      // takes memory
//   TESSERA_TRY(const int64_t done, checkpoints.restore(*executor));       // 0: from the beginning
//   for (int64_t step = done + 1; step <= steps; ++step) {
//     executor->run_step(step, load);
//     TESSERA_TRY_VOID(checkpoints.after_step(*executor, step, step == steps));
//   }
//   TESSERA_TRY_VOID(checkpoints.finish());
//
// State is what lives across steps and training changes: parameters, the optimizer's states (the
// loss scale among them) and the residuals of codecs. Constant tables are not saved but computed
// again. Each tensor is stored in its own dtype. state/shares.h says which rank writes which part,
// state/checkpoint.h in which format. All ranks call the functions in the same order, because the
// ranks tell each other what each holds and what each has written.
//
// With `asynchronous` a step waits only until the state is copied into memory that was taken before
// the first step. Threads of each rank write the files from this copy. The checkpoint is committed
// at the end of the first step that finds all writes done. Without `asynchronous` the step waits
// until the state is written from the arenas to the files, through two pieces of memory.
//
// A run may have two levels: the fast level, usually in a memory file system, and the durable one.
// Checkpoints of the fast level survive the loss of the process, but not the loss of the machine.
// Both levels work in the same way and do not wait for each other. A run continues from the newest
// whole checkpoint of either level.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/compile/compile.h"
#include "tessera/runtime/run_config.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/state/checkpoint.h"

namespace tessera {

// A checkpoint to continue from. If `source` is null, the checkpoint is damaged, and `damage`
// says how.
struct Candidate {
  int64_t step = 0;
  std::string dir;
  std::unique_ptr<CheckpointSource> source;
  std::string damage;
};

struct RunOrigin {
  // The newest candidate is the first. If two have the same step, the one of the fast level comes
  // first. Empty: the run starts at step 1.
  std::vector<Candidate> candidates;
  std::unique_ptr<TensorSource> weights;  // gives the parameters at the start; null: initial values
  std::vector<std::string> notes;         // for the user, one line each
};

// Reads manifests and compares them with the run. Errors (invalid input): the folder has
// checkpoints although the run is not to resume; a checkpoint of another model or seed; tensors
// that are missing or have another shape.
Result<RunOrigin> open_origin(const RunConfig& config, const Compiled& compiled, Storage& storage);

// The data that all ranks of a process share.
struct CheckpointJob {
  const RunConfig& config;
  const Compiled& compiled;
  const RunOrigin& origin;
  std::string plan_text;  // text of the plan of `compiled`, for manifests
  Storage& storage;
  // The following are called on rank 0.
  std::function<void(const std::string&)> note;
  std::function<Status(const SaveReport&)> saved;
  std::function<Status(const LoadReport&)> loaded;
};

class Checkpointing {
 public:
  Checkpointing(const CheckpointJob& job, const Program& program, comm::Communicator& world);
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // Agrees with the other ranks on which rank writes which part, and takes the memory for this.
  // Errors: a fault if there is not enough memory or not enough disk space for the files.
  Status prepare(const RankExecutor& executor);
  // Overwrites the executor's initial values with the state of the newest whole checkpoint, or with
  // the given weights. Returns how many steps are done (0 without a checkpoint). Sets damaged
  // checkpoints aside with a note. Errors: a fault if all checkpoints are damaged.
  Result<int64_t> restore(RankExecutor& executor);
  // Saves the state if a checkpoint is due after this step. `is_last`: no step follows in this
  // process. Errors: a fault if the checkpoint cannot be written.
  Status after_step(const RankExecutor& executor, int64_t step, bool is_last);
  Status finish();  // waits until the last checkpoints are written

  CheckpointSummary summary() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
