#include "tessera/simulate/rank_slice.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

namespace tessera {
namespace {

// Returns the numbers of devices that have the same socket, node, switch: all that the place of a
// device on the machine consists of, from the smallest. None: places are not equal blocks of devices.
std::optional<std::vector<int64_t>> blocks_of(const Cluster& cluster) {
  if (cluster.parts.size() != 1 || !cluster.switches.empty()) return std::nullopt;
  const NodeType& type = cluster.parts.front().type;
  if (type.sockets > 1 && type.devices % type.sockets != 0) return std::nullopt;
  std::vector<int64_t> out{type.devices};
  if (type.sockets > 1) out.insert(out.begin(), type.devices / type.sockets);
  for (const FabricTier& tier : cluster.tiers) {
    if (tier.radix <= 0) break;
    out.push_back(out.back() * tier.radix);
  }
  return out;
}

// An axis of all meshes, or the axis of the places.
struct RankAxis {
  int64_t stride = 1, size = 1;
  bool may_be_alike = false;
};

// Returns the axes that number all ranks of the plan, from the largest stride. None: the meshes
// differ, or do not number the ranks one after the other.
std::optional<std::vector<RankAxis>> axes_of(const ResolvedPlan& plan,
                                             const std::vector<bool>& moved) {
  const Mesh& mesh = plan.places.front().mesh;
  std::vector<int64_t> firsts;
  for (const Place& place : plan.places) {
    if (place.mesh.axes != mesh.axes) return std::nullopt;
    firsts.push_back(place.mesh.first_device);
  }
  std::sort(firsts.begin(), firsts.end());
  const int64_t stride = firsts.size() > 1 ? firsts[1] - firsts[0] : 1;
  for (size_t p = 0; p < firsts.size(); ++p) {
    if (firsts[p] != static_cast<int64_t>(p) * stride) return std::nullopt;
  }
  std::vector<RankAxis> out{{stride, static_cast<int64_t>(firsts.size()), false}};
  for (size_t a = 0; a < mesh.axes.size(); ++a)
    out.push_back({mesh.axes[a].stride, mesh.axes[a].size, !moved[a]});
  std::erase_if(out, [](const RankAxis& axis) { return axis.size == 1; });
  std::sort(out.begin(), out.end(),
            [](const RankAxis& a, const RankAxis& b) { return a.stride > b.stride; });
  int64_t end = plan.ranks;
  for (const RankAxis& axis : out) {
    if (axis.stride * axis.size != end) return std::nullopt;
    end = axis.stride;
  }
  if (end != 1) return std::nullopt;
  return out;
}

}  // namespace

RankSlice::RankSlice(int64_t ranks) : all_(ranks), digits_{{1, ranks, false}} { number_ranks(); }

RankSlice::RankSlice(const ResolvedPlan& plan, const std::vector<int32_t>& roles,
                     const Cluster& cluster, const std::vector<bool>& moved)
    : RankSlice(plan.ranks) {
  if (!find_digits(plan, cluster, moved)) return;
  for (size_t d = 0; d < digits_.size(); ++d)
    digits_[d].alike = digits_[d].alike && has_equal_roles(roles, d);
  std::vector<Digit> joined;
  for (const Digit& digit : digits_) {
    if (!joined.empty() && joined.back().alike == digit.alike) {
      joined.back().weight = digit.weight;
      joined.back().size *= digit.size;
    } else {
      joined.push_back(digit);
    }
  }
  digits_ = std::move(joined);
  number_ranks();
}

// Divides the axes into digits. Afterwards `alike` says whether the machine looks the same if the
// values of the digit are permuted: nodes and switches either consist of whole runs of the digit,
// or each value of the digit has whole ones.
bool RankSlice::find_digits(const ResolvedPlan& plan, const Cluster& cluster,
                            const std::vector<bool>& moved) {
  const bool several = std::ranges::any_of(plan.rows, [](const auto& row) { return row.size() > 1; });
  const auto blocks = blocks_of(cluster);
  if (several || !blocks) return false;
  const auto axes = axes_of(plan, moved);
  if (!axes) return false;
  digits_.clear();
  for (const RankAxis& axis : *axes) {
    std::vector<Digit> of_axis;  // from the smallest weight
    const int64_t end = axis.stride * axis.size;
    int64_t at = axis.stride;
    const auto add_until = [&](int64_t to) {
      for (int64_t prime = 2; at < to;) {
        if (to / at % prime != 0) {
          ++prime;
          continue;
        }
        of_axis.push_back({at, prime, axis.may_be_alike});
        at *= prime;
      }
    };
    for (const int64_t block : *blocks) {
      const int64_t to = std::gcd(block, end);
      if (to > at && to % at == 0) add_until(to);
    }
    add_until(end);
    for (Digit& digit : of_axis) {
      for (const int64_t block : *blocks) {
        const bool inside = block % (digit.weight * digit.size) == 0;
        digit.alike = digit.alike && (inside || digit.weight % block == 0);
      }
    }
    digits_.insert(digits_.end(), of_axis.rbegin(), of_axis.rend());
  }
  return true;
}

// Returns whether ranks that differ in this digit alone have equal roles. The digits before it are
// decided: of one that is alike only the value 0 is looked at.
bool RankSlice::has_equal_roles(const std::vector<int32_t>& roles, size_t digit) const {
  const auto [weight, size, unused] = digits_[digit];
  const std::function<bool(size_t, int64_t)> equal = [&](size_t d, int64_t from) {
    if (d < digit) {
      for (int64_t value = 0; value < (digits_[d].alike ? 1 : digits_[d].size); ++value) {
        if (!equal(d + 1, from + value * digits_[d].weight)) return false;
      }
      return true;
    }
    const auto first = roles.begin() + from;
    for (int64_t value = 1; value < size; ++value) {
      if (!std::equal(first, first + weight, first + value * weight)) return false;
    }
    return true;
  };
  return equal(0, 0);
}

void RankSlice::number_ranks() {
  ranks_ = {0};
  alike_ = 1;
  for (const Digit& digit : digits_) {
    if (digit.alike) {
      alike_ *= digit.size;
      continue;
    }
    std::vector<int64_t> next;
    next.reserve(ranks_.size() * static_cast<size_t>(digit.size));
    for (const int64_t rank : ranks_) {
      for (int64_t value = 0; value < digit.size; ++value)
        next.push_back(rank + value * digit.weight);
    }
    ranks_ = std::move(next);
  }
}

size_t RankSlice::index(int64_t rank) const {
  int64_t out = 0;
  for (const Digit& digit : digits_) {
    if (!digit.alike) out = out * digit.size + rank / digit.weight % digit.size;
  }
  return static_cast<size_t>(out);
}

std::vector<int> RankSlice::members(const Mesh& mesh, const std::vector<int64_t>& coordinates,
                                    const Axes& axes) const {
  std::vector<int64_t> origin = coordinates;
  for (const AxisId axis : axes) origin[axis.index()] = 0;
  std::vector<int> out{static_cast<int>(mesh.rank_at(origin))};
  for (const AxisId id : axes) {
    const MeshAxis& axis = mesh.axis(id);
    std::vector<int> steps, next;
    for (int64_t step = 0; step < axis.size * axis.stride; step += axis.stride) {
      const bool stands = std::ranges::all_of(digits_, [step](const Digit& digit) {
        return !digit.alike || step / digit.weight % digit.size == 0;
      });
      if (stands) steps.push_back(static_cast<int>(step));
    }
    for (const int rank : out) {
      for (const int step : steps) next.push_back(rank + step);
    }
    out = std::move(next);
  }
  return out;
}

std::vector<int32_t> RankSlice::spread(const std::vector<int32_t>& of_slice) const {
  std::vector<int32_t> out(static_cast<size_t>(all_));
  size_t next = 0;
  const std::function<void(size_t, int64_t)> fill = [&](size_t d, int64_t from) {
    if (d == digits_.size()) {
      out[static_cast<size_t>(from)] = of_slice[next++];
      return;
    }
    const auto [weight, size, alike] = digits_[d];
    if (!alike) {
      for (int64_t value = 0; value < size; ++value) fill(d + 1, from + value * weight);
      return;
    }
    fill(d + 1, from);
    const auto first = out.begin() + from;
    for (int64_t value = 1; value < size; ++value)
      std::copy(first, first + weight, first + value * weight);
  };
  fill(0, 0);
  return out;
}

}  // namespace tessera
