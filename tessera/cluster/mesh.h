// A mesh has named axes with sizes over a contiguous or strided set of devices. The rank at
// coordinates c is first_device + sum c_i * stride_i. A stage's mesh is either the plan's mesh with
// the stage axis fixed, or a separate mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/ids.h"
#include "tessera/base/small_vector.h"

namespace tessera {

using Axes = SmallVector<AxisId, 2>;

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  int64_t stride = 1;  // distance in ranks between neighbours on the axis
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// An axis and a coordinate on it, for things that exist only at this coordinate.
struct AxisPin {
  AxisId axis;
  int64_t coordinate = 0;
  friend bool operator==(const AxisPin&, const AxisPin&) = default;
  friend auto operator<=>(const AxisPin&, const AxisPin&) = default;
};

struct Mesh {
  std::vector<MeshAxis> axes;
  int64_t first_device = 0;

  // Makes a row-major mesh over the (name, size) list: the last axis varies fastest.
  static Mesh row_major(const std::vector<std::pair<std::string, int64_t>>& axes,
                        int64_t first_device = 0);
  int64_t size() const;                      // the number of ranks
  AxisId find(std::string_view name) const;  // invalid if there is no such axis
  const MeshAxis& axis(AxisId id) const {
    if (id.index() >= axes.size()) lacks_axis(id);
    return axes[id.index()];
  }
  // Returns whether the mesh has all of the axes.
  bool has(const Axes& some) const;
  bool contains(int64_t rank) const;
  std::vector<int64_t> coordinates(int64_t rank) const;  // the rank must be in the mesh
  int64_t rank_at(const std::vector<int64_t>& coordinates) const;
  // Returns the ranks that differ from `coordinates` only on `axes`, in row-major order of those
  // axes.
  std::vector<int> group(const std::vector<int64_t>& coordinates, const Axes& axes) const;
  // Returns the mesh without `axis`, which is fixed at `coordinate`.
  Mesh fix(AxisId axis, int64_t coordinate) const;
  std::string to_string() const;  // "{dp=2, tp=2}"
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  [[noreturn]] void lacks_axis(
      AxisId id) const;  // reports a broken invariant, because the id is of another mesh
};

}  // namespace tessera
