// The interpreter: executes the program of one rank. The simulator prices and the verifier proves
// the same Program object.
//
// Copies between tiers that have a handle run one after the other on a second thread of the
// rank (copier.h).
//
// Memory is planned: one arena a tier, allocated once, with the offsets that the program gives.
// Kernels are prepared at their first execution (kernels.h) and reused in every later step; the
// operands of collectives, messages and loads are prepared before the first step. So from the
// second step on the interpreter itself takes nothing from the heap, with two exceptions: a message
// or collective with a codec allocates its buffers each time, and an exchange of named rows
// allocates new buffers when the ids change. allocations_test.cc counts what libtorch's kernels and
// the communicator take.
//
//   comm::run_threads(ranks, options, [&](comm::Communicator& world) {
//     auto executor = RankExecutor::create(graph, programs[world.rank()], world, {.seed = 1});
//     (*executor)->initialise();
//     for (int64_t step = 1; step <= steps; ++step) (*executor)->run_step(step, load);
//   });
//
// Only the rank's own thread uses an executor. It also calls create(), so that the memory is near
// that thread. Graph, program and communicator outlive the executor. A fault (lost peer, failed
// kernel) is thrown as comm::CommFault and names rank, op and tensor; after a fault the executor
// must not be used again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/runtime/step/execution.h"

namespace tessera {

class RankExecutor {
 public:
  static Result<std::unique_ptr<RankExecutor>> create(const Graph& graph, const Program& program,
                                                      comm::Communicator& communicator,
                                                      ExecutorOptions options);
  ~RankExecutor();
  RankExecutor(const RankExecutor&) = delete;
  RankExecutor& operator=(const RankExecutor&) = delete;

  // Writes the initial values of all tensors with an Init to the homes of this rank, except those
  // of the tensors `but`, which the caller will write.
  void initialise(const std::set<TensorId>& but = {});
  // Takes the memory of all arenas from the system now. Without this call the system gives it page
  // by page in the first step.
  void take_memory();
  // Runs a step. Steps count from 1.
  void run_step(int64_t step, const LoadFunction& load);

  // Runs only the forward pass of a step, on the inputs that `load` gives: skips the instructions
  // that serve backward and update ops, and drops nothing by dropout. Afterwards the loss can be
  // read. No home of the program has changed, and the residuals of codecs have not changed. All
  // ranks call this function. `observed` names ops to observe; null: none.
  void evaluate(int64_t step, const LoadFunction& load, const Observation* observed = nullptr);

  // Records every instruction that runs in the next step into `into`, in order; null: does not
  // record. Takes the memory for the record now, so that recording costs only two readings of the
  // clock for each instruction.
  void record(std::vector<Executed>* into, RecordClock clock = RecordClock::kSteady);

  // Reads a home or a fetch of the program. A fetch can be read only after a step.
  HostArray read(const Home& home) const;
  void write(const Home& home, const HostArray& array);
  // Returns the memory of the home's region, row-major, valid until the next step. Returns null if
  // the home is on disk or in the memory of a device; then use read() and write(). For a table with a cache returns the memory
  // in which all rows rest, after changed rows were written back there.
  std::byte* memory(const Home& home);
  const std::byte* memory(const Home& home) const;
  // Reads and writes the residuals that codecs with error feedback carry from step to step, in the
  // order of the program. set_residuals() gets as many, of the same sizes.
  std::vector<int64_t> residual_sizes() const;
  std::vector<std::vector<float>> residuals() const;
  void set_residuals(const std::vector<std::vector<float>>& values);

  // Returns, by tier, the highest end of any buffer that an executed instruction touched, homes
  // included.
  std::array<int64_t, 3> peak_bytes() const;
  std::vector<RowCacheReport> row_caches() const;
  // Returns the seconds that each sort of instruction took in all steps. The keys are op kinds,
  // "wait <collective>", "load" and "copy". Empty without ExecutorOptions::profile.
  const std::map<std::string, double>& profile() const;

 private:
  RankExecutor();
  void check_disk(const Status& status, const Home& home) const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the loss on this rank, if the rank has it and the program fetches it.
std::optional<double> read_loss(const RankExecutor& executor, const Program& program,
                                TensorId loss);

}  // namespace tessera
