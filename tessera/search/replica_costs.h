// Computes the cost of parameters beyond the prices of their units (unit_prices.h) that arises
// because several ranks hold them: gradients are summed and parameters gathered over the replicas
// of a stage, and over those of its own ranks that hold them alike. Computation hides a part of it.
//
//   ReplicaCosts costs(cluster, style, collectives);
//   UnitPrice sum = sum_of(a, b);  // of units whose parameters rest alike
//   costs.add({DType::kBFloat16, /*sharded=*/1, layout, /*first_device=*/0}, largest, 0, sum);
//   sum.once_s;  // with what is waited for; sum.state_bytes etc. are now those of a shard
//
// Where nothing rests in shards, gradients are summed by an all-reduce once a step, which the last
// backward pass hides. With `sharded` 1 it is a reduce-scatter, and parameters are gathered in
// front of the next forward pass; with 2 gradients move in every micro-batch, with 3 parameters,
// too. Where transfers come in every micro-batch, nothing hides those of the unit with which a pass
// begins or ends (InUse::unhidden). Where the style does not overlap transfers
// (Style::overlap_gradients, overlap_parameters), or the devices are synchronous, all transfers are
// waited for, and after each collective the device waits for its host.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "tessera/cost/collective_cost.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

// A `UnitLayout` says where the replicas of a unit are, and what the unit's price leaves out.
struct UnitLayout {
  int64_t replicas = 1;      // their gradients and parameters are priced by formula
  int64_t stride = 1;        // devices from one replica to the next
  int64_t priced_ranks = 1;  // ranks that were at work when the unit was priced
  // The time to bring the unit's inputs from the layout in which the unit before made them to its
  // own, in both passes of a micro-batch.
  double conversion_s = 0;
  friend bool operator==(const UnitLayout&, const UnitLayout&) = default;
};

// The whole tensors at a time of a stage whose units rest in shards: parameters of two units and
// gradients of one. The largest unit counts.
struct InUse {
  double parameter_bytes = 0, gradient_bytes = 0;  // of a unit
  double narrow_bytes = 0;  // of the unit's parameters as they are used, if narrow
  double unhidden = 0;      // share of a pass's transfers that no computation of the stage hides
  void add(const UnitPrice& unit);
  friend bool operator==(const InUse&, const InUse&) = default;
};

struct HashNumbers {
  size_t operator()(const std::array<int64_t, 4>& numbers) const;
};

class ReplicaCosts {
 public:
  // Makes an object for a machine and a style. All arguments outlive it.
  ReplicaCosts(const Cluster& cluster, const Style& style, const CollectiveCosts& collectives)
      : cluster_(cluster), style_(style), collectives_(collectives) {}

  struct Resting {  // how parameters rest, and where
    DType compute = DType::kFloat32;
    int64_t sharded = 0;  // as Choice::sharded
    UnitLayout layout;
    int64_t first_device = 0;
    bool gradients_in_shards = false;
    bool is_narrow() const { return compute != storage_dtype(compute); }
  };
  struct Added {
    double in_use_bytes = 0;   // at the peak: whole tensors of what rests in shards
    double library_bytes = 0;  // what a communication library keeps for the replicas
  };
  // Returns the seconds in which so many replicas, `stride` devices apart, sum gradients of so many
  // bytes, which each of them has.
  double seconds_to_sum(int64_t replicas, int64_t stride, int64_t bytes) const;

  // Adds to `sum`, the price of units whose parameters rest alike, the time of transfers, and
  // divides its memory into that of one shard. `passes_after`: backward passes that follow the
  // stage's last one at its place.
  Added add(const Resting& resting, const InUse& in_use, double passes_after, UnitPrice& sum) const;

 private:
  class Moves;
  struct TransferTime {
    double seconds = 0;       // alone
    double slows = 1;         // factor by which computation beside it takes longer
    double slowed_times = 1;  // factor by which it takes longer beside computation
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
  // By ranks, first device and distance of the ranks.
  mutable std::map<std::array<int64_t, 3>, GroupPlacement> placed_;
  // The time of a collective, by kind, address in placed_ and bytes. Choices that differ in
  // schedule, micro-batches or recomputation move the same bytes between the same devices.
  mutable std::unordered_map<std::array<int64_t, 4>, TransferTime, HashNumbers> known_;
};

}  // namespace tessera
