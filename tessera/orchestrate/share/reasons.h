// Why a job waits: one reason in plain words, with its numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/orchestrate/share/policy.h"

namespace tessera::share {

enum class WaitKind : uint8_t {
  kNone,       // it has never waited
  kFull,       // too few GPUs are free
  kScattered,  // enough GPUs are free, but on more nodes than it would use
  kOrder,      // enough GPUs are free; the policy keeps them for others
};

struct WaitReason {
  WaitKind kind = WaitKind::kNone;
  std::string text;  // "asks for 8 GPUs, 3 are free; 12 jobs are ahead; earliest start 14:20 ..."
  double at_s = 0;   // when it was so
};

// Facts that the reasons of one decision have in common.
struct WaitFacts {
  int free_gpus = 0, nodes_with_free = 0;
  // GPUs that become free, by time, with the job that gives them: in ascending order of time.
  struct Release {
    double at_s = 0;
    int gpus = 0, job = 0;
  };
  std::vector<Release> releases;
};

// Returns the kind of reason that holds for a job that asks for so many GPUs and waits.
WaitKind wait_kind(int asked_gpus, const Machines& machines, const WaitFacts& facts);
// Returns the reason in words. `ahead`: how many jobs were submitted before it and wait, too.
WaitReason wait_reason(const JobSpec& job, const std::vector<JobSpec>& jobs,
                       const Machines& machines, const WaitFacts& facts, int ahead, double now_s);
// Returns a time of the cluster for people: "14:20", from the second day on "day 3, 14:20".
std::string time_text(double seconds);

}  // namespace tessera::share
