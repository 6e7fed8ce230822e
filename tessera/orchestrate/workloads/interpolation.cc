#include "tessera/orchestrate/workloads/interpolation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "tessera/base/check.h"
#include "tessera/base/data_file.h"
#include "tessera/base/philox.h"
#include "tessera/orchestrate/share/linear_program.h"

namespace tessera {
const TextFiles& triangulation_files();
}  // namespace tessera

namespace tessera::share {
namespace {

// SciPy allows so much for rounding, in weights and in distances from planes.
constexpr double kRounding = 100 * 2.220446049250313e-16;
constexpr double kWideRounding = 1.4901161193847656e-08;  // towards a flat neighbour

// Returns the name under which a triangulation of these points is kept.
std::string key_of(const std::vector<ScatteredTable::Point>& points) {
  std::vector<int64_t> numbers;
  for (const auto& point : points) {
    for (const double value : point) numbers.push_back(static_cast<int64_t>(std::llround(value)));
  }
  return std::to_string(
      stable_hash(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)));
}

struct Triangulation {
  double scale = 1, shift = 0;
  std::vector<int> corners;  // four numbers of points for each tetrahedron
};

// Reads the numbers of corners, each of which is two digits of base 64.
std::vector<int> decoded(const nlohmann::json& lines) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<int> out;
  for (const auto& line : lines) {
    const std::string& text = line.get_ref<const std::string&>();
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
      out.push_back(static_cast<int>(kDigits.find(text[i]) * 64 + kDigits.find(text[i + 1])));
    }
  }
  return out;
}

std::optional<Triangulation> known_triangulation(const std::string& key) {
  for (const auto& [name, text] : triangulation_files()) {
    if (text.find('"' + key + '"') == std::string_view::npos) continue;
    const nlohmann::json file = nlohmann::json::parse(text);
    return Triangulation{file["scale"].get<double>(), file["shift"].get<double>(),
                         decoded(file["corners"])};
  }
  return std::nullopt;
}

double determinant(const std::array<double, 9>& m) {
  return m[0] * (m[4] * m[8] - m[5] * m[7]) - m[1] * (m[3] * m[8] - m[5] * m[6]) +
         m[2] * (m[3] * m[7] - m[4] * m[6]);
}

std::array<double, 9> adjugate(const std::array<double, 9>& m) {
  return {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
          m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
          m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
}

double square(const ScatteredTable::Point& p) { return p[0] * p[0] + p[1] * p[1] + p[2] * p[2]; }

}  // namespace

void ScatteredTable::add(const Point& point, const Value& value) {
  points_.push_back(point);
  values_.push_back(value);
}

void ScatteredTable::finish() {
  const auto known = known_triangulation(key_of(points_));
  if (!known) return;
  scale_ = known->scale;
  shift_ = known->shift;
  for (size_t i = 0; i + 3 < known->corners.size(); i += 4) {
    tetrahedra_.push_back(make(
        {known->corners[i], known->corners[i + 1], known->corners[i + 2], known->corners[i + 3]}));
  }
  join_neighbours();
  give_planes_to_flat();
}

ScatteredTable::Tetrahedron ScatteredTable::make(const std::array<int, 4>& corners) const {
  std::array<double, 9> m{};  // a column is an edge from the last corner
  const Point& last = points_[static_cast<size_t>(corners[3])];
  for (size_t column = 0; column < 3; ++column) {
    const Point& corner = points_[static_cast<size_t>(corners[column])];
    for (size_t row = 0; row < 3; ++row) m[row * 3 + column] = corner[row] - last[row];
  }
  Tetrahedron out;
  out.corners = corners;
  const double size = determinant(m);
  out.is_flat = std::abs(size) < 0.5;  // coordinates are whole numbers
  if (out.is_flat) return out;
  out.inverse = adjugate(m);
  for (double& value : out.inverse) value /= size;
  out.plane = plane(corners);
  return out;
}

