// Launch and pre-emption: what carries out decisions. The controller (controller.h) sees workers only
// through this interface. SimulatedWorkers is the back end of the simulator: jobs advance as their
// models say while the clock moves, and a job whose GPUs change pauses first.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/orchestrate/share/policy.h"
#include "tessera/orchestrate/share/switch_cost.h"

namespace tessera::share {

struct Ending {
  int job = 0;
  double at_s = 0;
};

// The time and GPUs that a job has used so far.
struct Usage {
  double held_s = 0, gpu_seconds = 0;  // with GPUs; the same times the GPUs
  double switching_gpu_seconds = 0;    // of gpu_seconds: pauses for switching
  double moved_bytes = 0;              // of state, in switches whose pause is known in bytes
  int switches = 0;
  double started_s = -1, last_change_s = -1;
};

class Workers {
 public:
  virtual ~Workers() = default;
  // Gives the job these GPUs from now on. An empty allocation stops it; its progress is kept.
  virtual void place(int job, const Allocation& allocation, double now_s) = 0;
  // Lets the jobs work until that time, and returns those that ended, in the order of their numbers.
  virtual std::vector<Ending> work_until(double now_s) = 0;
  // Returns when the first of the running jobs will end, as far as known.
  virtual double next_end_s() const = 0;
  virtual double end_s(int job) const = 0;  // kNever if it does not run
  virtual const JobRun& run(int job) const = 0;
  virtual const Usage& usage(int job) const = 0;
};

class SimulatedWorkers : public Workers {
 public:
  // `is_live`: whether running jobs change their GPUs without being stopped.
  SimulatedWorkers(const std::vector<JobSpec>& jobs, const Machines& machines, BatchRule rule,
                   SwitchCost cost, bool is_live);
  void place(int job, const Allocation& allocation, double now_s) override;
  std::vector<Ending> work_until(double now_s) override;
  double next_end_s() const override;
  double end_s(int job) const override;
  const JobRun& run(int job) const override { return states_[static_cast<size_t>(job)].run; }
  const Usage& usage(int job) const override { return states_[static_cast<size_t>(job)].usage; }

 private:
  struct State {
    JobRun run;
    Usage usage;
    Allocation held;
    Shape shape;
    StateBytes state;           // of the last GPUs on which it ran
    double pause_s = 0;         // what is left of the pause
    mutable double end_s = -1;  // when it will end; negative: not computed since the last change
  };
  // Advances one job by so many seconds. Returns the seconds after which it ended, or kNever.
  double work(int job, double seconds);

  const std::vector<JobSpec>* jobs_;
  const Machines* machines_;
  BatchRule rule_;
  SwitchCost cost_;
  bool is_live_;
  double now_s_ = 0;
  std::vector<State> states_;
  std::vector<int> running_;  // in order of their numbers
};

}  // namespace tessera::share
