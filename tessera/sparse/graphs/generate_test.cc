#include "tessera/sparse/graphs/test_power_law.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace tessera::sparse {
namespace {

std::vector<int64_t> degrees(const CsrGraph& graph) {
  std::vector<int64_t> all;
  for (int64_t row = 0; row < graph.rows(); ++row) all.push_back(graph.degree(row));
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

TEST(PowerLawGraph, has_exactly_the_nodes_and_edges_and_no_loops) {
  const CsrGraph graph = power_law_graph({.nodes = 1000, .edges = 8000, .seed = 3}).value();
  EXPECT_TRUE(check(graph, {.sorted = true}));
  EXPECT_EQ(graph.rows(), 1000);
  EXPECT_EQ(graph.edges(), 8000);
  for (int64_t row = 0; row < graph.rows(); ++row) {
    for (int64_t e = graph.offsets[row]; e < graph.offsets[row + 1]; ++e)
      EXPECT_NE(graph.columns[e], row);
  }
}

TEST(PowerLawGraph, is_a_function_of_the_seed) {
  const PowerLawOptions options{.nodes = 300, .edges = 2000, .seed = 3};
  PowerLawOptions other = options;
  other.seed = 4;
  EXPECT_EQ(power_law_graph(options).value(), power_law_graph(options).value());
  EXPECT_NE(power_law_graph(options)->columns, power_law_graph(other)->columns);
}

// Expected degrees are edges * w_r / sum of w, with w_r = (r + r0)^(-1/(exponent - 1)): this gives
// the ratio of the degrees summed over two stretches of ranks.
TEST(PowerLawGraph, degrees_by_rank_follow_the_weights) {
  for (const double exponent : {2.2, 2.5, 3.0}) {
    const CsrGraph graph = power_law_graph({.nodes = 200000,
                                            .edges = 400000,
                                            .exponent = exponent,
                                            .max_share = 1,
                                            .by_rank = true,
                                            .seed = 5})
                               .value();
    double low = 0, high = 0, expected_low = 0, expected_high = 0;
    for (int64_t r = 1000; r < 200000; ++r) {
      const double weight = std::pow(static_cast<double>(r + 1), -1 / (exponent - 1));
      (r < 10000 ? low : high) += static_cast<double>(graph.degree(r));
      (r < 10000 ? expected_low : expected_high) += weight;
    }
    // Tens of thousands of edges on either side: three deviations are below 3 %.
    EXPECT_NEAR(low / high / (expected_low / expected_high), 1, 0.03) << exponent;
  }
}

TEST(PowerLawGraph, the_heaviest_row_has_the_share_that_was_asked_for) {
  const CsrGraph graph =
      power_law_graph(
          {.nodes = 200000, .edges = 800000, .exponent = 2.1, .max_share = 0.001, .seed = 5})
          .value();
  // 800 are expected; a Poisson deviation is 28. Pairs that are drawn twice cost a little.
  EXPECT_NEAR(static_cast<double>(degrees(graph).front()), 800, 100);
}

TEST(PowerLawGraph, options_without_a_graph_are_refused) {
  EXPECT_EQ(
      power_law_graph({.nodes = 10, .edges = 20}).error().message,
      "expected 1 to 2147483647 nodes and at most nodes * nodes / 8 edges, found 10 nodes and "
      "20 edges");
  EXPECT_EQ(power_law_graph({.nodes = 100, .edges = 20, .exponent = 2}).error().message,
            "expected an exponent above 2 and a share in (0, 1], found 2 and 0.01");
  EXPECT_FALSE(power_law_graph({.nodes = 0}));
}

}  // namespace
}  // namespace tessera::sparse
