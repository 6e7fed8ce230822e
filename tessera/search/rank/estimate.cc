#include "tessera/search/rank/estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/simulate/memory.h"

namespace tessera {
namespace {

using UnitTimes = std::vector<const std::vector<double>*>;  // by stage

// Returns the least bound on a stage's time with which all units find a place if the stages are
// filled in turn, each up to the bound. Found by bisection.
double least_bound(const UnitTimes& times) {
  double low = 0, high = 0;
  for (const auto* of_stage : times)
    high = std::max(high, std::accumulate(of_stage->begin(), of_stage->end(), 0.0));
  for (int i = 0; i < 60 && high > low; ++i) {
    const double bound = (low + high) / 2;
    size_t next = 0;
    bool has_each = true;  // whether each stage so far has a unit
    for (size_t s = 0; s < times.size(); ++s) {
      // Number of later stages, each of which needs a unit.
      const size_t left = times.size() - s - 1;
      const size_t first = next;
      double sum = 0;
      while (next + left < times[s]->size() && sum + (*times[s])[next] <= bound)
        sum += (*times[s])[next++];
      has_each = has_each && next > first;
    }
    (has_each && next == times.front()->size() ? high : low) = bound;
  }
  return high;
}

// Returns whether gradients that rest in shards are nevertheless held whole until the gradients of
// all slices of a micro-batch are added up.
bool holds_whole_gradients(const Choice& choice, int64_t sharded, const UnitPrice& unit) {
  return sharded >= 2 && !choice.slices.empty() && unit.gradient_buffer_bytes == 0;
}

// Returns whether a rank keeps only its shard of the summed gradients. With `sharded` 1 this is so
// if the step has one micro-batch, whose gradients are summed into shards as soon as they are made;
// gradients of several micro-batches are added up whole.
bool gradients_in_shards(const Choice& choice, int64_t sharded) {
  return sharded >= 2 || (sharded == 1 && choice.micro_batches == 1 && choice.slices.empty());
}

int64_t device_of(const Choice& choice, int64_t rank) {
  return choice.device_order.empty() ? rank : choice.device_order[static_cast<size_t>(rank)];
}

double sum_of_resting(const UnitPrice& unit) {
  return unit.parameter_bytes + unit.gradient_bytes + unit.state_bytes + unit.copy_bytes;
}

}  // namespace

double resting_bytes(const UnitPrice& unit, const Choice& choice, int64_t sharded,
                     int64_t replicas) {
  return sum_of_resting(in_shards(unit, choice.compute, sharded, replicas,
                                  gradients_in_shards(choice, sharded))) +
         (holds_whole_gradients(choice, sharded, unit) ? unit.gradient_bytes : 0);
}

std::vector<size_t> balance_stages(const UnitTimes& times) {
  const size_t stages = times.size(), n = times.front()->size();
  TESSERA_CHECK(stages >= 1 && n >= stages, "{} units in {} stages", n, stages);
  const double bound = least_bound(times) * (1 + 1e-9);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[s][i]: the least sum of squares of s stages that hold the first i units.
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1));
  best[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    const std::vector<double>& of_stage = *times[s - 1];
    for (size_t i = s; i + (stages - s) <= n; ++i) {
      double piece = 0;
      for (size_t j = i; j-- > s - 1;) {
        piece += of_stage[j];
        if (piece > bound) break;
        const double value = best[s - 1][j] + piece * piece;
        if (value >= best[s][i]) continue;
        best[s][i] = value;
        from[s][i] = j;
      }
    }
  }
  std::vector<size_t> cuts(stages);
  for (size_t s = stages, i = n; s > 0; --s) cuts[s - 1] = i = from[s][i];
  return cuts;
}

std::vector<size_t> balance_stages(const std::vector<double>& times, size_t stages) {
  return balance_stages(UnitTimes(stages, &times));
}

