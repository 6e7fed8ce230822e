// Layouts and the cheapest path between them: the worked costs of docs/theory/superscaler.md
// section 6, the normal form, uneven cuts, and a brute-force shortest path that enumerates all
// layouts.
#include "tessera/plan/layout/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "tessera/plan/layout/test_layout_cases.h"

namespace tessera {
namespace {

const AxisId a(0), b(1), c(2);  // of every mesh in this file
using Axes = Axes;
using Shape = std::vector<int64_t>;

Mesh line(int64_t n) { return Mesh::row_major({{"a", n}}); }
Mesh square(int64_t x, int64_t y) { return Mesh::row_major({{"a", x}, {"b", y}}); }

Layout layout(std::vector<Axes> shards, Axes partial = {}) {
  Layout out = Layout::whole(shards.size());
  out.shards = std::move(shards);
  out.partial = std::move(partial);
  return out;
}

struct Route {
  std::string kinds;
  double cost = 0;
};
Route route(const Layout& from, const Layout& to, const Mesh& mesh, const Shape& shape) {
  const std::vector<ConversionStep> path = conversion_path(from, to, mesh, shape);
  Route out;
  for (const ConversionStep& step : path) {
    if (!out.kinds.empty()) out.kinds += ", ";
    out.kinds += step.slice ? "slice" : std::string(collective_name(step.kind));
  }
  out.cost = path_cost(from, path, mesh, shape);
  return out;
}

// ---- the table of docs/theory/superscaler.md section 6: shape (128, 256) on 4 devices
const Shape kShape = {128, 256};

void expect_route(const Layout& from, const Layout& to, const Mesh& mesh, const std::string& kinds,
                  double cost) {
  const Route found = route(from, to, mesh, kShape);
  EXPECT_EQ(found.kinds, kinds) << to_string(from, mesh, {{"m"}, {"n"}});
  EXPECT_EQ(found.cost, cost) << found.kinds;
}

TEST(LayoutCosts, one_collective_over_one_axis) {
  expect_route(layout({{a}, {}}), layout({{}, {a}}), line(4), "all_to_all", 6144 + 1);
  expect_route(layout({{}, {}}, {a}), layout({{}, {}}), line(4), "all_reduce", 49152 + 1);
  expect_route(layout({{a}, {}}), layout({{}, {}}), line(4), "all_gather", 24576 + 1);
  expect_route(layout({{a}, {b}}), layout({{a}, {}}), square(2, 2), "all_gather", 8192 + 1);
}

TEST(LayoutCosts, parts_are_scattered_to_both_dims) {
  expect_route(layout({{}, {}}, {a, b}), layout({{a}, {b}}), square(2, 2),
               "reduce_scatter, reduce_scatter", 16384 + 8192 + 2);
}

TEST(LayoutCosts, parts_of_a_cut_dim_become_whole_at_the_price_of_scatter_and_gather) {
  const Route found = route(layout({{b}, {}}, {a}), layout({{}, {}}), square(2, 2), kShape);
  EXPECT_EQ(found.cost, 8192 + 24576 + 2);
  EXPECT_EQ(found.cost, 16384 + 16384 + 2);  // the tie: all-reduce over 2, all-gather over 2
  EXPECT_TRUE(found.kinds == "reduce_scatter, all_gather" ||
              found.kinds == "all_reduce, all_gather" || found.kinds == "all_gather, all_reduce")
      << found.kinds;
}

TEST(LayoutCosts, a_replica_is_sliced_before_anything_moves) {
  expect_route(layout({{b}, {}}), layout({{}, {a, b}}), square(2, 2), "slice, all_to_all",
               4096 + 2);
  expect_route(layout({{}, {}}, {b}), layout({{a}, {b}}), square(2, 2), "slice, reduce_scatter",
               8192 + 2);
}

TEST(LayoutCosts, parts_are_scattered_before_the_dim_changes) {
  expect_route(layout({{}, {b}}, {a}), layout({{a, b}, {}}), square(2, 2),
               "reduce_scatter, all_to_all", 8192 + 4096 + 2);
}

TEST(LayoutCosts, scattering_appends_the_axis_innermost) {
  // 256 x 256 on 8: (1,2,1,4) -> (1,1,1,8) is one two-way reduce-scatter; devices then lie
  // 0,4,1,5,..
  const Mesh mesh = square(2, 4);
  const Shape shape = {256, 256};
  const Layout to = layout({{}, {b, a}});
  const Route found = route(layout({{}, {b}}, {a}), to, mesh, shape);
  EXPECT_EQ(found.kinds, "reduce_scatter");
  std::vector<std::pair<int64_t, int>> order;
  for (int rank = 0; rank < 8; ++rank) {
    order.emplace_back(region_of(to, mesh, shape, mesh.coordinates(rank)).dims[1].begin, rank);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> devices;
  for (const auto& [begin, rank] : order) devices.push_back(rank);
  EXPECT_EQ(devices, (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(LayoutCosts, exchanging_coprime_cuts_on_six_devices_is_not_free) {
  const Mesh mesh = square(2, 3);
  const Shape shape = {12, 12};
  const Route found = route(layout({{b}, {a}}), layout({{a}, {b}}), mesh, shape);
  // No single collective can divide 3 -> 2 and 2 -> 3: the whole piece moves in one exchange.
  EXPECT_EQ(found.kinds, "exchange");
  EXPECT_EQ(found.cost, 24 + 1);
}

TEST(LayoutCosts, the_cost_function_decides) {
  const CostFunction dear_scatter = [](CollectiveKind kind, int64_t members, int64_t before,
                                       int64_t after) {
    const double factor = kind == CollectiveKind::kReduceScatter ? 100 : 1;
    return factor * cost_by_elements(kind, members, before, after);
  };
  const Layout from = layout({{}, {b}}, {a});
  const Layout to = layout({{a, b}, {}});
  const auto path = conversion_path(from, to, square(2, 2), kShape, dear_scatter);
  EXPECT_TRUE(std::none_of(path.begin(), path.end(), [](const ConversionStep& step) {
    return step.kind == CollectiveKind::kReduceScatter;
  }));
  EXPECT_EQ(path.back().to, to);
}

// Triples of moments are merged whole: their dim is cut neither before nor by a reduction.
TEST(LayoutCosts, moments_stay_together) {
  const Mesh mesh = square(4, 3);
  const Shape shape = {2, 2, 3};
  for (const Axes& partial : {Axes{a, b}, Axes{a}, Axes{b}}) {
    Layout parts = layout({{}, {}, {}}, partial);
    parts.combiner = Combiner::kMoments;
    for (const Layout& to : {layout({{}, {}, {}}), layout({{a}, {}, {}}), layout({{a}, {b}, {}}),
                             layout({{}, {}, {b}})}) {
      Layout at = parts;
      for (const ConversionStep& step : conversion_path(parts, to, mesh, shape)) {
        EXPECT_TRUE(at.partial.empty() || at.shards.back().empty());
        if (step.kind == CollectiveKind::kReduceScatter) {
          EXPECT_EQ(step.to.shards.back(), at.shards.back());
        }
        at = step.to;
      }
      EXPECT_EQ(at, to);
    }
  }
}

TEST(LayoutCosts, equal_layouts_need_no_step) {
  EXPECT_TRUE(conversion_path(layout({{a}, {}}), layout({{a}, {}}), line(4), kShape).empty());
}

// ---- shortest
// `Moves` gives the cost of the one move that makes `to` of `from`, by comparing the two; infinity
// if there is none.
class Moves {
 public:
  Moves(const Mesh& mesh, const Shape& shape) : mesh_(mesh), shape_(shape) {}

  double cost(const Layout& from, const Layout& to) const {
    const double none = std::numeric_limits<double>::infinity();
    std::vector<size_t> shrinks, grows;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const Axes& x = from.shards[d];
      const Axes& y = to.shards[d];
      if (x == y) continue;
      if (y.size() > x.size() && std::equal(x.begin(), x.end(), y.begin())) {
        grows.push_back(d);
      } else if (x.size() > y.size() && std::equal(y.begin(), y.end(), x.begin())) {
        shrinks.push_back(d);
      } else {
        return none;
      }
    }
    if (shrinks.size() > 1 || grows.size() > 1) return none;
    Axes lost = shrinks.empty() ? Axes{} : tail(from.shards[shrinks[0]], to.shards[shrinks[0]]);
    Axes gained = grows.empty() ? Axes{} : tail(to.shards[grows[0]], from.shards[grows[0]]);
    Axes merged;
    for (AxisId axis : from.partial) {
      if (!contains(to.partial, axis)) merged.push_back(axis);
    }
    if (to.partial.size() + merged.size() != from.partial.size()) return none;
    const double held = static_cast<double>(elements(from));
    if (!merged.empty()) {
      const double n = members(merged);
      if (!lost.empty()) return none;
      if (gained.empty()) return 2 * (n - 1) / n * held + 1;
      std::sort(gained.begin(), gained.end());
      return gained == merged ? (n - 1) / n * held + 1 : none;
    }
    if (lost.empty() && gained.empty()) return none;
    if (lost.empty()) return free(from, gained) ? 1 : none;  // slice
    const double n = members(lost);
    if (gained.empty()) return (n - 1) * held + 1;
    if (shape_[grows[0]] == 1) return none;
    return lost == gained ? (n - 1) / n * held + 1 : none;
  }
  double exchange(const Layout& from, const Layout& to) const {
    if (!from.complete() || !to.complete()) return std::numeric_limits<double>::infinity();
    return static_cast<double>(elements(to)) + 1;
  }

 private:
  static bool contains(const Axes& axes, AxisId axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  }
  static Axes tail(const Axes& longer, const Axes& shorter) {
    return {longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end()};
  }
  static bool free(const Layout& of, const Axes& axes) {
    return std::none_of(axes.begin(), axes.end(), [&](AxisId axis) { return of.uses(axis); });
  }
  double members(const Axes& axes) const {
    double n = 1;
    for (AxisId axis : axes) n *= static_cast<double>(mesh_.axis(axis).size);
    return n;
  }
  int64_t elements(const Layout& of) const {  // on the first rank, which has the largest pieces
    int64_t n = 1;
    for (size_t d = 0; d < shape_.size(); ++d) {
      int64_t size = shape_[d];
      for (AxisId axis : of.shards[d]) {
        size = (size + mesh_.axis(axis).size - 1) / mesh_.axis(axis).size;
      }
      n *= size;
    }
    return n;
  }
  const Mesh& mesh_;
  const Shape& shape_;
};

// Compares with the shortest distances to every layout, found by relaxing all pairs until nothing
// changes. Uses only layouts over axes that an end uses.
void expect_all_paths_shortest(const Mesh& mesh, const Shape& shape) {
  const std::vector<Layout> all = all_layouts(mesh, shape.size());
  const Moves moves(mesh, shape);
  const size_t n = all.size();
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> direct(n, std::vector<double>(n, infinity));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i != j) direct[i][j] = moves.cost(all[i], all[j]);
    }
  }
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      if (!convertible(all[from], all[to])) continue;
      const auto allowed = [&](const Layout& x) {
        for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
          const AxisId id(axis);
          if (x.uses(id) && !all[from].uses(id) && !all[to].uses(id)) return false;
        }
        return true;
      };
      std::vector<double> distance(n, infinity);
      distance[from] = 0;
      for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < n; ++i) {
          if (distance[i] == infinity || !allowed(all[i])) continue;
          const auto relax = [&](size_t j, double weight) {
            if (distance[i] + weight >= distance[j]) return;
            distance[j] = distance[i] + weight;
            changed = true;
          };
          for (size_t j = 0; j < n; ++j) relax(j, direct[i][j]);
          if (i != to) relax(to, moves.exchange(all[i], all[to]));
        }
      }
      const auto path = conversion_path(all[from], all[to], mesh, shape);
      const double found = path_cost(all[from], path, mesh, shape);
      ASSERT_NEAR(found, distance[to], 1e-9)
          << to_string(all[from], mesh, {}) << " -> " << to_string(all[to], mesh, {});
      if (!path.empty()) {
        ASSERT_EQ(path.back().to, all[to]);
      }
    }
  }
}

