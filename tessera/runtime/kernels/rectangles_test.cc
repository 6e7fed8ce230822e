#include "tessera/runtime/kernels/rectangles.h"

#include <gtest/gtest.h>

namespace tessera::kernels {
namespace {

std::vector<int64_t> positions(const Order& order, int64_t size) {
  std::vector<int64_t> out;
  for (const OpRun& run : runs_of(order, size, {0, size})) {
    for (int64_t i = 0; i < run.size; ++i) out.push_back(run.first + i * run.stride);
  }
  return out;
}

// For all boxes of small sizes, every pair of a query and a key that it sees lies in exactly one
// rectangle, and no other pair lies in any.
TEST(Rectangles, HoldThePairsThatTheMaskLeaves) {
  for (const Order& order : {Order{}, Order{Order::Kind::kZigzag, 4},
                             Order{Order::Kind::kZigzag, 2}, Order{Order::Kind::kStriped, 3}}) {
    const int64_t size = 9;
    const std::vector<int64_t> at = positions(order, size);
    for (int64_t q = 0; q < size; ++q) {
      for (int64_t q_end = q + 1; q_end <= size; ++q_end) {
        for (int64_t k = 0; k < size; ++k) {
          const Interval queries{q, q_end - q}, keys{k, (size - k + 1) / 2};
          std::vector<int> count(static_cast<size_t>(queries.size * keys.size), 0);
          for (const Rectangle& r : rectangles(queries, keys, true, order, size)) {
            for (int64_t i = 0; i < r.queries.size; ++i) {
              for (int64_t j = 0; j < r.keys.size; ++j) {
                if (r.causal && j > i) continue;
                ++count[static_cast<size_t>((r.queries.begin + i) * keys.size + r.keys.begin + j)];
              }
            }
          }
          for (int64_t i = 0; i < queries.size; ++i) {
            for (int64_t j = 0; j < keys.size; ++j) {
              const bool seen = at[static_cast<size_t>(queries.begin + i)] >=
                                at[static_cast<size_t>(keys.begin + j)];
              ASSERT_EQ(count[static_cast<size_t>(i * keys.size + j)], seen ? 1 : 0)
                  << q << ":" << q_end << " " << k << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

// docs/strategies/sequence-parallel.md section 2: with zigzag each step of a ring of N costs two
// products of pieces (of which there are 2N) on every device, 2N in all; without it a step costs
// four, two (on the diagonal) or none.
TEST(Rectangles, ZigzagGivesEachDeviceTwoPieceProductsAStep) {
  for (const int64_t devices : {2, 3, 4, 8}) {
    const int64_t piece = 4, chunk = 2 * piece, size = devices * chunk;
    const Order zigzag{Order::Kind::kZigzag, 2 * devices};
    for (int64_t device = 0; device < devices; ++device) {
      for (int64_t step = 0; step < devices; ++step) {
        const int64_t from = (device - step + devices) % devices;
        // Returns twice the area in pieces: a square on the diagonal is half a product.
        const auto twice = [&](const Order& order) {
          int64_t sum = 0;
          for (const Rectangle& r :
               rectangles({device * chunk, chunk}, {from * chunk, chunk}, true, order, size)) {
            sum += r.queries.size * r.keys.size * (r.causal ? 1 : 2);
          }
          return sum;
        };
        EXPECT_EQ(twice(zigzag), 2 * 2 * piece * piece)
            << device << " of " << devices << ", " << step;
        const int64_t all = 2 * chunk * chunk;
        EXPECT_EQ(twice(Order{}), from < device ? all : from == device ? all / 2 : 0);
      }
    }
  }
}

TEST(Rectangles, StripesDifferByLessThanOneProductOfAColumn) {
  const int64_t devices = 4, chunk = 8, size = devices * chunk;
  const Order striped{Order::Kind::kStriped, devices};
  for (int64_t device = 0; device < devices; ++device) {
    for (int64_t from = 0; from < devices; ++from) {
      int64_t pairs = 0;
      for (const Rectangle& r :
           rectangles({device * chunk, chunk}, {from * chunk, chunk}, true, striped, size)) {
        pairs +=
            r.causal ? r.queries.size * (r.queries.size + 1) / 2 : r.queries.size * r.keys.size;
      }
      EXPECT_EQ(pairs, from <= device ? chunk * (chunk + 1) / 2 : chunk * (chunk - 1) / 2);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
