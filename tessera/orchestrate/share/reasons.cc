#include "tessera/orchestrate/share/reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::share {
namespace {

std::string gpus_text(int gpus) { return fmt::format("{} GPU{}", gpus, gpus == 1 ? "" : "s"); }

// Returns the sentence about the earliest start: when so many GPUs are free if running jobs end as
// they are expected to.
std::string earliest(const JobSpec& job, const std::vector<JobSpec>& jobs, const WaitFacts& facts) {
  int free = facts.free_gpus;
  for (const WaitFacts::Release& release : facts.releases) {
    free += release.gpus;
    if (free < job.gpus || release.at_s == kNever) continue;
    return fmt::format("; earliest start {} when job {} ends", time_text(release.at_s),
                       jobs[static_cast<size_t>(release.job)].name);
  }
  return "";
}

}  // namespace

std::string time_text(double seconds) {
  const auto minutes = static_cast<int64_t>(std::llround(seconds / 60));
  const std::string clock = fmt::format("{:02}:{:02}", minutes / 60 % 24, minutes % 60);
  return minutes < 24 * 60 ? clock : fmt::format("day {}, {}", minutes / (24 * 60) + 1, clock);
}

WaitKind wait_kind(int asked_gpus, const Machines& machines, const WaitFacts& facts) {
  if (facts.free_gpus < asked_gpus) return WaitKind::kFull;
  const int nodes = (asked_gpus + machines.largest_node() - 1) / machines.largest_node();
  return facts.nodes_with_free > nodes &&
                 facts.free_gpus < facts.nodes_with_free * machines.largest_node()
             ? WaitKind::kScattered
             : WaitKind::kOrder;
}

WaitReason wait_reason(const JobSpec& job, const std::vector<JobSpec>& jobs,
                       const Machines& machines, const WaitFacts& facts, int ahead, double now_s) {
  WaitReason out{wait_kind(job.gpus, machines, facts), "", now_s};
  const std::string others = ahead > 0 ? fmt::format("; {} job{} submitted before it wait{}", ahead,
                                                     ahead == 1 ? "" : "s", ahead == 1 ? "s" : "")
                                       : "";
  const bool one = facts.free_gpus == 1;
  switch (out.kind) {
    case WaitKind::kNone: break;
    case WaitKind::kFull:
      out.text = fmt::format("asks for {}, {} {} free{}{}", gpus_text(job.gpus), facts.free_gpus,
                             one ? "is" : "are", others, earliest(job, jobs, facts));
      break;
    case WaitKind::kScattered: {
      const int nodes = (job.gpus + machines.largest_node() - 1) / machines.largest_node();
      out.text = fmt::format("{} {} free, but on {} nodes; it asks for {} on {} node{}{}",
                             gpus_text(facts.free_gpus), one ? "is" : "are", facts.nodes_with_free,
                             job.gpus, nodes, nodes == 1 ? "" : "s", others);
      break;
    }
    case WaitKind::kOrder:
      out.text = fmt::format("asks for {}, {} {} free, which the policy keeps for other jobs{}",
                             gpus_text(job.gpus), facts.free_gpus, one ? "is" : "are", others);
      break;
  }
  return out;
}

}  // namespace tessera::share
