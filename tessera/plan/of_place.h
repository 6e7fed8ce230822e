// A list of axes or a layout, together with the place to whose mesh its axis numbers belong. Stages
// may have meshes of their own, so axis 1 of the mesh of one place is another axis, or none, in the
// mesh of another place. Data about a tensor may be read at any place. An `OfPlace` therefore
// stores the place of its axis numbers, and its reader names the place for which it wants them.
// Using an `OfPlace` as a plain value does not compile. Reading it with another place than its own
// is a broken invariant and ends the process.
//
//   OfPlace<Layout> home(place, layout);
//   home.at(place)                              // the layout
//   home.at(other)                              // ends the process
//   translate(home, plan, other)                // axis by name, or nothing (program/walk.h)
#pragma once

#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/ids.h"

namespace tessera {

template <class T>
class OfPlace {
 public:
  OfPlace() = default;
  OfPlace(PlaceId place, T value) : place_(place), value_(std::move(value)) {}

  PlaceId place() const { return place_; }
  const T& at(PlaceId place) const {
    TESSERA_CHECK(place == place_, "axes of place {} are read at place {}", place_.value,
                  place.value);
    return value_;
  }
  // Returns the value without a check of the place. This is only for questions whose answer does
  // not depend on which axes the numbers mean: whether the value is empty, or whether the values of
  // two places with equal meshes are equal.
  const T& numbers() const { return value_; }
  friend bool operator==(const OfPlace&, const OfPlace&) = default;

 private:
  PlaceId place_;
  T value_;
};

}  // namespace tessera
