// Computes the step time of a choice by formula, from the prices of its units (unit_prices.h).
// Thousands of choices are ranked in the time in which one is lowered. The best of them are then
// lowered and simulated; this formula never decides alone.
//
// With F and B the times of a stage's micro-batch, m micro-batches, p places and v chunks
// (docs/strategies/pipelines.md):
//   step = m max(F + B, M) + b mean(F + B) + messages + once
// where b is the bubble of the schedule (schedule_facts.h), and M the time in which a micro-batch's
// messages cross the slowest link between two stages.
// Replicas, and ranks of a stage that hold equal parameters, add the costs of replica_costs.h. The
// stage's last backward pass hides them, and where a place has several stages so do the passes of
// the stages that come after it. The memory of a place is what rests there, divided by the replicas
// as `sharded` says, the activations of the micro-batches that the schedule holds, what is alive
// inside a block, and what a communication library keeps. Where a micro-batch goes through the
// stages in slices, the bubble is that of the slowest slice.
#pragma once

#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/cost/collective_cost.h"
#include "tessera/search/replica_costs.h"
#include "tessera/search/schedule_facts.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

struct Estimate {
  double step_s = 0;
  // For the place of the pipeline whose devices are the fullest: what a device needs, and what it
  // may hold (0: no limit).
  double memory_bytes = 0;
  double capacity_bytes = 0;
  // Seconds of the step without bubble and messages, if all places had equal work.
  double work_s = 0;
  // The bytes of optimizer state at that place; a part of memory_bytes.
  double state_bytes = 0;
  bool fits() const { return capacity_bytes <= 0 || memory_bytes <= capacity_bytes; }
};

// Returns the first unit of each of `stages` stages: of all ways to cut the row of times into so
// many pieces, one with the least largest piece, and of these the one with the least sum of
// squares. Needs at least as many units as stages.
std::vector<size_t> balance_stages(const std::vector<double>& times, size_t stages);
// Returns the same for stages on different kinds of devices: times[s][u] is the time of unit u in
// stage s.
std::vector<size_t> balance_stages(const std::vector<const std::vector<double>*>& times);

// Returns all ways to cut a row of units into so many stages of at least one unit, each as the
// first unit of every stage. Empty if there are more than `most` ways, or only one stage.
std::vector<std::vector<size_t>> all_cuts(size_t units, size_t stages, size_t most);

// Returns the bytes of a unit that rest on a device if its parameters rest so over the replicas
// (Choice::sharded): parameters, gradients, optimizer state, and copies kept for the step.
double resting_bytes(const UnitPrice& unit, const Choice& choice, int64_t sharded,
                     int64_t replicas);

// The time that one unit adds to a step, and the memory that it adds on each of its devices.
struct UnitCost {
  double passes_s = 0;  // of a micro-batch
  double once_s = 0;
  double resting_bytes = 0;
  double activation_bytes = 0;  // of a micro-batch in flight
  double gathered_bytes = 0;  // at the peak: whole parameters and gradients of what rests in shards
};

// The kinds of nodes of a cluster. Parts whose nodes are equal are one kind.
class Kinds {
 public:
  explicit Kinds(const Cluster& cluster);
  size_t count() const { return clusters_.size(); }
  size_t of_device(int64_t device) const {
    return of_part_[static_cast<size_t>(cluster_.locate(device).part)];
  }
  // Returns a cluster of nodes of this kind only: the machine that a stage on such nodes is priced
  // on.
  const Cluster& cluster(size_t kind) const { return clusters_[kind]; }

 private:
  const Cluster& cluster_;
  std::vector<size_t> of_part_;
  std::vector<Cluster> clusters_;
};

class Estimator {
 public:
  // Makes an estimator. `units`: of the model, by stand-in (fold.h). `memory_limit_bytes`: of any
  // device; 0: what the devices have. All arguments outlive the estimator.
  Estimator(const Cluster& cluster, const Style& style, const std::vector<FoldUnit>& units,
            int64_t memory_limit_bytes = 0);
  ~Estimator();
  Estimator(const Estimator&) = delete;
  Estimator& operator=(const Estimator&) = delete;
  // Returns the estimate of a choice whose axes[0] are the replicas, and sets the choice's cuts.
  // The units were priced with its other axes, on each kind of nodes (Kinds). A stage is as slow as
  // its slowest devices. `sequences`: of a micro-batch of one replica.
  Estimate estimate(Choice& choice, const std::vector<const UnitPrices*>& by_kind,
                    int64_t sequences);
  Estimate estimate(Choice& choice, const UnitPrices& prices, int64_t sequences) {
    return estimate(choice, std::vector<const UnitPrices*>(kinds_.count(), &prices), sequences);
  }

  // Returns the estimate where units have prices of their own (meshes by stage, dims and
  // recomputation by unit): prices[u] were asked with the axes of the unit's stage behind axes[0],
  // and with its share of the micro-batch. The choice has its cuts. `micro_batch`: sequences over
  // all replicas. `layouts`: by unit, where units have replicas of their own; empty: those of
  // axes[0].
  Estimate estimate_units(const Choice& choice, const std::vector<const UnitPrices*>& prices,
                          int64_t micro_batch, const std::vector<UnitLayout>& layouts = {});