TEST(ConversionPath, is_the_brute_force_shortest_on_two_ranks) {
  expect_all_paths_shortest(line(2), {8});
  expect_all_paths_shortest(line(2), {5});
  expect_all_paths_shortest(line(2), {6, 3});
  expect_all_paths_shortest(line(2), {2, 5, 4});
}
TEST(ConversionPath, is_the_brute_force_shortest_on_four_ranks) {
  expect_all_paths_shortest(line(4), {8, 6});
  expect_all_paths_shortest(square(2, 2), {7});
  expect_all_paths_shortest(square(2, 2), {8, 4});
  expect_all_paths_shortest(square(2, 2), {3, 5});
}
TEST(ConversionPath, is_the_brute_force_shortest_on_six_ranks) {
  expect_all_paths_shortest(square(2, 3), {12, 6});
  expect_all_paths_shortest(square(2, 3), {7, 4});
}
TEST(ConversionPath, is_the_brute_force_shortest_on_eight_ranks) {
  expect_all_paths_shortest(square(4, 2), {16, 8});
  const Mesh cube = Mesh::row_major({{"a", 2}, {"b", 2}, {"c", 2}});
  expect_all_paths_shortest(cube, {16});
  expect_all_paths_shortest(cube, {11});
  expect_all_paths_shortest(cube, {8, 4});
  expect_all_paths_shortest(cube, {3, 5});
}

