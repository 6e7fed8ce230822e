// The values that each place holds. A tensor has at most one home at a place, where later readers
// look for it, and may have copies in other layouts for the readers of a block. Private to
// tessera/program.
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
  int handle = -1;                       // of the transfer that brings the value; -1: none
  BlockRef block = BlockKind::kForward;  // the block in which the value is made
  TextView view() const { return {buffer, region}; }
};

class Holds {
 public:
  Holds(const Facts& facts, ConversionPaths& paths);

  // Returns the homes in the order of tensors.
  std::vector<std::pair<TensorId, const Held*>> homes(PlaceId place) const;
  const Held* home(PlaceId place, TensorId tensor) const;  // null: the tensor has no home there
  void set_home(PlaceId place, TensorId tensor, Held held) {
    places_[place.index()].home[tensor] = std::move(held);
  }
  void add_copy(PlaceId place, BlockRef block, TensorId tensor, Held held) {
    places_[place.index()].copies[tensor].push_back({block, std::move(held)});
  }

  // Returns the value of the tensor from which `need` is made most cheaply, among the home and the
  // copies that the block may use. `need` = null: any of these values. Returns null if the place
  // does not hold the tensor. The pointer is valid until a copy is added.
  const Held* best(PlaceId place, TensorId tensor, BlockRef block, const Layout* need) const;
  // Returns the layout in which the plan keeps a copy of the tensor for a reader that needs the
  // tensor in the layout `need`. This is the home's layout, cut over fewer axes: only over those of
  // TensorPlan::keep_over. Returns nothing if the plan gives no such axes.
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
  // may decide this by `keep`, or by `keep_over`: then the copy stays if it is cut over those axes.
  // If the plan says nothing, a copy of an activation on the device stays if it is cut into at
  // least as many pieces as the home. Such a copy takes at most the memory of the home, or none in
  // addition if no later op reads the home, and saves a second transfer. A copy that is cut into
  // fewer pieces, because it was gathered, does not stay and is gathered again.
  bool outlasts_forward(PlaceId place, TensorId tensor, const Held& copy) const;
  const AtPlace& at(PlaceId place) const { return places_[place.index()]; }

  const Facts& facts_;
  ConversionPaths& paths_;
  std::vector<AtPlace> places_;
};

}  // namespace tessera