  // Returns the cost of one unit in a stage that begins at device 0, with `ranks` ranks at work.
  // The unit's computation hides only its own transfers, so the sum over units is an upper bound.
  UnitCost unit_cost(const UnitPrice& price, DType compute, int64_t sharded,
                     const UnitLayout& layout, int64_t ranks) const;
  const CollectiveCosts& collectives() const { return collectives_; }
  const ReplicaCosts& replica_costs() const { return replica_costs_; }
  // Returns the bytes that a communication library keeps on a device for the choice's replicas and
  // for its neighbours in the pipeline, which no unit's price has, at the place that has most of
  // them.
  double connections_bytes(const Choice& choice) const;

  // Sets whether estimates play the pipeline's schedule with the time of each stage. Otherwise a
  // formula takes the bubble of equal stages. Playing is right where stages are unequal, but 100
  // times slower.
  void play_schedules(bool plays) { plays_ = plays; }

  const Kinds& kinds() const { return kinds_; }
  // Returns the facts of the choice's schedule, which estimates need. Null: the schedule cannot be
  // made for its stages and micro-batches.
  const ScheduleFacts* schedule_of(const Choice& choice) {
    return schedules_.facts(choice.schedule,
                            {choice.stages, choice.chunks, std::ssize(choice.slices)},
                            choice.micro_batches);
  }
  // Returns, of the prices on each kind of nodes, those of the slowest devices of a place of the
  // pipeline.
  const UnitPrices* slowest_at(const Choice& choice, int64_t place,
                               const std::vector<const UnitPrices*>& by_kind) const;

 private:
  struct Tied;
  struct Stage;
  struct Sums;  // over the units of a stage
  struct StageSums {
    std::vector<Sums> sums;        // of stages that differ from one another
    std::vector<size_t> of_stage;  // by stage: its position in `sums`
  };
  struct Balanced {
    std::vector<size_t> cuts;
    StageSums stages;
  };
  struct Ground {  // where a place of the pipeline lies on the devices
    int64_t first_rank = 0, first_device = 0;
    int64_t apart = 1;  // devices from a replica to the next
  };
  Ground ground(const Choice& choice, int64_t place) const;
  std::vector<size_t> balance(const std::vector<const UnitPrices*>& by_place, size_t stages) const;
  Sums sums(const Choice& choice, const std::vector<const UnitPrices*>& prices,
            const std::vector<UnitLayout>& layouts, size_t number) const;
  // Returns the layout of those units of a stage that have none of their own.
  UnitLayout common_layout(const Choice& choice, size_t number) const;
  double slowness(int64_t first_device, int64_t ranks) const;
  // `passes_after`: backward passes that follow the stage's last one at its place.
  Stage stage(const Choice& choice, Sums sums, const Ground& ground, double passes_after) const;
  Estimate estimate_stages(const Choice& choice, const std::vector<Sums>& sums,
                           const std::vector<size_t>& of_stage, int64_t micro_batch);
  struct MessageTime {
    double arrives_s = 0;   // from the message's beginning to its end
    double occupies_s = 0;  // in which the message occupies the links
    double way_s = 0;       // of all messages that a micro-batch needs in a pass; 0: of one message
  };
  MessageTime message_time(int64_t from, int64_t to, int64_t bytes, int64_t share) const;
  void add_units(const ReplicaCosts::Resting& resting, const InUse& in_use, double passes_after,
                 UnitPrice sum, Stage& out) const;
  // Returns the slowest message from a stage to the next, and all of them together (way_s).
  MessageTime messages(const Choice& choice, const std::vector<const Stage*>& work,
                       int64_t micro_batch) const;
  // Returns the seconds for which a step waits until gradients of tied parameters (TiedParameter)
  // have come to the stage that updates them, and until the parameters are back.
  double tied_s(const Choice& choice, const std::vector<const Stage*>& work, bool hides) const;
  size_t stage_of(const Choice& choice, int stand_in) const;
  double capacity(const Choice& choice, int64_t place) const;
  double neighbours_bytes(const Choice& choice, int64_t place) const;
  // Returns the kinds of the devices that hold this place of the pipeline.
  std::vector<size_t> kinds_of_place(const Choice& choice, int64_t place) const;

  const Cluster& cluster_;
  Kinds kinds_;
  bool is_uniform_;  // one kind of nodes under one switch: all neighbourhoods are alike
  const Style& style_;
  CollectiveCosts collectives_;
  ReplicaCosts replica_costs_;
  const std::vector<FoldUnit>& units_;
  double memory_limit_;
  bool plays_ = false;
  ScheduleTable schedules_;
  // By the prices at each place and the number of stages.
  std::map<std::pair<std::vector<const UnitPrices*>, int64_t>, Balanced> balanced_;
  // The time of a message, by both devices, bytes and share. Choices that differ in schedule,
  // micro-batches or recomputation send the same messages.
  mutable std::unordered_map<std::array<int64_t, 4>, MessageTime, HashNumbers> message_s_;
};

}  // namespace tessera
