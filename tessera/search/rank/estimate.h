// Computes the step time of a choice by formula, from the prices of its units (unit_prices.h).
// Thousands of choices are ranked in the time in which one of them is lowered. The best of them are
// then lowered and simulated; this formula never decides alone.
//
// With F and B the times of a stage's micro-batch, m micro-batches, p places and v chunks
// (docs/strategies/pipelines.md):
//   step = m max(F + B, M) + b mean(F + B) + messages + once
// where b is the bubble of the schedule (schedule_facts.h), and M the time in which a micro-batch's
// messages cross the slowest link between two stages. Replicas, and ranks of a stage that hold
// equal parameters, add the costs of replica_costs.h to `once`. A part of these costs is hidden by
// the stage's last backward pass and, where a place has several stages, by the passes that follow
// it at the place. The memory of a place is a sum: tensors at rest (divided by the replicas as
// `sharded` says), activations of the micro-batches that the schedule holds, buffers that are alive
// inside a block, and buffers of the communication library. Where a micro-batch goes through the
// stages in slices, the bubble is computed as if all slices were as slow as the slowest one.
#pragma once

#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/search/price/replica_costs.h"
#include "tessera/search/price/schedule_facts.h"
#include "tessera/search/price/unit_prices.h"

namespace tessera {

struct Estimate {
  double step_s = 0;
  // The bytes that a device needs, and the bytes that it may hold (0: no limit), at the place of
  // the pipeline where the first is the largest share of the second.
  double memory_bytes = 0;
  double capacity_bytes = 0;
  // Seconds of the step without bubble and messages, if all places had equal work.
  double work_s = 0;
  // The bytes of optimizer state at that place; a part of memory_bytes.
  double state_bytes = 0;
  double activation_bytes = 0;  // of all micro-batches in flight at that place; a part, too
  bool fits() const { return capacity_bytes <= 0 || memory_bytes <= capacity_bytes; }
};

// Cuts a row of units, whose times are given, into stages and returns the first unit of each stage.
// The slowest stage is as fast as possible; among such cuts the one with the least sum of squares
// of the stages' times is taken. Needs at least as many units as stages.
std::vector<size_t> balance_stages(const std::vector<double>& times, size_t stages);
// Cuts the row for stages on different kinds of devices: times[s][u] is the time of unit u in
// stage s.
std::vector<size_t> balance_stages(const std::vector<const std::vector<double>*>& times);

// Returns all ways to cut a row of units into so many stages of at least one unit. A way lists the
// first unit of every stage. Empty if there are more than `most` ways, fewer than two stages, or
// more stages than units.
std::vector<std::vector<size_t>> all_cuts(size_t units, size_t stages, size_t most);

// Returns the bytes of a unit that rest on a device: parameters, gradients, optimizer state, and
// copies that are kept for the step. `sharded`: as Choice::sharded, and used in place of the
// choice's own.
double resting_bytes(const UnitPrice& unit, const Choice& choice, int64_t sharded,
                     int64_t replicas);

// The time that one unit adds to a step, and the memory that it adds on each of its devices.
struct UnitCost {
  double passes_s = 0;  // both passes of a micro-batch
  double once_s = 0;
  double resting_bytes = 0;
  double activation_bytes = 0;  // of a micro-batch in flight
  // Whole parameters and gradients, at the peak, of tensors that rest in shards.
  double gathered_bytes = 0;
};

// The kinds of nodes of a cluster. Parts of the cluster whose nodes are equal have one kind.
class Kinds {
 public:
  explicit Kinds(const Cluster& cluster);
  size_t count() const { return clusters_.size(); }
  size_t of_device(int64_t device) const {
    return of_part_[static_cast<size_t>(cluster_.locate(device).part)];
  }
  // Returns a cluster with nodes of this kind only. Stages on such nodes are priced on
  // this cluster.
  const Cluster& cluster(size_t kind) const { return clusters_[kind]; }

 private:
  const Cluster& cluster_;
  std::vector<size_t> of_part_;
  std::vector<Cluster> clusters_;
};

class Estimator {
 public:
  // Makes an estimator. `units`: of the model; each is priced as its stand-in (fold.h).
  // `memory_limit_bytes`: the limit of every device; 0: the memory that the devices have. All
  // arguments outlive the estimator.
  Estimator(const Cluster& cluster, const Style& style, const std::vector<FoldUnit>& units,
            int64_t memory_limit_bytes = 0);
  ~Estimator();
  Estimator(const Estimator&) = delete;
  Estimator& operator=(const Estimator&) = delete;
  // Returns the estimate of a choice whose axes[0] are the replicas, and sets the choice's cuts so
  // that the stages' times are balanced. `by_kind`: for each kind of nodes (Kinds) the prices of
  // the units, cut by the choice's other axes. A stage on several kinds of nodes is as slow as the
  // slowest of them. `sequences`: of a micro-batch of one replica.
  Estimate estimate(Choice& choice, const std::vector<const UnitPrices*>& by_kind,
                    int64_t sequences);
  Estimate estimate(Choice& choice, const UnitPrices& prices, int64_t sequences) {
    return estimate(choice, std::vector<const UnitPrices*>(kinds_.count(), &prices), sequences);
  }

  // Returns the estimate of a choice whose units have prices of their own (meshes by stage, dims
  // and recomputation by unit) and whose cuts are set. prices[u]: the prices for the axes of unit
  // u's stage after axes[0], and for one replica's share of the micro-batch. `micro_batch`:
  // sequences over all replicas. `layouts`: the replicas of each unit; empty: all units have the
  // replicas of axes[0].
  Estimate estimate_units(const Choice& choice, const std::vector<const UnitPrices*>& prices,
                          int64_t micro_batch, const std::vector<UnitLayout>& layouts = {});