std::vector<std::vector<size_t>> all_cuts(size_t units, size_t stages, size_t most) {
  std::vector<std::vector<size_t>> out;
  if (stages < 2 || stages > units) return out;
  // Borders count up from the left-most ones like the digits of a number.
  std::vector<size_t> cuts(stages);
  for (size_t s = 0; s < stages; ++s) cuts[s] = s;
  while (true) {
    if (out.size() == most) return {};
    out.push_back(cuts);
    size_t s = stages - 1;
    while (s > 0 && cuts[s] == units - stages + s) --s;
    if (s == 0) return out;
    ++cuts[s];
    for (size_t later = s + 1; later < stages; ++later) cuts[later] = cuts[later - 1] + 1;
  }
}

Kinds::Kinds(const Cluster& cluster) : cluster_(cluster) {
  for (const ClusterPart& part : cluster.parts) {
    size_t kind = 0;
    while (kind < clusters_.size() && !(clusters_[kind].parts.front().type == part.type)) ++kind;
    of_part_.push_back(kind);
    if (kind < clusters_.size()) {
      clusters_[kind].parts.front().nodes += part.nodes;
    } else {
      clusters_.push_back(cluster);
      clusters_.back().parts = {part};
      // The switches count nodes of the whole cluster.
      if (cluster.parts.size() > 1) {
        clusters_.back().switches.clear();
        clusters_.back().paths.clear();
        clusters_.back().hosts.clear();
      }
    }
  }
}

Estimator::Estimator(const Cluster& cluster, const Style& style, const std::vector<FoldUnit>& units,
                     int64_t memory_limit_bytes)
    : cluster_(cluster),
      kinds_(cluster),
      is_uniform_(kinds_.count() == 1 && cluster.tiers.empty() && cluster.switches.empty()),
      style_(style),
      collectives_(cluster, style),
      replica_costs_(cluster, style, collectives_),
      units_(units),
      memory_limit_(static_cast<double>(memory_limit_bytes)) {}

// A parameter (TiedParameter) that a stage shares with an earlier stage. `stage`: the number of the
// earlier stage.
struct Estimator::Tied {
  size_t stage = 0;
  double gradient_bytes = 0, parameter_bytes = 0;
  friend bool operator==(const Tied&, const Tied&) = default;
};

// A stage's share of a step.
struct Estimator::Stage {
  double forward_s = 0, backward_s = 0;  // of a micro-batch
  double once_s = 0;
  double rests_bytes = 0;       // bytes held from step to step, and copies held for the step
  double state_bytes = 0;       // the optimizer state's part of rests_bytes
  double activation_bytes = 0;  // of a micro-batch in flight
  double alive_bytes = 0;       // bytes alive inside a block, at the peak
  double in_use_bytes = 0;      // whole tensors, at the peak, of what rests in shards
  const UnitPrices* fullest = nullptr;  // the prices whose overhead_beside() counts
  double library_bytes = 0;             // what a communication library keeps for replicas
  // Bytes that leave one device for the next stage, for each sequence of the whole micro-batch.
  double leaving_bytes = 0;
  double slowest_slice = 0;  // share of a micro-batch's passes
  std::vector<Tied> tied;
};

Estimator::Ground Estimator::ground(const Choice& choice, int64_t place) const {
  const std::vector<ChoiceAxis>& axes = choice.axes_of_stage(static_cast<size_t>(place));
  Ground out;
  for (size_t a = 1; a < axes.size(); ++a) out.apart *= axes[a].size;
  if (choice.replicas_apart) {
    out.first_device = place * out.apart;
    out.apart *= choice.stages;
  } else if (choice.stage_axes.empty()) {
    out.first_device = place * out.apart * axes.front().size;
  } else {
    for (size_t s = 0; s < static_cast<size_t>(place); ++s) {
      int64_t ranks = 1;
      for (const ChoiceAxis& axis : choice.axes_of_stage(s)) ranks *= axis.size;
      out.first_device += ranks;
    }
  }
  out.first_rank = out.first_device;
  out.first_device = device_of(choice, out.first_rank);
  return out;
}

std::vector<size_t> Estimator::kinds_of_place(const Choice& choice, int64_t place) const {
  if (kinds_.count() == 1) return {0};
  const std::vector<ChoiceAxis>& axes = choice.axes_of_stage(static_cast<size_t>(place));
  const Ground where = ground(choice, place);
  int64_t inner = 1;
  for (size_t a = 1; a < axes.size(); ++a) inner *= axes[a].size;
  std::vector<size_t> out;
  for (int64_t r = 0; r < axes.front().size; ++r) {
    for (int64_t i = 0; i < inner; ++i) {
      const size_t kind =
          kinds_.of_device(device_of(choice, where.first_rank + r * where.apart + i));
      if (std::find(out.begin(), out.end(), kind) == out.end()) out.push_back(kind);
    }
  }
  return out;
}

