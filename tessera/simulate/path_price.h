// Prices the steps of a conversion path between two layouts, which plan/layout/layout.h finds. A step's
// price is the bytes that move and the time that they take on a cluster. All groups of a step are
// taken to communicate at the same time.
//
//   const auto path = conversion_path(from, to, mesh, shape);
//   const auto steps = price_path(from, path, mesh, shape, DType::kFloat32, &cluster, style);
//   if (steps) use(steps->front().bytes, steps->front().cost->seconds());
#pragma once

#include <optional>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/collective_cost.h"
#include "tessera/plan/layout/layout.h"

namespace tessera {

struct StepPrice {
  int64_t members = 1;  // ranks in each group
  int64_t bytes = 0;    // bytes that the busiest rank sends
  // The price of the slowest group while all groups communicate. Unset without a cluster, and for a
  // slice, which moves nothing.
  std::optional<CollectiveCost> cost;
};

// Prices each step, with rank r of the mesh on device r. `cluster`: null: only bytes are computed.
// Errors: the cluster has fewer devices than the mesh has ranks.
Result<std::vector<StepPrice>> price_path(const Layout& from,
                                          const std::vector<ConversionStep>& path, const Mesh& mesh,
                                          const std::vector<int64_t>& shape, DType dtype,
                                          const Cluster* cluster, const Style& style);

}  // namespace tessera
