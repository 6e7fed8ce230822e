// Meshes: named axes with sizes over a contiguous or strided set of devices. The rank at
// coordinates c is first_device + sum c_i * stride_i. A stage's mesh is the plan's mesh with the
// stage axis fixed, or a mesh of its own.
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
  int64_t stride = 1;  // in ranks
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// One coordinate of an axis, at which alone something is.
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
  int64_t size() const;                      // number of ranks
  AxisId find(std::string_view name) const;  // invalid if absent
  const MeshAxis& axis(AxisId id) const {
    if (id.index() >= axes.size()) lacks_axis(id);
    return axes[id.index()];
  }
  // Returns whether the mesh has all of the axes.
  bool has(const Axes& some) const;
  bool contains(int64_t rank) const;
  std::vector<int64_t> coordinates(int64_t rank) const;  // of a rank that the mesh contains
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
      AxisId id) const;  // a broken invariant: the number is another mesh's
};

}  // namespace tessera
