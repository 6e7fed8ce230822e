#include "tessera/cluster/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera {
namespace {

// Calls visit(axis, coordinate) for the coordinates of `rank`. Returns false if the mesh does not
// contain the rank. The coordinates are the digits of a number in mixed radix, whose most
// significant digit is the axis with the largest stride. Axes of size 1 have coordinate 0 and are
// not visited.
template <class Visit>
bool decode(const Mesh& mesh, int64_t rank, const Visit& visit) {
  int64_t offset = rank - mesh.first_device;
  if (offset < 0) return false;
  SmallVector<size_t, 6> order;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].size != 1) order.push_back(i);
  }
  const auto ahead = [&](size_t a, size_t b) { return mesh.axes[a].stride > mesh.axes[b].stride; };
  if (!std::is_sorted(order.begin(), order.end(), ahead))
    std::stable_sort(order.begin(), order.end(), ahead);
  for (const size_t i : order) {
    const MeshAxis& axis = mesh.axes[i];
    const int64_t coordinate = offset / axis.stride;
    if (coordinate >= axis.size) return false;
    offset -= coordinate * axis.stride;
    visit(i, coordinate);
  }
  return offset == 0;
}

}  // namespace

Mesh Mesh::row_major(const std::vector<std::pair<std::string, int64_t>>& named_sizes,
                     int64_t first) {
  Mesh mesh;
  mesh.first_device = first;
  mesh.axes.reserve(named_sizes.size());
  int64_t stride = 1;
  for (auto it = named_sizes.rbegin(); it != named_sizes.rend(); ++it) {
    mesh.axes.push_back({it->first, it->second, stride});
    stride *= it->second;
  }
  std::reverse(mesh.axes.begin(), mesh.axes.end());
  return mesh;
}

int64_t Mesh::size() const {
  int64_t product = 1;
  for (const MeshAxis& a : axes) product *= a.size;
  return product;
}

AxisId Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return AxisId(i);
  }
  return AxisId();
}

bool Mesh::has(const Axes& some) const {
  return std::all_of(some.begin(), some.end(),
                     [&](AxisId id) { return id.valid() && id.index() < axes.size(); });
}

void Mesh::lacks_axis(AxisId id) const {
  check_failure(__FILE__, __LINE__, "the mesh has the axis",
                fmt::format("axis {} of the mesh {}", id.value, to_string()));
}

bool Mesh::contains(int64_t rank) const {
  return decode(*this, rank, [](size_t, int64_t) {});
}

std::vector<int64_t> Mesh::coordinates(int64_t rank) const {
  std::vector<int64_t> out(axes.size(), 0);
  const bool is_here =
      decode(*this, rank, [&](size_t axis, int64_t coordinate) { out[axis] = coordinate; });
  TESSERA_CHECK(is_here, "rank {} is not in the mesh {} at device {}", rank, to_string(),
                first_device);
  return out;
}

int64_t Mesh::rank_at(const std::vector<int64_t>& coords) const {
  TESSERA_CHECK(coords.size() == axes.size(), "{} coordinates for the mesh {}", coords.size(),
                to_string());
  int64_t rank = first_device;
  for (size_t i = 0; i < axes.size(); ++i) rank += coords[i] * axes[i].stride;
  return rank;
}

std::vector<int> Mesh::group(const std::vector<int64_t>& coords, const Axes& over) const {
  std::vector<int64_t> origin = coords;
  for (AxisId id : over) origin[id.index()] = 0;
  std::vector<int> ranks{static_cast<int>(rank_at(origin))};
  for (AxisId id : over) {
    const MeshAxis& a = axis(id);
    std::vector<int> next;
    next.reserve(ranks.size() * static_cast<size_t>(a.size));
    for (int rank : ranks) {
      for (int64_t c = 0; c < a.size; ++c) next.push_back(rank + static_cast<int>(c * a.stride));
    }
    ranks = std::move(next);
  }
  return ranks;
}

Mesh Mesh::fix(AxisId id, int64_t coordinate) const {
  TESSERA_CHECK(id.valid() && id.index() < axes.size(), "axis {} of the mesh {}", id.value,
                to_string());
  TESSERA_CHECK(coordinate >= 0 && coordinate < axis(id).size, "coordinate {} on axis '{}' of {}",
                coordinate, axis(id).name, to_string());
  Mesh mesh = *this;
  mesh.first_device += coordinate * axis(id).stride;
  mesh.axes.erase(mesh.axes.begin() + id.value);
  return mesh;
}

std::string Mesh::to_string() const {
  std::string text = "{";
  for (size_t i = 0; i < axes.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ", ", axes[i].name, axes[i].size);
  }
  return text + "}";
}

}  // namespace tessera