double Estimator::capacity(const Choice& choice, int64_t place) const {
  double out = memory_limit_;
  for (const size_t kind : kinds_of_place(choice, place)) {
    const auto has =
        static_cast<double>(kinds_.cluster(kind).parts.front().type.device.memory_bytes);
    if (has > 0) out = out > 0 ? std::min(out, has) : has;
  }
  return out;
}

double Estimator::neighbours_bytes(const Choice& choice, int64_t place) const {
  const int64_t p = choice.stages;
  if (p == 1) return 0;
  const bool is_end = choice.chunks == 1 && (place == 0 || place + 1 == p);
  const int64_t neighbours = p == 2 || is_end ? 1 : 2;
  const NodeType& type = cluster_.type_of(ground(choice, place).first_device);
  return kCommunicationAtMost * static_cast<double>(neighbours * peer_communication_bytes(type));
}

double Estimator::connections_bytes(const Choice& choice) const {
  double most = 0;
  for (int64_t place = 0; place < choice.stages; ++place) {
    UnitPrice nothing;
    const auto added =
        replica_costs_.add({choice.compute, 0, common_layout(choice, static_cast<size_t>(place)),
                            ground(choice, place).first_device, false},
                           {}, 0, nothing);
    most = std::max(most, added.library_bytes + neighbours_bytes(choice, place));
  }
  return most;
}

Estimator::MessageTime Estimator::message_time(int64_t from, int64_t to, int64_t bytes,
                                               int64_t share) const {
  const auto [it, is_new] = message_s_.try_emplace({from, to, bytes, share});
  if (is_new) {
    const CollectiveCost cost = collectives_.message(from, to, bytes, share);
    it->second = {cost.seconds(), cost.transfer_s, 0};
  }
  return it->second;
}

// Adds the costs of units whose parameters rest in the same way.
void Estimator::add_units(const ReplicaCosts::Resting& resting, const InUse& in_use,
                          double passes_after, UnitPrice sum, Stage& out) const {
  const ReplicaCosts::Added added = replica_costs_.add(resting, in_use, passes_after, sum);
  out.forward_s += sum.forward_s;
  out.backward_s += sum.backward_s;
  out.once_s += sum.once_s;
  out.rests_bytes += sum_of_resting(sum);
  out.state_bytes += sum.state_bytes;
  out.activation_bytes += sum.activation_bytes;
  out.in_use_bytes = std::max(out.in_use_bytes, added.in_use_bytes);
  out.library_bytes = std::max(out.library_bytes, added.library_bytes);
}

struct Estimator::Sums {
  struct Alike {  // units whose parameters rest in the same way
    int64_t sharded = 0;
    UnitLayout layout;
    UnitPrice sum;
    InUse largest;  // unit
    friend bool operator==(const Alike&, const Alike&) = default;
  };
  std::vector<Alike> groups;
  UnitLayout last;           // of the last unit
  double leaving_bytes = 0;  // bytes of one sequence that leave the last unit, on one device
  double conversion_s = 0, alive_bytes = 0, slowest_slice = 0;
  const UnitPrices* fullest = nullptr;  // the prices with the most overhead_bytes
  std::vector<Tied> tied;
  friend bool operator==(const Sums&, const Sums&) = default;
};

Estimator::~Estimator() = default;

// Returns the factor by which a rank is slower when so many ranks are at work at once. It is above
// 1 only if the devices of a node share cores.
double Estimator::slowness(int64_t first_device, int64_t ranks) const {
  const NodeType& node = cluster_.type_of(first_device);
  const auto busy = static_cast<double>(std::min(ranks, node.devices));
  return node.cores > 0 ? std::max(1.0, busy / static_cast<double>(node.cores)) : 1.0;
}

