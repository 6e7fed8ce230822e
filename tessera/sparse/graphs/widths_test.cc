#include "tessera/sparse/graphs/widths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tessera::sparse {
namespace {

using ::testing::ElementsAre;

const std::vector<int64_t> kWidths = {1, 2, 4, 8, 16};

double width_as_cost(int64_t, int64_t width) { return static_cast<double>(width); }

// Returns a quality of 1 less a loss of weight / width for each layer.
auto loss_by_layer(std::vector<double> weights) {
  return [weights](const std::vector<int64_t>& widths) {
    double quality = 1;
    for (size_t i = 0; i < widths.size(); ++i)
      quality -= weights[i] / static_cast<double>(widths[i]);
    return quality;
  };
}

TEST(ChooseWidths, meets_the_budget_and_no_layer_can_be_narrowed_within_it) {
  const auto quality = loss_by_layer({0.01, 0.2, 0.04});
  for (const double least : {0.5, 0.8, 0.9, 0.95, 0.98}) {
    const WidthChoice choice = choose_widths(3, kWidths, quality, width_as_cost, least).value();
    EXPECT_GE(choice.quality, least);
    EXPECT_EQ(choice.quality, quality(choice.widths));
    double cost = 0;
    for (size_t layer = 0; layer < 3; ++layer) {
      cost += static_cast<double>(choice.widths[layer]);
      if (choice.widths[layer] == 1) continue;
      std::vector<int64_t> narrower = choice.widths;
      narrower[layer] /= 2;
      EXPECT_LT(quality(narrower), least) << layer;
    }
    EXPECT_EQ(choice.cost, cost);
  }
}

// Compares with all combinations: the choice is never better than the best, and here never costs
// more than twice it.
TEST(ChooseWidths, is_near_the_best_of_all_combinations) {
  for (const auto& weights : {std::vector<double>{0.1, 0.1}, {0.3, 0.01}, {0.01, 0.3}}) {
    const auto quality = loss_by_layer(weights);
    for (const double least : {0.6, 0.8, 0.9, 0.95}) {
      double best = INFINITY;
      for (const int64_t a : kWidths) {
        for (const int64_t b : kWidths) {
          if (quality({a, b}) >= least) best = std::min(best, static_cast<double>(a + b));
        }
      }
      const WidthChoice choice = choose_widths(2, kWidths, quality, width_as_cost, least).value();
      EXPECT_GE(choice.cost, best);
      EXPECT_LE(choice.cost, 2 * best) << least;
    }
  }
}

TEST(ChooseWidths, layers_that_do_not_matter_become_narrow) {
  EXPECT_THAT(choose_widths(2, kWidths, loss_by_layer({0, 1}), width_as_cost, 0.9)->widths,
              ElementsAre(1, 16));
}

TEST(ChooseWidths, budgets_that_cannot_be_met_are_refused) {
  const auto quality = loss_by_layer({0.1});
  EXPECT_EQ(choose_widths(1, {1, 2}, quality, width_as_cost, 0.97).error().message,
            "expected a quality of at least 0.97 at width 2, found 0.95");
  EXPECT_EQ(choose_widths(1, {2, 2}, quality, width_as_cost, 0).error().message,
            "expected layers and widths above 0 that ascend, found 1 layers and 2 widths");
  EXPECT_FALSE(choose_widths(0, {1}, quality, width_as_cost, 0));
}

}  // namespace
}  // namespace tessera::sparse
