#include "tessera/sparse/graphs/spmm_device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/philox.h"
#include "tessera/sparse/graphs/test_power_law.h"

namespace tessera::sparse {
namespace {

// Power-law rows, and among them two whose work a whole block of the device shares: one of 5,000
// edges, one of 513. Their columns repeat.
CsrGraph graph_with_heavy_rows() {
  const CsrGraph some = power_law_graph({.nodes = 700, .edges = 20000, .seed = 4}).value();
  CsrGraph graph = some;
  graph.offsets = {0};
  graph.columns.clear();
  for (int64_t row = 0; row < some.rows(); ++row) {
    const int64_t heavy = row == 3 ? 5000 : row == 600 ? 513 : 0;
    for (int64_t i = 0; i < heavy; ++i) graph.columns.push_back(static_cast<int32_t>(i * 7 % 700));
    for (int64_t e = some.offsets[static_cast<size_t>(row)];
         heavy == 0 && e < some.offsets[static_cast<size_t>(row) + 1]; ++e) {
      graph.columns.push_back(some.columns[static_cast<size_t>(e)]);
    }
    graph.offsets.push_back(static_cast<int64_t>(graph.columns.size()));
  }
  return graph;
}

TEST(SpmmOnDevice, is_the_product_of_the_processor) {
  CsrGraph graph = graph_with_heavy_rows();
  const Philox random{5, 0};
  for (int64_t e = 0; e < graph.edges(); ++e)
    graph.values.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(e))));
  const std::string error = device_error();
  for (const Sampler sampler : {Sampler::kNone, Sampler::kBucket, Sampler::kStride,
                                Sampler::kQuadratic, Sampler::kPermutation}) {
    for (const int64_t features : {1, 6, 16, 31, 33, 100, 128, 200}) {
      std::vector<float> x(static_cast<size_t>(graph.rows() * features)), y(x.size()),
          device(x.size());
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
      const Matrix<const float> in{x.data(), graph.rows(), features, features};
      const int64_t width = sampler == Sampler::kNone ? 0 : features == 16 ? 600 : 20;
      const SpmmOptions options{Reduce::kMean, {sampler, width, 9}, 1, false};
      const Status status = spmm_on_device(view_of(graph), options, in,
                                           {device.data(), graph.rows(), features, features});
      if (!error.empty()) {
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().message, error);
        continue;
      }
      ASSERT_TRUE(status) << status.error().message;
      ASSERT_TRUE(spmm(view_of(graph), options, in, {y.data(), graph.rows(), features, features}));
      // Fused multiplications round once less for each slot; sums have up to thousands of terms of
      // size 1.
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(device[i], y[i], 1e-4) << i;
    }
  }
  if (!error.empty()) GTEST_SKIP() << error;
}

}  // namespace
}  // namespace tessera::sparse