UnitLayout Estimator::common_layout(const Choice& choice, size_t number) const {
  const auto place = static_cast<int64_t>(number % static_cast<size_t>(choice.stages));
  const std::vector<ChoiceAxis>& axes = choice.axes_of_stage(static_cast<size_t>(place));
  UnitLayout out;
  out.replicas = axes.front().size;
  out.stride = ground(choice, place).apart;
  for (size_t a = 1; a < axes.size(); ++a) out.priced_ranks *= axes[a].size;
  return out;
}

Estimator::Sums Estimator::sums(const Choice& choice, const std::vector<const UnitPrices*>& prices,
                                const std::vector<UnitLayout>& layouts, size_t number) const {
  const size_t begin = choice.cuts.empty() ? 0 : choice.cuts[number];
  const size_t end = number + 1 < choice.cuts.size() ? choice.cuts[number + 1] : units_.size();
  const UnitLayout common = common_layout(choice, number);
  Sums out;
  for (size_t at = begin; at < end; ++at) {
    const size_t u = choice.unit_at(at);
    const UnitPrice& unit = prices[u]->units[static_cast<size_t>(units_[u].stand_in)];
    const int64_t sharded =
        choice.units.empty() ? choice.sharded : choice.units[u].sharded.value_or(choice.sharded);
    UnitLayout layout = layouts.empty() ? common : layouts[u];
    out.conversion_s += layout.conversion_s;
    layout.conversion_s = 0;
    auto group = std::find_if(out.groups.begin(), out.groups.end(), [&](const Sums::Alike& one) {
      return one.sharded == sharded && one.layout == layout;
    });
    if (group == out.groups.end())
      group = out.groups.insert(out.groups.end(), {sharded, layout, {}, {}});
    group->sum = sum_of(group->sum, unit);
    group->largest.add(unit);
    out.last = layout;
    out.leaving_bytes = unit.leaving_piece_bytes;
    out.alive_bytes = std::max(out.alive_bytes, prices[u]->transient_bytes);
    if (out.fullest == nullptr || prices[u]->overhead_bytes > out.fullest->overhead_bytes)
      out.fullest = prices[u];
    out.slowest_slice = std::max(out.slowest_slice, slowest_slice(*prices[u]));
    for (const TiedParameter& tied : prices[u]->tied) {
      if (tied.later != units_[u].stand_in) continue;
      const Tied one{stage_of(choice, tied.first), tied.gradient_bytes, tied.parameter_bytes};
      const bool is_known = std::find(out.tied.begin(), out.tied.end(), one) != out.tied.end();
      if (one.stage != number && !is_known) out.tied.push_back(one);
    }
  }
  return out;
}

size_t Estimator::stage_of(const Choice& choice, int stand_in) const {
  for (size_t stage = 0, at = 0; at < units_.size(); ++at) {
    while (stage + 1 < choice.cuts.size() && choice.cuts[stage + 1] <= at) ++stage;
    if (units_[choice.unit_at(at)].stand_in == stand_in) return stage;
  }
  return 0;
}

// Returns the seconds that tied parameters add. A message between the two stages is hidden by the
// passes of the earlier stage and of the stages between, so only the rest of its time counts.
double Estimator::tied_s(const Choice& choice, const std::vector<const Stage*>& work,
                         bool hides) const {
  const bool in_shards = parameters_in_shards(choice.sharded, choice.compute);
  const double shards = in_shards ? static_cast<double>(choice.axes.front().size) : 1;
  double gradients_s = 0, parameters_s = 0;
  for (size_t s = 0; s < work.size(); ++s) {
    for (const Tied& tied : work[s]->tied) {
      const int64_t from = ground(choice, static_cast<int64_t>(s) % choice.stages).first_device;
      const int64_t to =
          ground(choice, static_cast<int64_t>(tied.stage) % choice.stages).first_device;
      if (from == to) continue;
      const int64_t share = std::min(std::abs(from - to), cluster_.type_of(from).devices);
      double forward_s = 0, backward_s = 0;
      for (size_t k = tied.stage; hides && k < s; ++k) {
        forward_s += work[k]->forward_s;
        backward_s += work[k]->backward_s;
      }
      const auto seconds = [&](double bytes) {
        return message_time(from, to, static_cast<int64_t>(bytes), share).arrives_s;
      };
      gradients_s = std::max(gradients_s, seconds(tied.gradient_bytes) - backward_s);
      parameters_s = std::max(parameters_s, seconds(tied.parameter_bytes / shards) - forward_s);
    }
  }
  return gradients_s + parameters_s;
}

