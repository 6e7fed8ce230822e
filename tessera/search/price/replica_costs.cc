#include "tessera/search/price/replica_costs.h"

#include <algorithm>
#include <cmath>

#include "tessera/search/choices/choice.h"
#include "tessera/simulate/memory.h"

namespace tessera {

void InUse::add(const UnitPrice& unit) {
  parameter_bytes = std::max(parameter_bytes, unit.parameter_bytes);
  gradient_bytes = std::max(gradient_bytes, unit.gradient_bytes);
  narrow_bytes = std::max(narrow_bytes, unit.copy_bytes + unit.uncopied_bytes);
}

size_t HashNumbers::operator()(const std::array<int64_t, 4>& numbers) const {
  uint64_t out = 0;
  for (const int64_t number : numbers) {
    out = (out ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15;
    out ^= out >> 32;
  }
  return out;
}

const GroupPlacement& ReplicaCosts::placed(int64_t ranks, int64_t first_device,
                                           int64_t stride) const {
  const auto [it, is_new] = placed_.try_emplace({ranks, first_device, stride});
  if (is_new) {
    std::vector<int64_t> devices;
    for (int64_t i = 0; i < ranks; ++i) devices.push_back(first_device + i * stride);
    it->second =
        place_group(cluster_, devices, std::min(stride, cluster_.type_of(devices.front()).devices));
  }
  return it->second;
}

const ReplicaCosts::TransferTime& ReplicaCosts::collective_time(CollectiveKind kind,
                                                                const GroupPlacement& placed,
                                                                int64_t bytes) const {
  const auto [it, is_new] = known_.try_emplace(
      {static_cast<int64_t>(kind), reinterpret_cast<intptr_t>(&placed), bytes, 0});
  if (is_new) {
    const CollectiveCost cost = collectives_.collective(kind, placed, bytes);
    TransferTime& time = it->second;
    time.seconds = cost.seconds();
    if (cost.nic_fraction > 0) time.slows = style_.network_slowdown;
    if (cost.inner_fraction > 0) {
      time.slows = std::max(time.slows, style_.compute_slowdown);
      time.slowed_times = style_.collective_slowdown;
    }
  }
  return it->second;
}

double ReplicaCosts::seconds_to_sum(int64_t replicas, int64_t stride, int64_t bytes) const {
  if (replicas == 1) return 0;
  return collective_time(CollectiveKind::kAllReduce, placed(replicas, 0, stride), bytes).seconds;
}

// Returns the time of a pass and a transfer that run at the same time. Each slows the other
// down until the shorter of the two has ended. `waits_s`: seconds of the transfer that no
// computation hides.
double ReplicaCosts::beside(double computes_s, const TransferTime& moved, double waits_s) {
  const double slowed = computes_s * moved.slows;
  const double transfer = std::max(0.0, moved.seconds - waits_s) * moved.slowed_times;
  if (slowed >= transfer) return computes_s + transfer * (1 - 1 / moved.slows) + waits_s;
  return std::max(moved.seconds, waits_s) + slowed * (1 - 1 / moved.slowed_times);
}

// The collectives that sum gradients and gather parameters.
class ReplicaCosts::Moves {
 public:
  Moves(const ReplicaCosts& costs, const Resting& resting, const UnitPrice& sum)
      : costs_(costs),
        resting_(resting),
        sum_(sum),
        replicas_(resting.layout.replicas),
        all_(std::max(sum.parameter_bytes, 1.0)),
        held_up_s_(held_up_s()) {
    const bool is_synchronous = costs.cluster_.type_of(0).device.synchronous;
    hides_gradients_ = costs.style_.overlap_gradients && !is_synchronous;
    hides_parameters_ = costs.style_.overlap_parameters && !is_synchronous;
    alike_ = sum.summed_bytes > 0 ? std::min(1.0, sum.alike_bytes / sum.summed_bytes) : 0;
    share_ = sharded() >= 1 ? share_in_shards(sum)
                            : 1 - (sum.summed_bytes - sum.summed_shard_bytes) / all_;
    tensors_ = even_pieces(sum.parameter_bytes, sum.parameter_squares);
    buckets_ = std::clamp(std::ceil(sum.gradient_bytes / static_cast<double>(kPlainBucket)), 1.0,
                          tensors_);
  }

  int64_t sharded() const { return resting_.sharded; }
  bool hides_gradients() const { return hides_gradients_; }
  bool hides_parameters() const { return hides_parameters_; }
  // Returns which share of the parameters that a rank computes with is also updated by this rank.
  double shard() const { return share_in_shards(sum_) / static_cast<double>(replicas_); }
  // Returns a share of the gradients that are summed inside the stage: those whose parameters
  // several ranks hold alike.
  double alike() const { return alike_; }
  // Returns a share of all parameters: those whose gradients are summed inside the stage although
  // no two ranks hold the parameters alike.
  double only_summed() const { return sum_.summed_bytes * (1 - alike_) / all_; }

  TransferTime gradients() const {
    if (sharded() == 0) {
      return over_all(CollectiveKind::kAllReduce, buckets_, buckets_, sum_.gradient_bytes,
                      hides_gradients_);
    }
    return over_all(CollectiveKind::kReduceScatter, buckets_,
                    pieces(buckets_, sharded() >= 2, hides_gradients_), sum_.gradient_bytes,
                    hides_gradients_);
  }
  TransferTime parameters() const {
    const double bytes = !resting_.is_narrow() ? sum_.parameter_bytes
                         : sharded() < 3       ? sum_.copy_bytes
                                               : sum_.copy_bytes + sum_.uncopied_bytes;
    return over_all(CollectiveKind::kAllGather, tensors_,
                    pieces(tensors_, sharded() >= 3, hides_parameters_), bytes, hides_parameters_);
  }
  // Returns the time to gather those parameters of which no copy is kept for the step. They are
  // gathered right before their reader, so nothing hides this time.
  TransferTime uncopied_parameters() const {
    return over_all(CollectiveKind::kAllGather, tensors_, pieces(tensors_, true, false),
                    sum_.uncopied_bytes, false);
  }

 private:
  // Returns the seconds that a device loses at each collective because its host calls the
  // collective, waits for its end, and only then issues the next kernel.
  double held_up_s() const {
    const Style& style = costs_.style_;
    const NodeType& node = costs_.cluster_.type_of(resting_.first_device);
    const bool has_alike = sum_.alike_bytes > 0;
    const int64_t ranks = has_alike ? replicas_ * resting_.layout.priced_ranks : replicas_;
    const int64_t stride = has_alike ? 1 : resting_.layout.stride;
    const int64_t in_a_node = std::min(ranks, std::max<int64_t>(1, node.devices / stride));
    const auto crowd = static_cast<double>(std::max<int64_t>(0, in_a_node - 4));
    return 2 * node.device.launch_s +
           node.host_slowness *
               (style.host_collective_s + style.host_crowd_s * crowd + style.host_backward_s);
  }

  // Returns the number of collectives that move the tensors. `large`: number of large pieces, which
  // have most of the bytes. Small neighbouring tensors are joined into one collective, but not
  // across a large tensor between them; so about two in three collectives of a transformer's layer
  // are small. Where tensors move once a step and are hidden, only the large pieces count.
  double pieces(double large, bool is_in_passes, bool is_hidden) const {
    if (is_hidden && !is_in_passes) return large;
    return std::min(sum_.parameters, is_hidden ? 3 * large : 2 * sum_.large_parameters + 1);
  }

  // Returns the time of `pieces` collectives within one group. The number `large` of them move all
  // bytes; the time of the others is nearly all latency.
  TransferTime over(const GroupPlacement& group, CollectiveKind kind, double large, double pieces,
                    double bytes) const {
    constexpr int64_t kSmallPiece = 16 << 10;  // bytes of a small collective
    TransferTime out = costs_.collective_time(kind, group, static_cast<int64_t>(bytes / large));
    out.seconds *= large;
    if (pieces > large)
      out.seconds += (pieces - large) * costs_.collective_time(kind, group, kSmallPiece).seconds;
    return out;
  }

  // Returns the time of the collectives between replicas and inside the stage together. Tensors
  // that ranks of the stage hold alike or sum are first summed among these ranks, and then each
  // rank exchanges its share with the other replicas.
  TransferTime over_all(CollectiveKind kind, double large, double pieces, double bytes,
                        bool is_hidden) const {
    if (replicas_ == 1) {  // only tensors that ranks of the stage hold alike or sum are moved
      const double part = std::max(sum_.alike_bytes, sum_.summed_bytes) / all_;
      large = std::max(1.0, large * part);
      pieces = std::max(1.0, pieces * part);
    }
    const int64_t first = resting_.first_device;
    TransferTime out;
    if (replicas_ > 1) {
      out = over(costs_.placed(replicas_, first, resting_.layout.stride), kind, large, pieces,
                 bytes * share_);
    }
    if (!is_hidden) out.seconds += pieces * held_up_s_;
    const double inside_s = kind == CollectiveKind::kAllGather
                                ? gathered_inside_s(large, replicas_ > 1 ? large : pieces, bytes)
                                : summed_inside_s();
    if (inside_s > 0) {
      const bool in_a_node = resting_.layout.priced_ranks <= costs_.cluster_.type_of(first).devices;
      out.seconds += inside_s;
      out.slows = std::max(
          out.slows, in_a_node ? costs_.style_.compute_slowdown : costs_.style_.network_slowdown);
    }
    return out;
  }

  // Returns the time of the sums inside the stage, from reduce_s, which is that of all-reduces.
  // Where parameters that ranks hold alike rest in shards, a reduce-scatter is enough, which takes
  // half the time. Gradients of parameters that ranks do not hold alike need the all-reduce in any
  // case. With `sharded` 1 that comes once a step, after the sums over replicas, and add() counts
  // it; from 2 on it comes in every micro-batch and counts here.
  double summed_inside_s() const {
    if (sharded() == 0) return sum_.reduce_s;
    return sum_.reduce_s * (alike_ / 2 + (sharded() >= 2 ? 1 - alike_ : 0));
  }

  // Returns the time to gather parameters among the ranks of the stage that hold them alike, as if
  // these ranks were neighbours.
  double gathered_inside_s(double large, double pieces, double bytes) const {
    if (sum_.alike_bytes == 0) return 0;
    const int64_t ranks = std::llround(sum_.alike_bytes / sum_.alike_shard_bytes);
    return over(costs_.placed(ranks, resting_.first_device, 1), CollectiveKind::kAllGather, large,
                pieces, bytes * sum_.alike_bytes / all_)
        .seconds;
  }

  const ReplicaCosts& costs_;
  const Resting& resting_;
  const UnitPrice& sum_;
  int64_t replicas_;
  double all_;  // bytes of parameters, at least 1
  double held_up_s_;
  bool hides_gradients_ = true, hides_parameters_ = true;
  double alike_ = 0;
  double share_ = 1;  // share of its tensors that a rank exchanges with other replicas
  double tensors_ = 1, buckets_ = 1;
};

void ReplicaCosts::add_transfers(const Moves& moves, const InUse& in_use, double passes_after,
                                 UnitPrice& sum) const {
  const int64_t sharded = moves.sharded();
  const double last_s = sum.backward_s * (1 + passes_after);
  const TransferTime reduce = moves.gradients();
  // Gradients that are summed inside the stage must wait for these sums before their shards
  // can move.
  const double reduce_waits = !moves.hides_gradients() ? 1
                              : sharded < 2            ? 0
                                            : std::min(1.0, in_use.unhidden + moves.only_summed());
  const double reduce_waits_s = reduce.seconds * reduce_waits;
  if (sharded < 2) sum.once_s += beside(last_s, reduce, reduce_waits_s) - last_s;
  if (sharded == 0) return;
  const TransferTime gather = moves.parameters();
  const double gather_waits = !moves.hides_parameters() ? 1 : sharded < 3 ? 0 : in_use.unhidden;
  const double gather_waits_s = gather.seconds * gather_waits;
  if (sharded < 3) {
    // With `sharded` 1 and 2, parameters are gathered once a step, before their first use.
    sum.once_s += beside(sum.forward_s, gather, gather_waits_s) - sum.forward_s;
    if (sharded == 2) sum.backward_s = beside(sum.backward_s, reduce, reduce_waits_s);
    return;
  }
  sum.forward_s = beside(sum.forward_s, gather, gather_waits_s);
  const TransferTime both{gather.seconds + reduce.seconds, std::max(gather.slows, reduce.slows),
                          std::max(gather.slowed_times, reduce.slowed_times)};
  sum.backward_s = beside(sum.backward_s, both, gather_waits_s + reduce_waits_s);
}

ReplicaCosts::Added ReplicaCosts::add(const Resting& resting, const InUse& in_use,
                                      double passes_after, UnitPrice& sum) const {
  Added out;
  const auto [compute, sharded, layout, first_device, gradients_in_shards] = resting;
  const Moves moves(*this, resting, sum);
  sum.once_s = sum.update_s * (sharded >= 1 ? moves.shard() : 1);
  // Gradients of parameters that ranks do not hold alike are summed inside the stage after the last
  // backward pass, when each replica has only its shard of them.
  if (sharded == 1)
    sum.once_s += sum.reduce_s * (1 - moves.alike()) / static_cast<double>(layout.replicas);
  if (layout.replicas > 1 || sum.reduce_s > 0) {
    add_transfers(moves, in_use, passes_after, sum);
    if (resting.is_narrow() && (sharded == 1 || sharded == 2) && sum.uncopied_bytes > 0) {
      const double gather_s = moves.uncopied_parameters().seconds;
      sum.forward_s += gather_s;
      sum.backward_s += gather_s;
    }
    if (sharded >= 3)
      out.in_use_bytes += 2 * (resting.is_narrow() ? in_use.narrow_bytes : in_use.parameter_bytes);
    if (gradients_in_shards && sum.gradient_buffer_bytes == 0)
      out.in_use_bytes += in_use.gradient_bytes;
  }
  if (layout.replicas > 1) {
    const int64_t last = first_device + (layout.replicas - 1) * layout.stride;
    const bool inside = cluster_.locate(first_device).node == cluster_.locate(last).node;
    out.library_bytes = kCommunicationAtMost * static_cast<double>(group_communication_bytes(
                                                   cluster_.type_of(first_device), inside));
  }
  sum = in_shards(sum, compute, sharded, layout.replicas, gradients_in_shards);
  return out;
}

}  // namespace tessera
