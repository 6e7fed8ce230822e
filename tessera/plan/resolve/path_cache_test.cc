// Shortcuts on the way to a conversion path change no path: the lower bound of a layout's remaining
// cost, and paths that were found before.
#include "tessera/plan/resolve/path_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/plan/layout/test_layout_cases.h"

namespace tessera {
namespace {

using Shape = std::vector<int64_t>;

void expect_equal(const std::vector<ConversionStep>& one, const std::vector<ConversionStep>& other,
                  const std::string& what) {
  ASSERT_EQ(one.size(), other.size()) << what;
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].kind, other[i].kind) << what;
    EXPECT_EQ(one[i].slice, other[i].slice) << what;
    EXPECT_EQ(one[i].axes, other[i].axes) << what;
    EXPECT_EQ(one[i].to, other[i].to) << what;
  }
}

std::string text(const Layout& from, const Layout& to, const Mesh& mesh) {
  return to_string(from, mesh, {}) + " -> " + to_string(to, mesh, {}) + " on " + mesh.to_string();
}

// A cost function of which the search cannot know that it counts elements, so it uses no bound.
const CostFunction kUnknown = [](CollectiveKind kind, int64_t members, int64_t before,
                                 int64_t after) {
  return cost_by_elements(kind, members, before, after);
};

// Visits every pair of layouts, or about as many as `about`.
template <class Visit>
void for_pairs(const Mesh& mesh, const Shape& shape, size_t about, const Visit& visit) {
  std::vector<Layout> all;
  for (const Layout& layout : all_layouts(mesh, shape.size()))
    all.push_back(normalise(layout, mesh, shape));
  std::mt19937 random(7);
  const size_t pairs = all.size() * all.size();
  for (const Layout& from : all) {
    for (const Layout& to : all) {
      if (!convertible(from, to) || (pairs > about && random() % (pairs / about) != 0)) continue;
      visit(from, to);
    }
  }
}

void expect_same_paths_without_bound(const Mesh& mesh, const Shape& shape) {
  for_pairs(mesh, shape, 3000, [&](const Layout& from, const Layout& to) {
    expect_equal(conversion_path(from, to, mesh, shape),
                 conversion_path(from, to, mesh, shape, kUnknown), text(from, to, mesh));
  });
}

TEST(LeastCost, ChangesNoPath) {
  expect_same_paths_without_bound(Mesh::row_major({{"a", 4}}), {8, 6});
  expect_same_paths_without_bound(Mesh::row_major({{"a", 2}, {"b", 2}}), {8, 4});
  expect_same_paths_without_bound(Mesh::row_major({{"a", 2}, {"b", 3}}), {3, 5});
  expect_same_paths_without_bound(Mesh::row_major({{"a", 2}, {"b", 3}}), {2, 1, 9});
  expect_same_paths_without_bound(Mesh::row_major({{"a", 2}, {"b", 2}, {"c", 2}}), {8, 16});
  expect_same_paths_without_bound(Mesh::row_major({{"a", 3}, {"b", 2}, {"c", 4}}), {7, 5});
}

TEST(PathCache, KnowsThePathsOfAllMeshes) {
  PathCache cache;
  const std::vector<Mesh> meshes = {Mesh::row_major({{"a", 2}, {"b", 3}}),
                                    Mesh::row_major({{"a", 3}, {"b", 2}}),
                                    Mesh::row_major({{"a", 2}, {"b", 3}, {"c", 2}})};
  for (int round = 0; round < 2; ++round) {
    for (const Mesh& mesh : meshes) {
      for_pairs(mesh, {6, 5}, 2000, [&](const Layout& from, const Layout& to) {
        expect_equal(cache.find(from, to, mesh, {6, 5}), conversion_path(from, to, mesh, {6, 5}),
                     text(from, to, mesh));
      });
    }
  }
}

TEST(PathCache, SharesPathsOfMeshesThatDifferElsewhere) {
  PathCache cache;
  const auto ask = [&](const Mesh& mesh, const std::string& axis) {
    Layout cut = Layout::whole(2);
    cut.shards[0].push_back(mesh.find(axis));
    return cache.find(cut, Layout::whole(2), mesh, {8, 8});
  };
  ask(Mesh::row_major({{"dp", 2}, {"tp", 4}}), "tp");
  EXPECT_EQ(cache.size(), 1U);
  const Mesh other = Mesh::row_major({{"cp", 8}, {"dp", 3}, {"ep", 4}});
  EXPECT_EQ(ask(other, "ep").front().axes, Axes{other.find("ep")});
  EXPECT_EQ(cache.size(), 1U);
  ask(other, "dp");
  EXPECT_EQ(cache.size(), 2U);
}

TEST(PathCache, ForgetsWhenItIsFull) {
  PathCache cache(3);
  const Mesh mesh = Mesh::row_major({{"a", 2}});
  Layout cut = Layout::whole(1);
  cut.shards[0].push_back(AxisId(0));
  for (int64_t size = 2; size < 40; size += 2) {
    expect_equal(cache.find(cut, Layout::whole(1), mesh, {size}),
                 conversion_path(cut, Layout::whole(1), mesh, {size}), "");
    EXPECT_LE(cache.size(), 3U);
  }
}

}  // namespace
}  // namespace tessera
