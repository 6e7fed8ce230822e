#include "tessera/orchestrate/share/rigid.h"

#include <algorithm>
#include <numeric>

namespace tessera::share {

Decision run_in_order(const View& view, const std::vector<size_t>& order, bool holds_up) {
  const Machines& machines = *view.machines;
  const int types = static_cast<int>(machines.types.size());
  std::vector<int> budget;
  for (int type = 0; type < types; ++type) budget.push_back(machines.gpus(type));
  std::vector<int> type_of(view.jobs.size(), -1);
  for (const size_t i : order) {
    const JobView& job = view.jobs[i];
    const int own = job.allocation.empty() ? -1 : machines.shape(job.allocation).type;
    int type = own;
    if (own < 0 || budget[static_cast<size_t>(own)] < job.spec->gpus) {
      type = 0;
      while (type < types && budget[static_cast<size_t>(type)] < job.spec->gpus) ++type;
    }
    if (type == types) {
      if (holds_up) break;
      continue;
    }
    type_of[i] = type;
    budget[static_cast<size_t>(type)] -= job.spec->gpus;
  }
  Decision out;
  out.allocations.resize(view.jobs.size());
  FreeGpus free = all_free(machines);
  for (size_t i = 0; i < view.jobs.size(); ++i) {
    const Allocation& now = view.jobs[i].allocation;
    if (type_of[i] < 0 || now.empty() || machines.shape(now).type != type_of[i]) continue;
    out.allocations[i] = now;
    remove(free, now);
  }
  for (const size_t i : order) {
    if (type_of[i] < 0 || !out.allocations[i].empty()) continue;
    out.allocations[i] = take_from_freest(machines, free, view.jobs[i].spec->gpus, type_of[i]);
  }
  return out;
}

std::vector<size_t> sorted_by(size_t count, const std::vector<double>& keys) {
  std::vector<size_t> out(count);
  std::iota(out.begin(), out.end(), size_t{0});
  if (std::is_sorted(keys.begin(), keys.end())) return out;  // as by submission: no search
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  return out;
}

double asked_seconds_left(const View& view, const JobView& job, BatchRule rule) {
  return job.model().seconds_left(*job.run, view.machines->packed(job.spec->gpus), rule);
}

}  // namespace tessera::share
