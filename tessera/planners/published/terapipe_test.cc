#include "tessera/planners/published/terapipe.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tessera::published {
namespace {

// Tries all slices of the sequence for all slices of the batch.
struct Brute {
  const SliceProblem& problem;
  double best = std::numeric_limits<double>::infinity();

  void extend(int64_t placed, int64_t samples, int64_t position, double sum, double slowest) {
    if (placed == problem.batch) {
      best = std::min(best, sum + static_cast<double>(problem.stages - 1) * slowest);
      return;
    }
    if (position == problem.positions) return extend(placed + samples, 0, 0, sum, slowest);
    for (int64_t b = samples > 0 ? samples : 1;
         b <= (samples > 0 ? samples : problem.batch - placed); ++b) {
      for (int64_t k = 1; position + k <= problem.positions; ++k) {
        const double own = problem.seconds(b, k, position);
        extend(placed, b, position + k, sum + own, std::max(slowest, own));
      }
    }
  }
};

TEST(TeraPipe, SlicesAreAsFastAsTheBestOfAll) {
  std::mt19937 random(1);
  for (int i = 0; i < 120; ++i) {
    SliceProblem problem;
    problem.positions = 1 + static_cast<int64_t>(random() % 6);
    problem.stages = 1 + static_cast<int64_t>(random() % 9);
    problem.batch = 1 + static_cast<int64_t>(random() % 3);
    if (problem.batch == 3) problem.positions = std::min<int64_t>(problem.positions, 4);
    std::vector<double> table;
    for (int k = 0; k < 4 * 7 * 7; ++k) table.push_back(static_cast<double>(1 + random() % 20));
    problem.seconds = [&](int64_t samples, int64_t slice, int64_t context) {
      return table[static_cast<size_t>((samples * 7 + slice) * 7 + context) % table.size()];
    };
    Brute brute{problem};
    brute.extend(0, 0, 0, 0, 0);
    const SlicePlan plan = best_slices(problem);
    ASSERT_EQ(plan.seconds, brute.best) << i;
    int64_t samples = 0;
    for (const auto& part : plan.parts) {
      samples += part.samples;
      int64_t positions = 0;
      for (const int64_t slice : part.slices) positions += slice;
      ASSERT_EQ(positions, problem.positions);
    }
    ASSERT_EQ(samples, problem.batch);
    EXPECT_EQ(plan.seconds, plan.sum + static_cast<double>(problem.stages - 1) * plan.slowest);
  }
}

// Section 3: later slices read more, so slices of a long pipeline shrink along the sequence.
TEST(TeraPipe, LongSequencesAreSlicedWithinMoments) {
  SliceProblem problem{256, 48, 1, [](int64_t, int64_t slice, int64_t context) {
                         const auto l = static_cast<double>(slice * 8);
                         return std::max(256.0, l) + l * static_cast<double>(context) * 8 / 4096;
                       }};
  const SlicePlan plan = best_slices(problem);
  EXPECT_LT(plan.seconds, slices_seconds(problem, std::vector<int64_t>(8, 32)));
  EXPECT_GE(plan.parts[0].slices.front(), plan.parts[0].slices.back());
}

}  // namespace
}  // namespace tessera::published
