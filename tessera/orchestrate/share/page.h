// One self-contained page about a run: nodes over time with the jobs that they had (a Gantt chart), the
// sizes of jobs over time, the queue, and why jobs waited. It needs no network and no script.
#pragma once

#include <string>
#include <vector>

#include "tessera/orchestrate/share/controller.h"
#include "tessera/orchestrate/share/metrics.h"

namespace tessera::share {

struct PageText {
  std::string title;  // in a few words: trace, cluster, policy
  std::string command;
};
std::string to_page(const PageText& text, const std::vector<JobSpec>& jobs,
                    const Machines& machines, const Outcome& outcome, const Summary& summary);

}  // namespace tessera::share
