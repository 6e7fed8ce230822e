#include "tessera/data/click_metrics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <vector>

namespace tessera {
namespace {

double logit(double p) { return std::log(p / (1 - p)); }

TEST(ClickMetricsTest, TheShareOfClicksHasNormalizedEntropyOne) {
  for (const int clicks : {1, 3, 50, 99}) {
    std::vector<float> labels(100);
    std::fill_n(labels.begin(), clicks, 1.0F);
    const std::vector<double> logits(100, logit(clicks / 100.0));
    EXPECT_NEAR(normalized_entropy(labels, logits), 1, 1e-12);
    EXPECT_EQ(area_under_roc(labels, logits), 0.5);
  }
}

// For each prediction p, the share p of its samples was clicked; p is uniform. Then the entropy is
// the integral of the binary entropy, 1/2, over ln 2; the area is 5/6.
TEST(ClickMetricsTest, OfUniformTruePredictionsTheClosedFormsHold) {
  constexpr int kSteps = 1000;
  std::vector<float> labels;
  std::vector<double> logits;
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kSteps; ++i) {
      labels.push_back(i <= step ? 1.0F : 0.0F);
      logits.push_back(logit((step + 1.0) / (kSteps + 1.0)));
    }
  }
  EXPECT_NEAR(normalized_entropy(labels, logits), 0.5 / std::log(2.0), 2e-3);
  EXPECT_NEAR(area_under_roc(labels, logits), 5.0 / 6, 1e-3);
}

TEST(ClickMetricsTest, PerfectAndInvertedPredictions) {
  const std::vector<float> labels{0, 1, 1, 0};
  const std::vector<double> right{-800, 800, 900, -900}, wrong{800, -800, -900, 700};
  EXPECT_EQ(normalized_entropy(labels, right), 0);
  EXPECT_DOUBLE_EQ(normalized_entropy(labels, wrong), 800 / std::log(2.0));
  EXPECT_EQ(area_under_roc(labels, right), 1);
  EXPECT_EQ(area_under_roc(labels, wrong), 0);
}

TEST(ClickMetricsTest, WithoutBothLabelsThereIsNoFigure) {
  const std::vector<float> ones{1, 1};
  const std::vector<double> logits{0, 1};
  EXPECT_TRUE(std::isnan(normalized_entropy(ones, logits)));
  EXPECT_TRUE(std::isnan(area_under_roc(ones, logits)));
  EXPECT_TRUE(std::isnan(normalized_entropy({}, {})));
}

TEST(ClickMetricsTest, CrossEntropyIsTheLogarithmOfTheProbability) {
  for (const double x : {-3.0, -0.1, 0.0, 2.5}) {
    EXPECT_NEAR(binary_cross_entropy(1, x), std::log1p(std::exp(-x)), 1e-14);
    EXPECT_NEAR(binary_cross_entropy(0, x), std::log1p(std::exp(x)), 1e-14);
  }
  EXPECT_EQ(binary_cross_entropy(0, 1e6), 1e6);
}

RC_GTEST_PROP(ClickMetricsProperty, AreaIsTheShareOfPairsInOrder, ()) {
  const auto count = *rc::gen::inRange<size_t>(2, 30);
  std::vector<float> labels(count);
  std::vector<double> scores(count);
  for (size_t i = 0; i < count; ++i) {
    labels[i] = *rc::gen::arbitrary<bool>() ? 1.0F : 0.0F;
    scores[i] = *rc::gen::inRange(0, 6);
  }
  double won = 0, pairs = 0;
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      if (labels[a] <= labels[b]) continue;
      pairs += 1;
      won += scores[a] > scores[b] ? 1 : scores[a] == scores[b] ? 0.5 : 0;
    }
  }
  RC_PRE(pairs > 0);
  RC_ASSERT(std::abs(area_under_roc(labels, scores) - won / pairs) < 1e-12);
}

}  // namespace
}  // namespace tessera
