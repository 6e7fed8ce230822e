// Integer ids of distinct types, so that an OpId cannot be passed where a TensorId is expected. A
// default id is invalid (-1).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera {

template <class Tag>
struct Id {
  int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(int32_t v) : value(v) {}
  constexpr explicit Id(size_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;
using BufferId = Id<struct BufferTag>;
using StageId = Id<struct StageTag>;
using PlaceId = Id<struct PlaceTag>;  // a set of devices that run the same stages
using AxisId = Id<struct AxisTag>;    // the position of an axis in its mesh

}  // namespace tessera

template <class Tag>
struct std::hash<tessera::Id<Tag>> {
  size_t operator()(const tessera::Id<Tag>& id) const noexcept {
    return std::hash<int32_t>{}(id.value);
  }
};
