#include "tessera/tables/row_law.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/philox.h"
#include "tessera/base/zipf.h"

namespace tessera::tables {
namespace {

TEST(RowLaw, ZipfsSharesAreSumsOfItsTerms) {
  Table table;
  table.rows = 200000;
  for (const double exponent : {0.6, 1.0, 1.05, 2.5}) {
    table.zipf = exponent;
    double all = 0;
    for (int64_t k = 1; k <= table.rows; ++k) all += std::pow(static_cast<double>(k), -exponent);
    double sum = 0;
    int64_t next = 0;
    for (const int64_t rows : {1, 7, 64, 65, 1000, 50000, 199999}) {
      for (; next < rows; ++next) sum += std::pow(static_cast<double>(next + 1), -exponent);
      EXPECT_NEAR(share_of_rows(table, 0, rows), sum / all, 1e-6) << exponent << ", " << rows;
    }
    EXPECT_EQ(share_of_rows(table, 0, table.rows), 1);
    EXPECT_NEAR(share_of_rows(table, 1000, 500),
                share_of_rows(table, 0, 1500) - share_of_rows(table, 0, 1000), 1e-15);
  }
  // Ids that are drawn by that law (base/zipf.h, as `tessera data generate` does) have these
  // shares.
  table.zipf = 1.05;
  const Zipf draws(table.rows, table.zipf);
  int hot = 0;
  constexpr int kDraws = 100000;
  for (uint64_t i = 0; i < kDraws; ++i) hot += draws({5, 6}, i) < 100 ? 1 : 0;
  EXPECT_NEAR(share_of_rows(table, 0, 100), static_cast<double>(hot) / kDraws, 0.005);
}

TEST(RowLaw, WithoutAnOrderRowsAreAlike) {
  Table table;
  table.rows = 1000;
  table.reuse[3] = 1;  // says how often rows come, not where they stand
  EXPECT_FALSE(knows_frequency(table));
  EXPECT_DOUBLE_EQ(share_of_rows(table, 250, 500), 0.5);
}

// A batch of 65,536 samples with one id each: a quarter of the rows that it names come 3 or 4 times,
// the others once. So it names 65536 / (0.25 * 3.5 + 0.75) rows, the first quarter of which get
// 0.875 of 1.625 of the look-ups.
TEST(RowLaw, ReuseOfOrderedRowsByHand) {
  Table table;
  table.rows = 100000;
  table.ordered = true;
  table.reuse[2] = 0.25;
  table.reuse[0] = 0.75;
  const double named = 65536 / 1.625;
  const auto quarter = static_cast<int64_t>(named / 4);
  EXPECT_NEAR(share_of_rows(table, 0, quarter), 0.875 / 1.625, 1e-4);
  EXPECT_NEAR(share_of_rows(table, 0, quarter / 2), 0.875 / 1.625 / 2, 1e-4);
  const auto rest = static_cast<double>(table.rows) - named / 4;
  EXPECT_NEAR(share_of_rows(table, quarter, 1000), 0.75 / 1.625 * 1000 / rest, 1e-4);
  EXPECT_NEAR(share_of_rows(table, 0, table.rows), 1, 1e-12);
}

TEST(RowLaw, SharesOfPieces) {
  Table table;
  table.rows = 1000;
  table.dim = 8;
  table.zipf = 1;
  Piece piece = Piece::whole(0, table);
  EXPECT_EQ(share_of_piece(table, piece, 4), 1);
  piece.columns = 4;
  EXPECT_EQ(share_of_piece(table, piece, 4), 1);
  piece.kind = Sharding::kReplicated;
  EXPECT_EQ(share_of_piece(table, piece, 4), 0.25);
  piece.rows = 10;
  EXPECT_NEAR(share_of_piece(table, piece, 4), share_of_rows(table, 0, 10) / 4, 1e-15);
}

}  // namespace
}  // namespace tessera::tables
