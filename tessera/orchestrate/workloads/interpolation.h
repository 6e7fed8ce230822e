// Interpolates measured values between points of three whole coordinates: linearly inside the
// tetrahedra of a Delaunay triangulation.
//
// Points on a grid have many Delaunay triangulations, and the values between grid points depend on
// the one that is taken. For known sets of points the program has the one that Qhull finds
// (triangulations/). Where spheres go through more than four points, its tetrahedra may overlap, so
// that the value also depends on the way on which the tetrahedron around a point is found. So that
// results can be compared with programs that use Qhull through SciPy, the search here takes the same
// way: from the first tetrahedron to neighbours whose lifted plane is farther above the lifted point,
// then to neighbours beyond faces that the point is outside of; where a flat tetrahedron bars the way,
// the first one in Qhull's order that has the point inside, or that is a neighbour of a flat one and
// has it inside but for rounding.
//
// For other sets the tetrahedron around a point is found by a linear program: of all convex
// combinations of points that give this point, the one with the least sum of squares of its corners
// is a Delaunay tetrahedron.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::share {

class ScatteredTable {
 public:
  using Point = std::array<double, 3>;
  using Value = std::array<double, 2>;
  void add(const Point& point, const Value& value);
  // Looks for a known triangulation of the points. To be called after the last add().
  void finish();
  bool is_known() const { return !tetrahedra_.empty(); }
  // Returns the value at a point; outside the points, that of the nearest tetrahedron's border.
  Value at(const Point& point) const;

 private:
  struct Tetrahedron {
    std::array<int, 4> corners{};
    std::array<int, 4> neighbours{-1, -1, -1, -1};  // opposite of each corner; -1: none
    bool is_flat = false;
    std::array<double, 9> inverse{};  // of the matrix of edges from the last corner
    std::array<double, 5> plane{};    // through the lifted corners: unit normal and offset
  };
  using Weights = std::array<double, 4>;
  Tetrahedron make(const std::array<int, 4>& corners) const;
  std::array<double, 5> plane(const std::array<int, 4>& corners) const;
  void join_neighbours();
  void give_planes_to_flat();
  double below(size_t tetrahedron, const Point& point) const;
  Weights weights(const Tetrahedron& tetrahedron, const Point& point) const;
  Value combined(const Tetrahedron& tetrahedron, Weights weights) const;
  Tetrahedron around(const Point& point) const;
  size_t climb(const Point& point) const;
  std::optional<size_t> walk(size_t from, const Point& point) const;
  bool is_inside(const Tetrahedron& tetrahedron, const Point& point, int flat_neighbour) const;
  std::optional<size_t> first_inside(const Point& point) const;
  size_t nearest(const Point& point) const;

  std::vector<Point> points_;
  std::vector<Value> values_;
  std::vector<Tetrahedron> tetrahedra_;
  double scale_ = 1, shift_ = 0;  // the lifted coordinate is scale * |p|^2 + shift
};

}  // namespace tessera::share
