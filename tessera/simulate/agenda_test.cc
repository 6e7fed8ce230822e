// Compares the agenda with a sorted list, with numbers set, moved and taken out at random.
#include "tessera/simulate/agenda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace tessera::engine {
namespace {

TEST(Agenda, NextIsTheEarliestAndOfEqualTimesTheFirstSet) {
  std::mt19937 random(1);
  const auto below = [&random](int n) { return std::uniform_int_distribution(0, n - 1)(random); };
  Agenda agenda;
  std::map<int32_t, std::pair<double, uint64_t>> expected;
  for (uint64_t order = 1; order <= 20000; ++order) {
    const int32_t who = below(40);
    if (below(3) == 0) {
      agenda.erase(who);
      expected.erase(who);
    } else {
      const double time = below(10);
      agenda.set(who, time, order);
      expected[who] = {time, order};
    }
    ASSERT_EQ(agenda.empty(), expected.empty());
    if (expected.empty()) continue;
    const auto first =
        std::min_element(expected.begin(), expected.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    ASSERT_EQ(agenda.next().who, first->first);
    ASSERT_EQ(agenda.next().time, first->second.first);
    if (below(3) == 0) {
      agenda.erase(first->first);
      expected.erase(first);
    }
  }
}

}  // namespace
}  // namespace tessera::engine
