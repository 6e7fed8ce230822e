// The full set of layout pairs on eight ranks, in up to three dims.
#include <gtest/gtest.h>

#include "conversions.h"
#include "tessera/plan/layout/test_layout_cases.h"

namespace tessera {
namespace {

void expect_all_pairs(const Mesh& mesh, const std::vector<int64_t>& shape) {
  SCOPED_TRACE(mesh.to_string() + " " + Box::whole(shape).to_string());
  expect_conversions_are_right({mesh, shape, all_layouts(mesh, shape.size())});
}

TEST(AllPairsOnEight, of_a_line_convert_exactly) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{16}, {5}, {8, 16}, {5, 9}, {2, 4, 8}, {3, 9, 5}}) {
    expect_all_pairs(Mesh::row_major({{"a", 8}}), shape);
  }
}
TEST(AllPairsOnEight, of_two_axes_convert_exactly) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4, 8, 2}, {3, 5, 7}}) {
    expect_all_pairs(Mesh::row_major({{"a", 4}, {"b", 2}}), shape);
    expect_all_pairs(Mesh::row_major({{"a", 2}, {"b", 4}}), shape);
  }
}
TEST(AllPairsOnEight, of_three_axes_convert_exactly) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{8, 8}, {3, 5}, {4, 2, 4}, {3, 5, 2}}) {
    expect_all_pairs(Mesh::row_major({{"a", 2}, {"b", 2}, {"c", 2}}), shape);
  }
}
TEST(AllPairsOnTwelve, of_three_axes_convert_exactly) {
  expect_all_pairs(Mesh::row_major({{"a", 2}, {"b", 3}, {"c", 2}}), {12, 7});
}

}  // namespace
}  // namespace tessera
