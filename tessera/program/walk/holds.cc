// Chooses, among the values of a tensor at a place, the one from which a need is made most cheaply.
#include "tessera/program/walk/holds.h"

#include <algorithm>

namespace tessera {

Holds::Holds(const Facts& facts, ConversionPaths& paths) : facts_(facts), paths_(paths) {
  places_.resize(facts.plan().places.size());
}

std::vector<std::pair<TensorId, const Held*>> Holds::homes(PlaceId place) const {
  std::vector<std::pair<TensorId, const Held*>> out;
  for (const auto& [tensor, held] : at(place).home) out.emplace_back(tensor, &held);
  std::ranges::sort(out, {}, [](const auto& one) { return one.first; });
  return out;
}

const Held* Holds::home(PlaceId place, TensorId tensor) const {
  const auto it = at(place).home.find(tensor);
  return it == at(place).home.end() ? nullptr : &it->second;
}

namespace {

// Returns whether each rank holds at least its piece of the tensor, as if the layout had no
// windows.
bool holds_pieces(const Layout& layout, const Mesh& mesh, const std::vector<int64_t>& shape) {
  Layout plain = layout;
  plain.windows.clear();
  Axes axes;
  for (const Layout::DimWindow& window : layout.windows) {
    const Axes& cut = layout.shards[window.dim];
    axes.insert(axes.end(), cut.begin(), cut.end());
  }
  std::vector<int64_t> at(mesh.axes.size(), 0);
  for (;;) {
    const Box piece = region_of(plain, mesh, shape, at);
    if (!piece.empty() && !region_of(layout, mesh, shape, at).contains(piece)) return false;
    size_t a = 0;
    for (; a < axes.size(); ++a) {
      int64_t& coordinate = at[axes[a].index()];
      if (++coordinate < mesh.axis(axes[a]).size) break;
      coordinate = 0;
    }
    if (a == axes.size()) return true;
  }
}

}  // namespace

const Held* Holds::best(PlaceId place, TensorId tensor, BlockRef block, const Layout* need) const {
  SmallVector<const Held*, 8> candidates;
  if (const Held* at_home = home(place, tensor)) candidates.push_back(at_home);
  if (const auto copies = at(place).copies.find(tensor); copies != at(place).copies.end()) {
    SmallVector<BlockRef, 3> blocks{block, BlockKind::kPrologue};
    if (block.kind > BlockKind::kForward) blocks.push_back({BlockKind::kForward, block.chunk});
    for (const BlockRef of : blocks) {
      for (const Copied& copy : copies->second) {
        const bool here = of == block || of.kind == BlockKind::kPrologue;
        if (copy.block == of && (here || outlasts_forward(place, tensor, copy.held)))
          candidates.push_back(&copy.held);
      }
    }
  }
  if (candidates.empty()) return nullptr;
  if (need == nullptr) return candidates[0];
  const Held* best = nullptr;
  double best_cost = 0;
  for (const Held* held : candidates) {
    const Layout& layout = held->region.layout;
    if (layout.partial != need->partial && !need->complete()) continue;
    // A value that was made for other windows may lack elements, because a stride passes over some.
    const bool copied = layout.complete() && !layout.windows.empty();
    if (copied && layout.windows != need->windows &&
        !holds_pieces(layout, facts_.mesh(place), facts_.shape(tensor)))
      continue;
    const double cost = paths_.cost(place, tensor, layout, *need);
    if (best == nullptr || cost < best_cost) {
      best = held;
      best_cost = cost;
    }
  }
  return best;
}

std::optional<Layout> Holds::kept_layout(PlaceId place, TensorId tensor, const Layout& need) const {
  const OfPlace<Axes>& keep_over = facts_.tensor_plan(tensor).keep_over;
  const Held* rests = home(place, tensor);
  if (keep_over.numbers().empty() || rests == nullptr || place != keep_over.place())
    return std::nullopt;
  const Axes& axes = keep_over.at(place);
  Layout kept = rests->region.layout;
  if (!kept.complete()) return std::nullopt;
  for (size_t d = 0; d < kept.shards.size(); ++d) {
    Axes left;
    for (const AxisId axis : kept.shards[d]) {
      const bool stays = std::ranges::find(axes, axis) != axes.end();
      if (stays || std::ranges::find(need.shards[d], axis) != need.shards[d].end())
        left.push_back(axis);
    }
    kept.shards[d] = std::move(left);
  }
  kept = normalise(std::move(kept), facts_.mesh(place), facts_.shape(tensor));
  if (kept == *rests->region.layout) return std::nullopt;
  return kept;
}

bool Holds::outlasts_forward(PlaceId place, TensorId tensor, const Held& copy) const {
  const TensorPlan& plan = facts_.tensor_plan(tensor);
  if (!plan.keep_over.numbers().empty() && place == plan.keep_over.place()) {
    return std::ranges::all_of(plan.keep_over.at(place), [&](AxisId axis) {
      const Held* rests = home(place, tensor);
      return rests == nullptr || !rests->region.layout->shards_over(axis) ||
             copy.region.layout->shards_over(axis);
    });
  }
  if (plan.keep) return *plan.keep == Keep::kMicroBatch;
  const OpId producer = facts_.tensor(tensor).producer;
  const Held* rests = home(place, tensor);
  if (!producer.valid() || plan.tier != Tier::kDevice || rests == nullptr) return false;
  if (facts_.block_of(facts_.graph().op(producer)).kind != BlockKind::kForward) return false;
  const auto pieces = [&](const Held& held) {
    int64_t count = 1;
    for (const Axes& axes : held.region.layout->shards) {
      for (const AxisId axis : axes) count *= facts_.mesh(place).axis(axis).size;
    }
    for (const AxisPin& pin : held.region.layout->at)
      count *= facts_.mesh(place).axis(pin.axis).size;
    return count;
  };
  return pieces(copy) >= pieces(*rests);
}

}  // namespace tessera
