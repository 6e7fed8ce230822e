#include "tessera/search/choices/mechanisms.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Mechanisms, AreReadByName) {
  EXPECT_EQ(parse_mechanisms("").value(), Mechanisms{});
  EXPECT_EQ(parse_mechanisms("scopes,halos").value(),
            (Mechanisms{Mechanism::kScopes, Mechanism::kHalos}));
}

TEST(Mechanisms, EachHasAName) {
  Mechanisms named;
  for (const MechanismName& one : mechanism_names()) {
    named.insert(one.mechanism);
    EXPECT_EQ(parse_mechanisms(one.name).value(), Mechanisms{one.mechanism});
  }
  EXPECT_EQ(named.size(), static_cast<size_t>(Mechanism::kBaseline) + 1);
}

TEST(Mechanisms, AnUnknownNameIsRefused) {
  const auto refused = parse_mechanisms("scope");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("did you mean 'scopes'?"), std::string::npos);
}

}  // namespace
}  // namespace tessera
