#include "tessera/tables/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/base/test_random.h"

namespace tessera::tables {
namespace {

std::string error_of(std::string_view csv) {
  const auto tables = read_tables(csv, "t.csv");
  if (tables) return "no error";
  EXPECT_EQ(tables.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(tables.error().message.find('\n'), std::string::npos);
  return tables.error().message;
}

TEST(Tables, AreReadWithDefaultsForAbsentColumnsAndEmptyCells) {
  const auto tables = read_tables(
      "rows,name,dim,pooling_factor,element_bytes,bin_3,kinds\n"
      "4000000,big,128,31.5,2,0.25,table rows\n"
      "100,small,4,1,,,\n",
      "t.csv");
  ASSERT_TRUE(tables) << tables.error().message;
  ASSERT_EQ(tables->size(), 2U);
  const Table& big = tables->front();
  EXPECT_EQ(big.name, "big");
  EXPECT_EQ(big.bytes(), int64_t{4000000} * 128 * 2);
  EXPECT_EQ(big.pooling_factor, 31.5);
  EXPECT_EQ(big.reuse[3], 0.25);
  EXPECT_EQ(big.kinds, (std::vector<std::string>{"table", "rows"}));
  EXPECT_EQ(tables->back().element_bytes, 4);
}

// docs/strategies/planning-tables.md section 14: 4,000,000 rows of 128 numbers are 1.907 GiB.
TEST(Tables, BytesOfTheSheet) {
  const auto tables = read_tables("name,rows,dim,pooling_factor\nx,4000000,128,1\n", "t.csv");
  ASSERT_TRUE(tables);
  const double gib = static_cast<double>(tables->front().bytes()) / (int64_t{1} << 30);
  EXPECT_EQ(std::round(gib * 1000), 1907);
}

TEST(Tables, ErrorsAreOneLineWithTheirPlace) {
  EXPECT_EQ(error_of("name,rows\nx,1\n"),
            "t.csv:1: expected the columns name, rows, dim, pooling_factor, found no dim, "
            "pooling_factor");
  EXPECT_EQ(error_of("name,rows,dim,pooling_factor,bin_17\n"),
            "t.csv:1: unknown column 'bin_17', did you mean 'bin_1'?");
  EXPECT_EQ(error_of("name,rows,dim,pooling_factor\n"),
            "t.csv:1: expected a table a line below the header, found none");
  const std::string head = "name,rows,dim,pooling_factor,kinds\n";
  EXPECT_EQ(error_of(head + "x,10,4,1,\ny,0,4,1,\n"),
            "t.csv:3: rows: expected a whole number from 1 to 1099511627776, found '0'");
  EXPECT_EQ(error_of(head + "x,10,,1,\n"),
            "t.csv:2: dim: expected a whole number from 1 to 65536, found ''");
  EXPECT_EQ(error_of(head + "x,10,4,nan,\n"),
            "t.csv:2: pooling_factor: expected a number from 0 to 1000000000, found 'nan'");
  EXPECT_EQ(error_of(head + "x,10,4,-1,\n"),
            "t.csv:2: pooling_factor: expected a number from 0 to 1000000000, found '-1'");
  EXPECT_EQ(error_of(head + "x,10,4,1,rows table-wise\n"),
            "t.csv:2: kinds: expected words of replicated, table, columns, rows, table_rows, "
            "table_columns, grid, found 'rows table-wise'");
  EXPECT_EQ(error_of(head + "x,10,4,1,\nx,10,4,1,\n"), "t.csv:3: the table 'x' is there twice");
  EXPECT_EQ(error_of(head + "x,1099511627776,4,1,\n"),
            "t.csv:2: expected at most 2^40 numbers in a table, found 1099511627776 rows of 4");
  EXPECT_EQ(error_of(head + ",10,4,1,\n"),
            "t.csv:2: name: expected a name of 1 to 200 printable characters, found ''");
  EXPECT_EQ(error_of(head + "\"x\ny\",10,4,1,\n"),
            "t.csv:2: name: expected a name of 1 to 200 printable characters, found 'x\\ny'");
  EXPECT_EQ(error_of(head + "x,\"1\n2\",4,1,\n"),
            "t.csv:2: rows: expected a whole number from 1 to 1099511627776, found '1\\n2'");
}

TEST(Tables, WhatIsWrittenReadsBackEqual) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<Table> tables = generate_tables(TaskOptions{.seed = seed});
    tables[0].weighted = seed % 2 == 0;
    tables[1].kernels = {"fused"};
    tables[2].misses = static_cast<double>(seed);
    const auto read = read_tables(to_csv(tables), "t.csv");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, tables);
  }
}

