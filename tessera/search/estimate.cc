#include "tessera/search/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/base/check.h"

namespace tessera {
namespace {

// The least bound such that greedy stages of at most that time are no more than `stages`.
double least_bound(const std::vector<double>& times, size_t stages) {
  double low = *std::max_element(times.begin(), times.end());
  double high = std::accumulate(times.begin(), times.end(), 0.0);
  for (int i = 0; i < 60 && high > low; ++i) {
    const double bound = (low + high) / 2;
    size_t count = 1;
    double sum = 0;
    for (const double time : times) {
      if (sum + time > bound) {
        ++count;
        sum = 0;
      }
      sum += time;
    }
    (count <= stages ? high : low) = bound;
  }
  return high;
}

// How many micro-batches' activations the place holds at once.
double in_flight(const Choice& choice, int64_t place) {
  const auto m = static_cast<double>(choice.micro_batches);
  const auto p = static_cast<double>(choice.stages), v = static_cast<double>(choice.chunks);
  if (choice.schedule == "gpipe") return m;
  const auto behind = p - static_cast<double>(place);
  if (choice.chunks == 1) return std::min(m, behind);
  return std::min(m * v, (v - 1) * p + 2 * behind - 1) / v;
}

double bubble_share(const Choice& choice) {
  if (choice.schedule == "zb_h1") return 1.0 / 3;
  return 1.0 / static_cast<double>(choice.chunks);
}

}  // namespace

std::vector<size_t> balance_stages(const std::vector<double>& times, size_t stages) {
  const size_t n = times.size();
  TESSERA_CHECK(stages >= 1 && n >= stages, "{} units in {} stages", n, stages);
  std::vector<double> before(n + 1);
  std::partial_sum(times.begin(), times.end(), before.begin() + 1);
  const double bound = least_bound(times, stages) * (1 + 1e-9);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[s][i]: the least sum of squares of s stages that hold the first i units.
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1));
  best[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t i = s; i + (stages - s) <= n; ++i) {
      for (size_t j = i; j-- > s - 1;) {
        const double piece = before[i] - before[j];
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

Estimator::Estimator(const Cluster& cluster, const Style& style, const std::vector<FoldUnit>& units)
    : cluster_(cluster), collectives_(cluster, style), units_(units) {}

std::vector<UnitPrice> Estimator::stages_of(const Choice& choice, const UnitPrices& costs) const {
  std::vector<UnitPrice> out(std::max<size_t>(choice.cuts.size(), 1));
  for (size_t s = 0; s < out.size(); ++s) {
    const size_t begin = choice.cuts.empty() ? 0 : choice.cuts[s];
    const size_t end = s + 1 < choice.cuts.size() ? choice.cuts[s + 1] : units_.size();
    for (size_t u = begin; u < end; ++u) {
      const UnitPrice& unit = costs.units[static_cast<size_t>(units_[u].stand_in)];
      out[s].forward_s += unit.forward_s;
      out[s].backward_s += unit.backward_s;
      out[s].once_s += unit.once_s;
      out[s].parameter_squares += unit.parameter_squares;
      out[s].parameter_bytes += unit.parameter_bytes;
      out[s].gradient_bytes += unit.gradient_bytes;
      out[s].state_bytes += unit.state_bytes;
      out[s].copy_bytes += unit.copy_bytes;
      out[s].activation_bytes += unit.activation_bytes;
      out[s].leaving_bytes = unit.leaving_bytes;  // of the last unit
    }
  }
  return out;
}

Estimate Estimator::estimate(Choice& choice, const UnitPrices& costs, int64_t sequences) {
  const auto stages = static_cast<size_t>(choice.stages * choice.chunks);
  choice.cuts.clear();
  if (stages > 1) {
    auto& cuts = cuts_[{&costs, choice.stages * choice.chunks}];
    if (cuts.empty()) {
      std::vector<double> times;
      for (const FoldUnit& unit : units_) {
        const UnitPrice& cost = costs.units[static_cast<size_t>(unit.stand_in)];
        times.push_back(cost.forward_s + cost.backward_s);
      }
      cuts = balance_stages(times, stages);
    }
    choice.cuts = cuts;
  }
  std::vector<UnitPrice> work = stages_of(choice, costs);

  // Units were priced with one stage at work. Where the devices of a node share cores, more take
  // turns.
  const NodeType& node = cluster_.type_of(0);
  const auto slowness = [&](int64_t ranks) {
    const auto busy = static_cast<double>(std::min(ranks, node.devices));
    return node.cores > 0 ? std::max(1.0, busy / static_cast<double>(node.cores)) : 1.0;
  };
  const double turns = slowness(choice.ranks()) /
                       slowness(choice.ranks() / choice.stages / choice.axes.front().size);
  for (UnitPrice& stage : work) {
    stage.forward_s *= turns;
    stage.backward_s *= turns;
    stage.once_s *= turns;
  }

  // Replicas: their gradients, and the parameters where these rest in shards.
  const auto d = static_cast<double>(choice.axes.front().size);
  const int64_t inner = choice.ranks() / choice.stages / choice.axes.front().size;
  const bool hides = !cluster_.type_of(0).device.synchronous;
  GroupPlacement replicas;
  if (d > 1) {
    std::vector<int64_t> devices;
    for (int64_t i = 0; i < choice.axes.front().size; ++i) devices.push_back(i * inner);
    replicas = place_group(cluster_, devices, std::min(inner, cluster_.type_of(0).devices));
  }
  const auto moves = [&](CollectiveKind kind, double pieces, double bytes) {
    return pieces *
           collectives_.collective(kind, replicas, static_cast<int64_t>(bytes / pieces)).seconds();
  };
  const auto beside = [&](double compute, double moved) {  // time of both
    return hides ? std::max(compute, moved) : compute + moved;
  };
  const bool is_narrow = choice.compute != storage_dtype(choice.compute);
  double largest_copy = 0;
  for (UnitPrice& stage : work) {
    if (d == 1) break;
    // Gradients move in buckets, parameters tensor by tensor.
    constexpr double kBucketBytes = 25 << 20;
    const double tensors = even_pieces(stage.parameter_bytes, stage.parameter_squares);
    const double buckets = std::clamp(std::ceil(stage.gradient_bytes / kBucketBytes), 1.0, tensors);
    const double weights = is_narrow ? stage.copy_bytes : stage.parameter_bytes;
    if (choice.sharded == 0) {
      stage.once_s += beside(stage.backward_s,
                             moves(CollectiveKind::kAllReduce, buckets, stage.gradient_bytes)) -
                      stage.backward_s;
    } else {
      const double reduce = moves(CollectiveKind::kReduceScatter, buckets, stage.gradient_bytes);
      const double gather = moves(CollectiveKind::kAllGather, tensors, weights);
      stage.once_s /= d;
      if (choice.sharded == 1)
        stage.once_s += beside(stage.backward_s, reduce) - stage.backward_s + gather;
      if (choice.sharded == 2) {
        stage.backward_s = beside(stage.backward_s, reduce);
        stage.once_s += gather;
      }
      if (choice.sharded == 3) {
        stage.forward_s = beside(stage.forward_s, gather);
        stage.backward_s = beside(stage.backward_s, gather + reduce);
      }
      stage.state_bytes /= d;
    }
    if (choice.sharded >= 2) stage.gradient_bytes /= d;
    if (choice.sharded >= 3 || (choice.sharded >= 1 && is_narrow)) stage.parameter_bytes /= d;
    if (choice.sharded >= 3) {
      largest_copy = std::max(largest_copy, 2 * weights / static_cast<double>(units_.size()) *
                                                static_cast<double>(stages));
      if (is_narrow) stage.copy_bytes = 0;
    }
  }

  // Places: chunk c of place q is stage c * p + q.
  const auto p = static_cast<size_t>(choice.stages);
  const auto m = static_cast<double>(choice.micro_batches);
  Estimate out;
  double most = 0, sum = 0, once = 0;
  for (size_t place = 0; place < p; ++place) {
    double load = 0, place_once = 0, rests = 0, flies = 0;
    for (size_t s = place; s < work.size(); s += p) {
      const UnitPrice& stage = work[s];
      load += stage.forward_s + stage.backward_s;
      place_once += stage.once_s;
      rests += stage.parameter_bytes + stage.gradient_bytes + stage.state_bytes + stage.copy_bytes;
      flies += stage.activation_bytes;
    }
    most = std::max(most, load);
    sum += load;
    once = std::max(once, place_once);
    // A weight pass that waits holds what the gradients of the weights are made of: half a
    // micro-batch's activations more.
    const double waits = choice.schedule == "zb_h1" ? .5 * flies : 0;
    const double memory = rests + in_flight(choice, static_cast<int64_t>(place)) * flies + waits +
                          costs.transient_bytes + largest_copy + costs.overhead_bytes;
    out.memory_bytes = std::max(out.memory_bytes, memory);
  }
  out.step_s = m * most + once;
  if (p > 1) {
    out.step_s += static_cast<double>(p - 1) * sum / static_cast<double>(p) * bubble_share(choice);
    double border = 0;
    for (size_t s = 0; s + 1 < work.size(); ++s)
      border = std::max(border, work[s].leaving_bytes * static_cast<double>(sequences));
    const int64_t next = choice.axes.front().size * inner;
    const double message = collectives_
                               .message(0, next, static_cast<int64_t>(border),
                                        std::min(next, cluster_.type_of(0).devices))
                               .seconds();
    const double hops = 2 * static_cast<double>(work.size() - 1);
    out.step_s += message * (hides ? hops : hops + 2 * m * static_cast<double>(choice.chunks));
  }
  return out;
}

}  // namespace tessera