// ---- normal form
TEST(Normalise, drops_axes_of_one_member_and_sorts_parts) {
  const Mesh mesh = Mesh::row_major({{"a", 2}, {"b", 1}, {"c", 3}});
  const Layout found = normalise(layout({{b, a}, {}}, {c, b}), mesh, {8, 8});
  EXPECT_EQ(found, layout({{a}, {}}, {c}));
  EXPECT_EQ(normalise(layout({{}, {}}, {c, a}), mesh, {8, 8}).partial, (Axes{a, c}));
}

TEST(Normalise, forgets_the_combiner_of_a_complete_value) {
  Layout maximum = layout({{}}, {a});
  maximum.combiner = Combiner::kMax;
  EXPECT_EQ(normalise(maximum, line(2), {4}).combiner, Combiner::kMax);
  EXPECT_EQ(normalise(maximum, line(1), {4}).combiner, Combiner::kSum);
}

TEST(Normalise, keeps_a_grain_only_where_it_changes_the_cut) {
  const auto grained = [](int64_t grain, Axes axes, const Mesh& mesh, int64_t size) {
    Layout out = layout({std::move(axes)});
    out.grain = {grain};
    return normalise(out, mesh, {size}).grain[0];
  };
  EXPECT_EQ(grained(4, {a}, line(2), 16), 1);  // 4 + 4 brackets
  EXPECT_EQ(grained(4, {a}, line(2), 12), 4);  // 2 + 1 brackets: 8 and 4, not 6 and 6
  EXPECT_EQ(grained(4, {}, line(2), 12), 1);
  EXPECT_EQ(grained(0, {a}, line(2), 12), 1);
}

