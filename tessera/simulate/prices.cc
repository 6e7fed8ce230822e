// Prices of a cluster, by the cost model.
#include "tessera/simulate/price.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

class ClusterPrices : public Prices {
 public:
  ClusterPrices(const Graph& graph, const Cluster& cluster, const Style& style, int64_t ranks)
      : graph_(graph), cluster_(cluster), collectives_(cluster, style) {
    for (const ClusterPart& part : cluster.parts) {
      ops_.emplace_back(part.type.device, style, cluster.profile.get(),
                        std::min(ranks, part.type.devices));
    }
  }

  OpCost compute(int64_t device, const Program& program, const Compute& compute) override {
    return ops(device).cost(work_of(graph_, program, compute, cluster_.profile != nullptr));
  }

  OpCost local_copy(int64_t device, DType dtype, double bytes, bool adds) override {
    OpWork work;
    work.kind = WorkClass::kMove;
    work.dtype = dtype;
    work.bytes_read = adds ? 2 * bytes : bytes;
    work.bytes_written = bytes;
    work.elements = bytes / static_cast<double>(dtype_bytes(dtype));
    if (cluster_.profile != nullptr) {
      work.family = {fmt::format("copy.{}{}", dtype_name(dtype), adds ? ".add" : ""), {2 * bytes}};
    }
    return ops(device).cost(work);
  }

  CollectiveCost collective(CollectiveKind kind, const GroupPlacement& where,
                            int64_t bytes) override {
    return collectives_.collective(kind, where, bytes);
  }
  CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share) override {
    return collectives_.message(from, to, bytes, share);
  }
  CollectiveCost copy(int64_t device, bool to_disk, bool from_disk, int64_t bytes) override {
    return collectives_.copy(device, to_disk, from_disk, bytes);
  }

 private:
  const OpCosts& ops(int64_t device) const {
    return ops_[static_cast<size_t>(cluster_.locate(device).part)];
  }

  const Graph& graph_;
  const Cluster& cluster_;
  std::vector<OpCosts> ops_;  // by part
  CollectiveCosts collectives_;
};

}  // namespace

std::unique_ptr<Prices> cluster_prices(const Graph& graph, const Cluster& cluster,
                                       const Style& style, int64_t ranks) {
  return std::make_unique<ClusterPrices>(graph, cluster, style, ranks);
}

}  // namespace tessera
