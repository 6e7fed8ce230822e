// Prices the steps of a path between two layouts: the bytes that move and the time on a cluster
// (plan/layout.h finds the path). All groups of a step work at the same time.
//
//   const auto path = conversion_path(from, to, mesh, shape);
//   const auto steps = price_path(from, path, mesh, shape, DType::kFloat32, &cluster, style);
//   if (steps) use(steps->front().bytes, steps->front().cost->seconds());
#pragma once

#include <optional>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/plan/layout.h"

namespace tessera {

struct StepPrice {
  int64_t members = 1;  // of a group
  int64_t bytes = 0;    // that the busiest rank sends
  // The price of the slowest group while all are at work; none without a cluster, and none for a
  // slice, which moves nothing.
  std::optional<CollectiveCost> cost;
};

// Prices each step; rank r of the mesh is on device r. Errors: fewer devices than the mesh has
// ranks.
Result<std::vector<StepPrice>> price_path(const Layout& from,
                                          const std::vector<ConversionStep>& path, const Mesh& mesh,
                                          const std::vector<int64_t>& shape, DType dtype,
                                          const Cluster* cluster, const Style& style);

}  // namespace tessera