// Section 12 of docs/strategies/planning-tables.md: counts, dims, the limit; section 7: the
// moments.
TEST(Tables, GeneratedTasksKeepToTheSheet) {
  double rows = 0, pooling = 0, bin = 0;
  size_t count = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const std::vector<Table> tables = generate_tables(TaskOptions{.seed = seed, .max_dim = 16});
    EXPECT_GE(tables.size(), 10U);
    EXPECT_LE(tables.size(), 59U);
    int64_t bytes = 0;
    for (const Table& table : tables) {
      EXPECT_TRUE((std::set<int64_t>{4, 8, 16}).contains(table.dim));
      EXPECT_GE(table.rows, 100);
      bytes += table.bytes();
      rows += static_cast<double>(table.rows);
      pooling += table.pooling_factor;
      double sum = 0;
      for (const double share : table.reuse) sum += share;
      EXPECT_NEAR(sum, 1, 1e-12);
      bin += table.reuse[0];
    }
    count += tables.size();
    EXPECT_LE(bytes, int64_t{15} << 30);
  }
  const auto n = static_cast<double>(count);
  // The means are of about 10,000 draws and may err by five of their standard errors.
  EXPECT_NEAR(rows / n, 4.107e6, 5 * 3.135e6 / std::sqrt(n));
  EXPECT_NEAR(pooling / n, 15.81, 5 * 25.59 / std::sqrt(n));
  EXPECT_NEAR(bin / n, 0.225, 0.03);
  EXPECT_EQ(generate_tables(TaskOptions{.seed = 7}), generate_tables(TaskOptions{.seed = 7}));
  EXPECT_NE(generate_tables(TaskOptions{.seed = 7}), generate_tables(TaskOptions{.seed = 8}));
}

// After bytes are changed, left out or doubled, a file gives tables within the limits, or one line.
TEST(Tables, DamagedFilesAreReadOrRefusedInOneLine) {
  test::Random random(1);
  const std::string whole = to_csv(generate_tables(TaskOptions{.seed = 2, .most_tables = 12}));
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = whole;
    for (int change = random.up_to(3); change >= 0; --change) {
      const size_t at = random.up_to(text.size() - 1);
      const size_t size = std::min(random.up_to(size_t{40}), text.size() - at);
      switch (random.up_to(2)) {
        case 0: text[at] = static_cast<char>(random.up_to(255)); break;
        case 1: text.erase(at, size); break;
        default: text.insert(at, text.substr(at, size));
      }
      if (text.empty()) text = "x";
    }
    const auto tables = read_tables(text, "t.csv");
    if (tables) {
      for (const Table& table : *tables) EXPECT_GT(table.bytes(), 0);
      continue;
    }
    ++refused;
    const std::string& line = tables.error().message;
    EXPECT_LT(line.size(), 600U);
    EXPECT_TRUE(std::none_of(line.begin(), line.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20;
    })) << line;
  }
  EXPECT_GT(refused, 500);
}

TEST(Tables, TasksByText) {
  const auto tables = generate_tables("random:max_dim=64,seed=3,tables=12");
  ASSERT_TRUE(tables) << tables.error().message;
  EXPECT_EQ(tables->size(), 12U);
  const auto error = [](std::string_view spec) {
    const auto found = generate_tables(spec);
    return found ? std::string("no error") : found.error().message;
  };
  EXPECT_EQ(error("random:max_dim=5"),
            "random:max_dim=5: max_dim: expected a power of two from 4 to 1024, found '5'");
  EXPECT_EQ(error("random:sead=5"), "random:sead=5: unknown key 'sead', did you mean 'seed'?");
  EXPECT_EQ(error("random:max_dim=1024,tables=59"),
            "random:max_dim=1024,tables=59: expected most_bytes of a size that so many tables have "
            "room in, found 15.00 GiB (16,106,127,360 bytes)");
}

}  // namespace
}  // namespace tessera::tables