TEST(CutInterval, nests_uneven_cuts_with_the_longer_pieces_first) {
  const Mesh mesh = square(2, 3);
  std::vector<Interval> found;
  for (int rank = 0; rank < 6; ++rank) {
    found.push_back(cut_interval(11, 1, {a, b}, mesh, mesh.coordinates(rank)));
  }
  EXPECT_EQ(found, (std::vector<Interval>{{0, 2}, {2, 2}, {4, 2}, {6, 2}, {8, 2}, {10, 1}}));
  EXPECT_EQ(cut_interval(12, 4, {a}, mesh, {0, 0}), (Interval{0, 8}));
  EXPECT_EQ(cut_interval(12, 4, {a}, mesh, {1, 0}), (Interval{8, 4}));
}

TEST(CutInterval, gives_empty_pieces_when_there_are_more_ranks_than_elements) {
  const Mesh mesh = line(4);
  EXPECT_EQ(cut_interval(2, 1, {a}, mesh, {1}).size, 1);
  EXPECT_TRUE(cut_interval(2, 1, {a}, mesh, {2}).empty());
}

TEST(ToString, names_the_axes_of_each_dim_and_the_parts) {
  const Mesh mesh = Mesh::row_major({{"dp", 2}, {"row", 2}, {"col", 2}, {"tp", 2}});
  Layout x = layout({{AxisId(0)}, {}, {AxisId(1), AxisId(2)}}, {AxisId(3)});
  EXPECT_EQ(to_string(x, mesh, {{"batch"}, {"seq"}, {"hidden"}}),
            "[batch: dp, seq: -, hidden: row.col] partial(tp: sum)");
}

