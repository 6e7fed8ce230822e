#include "tessera/base/box.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

// All boxes of the tests lie in a small grid, so that sets of cells can be compared cell by cell.
using Cells = std::vector<int>;

void count_cells(const Box& box, int64_t side, Cells& cells) {
  const int64_t total = static_cast<int64_t>(cells.size());
  for (int64_t cell = 0; cell < total; ++cell) {
    int64_t rest = cell;
    bool inside = true;
    for (const Interval& dim : box.dims) {
      const int64_t at = rest % side;
      rest /= side;
      inside = inside && at >= dim.begin && at < dim.end();
    }
    cells[static_cast<size_t>(cell)] += inside ? 1 : 0;
  }
}

Box random_box(int64_t side) {
  Box box;
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = *rc::gen::inRange<int64_t>(0, side);
    box.dims.push_back({begin, *rc::gen::inRange<int64_t>(0, side - begin + 1)});
  }
  return box;
}

TEST(SplitInterval, FirstPiecesHaveTheRemainder) {
  const Interval whole{10, 7};
  EXPECT_EQ(split_interval(whole, 3, 0), (Interval{10, 3}));
  EXPECT_EQ(split_interval(whole, 3, 1), (Interval{13, 2}));
  EXPECT_EQ(split_interval(whole, 3, 2), (Interval{15, 2}));
}

TEST(SplitInterval, PiecesAreEmptyWhenThereAreMoreThanElements) {
  EXPECT_EQ(split_interval({0, 2}, 4, 1), (Interval{1, 1}));
  EXPECT_TRUE(split_interval({0, 2}, 4, 2).empty());
  EXPECT_TRUE(split_interval({0, 2}, 4, 3).empty());
}

RC_GTEST_PROP(SplitInterval, PiecesTileTheWhole, ()) {
  const Interval whole{*rc::gen::inRange<int64_t>(-5, 5), *rc::gen::inRange<int64_t>(0, 50)};
  const int64_t count = *rc::gen::inRange<int64_t>(1, 9);
  int64_t at = whole.begin;
  for (int64_t i = 0; i < count; ++i) {
    const Interval piece = split_interval(whole, count, i);
    RC_ASSERT(piece.begin == at);
    at = piece.end();
  }
  RC_ASSERT(at == whole.end());
}

TEST(Box, ScalarHasVolumeOne) {
  EXPECT_EQ(Box().volume(), 1);
  EXPECT_FALSE(Box().empty());
  EXPECT_EQ(Box().to_string(), "[]");
  EXPECT_TRUE(subtract(Box(), Box()).empty());
}

TEST(Box, WholeCoversTheShape) {
  const Box box = Box::whole({4, 8});
  EXPECT_EQ(box.volume(), 32);
  EXPECT_EQ(box.shape(), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(box.to_string(), "[0:4, 0:8]");
}

TEST(Box, IntersectOfDisjointBoxesIsEmpty) {
  const Box a({{0, 4}, {0, 4}});
  EXPECT_TRUE(intersect(a, Box({{4, 2}, {0, 4}})).empty());
  EXPECT_EQ(intersect(a, Box({{2, 4}, {1, 2}})), Box({{2, 2}, {1, 2}}));
}

TEST(Box, ContainsIsInclusionAndEmptyIsInAll) {
  const Box a({{0, 4}, {0, 4}});
  EXPECT_TRUE(a.contains(a));
  EXPECT_TRUE(a.contains(Box({{1, 2}, {3, 1}})));
  EXPECT_FALSE(a.contains(Box({{1, 4}, {3, 1}})));
  EXPECT_TRUE(a.contains(Box({{9, 0}, {9, 9}})));
}

RC_GTEST_PROP(Box, SubtractGivesDisjointBoxesThatCoverTheRest, ()) {
  constexpr int64_t kSide = 5;
  const Box a = random_box(kSide);
  const Box b = random_box(kSide);
  Cells expected(kSide * kSide * kSide), common(kSide * kSide * kSide),
      found(kSide * kSide * kSide);
  count_cells(a, kSide, expected);
  count_cells(intersect(a, b), kSide, common);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] -= common[i];
  for (const Box& piece : subtract(a, b)) {
    RC_ASSERT(!piece.empty());
    count_cells(piece, kSide, found);
  }
  RC_ASSERT(found == expected);
}

TEST(Box, RowMajorStridesEndInOne) {
  EXPECT_EQ(row_major_strides({2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_TRUE(row_major_strides({}).empty());
}

}  // namespace
}  // namespace tessera
