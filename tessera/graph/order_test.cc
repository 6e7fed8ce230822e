#include "tessera/graph/order.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera {
namespace {

Order order(const std::string& text) {
  const auto parsed = parse_order(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed.value_or(Order{});
}

std::vector<int64_t> positions(const std::string& text, int64_t size, Interval interval) {
  std::vector<int64_t> out;
  for (const Run& run : runs_of(order(text), size, interval)) {
    EXPECT_EQ(run.index, interval.begin + static_cast<int64_t>(out.size()));
    for (int64_t i = 0; i < run.size; ++i) out.push_back(run.first + i * run.stride);
  }
  return out;
}

TEST(Order, GivesThePositionsInTheOrderOfTheirIndices) {
  using Positions = std::vector<int64_t>;
  EXPECT_EQ(positions("", 4, {1, 2}), (Positions{1, 2}));
  EXPECT_EQ(positions("zigzag:4", 8, {0, 8}), (Positions{0, 1, 6, 7, 2, 3, 4, 5}));
  EXPECT_EQ(positions("zigzag:4", 8, {1, 4}), (Positions{1, 6, 7, 2}));
  EXPECT_EQ(positions("striped:3", 8, {0, 8}), (Positions{0, 3, 6, 1, 4, 7, 2, 5}));
  EXPECT_EQ(positions("striped:3", 8, {2, 3}), (Positions{6, 1, 4}));
}

TEST(Order, IsAPermutationForAnySize) {
  for (const std::string text : {"", "zigzag:2", "zigzag:6", "striped:1", "striped:5"}) {
    for (int64_t size = 0; size < 20; ++size) {
      std::vector<int64_t> found = positions(text, size, {0, size});
      std::sort(found.begin(), found.end());
      std::vector<int64_t> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(found, all) << text << " " << size;
    }
  }
}

TEST(Order, ErrorsSayWhatIsAllowed) {
  for (const std::string text : {"zigzag", "zigzag:3", "zigzag:0", "spiral:4", "striped:x"}) {
    const auto parsed = parse_order(text);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().message,
              "expected an order 'zigzag:P' with an even P or 'striped:P', found '" + text + "'");
  }
}

}  // namespace
}  // namespace tessera