TEST(Classify, names_what_a_redistribution_is) {
  const auto make = [](std::vector<Interval> hold, std::vector<Interval> need,
                       std::optional<Combiner> combiner = std::nullopt) {
    Redistribution out;
    out.combiner = combiner;
    for (const Interval& x : hold) out.hold.push_back(Box({x}));
    for (const Interval& x : need) out.need.push_back(Box({x}));
    return classify(out);
  };
  EXPECT_EQ(make({{0, 4}, {4, 4}}, {{0, 4}, {0, 4}}), CollectiveKind::kBroadcast);
  EXPECT_EQ(make({{0, 4}, {4, 4}}, {{4, 4}, {0, 4}}), CollectiveKind::kPermute);
  EXPECT_EQ(make({{0, 4}, {4, 4}}, {{2, 4}, {0, 2}}), CollectiveKind::kExchange);
  EXPECT_EQ(make({{0, 4}, {0, 4}}, {{0, 4}, {0, 0}}, Combiner::kSum), CollectiveKind::kReduce);
  EXPECT_EQ(make({{0, 4}, {0, 4}}, {{0, 2}, {2, 2}}, Combiner::kSum), CollectiveKind::kExchange);
}

// ---- properties
struct Drawn {
  Mesh mesh;
  Shape shape;
  Layout from, to;
};
Drawn draw() {
  Drawn out;
  const auto axes = *rc::gen::inRange<size_t>(1, 4);
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (size_t i = 0; i < axes; ++i) {
    sizes.emplace_back(std::string(1, static_cast<char>('a' + i)),
                       *rc::gen::inRange<int64_t>(1, 4));
  }
  out.mesh = Mesh::row_major(sizes);
  const auto rank = *rc::gen::inRange<size_t>(1, 3);
  for (size_t d = 0; d < rank; ++d) out.shape.push_back(*rc::gen::inRange<int64_t>(1, 14));
  const auto make = [&](bool parts) {
    Layout x = Layout::whole(rank);
    for (size_t i = 0; i < axes; ++i) {
      const size_t choice = *rc::gen::inRange<size_t>(0, rank + (parts ? 2 : 1));
      if (choice < rank) {
        x.shards[choice].insert(
            x.shards[choice].begin() +
                *rc::gen::inRange<std::ptrdiff_t>(
                    0, static_cast<std::ptrdiff_t>(x.shards[choice].size()) + 1),
            AxisId(i));
      } else if (choice == rank + 1) {
        x.partial.push_back(AxisId(i));
      }
    }
    return normalise(x, out.mesh, out.shape);
  };
  out.from = make(true);
  out.to = make(false);
  return out;
}

RC_GTEST_PROP(LayoutProperty, pieces_cover_the_tensor_once_a_replica, ()) {
  const Drawn drawn = draw();
  int64_t total = 0;
  for (int64_t rank = 0; rank < drawn.mesh.size(); ++rank) {
    total += region_of(drawn.to, drawn.mesh, drawn.shape, drawn.mesh.coordinates(rank)).volume();
  }
  int64_t replicas = 1;
  for (size_t i = 0; i < drawn.mesh.axes.size(); ++i) {
    if (!drawn.to.shards_over(AxisId(i))) replicas *= drawn.mesh.axes[i].size;
  }
  RC_ASSERT(total == replicas * Box::whole(drawn.shape).volume());
}

