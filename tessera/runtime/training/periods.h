// Compiles and runs a run whose plan changes between steps. A period is a sequence of steps under
// one plan. The world has as many ranks as the plan with the most ranks; ranks that a period's plan
// does not use are idle in that period.
//
//   TESSERA_TRY(auto periods, compile_periods(compile_plan, "serial", {{5, "zero(dp=2)"}}));
//   TESSERA_TRY_VOID(lower_periods(periods, largest_ranks(periods)));
//   PeriodExecutor executor(periods, world, options);           // on each rank
//   for (int64_t step = 1; step <= steps; ++step) {
//     TESSERA_TRY(const auto change, executor.begin_step(step));  // moves the state if a plan begins
//     executor->run_step(step, load);
//     executor.end_step(step);
//   }
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/subworld.h"
#include "tessera/compile/compile.h"
#include "tessera/runtime/checkpoint/plan_change.h"
#include "tessera/runtime/checkpoint/rescale.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/training/outer_run.h"

namespace tessera {

struct Period {
  int64_t first_step = 1;
  std::string plan;  // as the user names it
  Compiled compiled;
  // The programs of all ranks of the world. The islands of a plan with outer steps have equal programs, in which
  // ranks count from 0 in each island.
  std::vector<Program> programs;
  std::optional<OuterPrograms> outer;  // of a plan with outer steps
  // The moves from the ranks of the period before, by island (a plan without outer steps is one): each
  // island takes its state from the island `from` of that period. Empty for the first period.
  struct IslandMove {
    int from = 0;
    StateMove move;
  };
  std::vector<IslandMove> moves;
  std::vector<StateMove> outer_moves;  // by fragment; empty: the period before had no outer steps
};

// A deque, because a period that is added to a running run must not move the others.
using Periods = std::deque<Period>;

using CompilePlan = std::function<Result<Compiled>(const std::string& plan)>;
// Compiles the periods, without their programs. Errors: changes that are not in ascending order; a
// change from a plan with outer steps to one without them.
Result<Periods> compile_periods(const CompilePlan& compile_plan, const std::string& plan,
                                const std::vector<PlanChange>& changes);
int64_t largest_ranks(const Periods& periods);

// Makes the programs of all periods for a world of `ranks` ranks, checks them with the verifier,
// and finds which state moves between two periods. memory_limit_bytes limits a rank's device arena;
// 0: no limit. With `only`, a run of one period makes only the program of rank `only` and does not
// verify it. Errors: a plan that needs more than `ranks` ranks; plans that do not keep the same
// tensors; a program that the verifier rejects.
Status lower_periods(Periods& periods, int64_t ranks, int64_t memory_limit_bytes = 0,
                     std::optional<int> only = std::nullopt);

// Checks that the device and host arenas of all ranks, or of the rank `only`, fit in this machine's
// memory, because otherwise the system would kill the process in the middle of the run. Errors:
// they do not fit.
Status check_memory(const Periods& periods, std::optional<int> only = std::nullopt);

// Adds periods to a run that is under way. Ranks that are threads share the run's periods: the first
// of them that calls add() makes the period, and the others wait for it.
class PeriodAdder {
 public:
  // Makes an adder for periods that the caller keeps alive, lowered for a world of `ranks` ranks.
  PeriodAdder(Periods& periods, CompilePlan compile_plan, int64_t ranks,
              int64_t memory_limit_bytes);

  // Adds a period that begins with this step, which must come after the first step of all others.
  // Every rank calls it with the same arguments. Errors, after which the periods are what they were:
  // those of compile_plan, lower_periods and check_memory.
  Status add(int64_t first_step, const std::string& plan);
  // Removes the period that begins with this step, if there is one that no rank has begun.
  void remove(int64_t first_step);

 private:
  Status append(int64_t first_step, const std::string& plan);

  Periods& periods_;
  CompilePlan compile_plan_;
  int64_t ranks_, memory_limit_bytes_;
  std::mutex mutex_;
  int64_t asked_ = 0;  // the first step of the last call
  Status answer_;      // what that call returned
};

// Executes all periods on one rank. Only this rank's thread uses the object.
class PeriodExecutor {
 public:
  // Makes an executor. The caller keeps all arguments alive.
  PeriodExecutor(const Periods& periods, comm::Communicator& world, ExecutorOptions options)
      : periods_(periods), world_(world), options_(options) {}

  struct Change {
    int64_t bytes_predicted = 0, bytes_counted = 0;        // that this rank sent
    int64_t messages_predicted = 0, messages_counted = 0;  // messages that this rank sent
    double seconds = 0;  // from the moment when all ranks were ready to the end
    double total_s = 0;  // the same with the time to make the new executor
  };
  // Begins a step; all ranks call this function before each step. The first call makes and
  // initialises the executor of the period to which the step belongs, and returns nothing. Before
  // the first step of a later period it makes the executor of the new plan, moves the state of the
  // old executor into the new one, and returns what moved. Before any other step it does nothing
  // and returns nothing.
  Result<std::optional<Change>> begin_step(int64_t step);

  // Makes the outer step that follows this step, if the plan has one there. All ranks call this
  // function after each step.
  void end_step(int64_t step) {
    if (outer_) outer_->after_step(step, *executor_);
  }
  // Says that the state of the executors was written after begin_step() and is that after this
  // step. After step 0 the parameters of the islands are taken as those of the last outer step.
  void resume_outer_steps(int64_t step) {
    if (outer_) outer_->resume(step, *executor_);
  }

  // Returns whether the plan changes before this step.
  bool begins_period(int64_t step) const {
    return executor_ && current_ + 1 < periods_.size() && periods_[current_ + 1].first_step == step;
  }
  const Period& period() const { return periods_[current_]; }
  const Program& program() const { return period().programs[static_cast<size_t>(world_.rank())]; }
  OuterRun* outer() const { return outer_.get(); }  // null: no outer steps
  // Returns the ranks with which this rank executes the plan: those of its island, or all.
  comm::Communicator& own_world() const { return island_ ? *island_ : world_; }
  // Returns the number of this rank's island; 0 without outer steps. A rank that the plan does not
  // use has a number behind those of the islands.
  int island() const { return world_.rank() / ranks_of_an_island(); }
  int ranks_of_an_island() const { return ranks_of_an_island(period()); }
  RankExecutor& operator*() const { return *executor_; }
  RankExecutor* operator->() const { return executor_.get(); }

 private:
  Result<std::optional<Change>> enter(size_t next);
  int ranks_of_an_island(const Period& period) const {
    return period.compiled.outer ? static_cast<int>(period.compiled.plan().ranks) : world_.size();
  }

  const Periods& periods_;
  comm::Communicator& world_;
  ExecutorOptions options_;
  size_t current_ = 0;
  std::unique_ptr<comm::Subworld> island_;  // null: no outer steps, or an idle rank
  std::unique_ptr<RankExecutor> executor_;
  std::unique_ptr<OuterRun> outer_;
};

}  // namespace tessera
