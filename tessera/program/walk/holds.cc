// Which of the values that a place holds serves a need best.
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
    const double cost = paths_.cost(place, tensor, layout, *need);
    if (best == nullptr || cost < best_cost) {
      best = held;
      best_cost = cost;
    }
  }
  return best;
}

bool Holds::outlasts_forward(PlaceId place, TensorId tensor, const Held& copy) const {
  const TensorPlan& plan = facts_.tensor_plan(tensor);
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
    return count;
  };
  return pieces(copy) >= pieces(*rests);
}

}  // namespace tessera
