// How long each job waits for GPUs, by the reason that holds meanwhile. Jobs that ask for equally many
// GPUs wait for the same reason, so time is counted for each number of GPUs once and not for each job:
// a decision costs the jobs that begin or cease to wait, and those that have a reason for the first
// time, however many others wait.
//
//   waits.set(job, true);                    // it has no GPUs from now on
//   waits.judge(facts, releases, now_s);     // which reasons hold after a decision
//   waits.pass(60);                          // time goes by
//   waits.longest(job).text;                 // the reason that explains most of it
#pragma once

#include <array>
#include <functional>
#include <map>
#include <vector>

#include "tessera/orchestrate/share/reasons.h"

namespace tessera::share {

class Waits {
 public:
  using Releases = std::function<std::vector<WaitFacts::Release>()>;

  // `jobs` may grow; they and the machines must outlive the object.
  Waits(const std::vector<JobSpec>& jobs, const Machines& machines)
      : jobs_(jobs), machines_(machines) {}

  void set(int job, bool is_waiting);
  void pass(double seconds);
  // Finds the reason that holds for each job that waits. `releases` is called if a sentence needs it.
  void judge(WaitFacts facts, const Releases& releases, double now_s);
  size_t waiting() const { return waiting_.size(); }

  WaitReason now(int job) const;      // the reason that held when it was last asked
  WaitReason longest(int job) const;  // the one that held for most of the time
  double seconds(int job) const;      // without GPUs, in all

 private:
  static constexpr size_t kKinds = 4;
  using Seconds = std::array<double, kKinds>;  // by kind of reason
  struct Wait {
    bool is_waiting = false;
    Seconds before{}, since{};             // of earlier waits; those of its queue when it began
    std::array<bool, kKinds> is_listed{};  // in Queue::without
    std::array<WaitReason, kKinds> first;  // the first that was found
    WaitKind last = WaitKind::kNone;       // of its last wait
  };
  // Jobs that wait for equally many GPUs.
  struct Queue {
    Seconds total{};  // for which each kind held
    WaitKind now = WaitKind::kNone;
    size_t waiting = 0;
    std::array<std::vector<int>, kKinds> without;  // jobs without a sentence of the kind
  };

  const Wait* find(int job) const;
  Seconds seconds_of(int job) const;

  const std::vector<JobSpec>& jobs_;
  const Machines& machines_;
  std::vector<Wait> waits_;      // by job
  std::map<int, Queue> queues_;  // by GPUs
  std::vector<int> waiting_;     // jobs, in order of submission
};

}  // namespace tessera::share
