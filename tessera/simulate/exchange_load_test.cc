// Checks loads of exchanges whose members lie in a row or in a grid, counted by hand.
#include "tessera/simulate/exchange_load.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kRows = 4, kColumns = 8;  // of a member

// Members hold pieces of a map, `down` x `across` of them, and need them with a halo of one.
Issue halo(int64_t down, int64_t across) {
  std::vector<Box> hold, need;
  for (int64_t i = 0; i < down; ++i) {
    for (int64_t j = 0; j < across; ++j) {
      const Interval rows{i * kRows, kRows}, columns{j * kColumns, kColumns};
      const auto grown = [](Interval own, int64_t size) {
        const int64_t begin = std::max<int64_t>(0, own.begin - 1);
        return Interval{begin, std::min(size, own.end() + 1) - begin};
      };
      hold.push_back(Box{{rows, columns}});
      need.push_back(Box{{grown(rows, down * kRows), grown(columns, across * kColumns)}});
    }
  }
  Issue issue;
  Transfer transfer;
  transfer.hold = hold;
  transfer.need = need;
  issue.transfers.push_back(transfer);
  return issue;
}

TEST(ExchangeLoad, of_a_row_leaves_nodes_at_their_borders) {
  constexpr int64_t kFace = kColumns * 4;  // bytes of float32
  const ExchangeLoad load = exchange_load(halo(8, 1), {0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(load, (ExchangeLoad{2 * kFace, kFace, kFace, 1, 1}));
  // In four nodes those in the middle have two borders.
  EXPECT_EQ(exchange_load(halo(8, 1), {0, 0, 1, 1, 2, 2, 3, 3}),
            (ExchangeLoad{kFace, kFace, 2 * kFace, 2, 1}));
  EXPECT_EQ(exchange_load(halo(8, 1), {0, 1, 2, 3, 4, 5, 6, 7}),
            (ExchangeLoad{0, 2 * kFace, 2 * kFace, 2, 2}));
}

// Corners come from the member behind the corner.
TEST(ExchangeLoad, of_a_grid_counts_corners) {
  constexpr int64_t kAbove = kColumns * 4, kBeside = kRows * 4, kCorner = 4;
  const ExchangeLoad load = exchange_load(halo(2, 2), {0, 0, 1, 1});
  EXPECT_EQ(load, (ExchangeLoad{kBeside, kAbove + kCorner, 2 * (kAbove + kCorner), 1, 2}));
}

TEST(ExchangeLoad, within_a_node_leaves_nothing) {
  EXPECT_EQ(exchange_load(halo(4, 1), {0, 0, 0, 0}).leaving, 0);
  EXPECT_EQ(exchange_load(halo(4, 1), {0, 0, 0, 0}).nodes_reached, 0);
}

// Members 0 and 1 lie on one node, 2 and 3 on the other; `counted` gives how many rows of which
// member each one names.
TEST(ExchangeLoad, of_named_rows_goes_by_their_count) {
  constexpr int64_t kRow = kColumns * 4;
  const Box whole{{{0, 4 * kRows}, {0, kColumns}}};
  std::vector<Box> pieces;
  NamedRows named;
  for (int64_t member = 0; member < 4; ++member) {
    pieces.push_back(Box{{{member * kRows, kRows}, {0, kColumns}}});
    named.rows.push_back({member * kRows, kRows});
  }
  named.ids = {{BufferId(0), Box::whole({4 * kRows})}};
  named.counted = {0, 1, 2, 0, 0, 0, 0, 3, 1, 0, 0, 2, 0, 0, 1, 0};
  for (const bool sums : {false, true}) {
    Issue issue;
    Transfer transfer;
    (sums ? transfer.need : transfer.hold) = pieces;
    (sums ? transfer.hold : transfer.need) = std::vector<Box>(4, whole);
    if (sums) issue.combiner = Combiner::kSum;
    issue.transfers.push_back(transfer);
    issue.named = named;
    EXPECT_EQ(exchange_load(issue, {0, 0, 1, 1}),
              (ExchangeLoad{2 * kRow, 3 * kRow, 5 * kRow, 1, 1}));
  }
}

}  // namespace
}  // namespace tessera
