// Executes the steps of one rank: what RankExecutor (interpreter.h) is made of. Three values are read
// while a step runs: the memory (rank_memory.h), what was prepared of the instructions
// (prepared_step.h), and what is under way (flights.h). Without a device the rank's thread executes
// the instructions one after the other (execute.h); with one it gives them to the streams of the
// device.
//
//   RankStep step(graph, program, world, options);
//   TESSERA_TRY_VOID(step.prepare());
//   step.load = &load;
//   step.run_step(1);
//
// A fault is thrown as comm::CommFault and names rank, op and tensor. Private to tessera/runtime.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/program/instructions.h"
#include "tessera/program/passes/ahead_part.h"
#include "tessera/runtime/arrays/copier.h"
#include "tessera/runtime/arrays/tier_copy.h"
#include "tessera/runtime/cached_rows/cached_tables.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/step/execution.h"
#include "tessera/runtime/step/flights.h"
#include "tessera/runtime/step/prepared_step.h"
#include "tessera/runtime/step/rank_memory.h"

namespace tessera {

class RankStep {
 public:
  RankStep(const Graph& g, const Program& p, comm::Communicator& c, ExecutorOptions o)
      : graph(g),
        program(p),
        world(c),
        communicator(&c),
        options(std::move(o)),
        thread(options.threads),
        memory(p) {
    context.seed = options.seed;
  }

  // Opens the device, takes the memory and prepares the program.
  Status prepare();
  // Runs the instructions of `executed` in a step, on the inputs that `load` gives.
  void run_step(int64_t step);
  // Executes the part of the program that works ahead for step `step`, on the inputs that `load`
  // gives, so that the step finds its results.
  void fill_ahead(int64_t step);
  // Calls work(), which touches the memory of the device tier, where that may be done, and waits for
  // it.
  void on_device(const std::function<void()>& work) const;
  // Calls f with the view of each residual, in the order of the program.
  template <class F>
  void each_residual(F&& f) const {
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        accesses(instruction, [&](const Access& access) {
          if (access.mode == AccessMode::kUpdate) f(*access.view);
        });
      }
    }
  }
  // Throws a fault unless the status is good.
  void expect(const Status& status, const comm::Label& where) const;
  // Returns the communicator for arrays that the host reaches.
  comm::Communicator& of_host() const { return memory.accelerated() ? world : *communicator; }
  // Returns the memory of a residual for the host; null without a view.
  float* residual_of(const std::optional<View>& view, device::HostCopies& copies) const;

  // A piece of a stream's work in the step, for RankExecutor::profile().
  struct Timed {
    explicit Timed(std::string what) : name(std::move(what)) {}
    std::string name;
    int64_t start_ns = 0, end_ns = 0;
  };

  const Graph& graph;
  const Program& program;
  comm::Communicator& world;         // connects the hosts
  comm::Communicator* communicator;  // moves arrays: the device's, or without one `world`
  ExecutorOptions options;
  kernels::ThreadScope thread;
  std::unique_ptr<device::Device> device;  // null: the processor itself
  RankMemory memory;
  kernels::KernelContext context;
  std::unique_ptr<comm::Communicator> device_communicator;
  CachedTables tables;
  std::vector<int> groups;  // the communicator's number of each group of the program
  PreparedStep prepared;
  const LoadFunction* load = nullptr;
  const Observation* observed = nullptr;  // null unless an evaluation observes ops
  std::map<std::string, double> seconds;
  std::deque<Timed> timed;                    // of the step under way, on a device
  std::vector<Executed>* recorded = nullptr;  // where the step is recorded; null: nowhere
  RecordClock clock = RecordClock::kSteady;
  ByBlock<std::vector<bool>> of_forward;  // by instruction: whether an evaluation executes it; made
                                          // by the first evaluation
  std::optional<AheadPart> ahead;         // the part of the program that works for the next step
  bool filled = false, filling = false;   // filled: whether the part for the next step is there
  const ByBlock<std::vector<bool>>* executed = nullptr;  // instructions to execute; null: all
  Flights flights{program, copier};
  Copier copier;  // ends before the memory that its jobs use
  // The streams of a device: computations; collectives and messages; copies between tiers. Last
  // members, so that their threads end first.
  std::unique_ptr<device::Stream> computing, messaging, copying;

 private:
  Status prepare_program();
  // Gives the step to the streams and waits until they have done it. If any of it failed, tells the
  // other ranks, since a stream of messages may be waiting for them.
  void run_on_streams();
  void run_block(const StepRun& run);
  void execute_timed(const StepRun& run, const Instruction& instruction, PreparedInstruction& made,
                     Executed* times);
  // Gives an instruction to the stream of the device that executes it. An operation that is issued
  // waits for the computations in front of it, and computations wait where the program waits; there
  // is no other order between streams.
  void launch(const StepRun& run, const Instruction& instruction, PreparedInstruction& made,
              Executed* times);
  // Gives work to a stream, with the times at which the stream begins and ends it if they are wanted.
  void launch_timed(device::Stream& stream, const Instruction& instruction, Executed* times,
                    std::function<void()> work);
  // Loads an input into memory of the host, from where the device takes it.
  void launch_load(const StepRun& run, const Instruction& instruction, const Load& one,
                   const PreparedInstruction& made, Executed* times);
};

}  // namespace tessera
