#include "tessera/import/pt2/naming.h"

#include <gtest/gtest.h>

namespace tessera::pt2 {
namespace {

TEST(NamingTest, TheSurestHintWinsAndNeighboursHaveOtherNames) {
  DimTable table;
  const Var seq = table.fresh(8), key = table.fresh(8), far = table.fresh(8);
  table.keep_distinct({seq, key});
  Hints hints;
  hints.add({seq}, "part", Sure::kPart);
  hints.add({seq}, "seq", Sure::kRole);
  hints.add({key}, "seq", Sure::kRole);
  hints.add({key}, "kv", Sure::kRole);
  hints.add({far}, "seq", Sure::kRole);
  const auto names = name_dims(table, hints);
  EXPECT_EQ(names.at(seq), "seq");
  EXPECT_EQ(names.at(key), "kv");
  EXPECT_EQ(names.at(far), "seq");  // never beside the first
}

TEST(NamingTest, AWidthThatIsMadeAndTakenIsTheInnerOne) {
  DimTable table;
  const Var hidden = table.fresh(4), inner = table.fresh(16), other = table.fresh(16);
  Hints hints;
  hints.add({hidden}, "hidden", Sure::kWidth);
  hints.add_product({hidden}, {inner});
  hints.add_product({inner}, {hidden});
  hints.add_product({hidden}, {other});
  hints.add({other}, "gate_out", Sure::kLast);
  const auto names = name_dims(table, hints);
  EXPECT_EQ(names.at(inner), "ffn");
  EXPECT_EQ(names.at(hidden), "hidden");
  EXPECT_EQ(names.at(other), "gate_out");
}

TEST(NamingTest, TheWidthOfMostNormsHasTheNameAndNoneOfThemIsAnInnerOne) {
  DimTable table;
  const Var embedded = table.fresh(4), hidden = table.fresh(8);
  table.keep_distinct({embedded, hidden});
  Hints hints;
  hints.add({embedded}, "hidden", Sure::kWidth);
  hints.add_product({embedded}, {hidden});
  for (int norm = 0; norm < 2; ++norm) hints.add({hidden}, "hidden", Sure::kWidth);
  hints.add_product({hidden}, {embedded});
  hints.add({embedded}, "head_out", Sure::kLast);
  const auto names = name_dims(table, hints);
  EXPECT_EQ(names.at(hidden), "hidden");
  EXPECT_EQ(names.at(embedded), "head_out");
}

TEST(NamingTest, WhatNobodyNamesIsNumbered) {
  DimTable table;
  const Var a = table.fresh(2), b = table.fresh(3);
  table.keep_distinct({a, b});
  const auto names = name_dims(table, {});
  EXPECT_EQ(names.at(a), "dim");
  EXPECT_EQ(names.at(b), "dim_2");
}

}  // namespace
}  // namespace tessera::pt2
