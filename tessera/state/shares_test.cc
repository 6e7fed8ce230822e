// Oracle: every element of every tensor, counted.
#include "tessera/state/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tessera::shares_test {
namespace {

struct Case {
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> element_bytes;
  std::vector<std::vector<HeldBox>> held;
};

std::vector<int64_t> bytes_written(const Case& one,
                                   const std::vector<std::vector<HeldBox>>& shares) {
  std::vector<int64_t> bytes(shares.size(), 0);
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    for (const HeldBox& piece : shares[rank])
      bytes[rank] += piece.box.volume() * one.element_bytes[piece.tensor];
  }
  return bytes;
}

// Returns, by tensor and element, how many boxes contain the element.
std::vector<std::vector<int>> counts(const Case& one,
                                     const std::vector<std::vector<HeldBox>>& lists) {
  std::vector<std::vector<int>> found;
  for (const auto& shape : one.shapes)
    found.emplace_back(static_cast<size_t>(Box::whole(shape).volume()), 0);
  for (const auto& list : lists) {
    for (const HeldBox& piece : list) {
      const auto strides = row_major_strides(one.shapes[piece.tensor]);
      std::vector<int64_t> at(piece.box.rank(), 0);
      for (int64_t left = piece.box.volume(); left > 0; --left) {
        int64_t index = 0;
        for (size_t d = 0; d < at.size(); ++d)
          index += (piece.box.dims[d].begin + at[d]) * strides[d];
        ++found[piece.tensor][static_cast<size_t>(index)];
        for (size_t d = at.size(); d-- > 0 && ++at[d] == piece.box.dims[d].size;) at[d] = 0;
      }
    }
  }
  return found;
}

void expect_each_element_once(const Case& one, const std::vector<std::vector<HeldBox>>& shares) {
  const auto written = counts(one, shares), held = counts(one, one.held);
  for (size_t tensor = 0; tensor < written.size(); ++tensor) {
    for (size_t i = 0; i < written[tensor].size(); ++i)
      ASSERT_EQ(written[tensor][i], held[tensor][i] > 0 ? 1 : 0) << tensor << " element " << i;
  }
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    for (const HeldBox& piece : shares[rank]) {
      const auto& mine = one.held[rank];
      EXPECT_TRUE(std::any_of(mine.begin(), mine.end(),
                              [&](const HeldBox& held_one) {
                                return held_one.tensor == piece.tensor &&
                                       held_one.box.contains(piece.box);
                              }))
          << "rank " << rank << " writes what it does not hold: " << piece.box.to_string();
    }
  }
}

TEST(Shares, ReplicasAreWrittenOnceAndShared) {
  Case one{{{400, 10}, {7}, {}}, {4, 4, 8}, {}};
  one.held.assign(4, {{0, Box::whole({400, 10})}, {1, Box::whole({7})}, {2, Box{}}});
  const auto shares = share_out(one.element_bytes, one.held, /*share_bytes=*/64);
  expect_each_element_once(one, shares);
  const auto bytes = bytes_written(one, shares);
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), 16'000 + 28 + 8);
  for (const int64_t written : bytes) EXPECT_LE(written, 4000 + 28);
}

TEST(Shares, ShardsStayWhereTheyAre) {
  Case one{{{10, 6}}, {4}, {}};
  for (int64_t rank = 0; rank < 3; ++rank) {  // uneven: 4, 3, 3 rows
    Box box = Box::whole({10, 6});
    box.dims[0] = split_interval({0, 10}, 3, rank);
    one.held.push_back({{0, box}});
  }
  EXPECT_EQ(share_out(one.element_bytes, one.held, 1), one.held);
}

TEST(Shares, OneStageHoldsWhatAnotherHasCut) {
  // Rank 0 has the whole of a tied tensor, ranks 1 and 2 its columns.
  Case one{{{4, 6}}, {2}, {{{0, Box::whole({4, 6})}}, {}, {}}};
  for (int64_t rank = 1; rank < 3; ++rank) {
    Box box = Box::whole({4, 6});
    box.dims[1] = split_interval({0, 6}, 2, rank - 1);
    one.held[static_cast<size_t>(rank)].push_back({0, box});
  }
  const auto shares = share_out(one.element_bytes, one.held);
  expect_each_element_once(one, shares);
  for (const int64_t written : bytes_written(one, shares)) EXPECT_LE(written, 24);
}

TEST(Shares, RandomHoldings) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int i = 0; i < 300; ++i) {
    Case one;
    const int64_t ranks = 1 + below(6);
    one.held.resize(static_cast<size_t>(ranks));
    for (size_t tensor = 0; tensor < 3; ++tensor) {
      std::vector<int64_t> shape;
      for (int64_t d = below(4); d > 0; --d) shape.push_back(1 + below(9));
      one.shapes.push_back(shape);
      one.element_bytes.push_back(1 + below(8));
      for (auto& held : one.held) {
        for (int64_t boxes = below(3); boxes > 0; --boxes) {
          Box box = Box::whole(shape);
          for (Interval& dim : box.dims) {
            const Interval whole = dim;
            dim.begin = below(whole.size);
            dim.size = 1 + below(whole.size - dim.begin);
          }
          held.push_back({tensor, box});
        }
      }
    }
    const auto shares = share_out(one.element_bytes, one.held, 1 + below(64));
    expect_each_element_once(one, shares);
  }
}

}  // namespace
}  // namespace tessera::shares_test
