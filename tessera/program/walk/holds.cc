// Which of the values that a place holds serves a need best.
#include "tessera/program/walk/holds.h"

namespace tessera {

Holds::Holds(const Facts& facts, ConversionPaths& paths) : facts_(facts), paths_(paths) {
  places_.resize(facts.plan().places.size());
}

const Held* Holds::home(PlaceId place, TensorId tensor) const {
  const auto it = at(place).home.find(tensor);
  return it == at(place).home.end() ? nullptr : &it->second;
}

const Held* Holds::best(PlaceId place, TensorId tensor, BlockRef block, const Layout* need) const {
  SmallVector<const Held*, 8> candidates;
  if (const Held* at_home = home(place, tensor)) candidates.push_back(at_home);
  SmallVector<BlockRef, 3> blocks{block, BlockKind::kPrologue};
  if (facts_.tensor_plan(tensor).keep == Keep::kMicroBatch && block.kind > BlockKind::kForward)
    blocks.push_back({BlockKind::kForward, block.chunk});
  for (BlockRef kind : blocks) {
    if (const auto it = at(place).copies.find({kind, tensor}); it != at(place).copies.end()) {
      for (const Held& held : it->second) candidates.push_back(&held);
    }
  }
  const Held* best = nullptr;
  double best_cost = 0;
  for (const Held* held : candidates) {
    const Layout& layout = held->region.layout;
    if (need != nullptr && layout.partial != need->partial && !need->complete()) continue;
    const double cost = need == nullptr ? 0 : paths_.cost(place, tensor, layout, *need);
    if (best == nullptr || cost < best_cost) {
      best = held;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace tessera
