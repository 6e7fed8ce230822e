#include "tessera/import/pt2/dims.h"

#include <gtest/gtest.h>

namespace tessera::pt2 {
namespace {

std::vector<int64_t> sizes_of(const DimTable& table, const Vars& vars) {
  std::vector<int64_t> out;
  for (const Var leaf : table.leaves(vars)) out.push_back(table.size(leaf));
  return out;
}

TEST(DimTableTest, EqualSizesAreNotEqualDims) {
  DimTable table;
  const Var a = table.fresh(8), b = table.fresh(8), c = table.fresh(8);
  EXPECT_TRUE(table.unify({a}, {b}));
  EXPECT_EQ(table.find(a), table.find(b));
  EXPECT_NE(table.find(a), table.find(c));
}

TEST(DimTableTest, AViewRefinesADimEverywhere) {
  DimTable table;
  const Var batch = table.fresh(2), seq = table.fresh(3), features = table.fresh(12),
            weight = table.fresh(12);
  ASSERT_TRUE(table.unify({features}, {weight}));
  const auto lists = table.view({{batch}, {seq}, {features}}, {6, 4, 3});
  ASSERT_TRUE(lists);
  EXPECT_EQ((*lists)[0], (Vars{batch, seq}));
  EXPECT_EQ(sizes_of(table, {weight}), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(table.leaves({weight}), table.leaves({features}));
}

TEST(DimTableTest, ListsOfOtherPartsBecomeOneByTheirCommonParts) {
  DimTable table;
  const Var whole = table.fresh(24), six = table.fresh(6), four = table.fresh(4),
            two = table.fresh(2), twelve = table.fresh(12);
  EXPECT_TRUE(table.unify({whole}, {six, four}));
  EXPECT_TRUE(table.unify({whole}, {two, twelve}));
  EXPECT_EQ(sizes_of(table, {whole}), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(table.leaves({twelve}), (Vars{table.leaves({six})[1], table.find(four)}));
}

TEST(DimTableTest, PartsThatDoNotNestAreRefused) {
  DimTable table;
  EXPECT_FALSE(table.unify({table.fresh(2), table.fresh(3)}, {table.fresh(3), table.fresh(2)}));
  EXPECT_FALSE(table.view({{table.fresh(2)}, {table.fresh(9)}}, {9, 2}));
}

TEST(DimTableTest, SolidDimsAreNotRefined) {
  DimTable table;
  const Var features = table.fresh(12);
  table.make_solid(features);
  EXPECT_FALSE(table.view({{features}}, {4, 3}));
  EXPECT_FALSE(table.unify({features}, {table.fresh(4), table.fresh(3)}));
  const Var other = table.fresh(12);
  EXPECT_TRUE(table.unify({other}, {features}));
  EXPECT_TRUE(table.solid(other));
}

TEST(DimTableTest, DimsOfOneTensorStayDistinctThroughMergesAndParts) {
  DimTable table;
  const Var query = table.fresh(4), key = table.fresh(4), other = table.fresh(4);
  table.keep_distinct({query, key});
  EXPECT_FALSE(table.unify({query}, {key}));
  ASSERT_TRUE(table.unify({key}, {other}));
  EXPECT_FALSE(table.unify({other}, {query}));
  ASSERT_TRUE(table.view({{query}}, {2, 2}));
  const Vars parts = table.leaves({query});
  EXPECT_TRUE(table.distinct(parts[0], parts[1]));
  ASSERT_TRUE(table.view({{key}}, {2, 2}));
  EXPECT_FALSE(table.unify({query}, {key}));
}

TEST(DimTableTest, DimsOfSizeOneAreNoDims) {
  DimTable table;
  const Var unit = table.fresh(1), seq = table.fresh(5);
  EXPECT_TRUE(table.unify({unit, seq}, {seq}));
  EXPECT_EQ(table.leaves({unit, seq}), (Vars{seq}));
  EXPECT_EQ(table.leaves({unit, seq}, true), (Vars{unit, seq}));
  EXPECT_TRUE(table.list(1).empty());
}

TEST(DimTableTest, CutGivesPartsAndThePlaceInOne) {
  DimTable table;
  const Var fused = table.fresh(12);
  const auto lists = table.cut({fused}, 3);
  ASSERT_TRUE(lists);
  EXPECT_EQ(table.size(lists->first), 3);
  EXPECT_EQ(table.size(lists->second), 4);
  EXPECT_FALSE(table.cut({fused}, 5));
}

}  // namespace
}  // namespace tessera::pt2