// Returns the plane through the lifted corners. Coordinates are whole numbers, and so are the products
// here, without rounding. So tetrahedra on one sphere have the same plane to the last bit.
std::array<double, 5> ScatteredTable::plane(const std::array<int, 4>& corners) const {
  const Point& last = points_[static_cast<size_t>(corners[3])];
  std::array<double, 9> rows{};  // a row is an edge from the last corner
  Point lifts{};
  for (size_t i = 0; i < 3; ++i) {
    const Point& corner = points_[static_cast<size_t>(corners[i])];
    for (size_t k = 0; k < 3; ++k) rows[i * 3 + k] = corner[k] - last[k];
    lifts[i] = square(corner) - square(last);
  }
  // size * |p|^2 = slope . p + constant
  const std::array<double, 9> inverse = adjugate(rows);
  std::array<double, 5> whole{};
  for (size_t k = 0; k < 3; ++k) {
    for (size_t i = 0; i < 3; ++i) whole[k] += inverse[k * 3 + i] * lifts[i];
  }
  whole[4] = determinant(rows);
  whole[3] = whole[4] * square(last);
  for (size_t k = 0; k < 3; ++k) whole[3] -= whole[k] * last[k];
  int64_t divisor = 0;
  for (const double value : whole)
    divisor = std::gcd(divisor, static_cast<int64_t>(std::llround(value)));
  const double size = whole[4] / static_cast<double>(divisor);
  std::array<double, 5> out{};
  double length = 1;
  for (size_t k = 0; k < 3; ++k) {
    out[k] = scale_ * (whole[k] / static_cast<double>(divisor)) / size;
    length += out[k] * out[k];
  }
  out[3] = -1;
  out[4] = scale_ * (whole[3] / static_cast<double>(divisor)) / size + shift_;
  for (double& value : out) value /= std::sqrt(length);
  return out;
}

void ScatteredTable::join_neighbours() {
  std::map<std::array<int, 3>, std::pair<size_t, size_t>>
      open;  // faces with one tetrahedron so far
  for (size_t i = 0; i < tetrahedra_.size(); ++i) {
    for (size_t k = 0; k < 4; ++k) {
      std::array<int, 3> face{};
      for (size_t c = 0, n = 0; c < 4; ++c) {
        if (c != k) face[n++] = tetrahedra_[i].corners[c];
      }
      std::sort(face.begin(), face.end());
      const auto [at, is_new] = open.emplace(face, std::pair{i, k});
      if (is_new) continue;
      const auto [other, side] = at->second;
      tetrahedra_[i].neighbours[k] = static_cast<int>(other);
      tetrahedra_[other].neighbours[side] = static_cast<int>(i);
      open.erase(at);
    }
  }
}

// Gives each flat tetrahedron the plane of a neighbour in which all its lifted corners lie: the two
// are pieces of one facet.
void ScatteredTable::give_planes_to_flat() {
  const auto has_plane = [&](size_t i) { return tetrahedra_[i].plane[3] != 0; };
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (size_t i = 0; i < tetrahedra_.size(); ++i) {
      if (has_plane(i)) continue;
      for (const int k : tetrahedra_[i].neighbours) {
        if (k < 0 || !has_plane(static_cast<size_t>(k))) continue;
        const auto lies_in = [&](int corner) {
          const Point& point = points_[static_cast<size_t>(corner)];
          return std::abs(below(static_cast<size_t>(k), point)) < 1e-9;
        };
        const auto& corners = tetrahedra_[i].corners;
        if (!std::all_of(corners.begin(), corners.end(), lies_in)) continue;
        tetrahedra_[i].plane = tetrahedra_[static_cast<size_t>(k)].plane;
        is_changed = true;
        break;
      }
    }
  }
}

// Returns how far the lifted point is below the plane of a tetrahedron.
double ScatteredTable::below(size_t tetrahedron, const Point& point) const {
  const std::array<double, 5>& plane = tetrahedra_[tetrahedron].plane;
  return plane[4] + plane[0] * point[0] + plane[1] * point[1] + plane[2] * point[2] +
         plane[3] * (scale_ * square(point) + shift_);
}

ScatteredTable::Weights ScatteredTable::weights(const Tetrahedron& tetrahedron,
                                                const Point& point) const {
  const Point& last = points_[static_cast<size_t>(tetrahedron.corners[3])];
  Weights out{0, 0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < 3; ++k) out[i] += tetrahedron.inverse[i * 3 + k] * (point[k] - last[k]);
    out[3] -= out[i];
  }
  return out;
}

ScatteredTable::Value ScatteredTable::combined(const Tetrahedron& tetrahedron,
                                               Weights weights) const {
  double sum = 0;
  for (double& weight : weights) sum += weight = std::max(weight, 0.0);
  Value out{0, 0};
  for (size_t i = 0; i < 4; ++i) {
    const Value& value = values_[static_cast<size_t>(tetrahedron.corners[i])];
    out[0] += weights[i] / sum * value[0];
    out[1] += weights[i] / sum * value[1];
  }
  return out;
}

// Goes from the first tetrahedron to neighbours with a greater distance of the lifted point below
// their plane, until it is below one, or no neighbour is better.
size_t ScatteredTable::climb(const Point& point) const {
  size_t at = 0;
  double best = below(at, point);
  for (bool is_changed = true; is_changed && best <= 0;) {
    is_changed = false;
    for (size_t k = 0; k < 4; ++k) {
      const int neighbour = tetrahedra_[at].neighbours[k];
      if (neighbour < 0) continue;
      const double other = below(static_cast<size_t>(neighbour), point);
      if (other <= best + kRounding * (1 + std::abs(best))) continue;
      at = static_cast<size_t>(neighbour);
      best = other;
      is_changed = true;
    }
  }
  return at;
}

