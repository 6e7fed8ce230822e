// The values that each place holds: the home of every tensor, where later readers look for it, and
// copies in other layouts that serve a block. Private to tessera/program.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/program/walk/conversion_paths.h"

namespace tessera {

// A `Held` is a value of a tensor at a place: a region of a buffer, perhaps still on its way.
struct Held {
  int buffer = -1;
  Region region;
  int handle = -1;                       // of the collective that brings it
  BlockRef block = BlockKind::kForward;  // where it is made
  TextView view() const { return {buffer, region}; }
};

class Holds {
 public:
  Holds(const Facts& facts, ConversionPaths& paths);

  // Returns the homes in the order of tensors.
  std::vector<std::pair<TensorId, const Held*>> homes(PlaceId place) const;
  const Held* home(PlaceId place, TensorId tensor) const;  // null: it has none there
  void set_home(PlaceId place, TensorId tensor, Held held) {
    places_[place.index()].home[tensor] = std::move(held);
  }
  void add_copy(PlaceId place, BlockRef block, TensorId tensor, Held held) {
    places_[place.index()].copies[tensor].push_back({block, std::move(held)});
  }

  // Returns the value, of those that the block may use, that is cheapest to convert to `need`
  // (null: any value); null if the place does not hold the tensor. The pointer is valid until a
  // copy is added.
  const Held* best(PlaceId place, TensorId tensor, BlockRef block, const Layout* need) const;
  // Returns the layout in which the plan keeps a copy of the tensor (TensorPlan::keep_over) for a
  // reader with this need: the layout of the home, cut over fewer axes. Returns nothing if the plan
  // keeps no copy in a layout of its own.
  std::optional<Layout> kept_layout(PlaceId place, TensorId tensor, const Layout& need) const;

 private:
  struct Copied {
    BlockRef block;
    Held held;
  };
  struct AtPlace {  // for look-up
    std::unordered_map<TensorId, Held> home;
    std::unordered_map<TensorId, std::vector<Copied>> copies;
  };
  // Returns whether a copy that is made in a forward block stays for the backward pass. The plan
  // decides: by `keep`, or, with `keep_over`, if the copy is cut over those axes. If the plan says
  // nothing, the copies of activations on the device stay that are cut into at least as many pieces
  // as the home. Such a copy costs at most the tensor's memory again, and nothing where no later op
  // reads the home; without it the same transfer is made again. Copies that a gather has made
  // larger are gathered again.
  bool outlasts_forward(PlaceId place, TensorId tensor, const Held& copy) const;
  const AtPlace& at(PlaceId place) const { return places_[place.index()]; }

  const Facts& facts_;
  ConversionPaths& paths_;
  std::vector<AtPlace> places_;
};

}  // namespace tessera
