// What each place holds: of every tensor its home, where later readers look for it, and copies in
// other layouts that are good for a block. Private to tessera/program.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/program/walk/conversion_paths.h"

namespace tessera {

// A value of a tensor at a place: a region of a buffer, perhaps still on its way.
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

  // In the order of tensors.
  std::vector<std::pair<TensorId, const Held*>> homes(PlaceId place) const;
  const Held* home(PlaceId place, TensorId tensor) const;  // null: it has none there
  void set_home(PlaceId place, TensorId tensor, Held held) {
    places_[place.index()].home[tensor] = std::move(held);
  }
  void add_copy(PlaceId place, BlockRef block, TensorId tensor, Held held) {
    places_[place.index()].copies[tensor].push_back({block, std::move(held)});
  }

  // Of what the block may use, that which is best suited to become `need` (null: any); null: the
  // place does not hold the tensor. Valid until a copy is added.
  const Held* best(PlaceId place, TensorId tensor, BlockRef block, const Layout* need) const;
  // The layout in which the plan keeps a copy of the tensor (TensorPlan::keep_over) for a reader
  // with this need: that of the home, over fewer axes. None: it keeps none of its own.
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
  // Is the copy, made in a forward block, there for the backward pass too? As the plan says: by
  // `keep`, or, with `keep_over`, if it is cut over those axes. If it says nothing: an activation's copy on the device that is cut into as many pieces as the home, or
  // more. To keep it costs at most the tensor's memory again, and nothing where no later op reads
  // the home; not to keep it costs the same transfer again. What a gather has made larger is
  // gathered again.
  bool outlasts_forward(PlaceId place, TensorId tensor, const Held& copy) const;
  const AtPlace& at(PlaceId place) const { return places_[place.index()]; }

  const Facts& facts_;
  ConversionPaths& paths_;
  std::vector<AtPlace> places_;
};

}  // namespace tessera