// Goes to neighbours beyond the first face that the point is outside of, until it is inside. Returns
// nothing if there is no neighbour, or if the way does not end.
std::optional<size_t> ScatteredTable::walk(size_t from, const Point& point) const {
  for (size_t steps = 0; steps < tetrahedra_.size() / 4; ++steps) {
    const Tetrahedron& tetrahedron = tetrahedra_[from];
    if (tetrahedron.is_flat) return std::nullopt;
    const Weights own = weights(tetrahedron, point);
    size_t outside = 0;
    while (outside < 4 && own[outside] >= -kRounding) ++outside;
    if (outside == 4) return from;
    if (tetrahedron.neighbours[outside] < 0) return std::nullopt;
    from = static_cast<size_t>(tetrahedron.neighbours[outside]);
  }
  return std::nullopt;
}

// Returns whether the point is inside; towards a flat neighbour with more room for rounding.
bool ScatteredTable::is_inside(const Tetrahedron& tetrahedron, const Point& point,
                               int flat_neighbour) const {
  if (tetrahedron.is_flat) return false;
  const Weights own = weights(tetrahedron, point);
  for (size_t k = 0; k < 4; ++k) {
    const bool is_wide = flat_neighbour >= 0 && tetrahedron.neighbours[k] == flat_neighbour;
    if (own[k] < -(is_wide ? kWideRounding : kRounding) || own[k] > 1 + kRounding) return false;
  }
  return true;
}

std::optional<size_t> ScatteredTable::first_inside(const Point& point) const {
  for (size_t i = 0; i < tetrahedra_.size(); ++i) {
    if (is_inside(tetrahedra_[i], point, -1)) return i;
    if (!tetrahedra_[i].is_flat) continue;
    for (const int k : tetrahedra_[i].neighbours) {
      if (k < 0) continue;
      const auto neighbour = static_cast<size_t>(k);
      if (is_inside(tetrahedra_[neighbour], point, static_cast<int>(i))) return neighbour;
    }
  }
  return std::nullopt;
}

// Returns the tetrahedron of which the point is least outside.
size_t ScatteredTable::nearest(const Point& point) const {
  size_t out = 0;
  double most = -1e300;
  for (size_t i = 0; i < tetrahedra_.size(); ++i) {
    if (tetrahedra_[i].is_flat) continue;
    const Weights own = weights(tetrahedra_[i], point);
    const double least = *std::min_element(own.begin(), own.end());
    if (least > most) out = i;
    most = std::max(most, least);
  }
  return out;
}

ScatteredTable::Tetrahedron ScatteredTable::around(const Point& point) const {
  // Minimises the sum of w |p|^2 over weights w >= 0 with sum 1 and mean `point`.
  LinearProgram program;
  for (const Point& p : points_) program.costs.push_back(square(p));
  for (size_t row = 0; row < 4; ++row) {
    std::vector<double> factors;
    for (const Point& p : points_) factors.push_back(row < 3 ? p[row] : 1);
    program.rows.push_back({std::move(factors), RowSense::kEqual, row < 3 ? point[row] : 1});
  }
  const LinearAnswer answer = solve(program);
  std::array<int, 4> corners{0, 1, 2, 3};
  size_t count = 0;
  for (const size_t column : answer.basis) {
    if (column < points_.size() && count < 4) corners[count++] = static_cast<int>(column);
  }
  if (count == 4) {
    const Tetrahedron made = make(corners);
    if (!made.is_flat) return made;
  }
  // Outside of all points: the corner that is nearest, alone.
  const auto distance = [&](const Point& p) {
    return square({p[0] - point[0], p[1] - point[1], p[2] - point[2]});
  };
  const auto corner =
      std::min_element(points_.begin(), points_.end(),
                       [&](const Point& a, const Point& b) { return distance(a) < distance(b); });
  Tetrahedron out;
  out.corners.fill(static_cast<int>(corner - points_.begin()));
  return out;
}

ScatteredTable::Value ScatteredTable::at(const Point& point) const {
  TESSERA_CHECK(!points_.empty(), "a table without points is asked");
  if (tetrahedra_.empty()) {
    const Tetrahedron found = around(point);
    return combined(found, weights(found, point));
  }
  auto found = walk(climb(point), point);
  if (!found) found = first_inside(point);
  const Tetrahedron& tetrahedron = tetrahedra_[found ? *found : nearest(point)];
  return combined(tetrahedron, weights(tetrahedron, point));
}

}  // namespace tessera::share
