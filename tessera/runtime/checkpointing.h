// Internal to the runtime: what a run begins with besides initial values, and the checkpoints that
// it leaves behind. A process makes its RunOrigin before its ranks start, so that wrong input is
// reported before anything runs; each rank has a Checkpointing.
//
//   TESSERA_TRY(const RunOrigin origin, open_origin(config, compiled, *storage));
//   ...on each rank:
//   Checkpointing checkpoints(job, program, world);
//   TESSERA_TRY_VOID(checkpoints.prepare(*executor));                      // takes memory
//   TESSERA_TRY(const int64_t done, checkpoints.restore(*executor));       // 0: from the beginning
//   for (int64_t step = done + 1; step <= steps; ++step) {
//     executor->run_step(step, load);
//     TESSERA_TRY_VOID(checkpoints.after_step(*executor, step));
//   }
//   TESSERA_TRY_VOID(checkpoints.finish());
//
// State is what lives across steps and training changes: parameters, the optimizer's states (the
// loss scale among them) and the residuals of codecs. Tables are made again. Each tensor is stored in
// its own dtype. Who writes what: state/shares.h; how: state/checkpoint.h. All ranks call the
// functions in the same order, for they exchange what each holds and what it wrote.
//
// With `asynchronous` a step waits only for one copy into memory that was taken before the first step;
// threads of each rank write from there, and the checkpoint is committed at the end of the first step
// that finds all done. Otherwise what rests in the arenas goes to the file through two pieces of
// memory.
//
// A run may have two levels: a fast one in a memory file system, which a loss of the process leaves
// and a loss of the machine does not, and the durable one. They are alike, and do not wait for each
// other; a run continues from the newest whole checkpoint of both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/compile/compile.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/run_config.h"
#include "tessera/runtime/session.h"
#include "tessera/state/checkpoint.h"

namespace tessera {

// A checkpoint to continue from; without a source it is damaged, as `damage` says.
struct Candidate {
  int64_t step = 0;
  std::string dir;
  std::unique_ptr<CheckpointSource> source;
  std::string damage;
};

struct RunOrigin {
  std::vector<Candidate> candidates;  // the newest first; empty: the run begins
  // If two have one step, the fast one comes first.
  std::unique_ptr<TensorSource> weights;  // source of its parameters; null: initial values
  std::vector<std::string> notes;         // for the user, one line each
};

// Reads manifests and compares them with the run. Errors (invalid input): checkpoints where none is
// expected, another model or seed, tensors that are missing or of another shape.
Result<RunOrigin> open_origin(const RunConfig& config, const Compiled& compiled, Storage& storage);

// The data that all ranks of a process share.
struct CheckpointJob {
  const RunConfig& config;
  const Compiled& compiled;
  const RunOrigin& origin;
  std::string plan_text;  // of `compiled`, for manifests
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

  // Agrees on which rank writes what, and takes the memory for it. Errors: a fault if there is no
  // memory, or no room for the files.
  Status prepare(const RankExecutor& executor);
  // Fills what the executor has initialised from the newest whole checkpoint, or from weights.
  // Returns how many steps are done. Damaged checkpoints are set aside with a note; a fault if all
  // are damaged.
  Result<int64_t> restore(RankExecutor& executor);
  // Saves if a checkpoint is due. Errors: a fault if it cannot be written.
  Status after_step(const RankExecutor& executor, int64_t step);
  Status finish();  // waits for the last checkpoints

  CheckpointSummary summary() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
