// Programs -> priced items for the engine: what each instruction costs, on which stream it runs,
// and what it meets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/cost/op_cost.h"
#include "tessera/simulate/classes.h"
#include "tessera/simulate/engine.h"
#include "tessera/simulate/simulate.h"

namespace tessera {

// Where prices come from; tests put in their own.
class Prices {
 public:
  virtual ~Prices() = default;
  virtual OpCost compute(int64_t device, const Program& program, const Compute& compute) = 0;
  // A copy inside the device's memory.
  virtual OpCost local_copy(int64_t device, DType dtype, double bytes, bool adds) = 0;
  virtual CollectiveCost collective(CollectiveKind kind, const GroupPlacement& where,
                                    int64_t bytes) = 0;
  virtual CollectiveCost message(int64_t from, int64_t to, int64_t bytes, int64_t share) = 0;
  virtual CollectiveCost copy(int64_t device, bool to_disk, bool from_disk, int64_t bytes) = 0;
};
// By OpCosts and CollectiveCosts; `ranks` work side by side, as far as a node has devices. The
// arguments must outlive it.
std::unique_ptr<Prices> cluster_prices(const Graph& graph, const Cluster& cluster,
                                       const Style& style, int64_t ranks);

// What an account of the engine is about.
struct TrafficKey {
  std::string kind;  // "all_reduce", "send", "receive", "copy"
  std::string axes;
  friend auto operator<=>(const TrafficKey&, const TrafficKey&) = default;
};
struct PricedPlayer {
  std::vector<TrafficRow> rows;      // by account: kind, axes, count, bytes, algorithm
  std::array<double, 5> source_s{};  // device time by CostSource
  double uncertain_s = 0;            // sum of device time x relative uncertainty
  double flops = 0;                  // executed, a step
};
struct Priced {
  engine::Play play;
  std::vector<PricedPlayer> players;
  std::vector<std::string> what;  // of Play::labels: "einsum", "all_reduce tp", ...
};
Result<Priced> price(const Lowering& lowering, const Cluster& cluster, const Classes& classes,
                     NodeSharing& sharing, const SimulateOptions& options, Prices& prices);

}  // namespace tessera
