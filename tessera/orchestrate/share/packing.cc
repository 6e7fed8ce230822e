#include "tessera/orchestrate/share/packing.h"

#include <algorithm>

namespace tessera::share {
namespace {

int nodes_needed(const Machines& machines, const GpuOption& size) {
  return machines.packed(size.gpus, size.type).nodes();
}

// Returns whether the GPUs can be had on as few nodes as they need.
bool fits_packed(const Machines& machines, FreeGpus free, const GpuOption& size) {
  const Allocation taken = take_packed(machines, free, size.gpus, size.type);
  return !taken.empty() && static_cast<int>(taken.parts.size()) <= nodes_needed(machines, size);
}

}  // namespace

std::vector<Allocation> place_packed(const View& view, const std::vector<GpuOption>& sizes) {
  const Machines& machines = *view.machines;
  std::vector<Allocation> out(view.jobs.size());
  FreeGpus free = all_free(machines);
  std::vector<size_t> kept, moved;
  for (size_t i = 0; i < view.jobs.size(); ++i) {
    const Allocation& now = view.jobs[i].allocation;
    const bool is_same =
        !now.empty() && now.gpus() == sizes[i].gpus && machines.shape(now).type == sizes[i].type;
    if (is_same) {
      out[i] = now;
      remove(free, now);
      kept.push_back(i);
    } else if (sizes[i].gpus > 0) {
      moved.push_back(i);
    }
  }
  const auto larger = [&](size_t a, size_t b) { return sizes[a].gpus > sizes[b].gpus; };
  std::stable_sort(moved.begin(), moved.end(), larger);
  std::stable_sort(kept.begin(), kept.end(), larger);
  // While one of the jobs to be placed would be scattered, the smallest job that stays moves, too, if
  // it is smaller than that one.
  for (size_t k = 0; k < moved.size(); ++k) {
    const size_t i = moved[k];
    while (!kept.empty() && !fits_packed(machines, free, sizes[i])) {
      const size_t last = kept.back();
      if (sizes[last].gpus >= sizes[i].gpus) break;
      put_back(free, out[last]);
      out[last] = {};
      kept.pop_back();
      moved.insert(std::upper_bound(moved.begin() + static_cast<std::ptrdiff_t>(k) + 1, moved.end(),
                                    last, larger),
                   last);
    }
    out[i] = take_packed(machines, free, sizes[i].gpus, sizes[i].type);
  }
  // A job that was moved for another and got back what it had, in another order, stays where it is.
  return out;
}

}  // namespace tessera::share
