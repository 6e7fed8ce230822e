// Computes the costs that arise because several ranks hold the same parameters. Gradients are
// summed and parameters gathered over the replicas of a stage, and over the ranks of one replica
// that hold equal parameters. The prices of units (unit_prices.h) do not include these costs.
// Computation hides a part of their time.
//
//   ReplicaCosts costs(cluster, style, collectives);
//   UnitPrice sum = sum_of(a, b);  // of units whose parameters rest alike
//   costs.add({DType::kBFloat16, /*sharded=*/1, layout, /*first_device=*/0}, largest, 0, sum);
//   sum.once_s;  // with what is waited for; sum.state_bytes etc. are now those of a shard
//
// Where nothing rests in shards, gradients are summed by an all-reduce once a step, during the last
// backward pass. With `sharded` 1 the sum is a reduce-scatter, and parameters are gathered during
// the next forward pass. With `sharded` 2 gradients are summed in every micro-batch; with 3
// parameters are gathered in every micro-batch, too. Where transfers take place in every
// micro-batch, no computation hides the transfers of the unit with which a pass begins or ends
// (InUse::unhidden). Where the style does not overlap transfers (Style::overlap_gradients,
// overlap_parameters), or the devices are synchronous, no transfer is hidden, and after each
// collective the device waits for its host.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "tessera/cost/collective_cost.h"
#include "tessera/search/price/unit_prices.h"

namespace tessera {

// Says on which devices the replicas of a unit are, and adds a time that the unit's price leaves
// out (conversion_s).
struct UnitLayout {
  int64_t replicas = 1;      // number of replicas; the transfers between them are priced by formula
  int64_t stride = 1;        // distance in devices from one replica to the next
  int64_t priced_ranks = 1;  // number of ranks that were at work when the unit was priced
  // The seconds to convert the unit's inputs from the layout of the unit before it to its own
  // layout, in both passes of a micro-batch.
  double conversion_s = 0;
  friend bool operator==(const UnitLayout&, const UnitLayout&) = default;
};

// The bytes of the largest unit of a stage whose units rest in shards. At any time the parameters
// of up to two of its units and the gradients of one are whole.
struct InUse {
  double parameter_bytes = 0, gradient_bytes = 0;  // of a unit
  double narrow_bytes = 0;  // bytes of the unit's parameters as ops read them, if they are narrow
  double unhidden = 0;  // share of the transfers in a pass that no computation of the stage hides
  void add(const UnitPrice& unit);
  friend bool operator==(const InUse&, const InUse&) = default;
};

struct HashNumbers {
  size_t operator()(const std::array<int64_t, 4>& numbers) const;
};

class ReplicaCosts {
 public:
  // Makes an object for a machine and a style. All arguments outlive the object.
  ReplicaCosts(const Cluster& cluster, const Style& style, const CollectiveCosts& collectives)
      : cluster_(cluster), style_(style), collectives_(collectives) {}

  struct Resting {  // how parameters rest, and on which devices
    DType compute = DType::kFloat32;
    int64_t sharded = 0;  // as Choice::sharded
    UnitLayout layout;
    int64_t first_device = 0;
    bool gradients_in_shards = false;
    bool is_narrow() const { return compute != storage_dtype(compute); }
  };
  struct Added {
    double in_use_bytes = 0;   // whole tensors, at the peak, of what rests in shards
    double library_bytes = 0;  // bytes that a communication library keeps for the replicas
  };
  // Returns the seconds of an all-reduce of gradients over so many replicas, which are `stride`
  // devices apart. `bytes`: of the gradients of one replica.
  double seconds_to_sum(int64_t replicas, int64_t stride, int64_t bytes) const;

  // Adds the time of transfers to `sum`, the summed price of units whose parameters rest in the
  // same way, and reduces its memory to that of one shard. `passes_after`: number of backward
  // passes that follow the stage's last backward pass at its place.
  Added add(const Resting& resting, const InUse& in_use, double passes_after, UnitPrice& sum) const;

 private:
  class Moves;
  struct TransferTime {
    double seconds = 0;       // the transfer's time if nothing else runs
    double slows = 1;         // factor by which computation takes longer during the transfer
    double slowed_times = 1;  // factor by which the transfer takes longer during computation
  };
  static double beside(double computes_s, const TransferTime& moved, double waits_s);
  void add_transfers(const Moves& moves, const InUse& in_use, double passes_after,
                     UnitPrice& sum) const;
  const GroupPlacement& placed(int64_t ranks, int64_t first_device, int64_t stride) const;
  const TransferTime& collective_time(CollectiveKind kind, const GroupPlacement& placed,
                                      int64_t bytes) const;

  const Cluster& cluster_;
  const Style& style_;
  const CollectiveCosts& collectives_;
  // Cache of groups, by number of ranks, first device and distance between ranks.
  mutable std::map<std::array<int64_t, 3>, GroupPlacement> placed_;
  // Cache of collective times, by kind, address of the group in placed_, and bytes. It saves time
  // because choices that differ in schedule, micro-batches or recomputation move equal bytes
  // between the same devices.
  mutable std::unordered_map<std::array<int64_t, 4>, TransferTime, HashNumbers> known_;
};

}  // namespace tessera
