// Executes all pairs of layouts on 2, 4, 6 and 8 ranks. The other cases are in
// layouts_slow_test.cc.
#include <gtest/gtest.h>

#include "conversions.h"
#include "tessera/plan/layout/test_layout_cases.h"

namespace tessera {
namespace {

void expect_all_pairs(const std::vector<std::pair<std::string, int64_t>>& axes,
                      const std::vector<std::vector<int64_t>>& shapes) {
  const Mesh mesh = Mesh::row_major(axes);
  for (const std::vector<int64_t>& shape : shapes) {
    SCOPED_TRACE(mesh.to_string() + " " + Box::whole(shape).to_string());
    expect_conversions_are_right({mesh, shape, all_layouts(mesh, shape.size())});
  }
}

TEST(AllPairs, of_layouts_convert_exactly_on_two_ranks) {
  expect_all_pairs({{"a", 2}}, {{8}, {5}, {1}, {4, 6}, {3, 5}, {1, 3}, {2, 4, 2}, {3, 2, 5}});
}

TEST(AllPairs, of_layouts_convert_exactly_on_four_ranks) {
  expect_all_pairs({{"a", 4}}, {{8}, {6}, {3}, {4, 8}, {5, 3}, {4, 4, 4}});
  expect_all_pairs({{"a", 2}, {"b", 2}}, {{8}, {5}, {3}, {4, 8}, {3, 5}, {2, 1}, {2, 4, 3}});
}

TEST(AllPairs, of_layouts_convert_exactly_on_six_ranks) {
  expect_all_pairs({{"a", 2}, {"b", 3}}, {{12}, {7}, {4}, {6, 12}, {5, 7}, {2, 3, 6}});
}

TEST(AllPairs, of_layouts_convert_exactly_on_eight_ranks) {
  expect_all_pairs({{"a", 4}, {"b", 2}}, {{16}, {9}, {8, 8}, {5, 3}});
  expect_all_pairs({{"a", 2}, {"b", 2}, {"c", 2}}, {{8}, {11}, {8, 4}, {3, 5}});
}

TEST(AllPairs, are_many) {
  const Mesh cube = Mesh::row_major({{"a", 2}, {"b", 2}, {"c", 2}});
  const std::vector<Layout> layouts = all_layouts(cube, 1);
  EXPECT_EQ(layouts.size(), 38U);  // ordered choices of axes that cut: 1, 3, 6, 6; times 2^(others)
  // To the 16 complete layouts from all, and between layouts with equal parts.
  EXPECT_EQ(expect_conversions_are_right({cube, {8}, layouts}),
            38 * 16 + 3 * 5 * 5 + 3 * 2 * 2 + 1);
}

// Cuts that fall on brackets, from and to cuts of single elements.
TEST(AllPairs, of_cuts_with_grains_convert_exactly) {
  for (const auto& axes : std::vector<std::vector<std::pair<std::string, int64_t>>>{
           {{"a", 2}}, {{"a", 4}}, {{"a", 2}, {"b", 2}}, {{"a", 2}, {"b", 3}}}) {
    const Mesh mesh = Mesh::row_major(axes);
    const std::vector<int64_t> shape = {20, 3};
    std::vector<Layout> layouts;
    for (const Layout& layout : all_layouts(mesh, 2)) {
      for (int64_t grain : {1, 4, 10}) {
        Layout x = layout;
        x.grain[0] = grain;
        layouts.push_back(normalise(x, mesh, shape));
      }
    }
    std::sort(layouts.begin(), layouts.end());
    layouts.erase(std::unique(layouts.begin(), layouts.end()), layouts.end());
    expect_conversions_are_right({mesh, shape, layouts});
  }
}

}  // namespace
}  // namespace tessera
