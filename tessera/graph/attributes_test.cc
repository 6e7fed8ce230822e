#include "tessera/graph/attributes.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Attributes, AWriteLeavesTheOthersAsTheyWere) {
  const Attributes a{{"heads", int64_t{8}}};
  Attributes b = a, c = a;
  EXPECT_EQ(a, b);
  b["heads"] = int64_t{4};
  EXPECT_EQ(std::get<int64_t>(a.at("heads")), 8);
  EXPECT_EQ(std::get<int64_t>(b.at("heads")), 4);
  c.emplace("heads", int64_t{2});  // it is there already
  EXPECT_EQ(a, c);
  EXPECT_EQ(c.erase("dims"), 0u);
  EXPECT_EQ(c.erase("heads"), 1u);
  EXPECT_EQ(c, Attributes());
  EXPECT_TRUE(a.contains("heads"));
}

}  // namespace
}  // namespace tessera