RC_GTEST_PROP(LayoutProperty, normalising_twice_changes_nothing_and_keeps_the_regions, ()) {
  Drawn drawn = draw();
  Layout raw = drawn.to;
  for (size_t d = 0; d < drawn.shape.size(); ++d) {
    raw.grain[d] = *rc::gen::inRange<int64_t>(1, 4);
    drawn.shape[d] *= raw.grain[d];
  }
  const Layout once = normalise(raw, drawn.mesh, drawn.shape);
  RC_ASSERT(normalise(once, drawn.mesh, drawn.shape) == once);
  for (int64_t rank = 0; rank < drawn.mesh.size(); ++rank) {
    const auto at = drawn.mesh.coordinates(rank);
    RC_ASSERT(region_of(once, drawn.mesh, drawn.shape, at) ==
              region_of(raw, drawn.mesh, drawn.shape, at));
  }
}

RC_GTEST_PROP(LayoutProperty, a_path_ends_at_its_goal_and_merges_each_part_once, ()) {
  const Drawn drawn = draw();
  const auto path = conversion_path(drawn.from, drawn.to, drawn.mesh, drawn.shape);
  const Layout end = path.empty() ? drawn.from : path.back().to;
  RC_ASSERT(end == drawn.to);
  Layout at = drawn.from;
  for (const ConversionStep& step : path) {
    const bool merges = step.to.partial != at.partial;
    const bool reduction = !step.slice && (step.kind == CollectiveKind::kAllReduce ||
                                           step.kind == CollectiveKind::kReduceScatter);
    RC_ASSERT(merges == reduction);
    for (AxisId axis : step.to.partial) RC_ASSERT(at.uses(axis));
    RC_ASSERT(step.axes.empty() == step.slice);
    at = step.to;
  }
}

RC_GTEST_PROP(LayoutProperty, paths_are_no_longer_than_a_detour, ()) {
  const Drawn drawn = draw();
  const Layout whole = Layout::whole(drawn.shape.size());
  const auto cost = [&](const Layout& from, const Layout& to) {
    return path_cost(from, conversion_path(from, to, drawn.mesh, drawn.shape), drawn.mesh,
                     drawn.shape);
  };
  RC_ASSERT(cost(drawn.from, drawn.to) <= cost(drawn.from, whole) + cost(whole, drawn.to) + 1e-9);
}

// ---- pins
Layout pinned(AxisId axis, int64_t at, Layout out) {
  out.at.push_back({axis, at});
  return out;
}

