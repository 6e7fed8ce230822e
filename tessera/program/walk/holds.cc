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
    if (facts_.tensor_plan(tensor).keep == Keep::kMicroBatch && block.kind > BlockKind::kForward)
      blocks.push_back({BlockKind::kForward, block.chunk});
    for (const BlockRef of : blocks) {
      for (const Copied& copy : copies->second) {
        if (copy.block == of) candidates.push_back(&copy.held);
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

}  // namespace tessera