Estimator::Stage Estimator::stage(const Choice& choice, Sums sums, const Ground& ground,
                                  double passes_after, int64_t at_work) const {
  Stage out;
  out.leaving_bytes = sums.leaving_bytes / static_cast<double>(sums.last.replicas);
  out.alive_bytes = sums.alive_bytes;
  out.fullest = sums.fullest;
  out.slowest_slice = sums.slowest_slice;
  out.tied = sums.tied;
  out.forward_s = sums.conversion_s;
  // Units were priced with the ranks of one stage at work. Where the devices of a node share cores,
  // the ranks of other stages slow them down.
  const double busy = slowness(ground.first_device, at_work);
  for (Sums::Alike& group : sums.groups) {
    UnitPrice& sum = group.sum;
    const double turns = busy / slowness(ground.first_device, group.layout.priced_ranks);
    sum.forward_s *= turns;
    sum.backward_s *= turns;
    sum.update_s *= turns;
    if (holds_whole_gradients(choice, group.sharded, sum)) out.rests_bytes += sum.gradient_bytes;
    group.largest.unhidden =
        sum.parameter_bytes > 0 ? group.largest.parameter_bytes / sum.parameter_bytes : 0;
    add_units({choice.compute, group.sharded, group.layout, ground.first_device,
               gradients_in_shards(choice, group.sharded)},
              group.largest, passes_after, sum, out);
  }
  return out;
}

UnitCost Estimator::unit_cost(const UnitPrice& price, DType compute, int64_t sharded,
                              const UnitLayout& layout, int64_t ranks) const {
  UnitPrice sum = price;
  const double turns = slowness(0, ranks) / slowness(0, layout.priced_ranks);
  sum.forward_s *= turns;
  sum.backward_s *= turns;
  sum.update_s *= turns;
  Stage stage;
  InUse in_use;
  in_use.add(price);
  add_units({compute, sharded, layout, 0, sharded >= 2}, in_use, 0, sum, stage);
  return {stage.forward_s + stage.backward_s, stage.once_s, stage.rests_bytes,
          stage.activation_bytes, stage.in_use_bytes};
}

namespace {

double passes_of(const UnitPrice& price) { return price.forward_s + price.backward_s; }

}  // namespace

const UnitPrices* Estimator::slowest_at(const Choice& choice, int64_t place,
                                        const std::vector<const UnitPrices*>& by_kind) const {
  const UnitPrices* slowest = nullptr;
  double most = -1;
  for (const size_t kind : kinds_of_place(choice, place)) {
    if (by_kind.size() == 1) return by_kind[kind];
    double all = 0;
    for (const FoldUnit& unit : units_)
      all += passes_of(by_kind[kind]->units[static_cast<size_t>(unit.stand_in)]);
    if (all <= most) continue;
    most = all;
    slowest = by_kind[kind];
  }
  return slowest;
}

Estimate Estimator::estimate(Choice& choice, const std::vector<const UnitPrices*>& by_kind,
                             int64_t sequences) {
  std::vector<const UnitPrices*> by_place;
  for (int64_t place = 0; place < choice.stages; ++place)
    by_place.push_back(slowest_at(choice, place, by_kind));
  const auto stages = static_cast<size_t>(choice.stages * choice.chunks);
  choice.cuts = {};
  auto [it, is_new] = balanced_.try_emplace({by_place, static_cast<int64_t>(stages)});
  Balanced& balanced = it->second;
  if (is_new) {
    if (stages > 1) balanced.cuts = balance(by_place, stages);
    std::vector<const UnitPrices*> by_unit(units_.size(), by_place.front());
    for (size_t s = 0; s < balanced.cuts.size(); ++s) {
      std::fill(by_unit.begin() + static_cast<std::ptrdiff_t>(balanced.cuts[s]), by_unit.end(),
                by_place[s % by_place.size()]);
    }
    Choice plain = choice;  // the cached sums are computed for `sharded` 0
    plain.cuts = balanced.cuts;
    plain.units = {};
    plain.sharded = 0;
    StageSums& known = balanced.stages;
    for (size_t s = 0; s < stages; ++s) {
      Sums own = sums(plain, by_unit, {}, s);
      const auto same = std::find(known.sums.begin(), known.sums.end(), own);
      known.of_stage.push_back(static_cast<size_t>(same - known.sums.begin()));
      if (same == known.sums.end()) known.sums.push_back(std::move(own));
    }
  }
  choice.cuts = balanced.cuts;
  std::vector<Sums> all = balanced.stages.sums;
  // All stages have the same mesh, so that of place 0 holds for each.
  const UnitLayout layout = common_layout(choice, 0);
  for (Sums& own : all) {
    own.last = layout;
    for (Sums::Alike& group : own.groups) {
      group.sharded = choice.sharded;
      group.layout = layout;
    }
  }
  return estimate_stages(choice, all, balanced.stages.of_stage,
                         sequences * choice.axes.front().size);
}

