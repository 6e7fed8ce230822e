// The interpreter: executes the program of one rank, the same object that the simulator prices and
// the verifier proves.
//
// Copies between tiers that have a handle run on a thread of their own, one after the other.
//
// Memory is planned: one arena a tier, allocated once, with the offsets that the program gives.
// Kernels are prepared at their first execution (kernels.h) and reused in every later step; the
// operands of collectives, messages and loads are prepared before the first step. So from the
// second step on the interpreter itself takes nothing from the heap. allocations_test.cc counts
// what libtorch's kernels and the communicator take. A message or collective with a codec makes its
// buffers anew; an exchange of named rows keeps its own as long as the ids stay the same.
//
//   comm::run_threads(ranks, options, [&](comm::Communicator& world) {
//     auto executor = RankExecutor::create(graph, programs[world.rank()], world, {.seed = 1});
//     (*executor)->initialise();
//     for (int64_t step = 1; step <= steps; ++step) (*executor)->run_step(step, load);
//   });
//
// Used by its rank's thread only: create() there, so that the memory is near that thread. Graph,
// program and communicator outlive the executor. A fault (lost peer, failed kernel) is thrown as
// comm::CommFault and names rank, op and tensor; after it the executor is of no use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/comm/communicator.h"
#include "tessera/graph/graph.h"
#include "tessera/program/program.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// A region of a tensor in host memory, row-major.
struct HostArray {
  TensorId tensor;
  Box region;
  DType dtype = DType::kFloat32;
  std::vector<std::byte> data;
  std::vector<double> values() const;  // converted to double
};

// Gives a region of a graph input for the step being executed; `to` has the region's shape and the
// tensor's dtype.
using LoadFunction =
    std::function<void(const Tensor& tensor, const Box& region, const kernels::Array& to)>;

// The ops to observe while an evaluation runs: `see` is called before each of their computations on
// this rank, with the box of the op's iteration space and the inputs' values, which are complete.
struct Observation {
  std::vector<OpId> ops;
  std::function<void(const Op& op, const Box& box, std::span<const kernels::Array> inputs)> see;
};

// One executed instruction of a recorded step. Times are in nanoseconds, of the steady clock or of
// the thread's time on a processor.
struct Executed {
  BlockRef block;
  int32_t instruction = 0;  // index in the block
  int64_t micro_batch = 0;
  int64_t start_ns = 0, end_ns = 0;
};
enum class RecordClock : uint8_t {
  kSteady,     // comparable between the ranks of a machine
  kProcessor,  // time of the rank's own thread: other users of its core do not count
};

// A `LoadFunction` for any step, called for regions of ids of later steps: caches of rows look
// ahead.
using AheadFunction = std::function<void(int64_t step, const Tensor& tensor, const Box& region,
                                         const kernels::Array& to)>;

// Counts of a cache of rows (RowCache) since the executor was made, without evaluations.
struct RowCacheReport {
  TensorId table;
  std::string policy;
  int64_t rows = 0, slots = 0, row_bytes = 0;  // of this rank
  int64_t batches = 0, lookups = 0, lookup_misses = 0;
  int64_t rows_in = 0, rows_out = 0, overflow_rows = 0;
};

struct ExecutorOptions {
  uint64_t seed = 0;
  int threads = 1;           // inside one kernel: this rank's share of the cores
  bool profile = false;      // measure the time of each kind of instruction
  AheadFunction ahead = {};  // empty: later ids are not known
  // Sums are rounded in another way for each seed (roundings.h); 0: as the kernels compute them.
  uint64_t roundings = 0;
};

class RankExecutor {
 public:
  static Result<std::unique_ptr<RankExecutor>> create(const Graph& graph, const Program& program,
                                                      comm::Communicator& communicator,
                                                      ExecutorOptions options);
  ~RankExecutor();
  RankExecutor(const RankExecutor&) = delete;
  RankExecutor& operator=(const RankExecutor&) = delete;

  // Writes the initial values of all homes of tensors with an Init, shard by shard, except of the
  // tensors `but`, which the caller will write.
  void initialise(const std::set<TensorId>& but = {});
  // Takes the memory of all arenas from the system, which else happens page by page in the first
  // step.
  void take_memory();
  // Runs a step. Steps count from 1.
  void run_step(int64_t step, const LoadFunction& load);

  // Runs the forward pass of a step alone, on what `load` gives: the step's program without the
  // instructions that serve backward and update ops, with nothing dropped. Afterwards the loss can
  // be read; no home of the program has changed, nor what codecs carry on. All ranks call it.
  // `observed` names ops to observe; null: none.
  void evaluate(int64_t step, const LoadFunction& load, const Observation* observed = nullptr);

  // Records the next step: every instruction that runs, in order. Null: does not record. The memory
  // is taken here; recording costs two readings of the clock an instruction.
  void record(std::vector<Executed>* into, RecordClock clock = RecordClock::kSteady);

  // Reads a home or a fetch of the program (fetches: after a step).
  HostArray read(const Home& home) const;
  void write(const Home& home, const HostArray& array);
  // Returns the memory of the home: its region, row-major, valid until the next step. Null: it is
  // on disk, so use read() and write(). For a table with a cache: the memory where all rows rest,
  // up to date.
  std::byte* memory(const Home& home);
  const std::byte* memory(const Home& home) const;
  // Returns what codecs with error feedback carry from step to step, in the order of the program.
  // The memory is valid as long as the executor.
  std::vector<std::span<float>> residuals() const;

  // Returns, by tier, the highest end of any buffer that an executed instruction touched, homes
  // included.
  std::array<int64_t, 3> peak_bytes() const;
  std::vector<RowCacheReport> row_caches() const;
  // Returns seconds by op kind, "wait <collective>", "load", "copy"; only with
  // ExecutorOptions::profile.
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