  // Returns the cost of one unit in a stage that begins at device 0, with `ranks` ranks at work. It
  // assumes that a unit's transfers are hidden by the computation of this unit alone, so the sum of
  // the costs of several units is an upper bound of their joint cost.
  UnitCost unit_cost(const UnitPrice& price, DType compute, int64_t sharded,
                     const UnitLayout& layout, int64_t ranks) const;
  const CollectiveCosts& collectives() const { return collectives_; }
  // Returns the first stage with a unit for which `stand_in`, a unit of the folded graph, stands.
  size_t stage_of(const Choice& choice, int stand_in) const;
  const ReplicaCosts& replica_costs() const { return replica_costs_; }
  // Returns the bytes that a communication library keeps on a device for the choice's replicas and
  // for the device's neighbours in the pipeline, at the place where these are the most. Prices of
  // units do not include them.
  double connections_bytes(const Choice& choice) const;

  // Sets whether estimates simulate the pipeline's schedule with the times of the stages. Otherwise
  // they use the bubble of equal stages. The simulation is exact where stages are unequal, but
  // takes 100 times as long.
  void play_schedules(bool plays) { plays_ = plays; }

  const Kinds& kinds() const { return kinds_; }
  // Returns the facts of the choice's schedule, which estimates need, or null if the schedule
  // cannot be made for the choice's stages and micro-batches.
  const ScheduleFacts* schedule_of(const Choice& choice) {
    return schedules_.facts(choice.schedule,
                            {choice.stages, choice.chunks, std::ssize(choice.slices)},
                            choice.micro_batches);
  }
  // Takes, among the kinds of nodes at `place` of the pipeline, the one that computes the model
  // most slowly, and returns the prices on it. `by_kind`: the prices on each kind of nodes.
  const UnitPrices* slowest_at(const Choice& choice, int64_t place,
                               const std::vector<const UnitPrices*>& by_kind) const;

 private:
  struct Tied;
  struct Stage;
  struct Sums;  // sums of prices over the units of a stage
  struct StageSums {
    std::vector<Sums> sums;        // the different sums of stages, each once
    std::vector<size_t> of_stage;  // by stage: its position in `sums`
  };
  struct Balanced {
    SharedList<size_t> cuts;
    StageSums stages;
  };
  struct Ground {  // the ranks and devices of a place of the pipeline
    int64_t first_rank = 0, first_device = 0;
    int64_t apart = 1;  // devices from the first device of a replica to that of the next replica
  };
  Ground ground(const Choice& choice, int64_t place) const;
  std::vector<size_t> balance(const std::vector<const UnitPrices*>& by_place, size_t stages) const;
  Sums sums(const Choice& choice, const std::vector<const UnitPrices*>& prices,
            const std::vector<UnitLayout>& layouts, size_t number) const;
  // Returns the layout of the units of a stage that have no layout of their own.
  UnitLayout common_layout(const Choice& choice, size_t number) const;
  double slowness(int64_t first_device, int64_t ranks) const;
  // Returns the costs of a stage. `passes_after`: number of backward passes that follow the stage's
  // last backward pass at its place.
  Stage stage(const Choice& choice, Sums sums, const Ground& ground, double passes_after) const;
  Estimate estimate_stages(const Choice& choice, const std::vector<Sums>& sums,
                           const std::vector<size_t>& of_stage, int64_t micro_batch);
  struct MessageTime {
    double arrives_s = 0;   // from the message's beginning to its end
    double occupies_s = 0;  // seconds for which the message occupies the links
    // Seconds of all messages of a micro-batch in a pass; 0 where the value describes one message.
    double way_s = 0;
  };
  MessageTime message_time(int64_t from, int64_t to, int64_t bytes, int64_t share) const;
  void add_units(const ReplicaCosts::Resting& resting, const InUse& in_use, double passes_after,
                 UnitPrice sum, Stage& out) const;
  // Returns the times of the slowest message from a stage to the next, and in way_s the sum over
  // all these messages.
  MessageTime messages(const Choice& choice, const std::vector<const Stage*>& work,
                       int64_t micro_batch) const;
  // Returns the seconds for which a step waits for tied parameters (TiedParameter): until their
  // gradients have arrived at the stage that updates them, and until the updated parameters have
  // arrived at the later stage.
  double tied_s(const Choice& choice, const std::vector<const Stage*>& work, bool hides) const;
  double capacity(const Choice& choice, int64_t place) const;
  double neighbours_bytes(const Choice& choice, int64_t place) const;
  // Returns the kinds of nodes whose devices this place of the pipeline uses.
  std::vector<size_t> kinds_of_place(const Choice& choice, int64_t place) const;

  const Cluster& cluster_;
  Kinds kinds_;
  // Whether there is one kind of nodes under one switch, so that all groups of neighbouring nodes
  // are alike.
  bool is_uniform_;
  const Style& style_;
  CollectiveCosts collectives_;
  ReplicaCosts replica_costs_;
  const std::vector<FoldUnit>& units_;
  double memory_limit_;
  bool plays_ = false;
  ScheduleTable schedules_;
  // The balanced cuts, by the prices at each place and the number of stages.
  std::map<std::pair<std::vector<const UnitPrices*>, int64_t>, Balanced> balanced_;
  // Cache of message times, by sending device, receiving device, bytes and share. It saves time
  // because choices that differ in schedule, micro-batches or recomputation send equal messages.
  mutable std::unordered_map<std::array<int64_t, 4>, MessageTime, HashNumbers> message_s_;
};

}  // namespace tessera
