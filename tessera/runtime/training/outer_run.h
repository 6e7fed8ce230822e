// Runs the outer steps of a plan on one rank (plan/outer_steps.h, compile/outer_fragments.h). Each
// fragment has an executor of its own, whose homes are the parameters that all islands had after
// the fragment's last outer step, and the state of the outer optimizer.
//
//   OuterPrograms outer = ...;                                   // make_outer_programs(), once
//   TESSERA_TRY(auto run, OuterRun::create(outer, world, island, options));
//   run->resume(0, inner);                                       // after the inner state is there
//   for (int64_t step = 1; step <= steps; ++step) {
//     inner.run_step(step, load);
//     run->after_step(step, inner);
//   }
//
// A fault is thrown as comm::CommFault.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/compile/compile.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/state/move.h"

namespace tessera {

// The programs and moves that all ranks of a process share.
struct OuterPrograms {
  std::shared_ptr<const Compiled::Outer> compiled;
  std::vector<Program> inner;  // by rank of an island
  struct Fragment {
    std::vector<Program> programs;  // by rank of the world
    // The moves within an island from the inner plan's homes of the fragment's parameters to those
    // of the outer plan, and back.
    StateMove there, back;
  };
  std::vector<Fragment> fragments;
};

// Makes and verifies the programs. `inner`: the programs of one island.
Result<OuterPrograms> make_outer_programs(const Compiled& compiled, std::vector<Program> inner);

class OuterRun {
 public:
  // Makes the executors. The caller keeps all arguments alive. `world`: the ranks of all islands, and
  // perhaps idle ones behind them; `island`: those of this rank's island, null on an idle rank;
  // `own`: the inner program of this rank.
  static Result<std::unique_ptr<OuterRun>> create(const OuterPrograms& programs,
                                                  const Graph& inner_graph,
                                                  comm::Communicator& world,
                                                  comm::Communicator* island, const Program& own,
                                                  const ExecutorOptions& options);

  // Says that the run continues after this inner step with the state that the executors have. After
  // step 0, takes the parameters of the inner executor, which all islands have, as those of the last
  // outer step.
  void resume(int64_t step, const RankExecutor& inner);
  // Makes the outer step that is due after this inner step, if there is one. All ranks call it.
  void after_step(int64_t step, RankExecutor& inner);

  RankExecutor& executor(size_t fragment) const { return *executors_[fragment]; }
  const Program& program(size_t fragment) const {
    return programs_.fragments[fragment].programs[static_cast<size_t>(world_.rank())];
  }
  // Returns the value that all islands had after the last outer step of the parameter: the region
  // that this rank keeps of it.
  HostArray common(const std::string& parameter) const;
  // Returns what this rank's outer steps and their moves have sent so far, as predicted.
  const Traffic& predicted() const { return predicted_; }
  bool lossy() const;  // whether a codec changes the pseudo-gradients
  // Returns, by tier, the bytes of all arenas of the fragments.
  std::array<int64_t, 3> arena_bytes() const;

 private:
  OuterRun(const OuterPrograms& programs, const Graph& inner_graph, comm::Communicator& world,
           comm::Communicator* island, const Program& own);
  void take(size_t fragment, const RankExecutor& inner);
  void step(size_t fragment, RankExecutor& inner);
  void load(size_t fragment, const Tensor& tensor, const Box& region,
            const kernels::Array& to) const;
  const OuterSteps& rule() const { return *programs_.compiled->plan.outer; }

  const OuterPrograms& programs_;
  const Graph& inner_graph_;
  comm::Communicator& world_;
  comm::Communicator* island_;                            // null: this rank is idle
  const Program& own_;                                    // the inner program
  std::vector<std::unique_ptr<RankExecutor>> executors_;  // by fragment
  std::vector<int64_t> steps_;                            // by fragment: outer steps so far
  std::map<std::string, std::vector<Home>> homes_;        // of the inner program, by parameter
  std::map<std::string, HostArray> taken_;                // what an island had at its difference
  Traffic predicted_;
};

}  // namespace tessera