TEST(Pins, only_the_ranks_at_the_coordinate_have_anything) {
  const Layout at_2 = pinned(a, 2, layout({{}}));
  EXPECT_EQ(to_string(at_2, line(4), {{"x", 16}}), "[x: -] at(a: 2)");
  for (int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(region_of(at_2, line(4), {16}, {rank}).volume(), rank == 2 ? 16 : 0);
  EXPECT_EQ(normalise(pinned(a, 0, layout({{}})), line(1), {16}), layout({{}}));
}

TEST(Pins, are_reached_and_left_by_one_exchange) {
  const Layout cut = layout({{a}}), whole = layout({{}}), at_2 = pinned(a, 2, whole);
  // The coordinate receives, or sends, three quarters of 16 elements.
  EXPECT_EQ(route(cut, at_2, line(4), {16}).kinds, "exchange");
  EXPECT_EQ(route(cut, at_2, line(4), {16}).cost, 12 + 1);
  EXPECT_EQ(route(pinned(a, 0, whole), cut, line(4), {16}).kinds, "exchange");
  EXPECT_EQ(route(pinned(a, 0, whole), cut, line(4), {16}).cost, 12 + 1);
  EXPECT_EQ(route(pinned(a, 0, whole), at_2, line(4), {16}).kinds, "exchange");
  EXPECT_EQ(route(whole, at_2, line(4), {16}).kinds, "slice");
  EXPECT_EQ(route(at_2, whole, line(4), {16}).kinds, "exchange");
}

// ---- halos
// A `HaloRow` is a row of docs/strategies/spatial.md section 3, one dim over `parts` ranks: what
// each rank takes of the rank before and of the next one, and how many places it makes.
struct HaloRow {
  int64_t size, parts;
  Window window;
  std::vector<std::array<int64_t, 3>> ranks;  // by rank: taken of rank before, of rank behind;
                                              // places
};
Layout windowed(const Window& window, WindowUse use, int64_t size, int64_t extent) {
  Layout out = layout({{a}});
  out.windows.push_back({0, {window, use, size, extent}});
  return out;
}

TEST(Halos, are_those_of_the_published_rows) {
  const HaloRow rows[] = {
      {16, 4, {3, 1, 1}, {{0, 1, 4}, {1, 1, 4}, {1, 1, 4}, {1, 0, 4}}},
      {16, 4, {3, 2, 1}, {{0, 0, 2}, {1, 0, 2}, {1, 0, 2}, {1, 0, 2}}},
      {16, 4, {5, 2, 2}, {{0, 1, 2}, {2, 1, 2}, {2, 1, 2}, {2, 0, 2}}},
      {10, 2, {3, 2, 1}, {{0, 1, 3}, {0, 0, 2}}},
      {11, 3, {3, 2, 1}, {{0, 0, 2}, {1, 0, 2}, {1, 0, 2}}},
  };
  for (const HaloRow& row : rows) {
    const Mesh mesh = line(row.parts);
    const int64_t places =
        (row.size + 2 * row.window.padding - row.window.kernel) / row.window.stride + 1;
    const Layout need = windowed(row.window, WindowUse::kUnder, places, row.size);
    for (int64_t rank = 0; rank < row.parts; ++rank) {
      const Interval reads = dim_interval(need, 0, row.size, mesh, {rank});
      const Interval own = cut_interval(row.size, 1, {a}, mesh, {rank});
      const auto& expected = row.ranks[static_cast<size_t>(rank)];
      EXPECT_EQ(std::max<int64_t>(0, own.begin - reads.begin), expected[0]) << row.size << rank;
      EXPECT_EQ(std::max<int64_t>(0, reads.end() - own.end()), expected[1]) << row.size << rank;
      EXPECT_EQ(cut_interval(places, 1, {a}, mesh, {rank}).size, expected[2]) << row.size << rank;
    }
  }
}

TEST(Halos, are_exchanged_once_and_cut_away_for_nothing) {
  const Layout cut = layout({{a}});
  const Layout halo = windowed({3, 1, 1}, WindowUse::kUnder, 16, 16);
  EXPECT_EQ(route(cut, halo, line(4), {16}).kinds, "exchange");
  EXPECT_EQ(route(halo, cut, line(4), {16}).kinds, "slice");
  // Each of two ranks has half; one row of the other half costs less than the whole half.
  EXPECT_EQ(route(cut, halo, line(2), {16}).kinds, "exchange");
  EXPECT_EQ(route(cut, halo, line(2), {16}).cost, 1 + 1);
  EXPECT_EQ(route(layout({{}}), halo, line(4), {16}).kinds, "slice");
  EXPECT_EQ(route(layout({{}}, {a}), halo, line(4), {16}).kinds, "reduce_scatter, exchange");
}

TEST(Halos, of_windows_that_lie_in_one_piece_are_none) {
  const Mesh mesh = line(4);
  const Layout pooled = windowed({2, 2, 0}, WindowUse::kUnder, 8, 16);
  EXPECT_EQ(normalise(pooled, mesh, {16}), layout({{a}}));
  // With 10 elements in 4 pieces, the cut of the 5 places falls elsewhere.
  const Layout uneven = windowed({2, 2, 0}, WindowUse::kUnder, 5, 10);
  EXPECT_EQ(normalise(uneven, mesh, {10}), uneven);
  // A strided product reads every other element of its own piece.
  const Layout strided = windowed({1, 2, 0}, WindowUse::kUnder, 8, 16);
  EXPECT_EQ(route(layout({{a}}), normalise(strided, mesh, {16}), mesh, {16}).kinds, "slice");
}

}  // namespace
}  // namespace tessera
