#include "tessera/orchestrate/share/placement.h"

#include <algorithm>
#include <numeric>

namespace tessera::share {

FreeGpus all_free(const Machines& machines) {
  FreeGpus out;
  for (const Machines::Node& node : machines.nodes) out.push_back(node.gpus);
  return out;
}

void remove(FreeGpus& free, const Allocation& allocation) {
  for (const Allocation::Part& part : allocation.parts)
    free[static_cast<size_t>(part.node)] -= part.gpus;
}

void put_back(FreeGpus& free, const Allocation& allocation) {
  for (const Allocation::Part& part : allocation.parts)
    free[static_cast<size_t>(part.node)] += part.gpus;
}

int sum(const FreeGpus& free) { return std::accumulate(free.begin(), free.end(), 0); }

Allocation take_from_freest(const Machines& machines, FreeGpus& free, int gpus, int type) {
  Allocation out;
  while (gpus > 0) {
    int best = -1;
    for (int node = 0; node < static_cast<int>(free.size()); ++node) {
      if (type >= 0 && machines.nodes[static_cast<size_t>(node)].type != type) continue;
      if (best < 0 || free[static_cast<size_t>(node)] > free[static_cast<size_t>(best)])
        best = node;
    }
    const int taken = best < 0 ? 0 : std::min(gpus, free[static_cast<size_t>(best)]);
    if (taken == 0) {
      put_back(free, out);
      return {};
    }
    free[static_cast<size_t>(best)] -= taken;
    out.parts.push_back({best, taken});
    gpus -= taken;
  }
  return out;
}

Allocation take_packed(const Machines& machines, FreeGpus& free, int gpus, int type) {
  Allocation out;
  while (gpus > 0) {
    int best = -1;
    const auto better = [&](int node, int than) {
      const int a = free[static_cast<size_t>(node)], b = free[static_cast<size_t>(than)];
      const bool a_fits = a >= gpus, b_fits = b >= gpus;
      if (a_fits != b_fits) return a_fits;
      return a_fits ? a < b : a > b;
    };
    for (int node = 0; node < static_cast<int>(free.size()); ++node) {
      if (machines.nodes[static_cast<size_t>(node)].type != type) continue;
      if (free[static_cast<size_t>(node)] > 0 && (best < 0 || better(node, best))) best = node;
    }
    if (best < 0) {
      put_back(free, out);
      return {};
    }
    const int taken = std::min(gpus, free[static_cast<size_t>(best)]);
    free[static_cast<size_t>(best)] -= taken;
    out.parts.push_back({best, taken});
    gpus -= taken;
  }
  return out;
}

int type_with(const Machines& machines, const FreeGpus& free, int gpus) {
  std::vector<int> by_type(machines.types.size());
  for (size_t node = 0; node < free.size(); ++node)
    by_type[static_cast<size_t>(machines.nodes[node].type)] += free[node];
  for (size_t type = 0; type < by_type.size(); ++type) {
    if (by_type[type] >= gpus) return static_cast<int>(type);
  }
  return -1;
}

std::vector<Allocation> place_changed(const View& view, const std::vector<int>& sizes) {
  std::vector<Allocation> out(view.jobs.size());
  FreeGpus free = all_free(*view.machines);
  std::vector<size_t> moved;
  for (size_t i = 0; i < view.jobs.size(); ++i) {
    if (view.jobs[i].gpus() == sizes[i]) {
      out[i] = view.jobs[i].allocation;
      remove(free, out[i]);
    } else {
      moved.push_back(i);
    }
  }
  std::stable_sort(moved.begin(), moved.end(),
                   [&](size_t a, size_t b) { return sizes[a] < sizes[b]; });
  for (const size_t i : moved) {
    out[i] =
        take_from_freest(*view.machines, free, sizes[i], type_with(*view.machines, free, sizes[i]));
  }
  return out;
}

}  // namespace tessera::share