std::vector<size_t> Estimator::balance(const std::vector<const UnitPrices*>& by_place,
                                       size_t stages) const {
  std::map<const UnitPrices*, std::vector<double>> times;
  for (const UnitPrices* prices : by_place) {
    std::vector<double>& of_units = times[prices];
    if (!of_units.empty()) continue;
    for (const FoldUnit& unit : units_)
      of_units.push_back(passes_of(prices->units[static_cast<size_t>(unit.stand_in)]));
  }
  std::vector<const std::vector<double>*> by_stage;
  for (size_t s = 0; s < stages; ++s) by_stage.push_back(&times[by_place[s % by_place.size()]]);
  return balance_stages(by_stage);
}

Estimator::MessageTime Estimator::messages(const Choice& choice,
                                           const std::vector<const Stage*>& work,
                                           int64_t micro_batch) const {
  const auto p = static_cast<size_t>(choice.stages);
  const bool alike = is_uniform_ && choice.stage_axes.empty();
  MessageTime out;
  double priced_bytes = -1;
  MessageTime one;
  for (size_t s = 0; s + 1 < work.size(); ++s) {
    const double bytes =
        work[s]->leaving_bytes * work[s]->slowest_slice * static_cast<double>(micro_batch);
    if (alike && bytes == priced_bytes) {
      out.way_s += one.arrives_s;
      continue;
    }
    priced_bytes = bytes;
    int64_t from = 0, to = ground(choice, 1 % choice.stages).first_device;
    const int64_t share = std::min(std::max<int64_t>(to, 1), cluster_.type_of(0).devices);
    if (!alike) {
      from = ground(choice, static_cast<int64_t>(s % p)).first_device;
      to = ground(choice, static_cast<int64_t>((s + 1) % p)).first_device;
    }
    one = message_time(from, to, static_cast<int64_t>(bytes), share);
    out.way_s += one.arrives_s;
    out.arrives_s = std::max(out.arrives_s, one.arrives_s);
    out.occupies_s = std::max(out.occupies_s, one.occupies_s);
  }
  return out;
}

Estimate Estimator::estimate_units(const Choice& choice,
                                   const std::vector<const UnitPrices*>& prices,
                                   int64_t micro_batch, const std::vector<UnitLayout>& layouts) {
  std::vector<Sums> all;
  std::vector<size_t> of_stage;
  for (size_t s = 0; s < std::max<size_t>(choice.cuts.size(), 1); ++s) {
    all.push_back(sums(choice, prices, layouts, s));
    of_stage.push_back(s);
  }
  return estimate_stages(choice, all, of_stage, micro_batch);
}

