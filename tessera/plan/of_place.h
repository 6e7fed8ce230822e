// A value in the axis numbers of one place: axes, or a layout. Stages may have meshes of their own,
// and axis 1 of one mesh is another axis, or none, on the next. So a value that is kept beside a
// tensor, and may be asked for at any place, says to which place its numbers belong, and its reader
// says at which place it reads. Reading it like a plain value does not compile; reading it at
// another place is a broken invariant.
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
  // Returns the value for questions that no axis number decides: whether it is empty, or whether
  // two places with equal axes are alike.
  const T& numbers() const { return value_; }
  friend bool operator==(const OfPlace&, const OfPlace&) = default;

 private:
  PlaceId place_;
  T value_;
};

}  // namespace tessera
