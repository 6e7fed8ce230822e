#include "tessera/orchestrate/share/beta_regression.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/orchestrate/share/random.h"

namespace tessera::share {
namespace {

// Rows of jobs whose number of epochs depends on what is seen: the higher the accuracy after an epoch,
// the sooner the end.
std::vector<ProgressRow> history(size_t jobs, uint64_t seed) {
  Random random(seed);
  std::vector<ProgressRow> out;
  for (size_t job = 0; job < jobs; ++job) {
    const double time = 3 + 12 * random.uniform(), last = std::ceil(2.6 * time) + 5;
    const double samples = 5000 * std::pow(2, random.below(3));
    for (double epoch = 1; epoch < last; ++epoch) {
      const double part = 1 - std::exp(-epoch / time);
      ProgressRow row = progress_row({.samples = samples * epoch,
                                      .epoch_samples = samples,
                                      .first_loss = 7,
                                      .loss = 7 * (1 - 0.9 * part),
                                      .accuracy = 0.7 * part});
      row.share = epoch / last;
      out.push_back(row);
    }
  }
  return out;
}

TEST(BetaRegression, TheGradientIsThatOfFiniteDifferences) {
  Random random(3);
  BetaRegression::Weights weights{};
  for (double& weight : weights) weight = 0.3 * random.normal();
  weights.back() = 3;  // on the rising side of the relu
  for (const ProgressRow& row : history(1, 5)) {
    BetaRegression::Weights gradient{}, ignored{};
    BetaRegression::add_gradient(weights, row, gradient);
    for (size_t i = 0; i < weights.size(); i += 37) {
      BetaRegression::Weights up = weights, down = weights;
      up[i] += 1e-6;
      down[i] -= 1e-6;
      const double slope = (BetaRegression::add_gradient(up, row, ignored) -
                            BetaRegression::add_gradient(down, row, ignored)) /
                           2e-6;
      ASSERT_NEAR(gradient[i], slope, 1e-4 * (1 + std::abs(slope)));
    }
  }
}

TEST(BetaRegression, BetaIsTheNumberOfRemainingEpochsInTheMean) {
  // alpha = epochs done, mean = alpha / (alpha + beta): with a share of 1/4 after 5 epochs, beta is 15.
  const double alpha = 5, beta = alpha * (1 / 0.25 - 1);
  EXPECT_DOUBLE_EQ(beta, 15);
  EXPECT_DOUBLE_EQ(alpha / (alpha + beta), 0.25);
  Random random(1);
  double sum = 0;
  for (int i = 0; i < 4000; ++i) sum += random.beta(alpha, beta);
  EXPECT_NEAR(sum / 4000, 0.25, 0.01);
}

TEST(BetaRegression, BeatsConstantBaselinesOnHeldBackJobs) {
  BetaRegression fitted;
  const BetaRegression half;  // before a fit: as many epochs are left as are done
  const auto learnt = history(20, 11), held_back = history(10, 12);
  fitted.fit(learnt, 1);
  double mean_left = 0;
  for (const ProgressRow& row : learnt)
    mean_left += row.epochs * (1 / row.share - 1) / static_cast<double>(learnt.size());
  // The second baseline: the mean number of remaining epochs, whatever is seen.
  double of_fitted = 0, of_half = 0, of_mean = 0;
  for (const ProgressRow& row : held_back) {
    const auto error = [&](double beta) {
      return std::abs(row.epochs / (row.epochs + beta) - row.share);
    };
    of_fitted += error(fitted.beta(row));
    of_half += error(half.beta(row));
    of_mean += error(mean_left);
  }
  EXPECT_LT(of_fitted, of_half);
  EXPECT_LT(of_fitted, of_mean);
}

TEST(BetaRegression, EqualSeedsGiveEqualFits) {
  BetaRegression a, b;
  a.fit(history(3, 1), 9);
  b.fit(history(3, 1), 9);
  for (const ProgressRow& row : history(2, 4)) EXPECT_EQ(a.beta(row), b.beta(row));
}

}  // namespace
}  // namespace tessera::share