Estimate Estimator::estimate_stages(const Choice& choice, const std::vector<Sums>& sums,
                                    const std::vector<size_t>& of_stage, int64_t micro_batch) {
  const auto p = static_cast<size_t>(choice.stages);
  const ScheduleFacts* schedule = schedule_of(choice);
  TESSERA_CHECK(schedule != nullptr, "{} has no schedule", choice.str());
  // On a uniform machine every mesh is priced as if it began on the first device. Stages with equal
  // sums at the same place are priced once.
  const bool alike = is_uniform_ && choice.stage_axes.empty();
  const size_t places = alike ? 1 : p;
  // At each place all chunks but the first are followed by backward passes of other chunks, which
  // hide the sums of their gradients.
  // Ranks wait in the bubble, and so do not work.
  const auto m = static_cast<double>(choice.micro_batches);
  const auto at_work = static_cast<int64_t>(
      std::ceil(static_cast<double>(choice.ranks()) * m / (m + schedule->bubble)));
  std::vector<std::optional<Stage>> priced(sums.size() * places * 2);
  std::vector<const Stage*> work;
  for (size_t s = 0; s < of_stage.size(); ++s) {
    const size_t place = alike ? 0 : s % p;
    const bool is_followed = s >= p;
    std::optional<Stage>& one = priced[(of_stage[s] * places + place) * 2 + (is_followed ? 1 : 0)];
    if (!one) {
      const auto after = static_cast<double>(std::min(choice.stages, choice.micro_batches));
      one = stage(choice, sums[of_stage[s]], ground(choice, static_cast<int64_t>(place)),
                  is_followed ? after : 0, at_work);
    }
    work.push_back(&*one);
  }

  // Sums up each place's stages: chunk c of place q is stage c * p + q.
  Estimate out;
  double most = 0, sum = 0, once = 0, fullest = 0, slice = 0;
  for (size_t place = 0; place < p; ++place) {
    double load = 0, place_once = 0, rests = 0, state = 0, flies = 0, alive = 0, gathered = 0,
           overhead = 0;
    for (size_t s = place; s < work.size(); s += p) {
      const Stage& stage = *work[s];
      load += stage.forward_s + stage.backward_s;
      place_once += stage.once_s;
      rests += stage.rests_bytes;
      state += stage.state_bytes;
      flies += schedule->held[s] * stage.activation_bytes;
      slice = std::max(slice, stage.slowest_slice);
      alive = std::max(alive, stage.alive_bytes);
      gathered = std::max(gathered, stage.in_use_bytes);
    }
    const double buffers = rests + flies + alive + gathered;
    for (size_t s = place; s < work.size(); s += p) {
      const Stage& stage = *work[s];
      const double beside = stage.fullest == nullptr ? 0 : overhead_beside(*stage.fullest, buffers);
      overhead = std::max(overhead, beside + stage.library_bytes);
    }
    overhead += neighbours_bytes(choice, static_cast<int64_t>(place));
    most = std::max(most, load);
    sum += load;
    once = std::max(once, place_once);
    const double memory = buffers + overhead;
    const double has = capacity(choice, static_cast<int64_t>(place));
    const double full = has > 0 ? memory / has : memory;
    if (full <= fullest) continue;
    fullest = full;
    out.memory_bytes = memory;
    out.capacity_bytes = has;
    out.state_bytes = state;
    out.activation_bytes = flies;
  }
  out.work_s = m * sum / static_cast<double>(p) + once;
  const bool hides = style_.overlap_messages && !cluster_.type_of(0).device.synchronous;
  if (p > 1) once += tied_s(choice, work, hides);
  const MessageTime between = p > 1 ? messages(choice, work, micro_batch) : MessageTime{};
  const double crossing = between.occupies_s * static_cast<double>(choice.chunks);
  out.step_s = m * (hides ? std::max(most, crossing) : most) + once;
  if (p > 1 && plays_ && choice.slices.empty() && hides) {
    StageTimes times;
    times.message_s = between.arrives_s;
    for (const Stage* one : work) {
      times.forward_s.push_back(one->forward_s);
      times.backward_s.push_back(one->backward_s);
    }
    const PipelineSize size{choice.stages, choice.chunks, 0};
    const double played_s = schedules_.play(choice.schedule, size, choice.micro_batches, times);
    out.step_s = std::max(played_s, m * crossing) + once;
  } else if (p > 1) {
    // Adds the bubble as if all slices took as long as the slowest one.
    const auto slices = static_cast<double>(std::max<size_t>(choice.slices.size(), 1));
    out.step_s += schedule->bubble * slice * slices * sum / static_cast<double>(p);
    out.step_s += 2 * between.way_s;
    if (!hides) out.step_s += 2 * m * static_cast<double>(choice.chunks) * between.arrives_s;
  }
  return out;
}

}  // namespace tessera
