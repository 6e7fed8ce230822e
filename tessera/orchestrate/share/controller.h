// The scheduler: lets workers work, moves the clock, and asks the policy. The simulator and a live
// controller are this one loop with another clock and other workers, so a recorded run is replayed by
// giving it the same jobs.
//
// In each round: the workers work until the end of the round; the clock stands at the end of the
// round; jobs that were submitted by then and are not done are shown to the policy; each job whose
// allocation is now another one is placed anew. A job is thus first seen at the end of a round.
// Rounds in which nothing can change are skipped in one step.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/orchestrate/share/admission.h"
#include "tessera/orchestrate/share/policy.h"
#include "tessera/orchestrate/share/reasons.h"
#include "tessera/orchestrate/share/workers.h"

namespace tessera::share {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now_s() const = 0;
  virtual void wait_until(double time_s) = 0;
};

// A clock that is there as soon as one waits for it.
class SimulatedClock : public Clock {
 public:
  double now_s() const override { return now_s_; }
  void wait_until(double time_s) override { now_s_ = time_s; }

 private:
  double now_s_ = 0;
};

// A change of an allocation, for the report and for comparisons of decisions.
struct Change {
  double at_s = 0;
  int job = 0;
  Allocation allocation;
  bool operator==(const Change&) const = default;
};

struct QueuePoint {
  double at_s = 0;
  int waiting = 0, running = 0, busy_gpus = 0;
};

struct JobOutcome {
  double start_s = -1, end_s = -1;
  Usage usage;
  WaitReason waits_for;  // the reason that explains most of the time without GPUs
  double waited_s = 0;
};

struct Outcome {
  std::vector<JobOutcome> jobs;
  std::vector<Change> changes;
  std::vector<QueuePoint> queue;  // one after each decision that changed something
  double end_s = 0;               // the end of the round of the last job
  size_t decisions = 0;
  double longest_decision_s = 0, all_decisions_s = 0;  // of this machine's time
};

struct ControllerOptions {
  double round_s = 60;
  SwitchCost switching;
  double most_s = 1e10;          // of the cluster's time, after which the run is given up
  size_t most_idle = 1'000'000;  // decisions without an end of a job, after which it is given up
  std::function<void(double now_s, size_t done)> progress;
};

// The rounds, one by one, for a loop that lives longer than its jobs. `jobs` may grow between rounds,
// by jobs that are submitted later than the others.
class Rounds {
 public:
  Rounds(const std::vector<JobSpec>& jobs, const Machines& machines, Policy& policy,
         Workers& workers, const ControllerOptions& options);
  ~Rounds();
  // Returns the end of the next round in which something can change; kNever if nothing will.
  double next_s() const;
  void round(double at_s);
  // Stops the jobs that have GPUs of the node, and closes it. They wait for other GPUs.
  void empty_node(int node);
  // Opens a node that was emptied, with so many GPUs.
  void fill_node(int node, int gpus);
  size_t done() const;  // how many jobs have ended
  const Allocation& allocation(int job) const;
  WaitReason reason(int job) const;  // why the job waited when it was last asked
  Outcome& outcome();

  class Loop;

 private:
  std::unique_ptr<Loop> loop_;
};

// Runs the jobs until all are done. Errors: the policy leaves jobs that never end.
Result<Outcome> run_jobs(const std::vector<JobSpec>& jobs, const Machines& machines, Policy& policy,
                         Clock& clock, Workers& workers, const ControllerOptions& options);

// Runs the jobs in the simulator. The policy decides by JobSpec::believed where a job has it; the jobs
// advance by JobSpec::model in any case.
Result<Outcome> simulate_jobs(const std::vector<JobSpec>& jobs, const Machines& machines,
                              Policy& policy, const ControllerOptions& options);

}  // namespace tessera::share
