// Compares the losses of models/nn.h and their gradients with formulas written out.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/graph/builder.h"
#include "tessera/models/nn.h"
#include "tessera/runtime/testing.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
constexpr int64_t kRows = 3, kClasses = 4;
const Values kX{0.3, -1.2, 2.0, 0.1, 40.0, -40.0, 0.5, 0.25, -0.7, 1.1, 0.9, -2.5};

struct Result2 {
  double loss = 0;
  Values gradient;
};

template <class Build>
Result2 evaluate(Build build, const std::vector<Dim>& target_dims, DType target_dtype,
                 const Values& targets) {
  GraphBuilder g("loss");
  const TensorId x = g.parameter("x", {{"batch", kRows}, {"v", kClasses}}, {Init::Kind::kZeros, 0},
                                 DType::kFloat64);
  const TensorId t = g.input("t", target_dims, target_dtype);
  g.graph().loss = build(g, x, t);
  const auto forward = g.finish();
  EXPECT_TRUE(forward) << forward.error().message;
  OptimizerSpec none;
  none.kind = "none";
  const auto graph = differentiate(*forward, none);
  EXPECT_TRUE(graph) << graph.error().message;
  if (!graph) return {};
  testing::Workspace work(*graph);
  work.initialise();
  work.set(graph->find_tensor("x"), kX);
  work.set(graph->find_tensor("t"), targets);
  work.run();
  return {work.get(graph->loss)[0], work.get(graph->find_tensor("grad.x"))};
}

const std::vector<Dim> kSame{{"batch", kRows}, {"v", kClasses}};
const Values kShares{0, 1, 0.5, 0.25, 1, 0, 0, 1, 0.75, 0.1, 1, 0};

TEST(LossesTest, MeanSquareError) {
  const Result2 found = evaluate(
      [](GraphBuilder& g, TensorId x, TensorId t) { return mean_square_error(g, "loss", x, t); },
      kSame, DType::kFloat64, kShares);
  double loss = 0;
  Values gradient;
  for (size_t i = 0; i < kX.size(); ++i) {
    const double d = kX[i] - kShares[i];
    loss += d * d / 12;
    gradient.push_back(2 * d / 12);
  }
  EXPECT_NEAR(found.loss, loss, 1e-12 * loss);
  EXPECT_LT(testing::relative_error(found.gradient, gradient), 1e-12);
}

TEST(LossesTest, BinaryCrossEntropyIsExactForLargeLogits) {
  const Result2 found = evaluate(
      [](GraphBuilder& g, TensorId x, TensorId t) { return binary_cross_entropy(g, "loss", x, t); },
      kSame, DType::kFloat64, kShares);
  double loss = 0;
  Values gradient;
  for (size_t i = 0; i < kX.size(); ++i) {
    const double x = kX[i];
    loss += (std::max(x, 0.0) - x * kShares[i] + std::log1p(std::exp(-std::fabs(x)))) / 12;
    gradient.push_back((1 / (1 + std::exp(-x)) - kShares[i]) / 12);
  }
  EXPECT_NEAR(found.loss, loss, 1e-12);
  EXPECT_LT(testing::relative_error(found.gradient, gradient), 1e-12);
}

// Builds a loss in which the target has the share 1 - smoothing and all classes together the rest.
TensorId smoothed_cross_entropy(GraphBuilder& g, TensorId logits, TensorId targets,
                                double smoothing) {
  const std::vector<TensorId> parts = g.op("cross_entropy", "cross_entropy", {logits, targets});
  if (parts.size() != 2) return {};
  const Dim classes = g.tensor(logits).dims.back();
  const TensorId all =
      g.op1("classes", "reduce_sum", {logits},
            {{"dims", classes.name}, {"factor", smoothing / static_cast<double>(classes.size)}});
  const TensorId picked = g.op1("picked", "scale", {parts[1]}, {{"factor", 1 - smoothing}});
  const TensorId share = g.op1("share", "add", {picked, all});
  const TensorId token = g.op1("token", "sub", {parts[0], share});
  return g.op1("mean", "reduce_sum", {token}, {{"dims", "batch"}, {"factor", 1.0 / kRows}});
}

TEST(LossesTest, SmoothedLabelsShareTheRest) {
  constexpr double kSmoothing = 0.1;
  const Values targets{2, 0, 3};
  const Result2 found =
      evaluate([](GraphBuilder& g, TensorId x,
                  TensorId t) { return smoothed_cross_entropy(g, x, t, kSmoothing); },
               {{"batch", kRows}}, DType::kInt64, targets);
  double loss = 0;
  Values gradient;
  for (size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (size_t v = 0; v < kClasses; ++v) sum += std::exp(kX[row * kClasses + v]);
    for (size_t v = 0; v < kClasses; ++v) {
      const double share =
          kSmoothing / kClasses + (static_cast<double>(v) == targets[row] ? 1 - kSmoothing : 0);
      const double x = kX[row * kClasses + v];
      loss -= share * (x - std::log(sum)) / kRows;
      gradient.push_back((std::exp(x) / sum - share) / kRows);
    }
  }
  EXPECT_NEAR(found.loss, loss, 1e-12 * loss);
  EXPECT_LT(testing::relative_error(found.gradient, gradient), 1e-12);
}

}  // namespace
}  // namespace tessera
