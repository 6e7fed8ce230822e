// Tests SMC: the algebra of its loss, and the changes that each of its two passes makes.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/runtime/testing.h"

namespace tessera::smc_test {
namespace {

using testing::relative_error;
using testing::Workspace;

constexpr double kAlpha = 0.8, kTau = 2;
constexpr int64_t kSteps = 8, kSamples = 4, kClasses = 3;

Graph training_graph() {
  auto model = build_model(
      "smc:width=2,image=8,classes=3,ghost=4,steps=8,alpha=0.8,tau=2,dtype=float64", kSamples);
  EXPECT_TRUE(model) << model.error().message;
  OptimizerSpec none;
  none.kind = "none";
  auto graph = differentiate(model->graph, none);
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

class Smc : public ::testing::Test {
 protected:
  Smc() : graph_(training_graph()), w_(graph_) { begin(1, 1); }
  // Runs the first step, on images in [-width, width).
  void begin(double width, double width_ahead) {
    w_.initialise();
    w_.randomise(id("images"), -width, width);
    w_.randomise(id("images_ahead"), -width_ahead, width_ahead);
    w_.randomise(id("soft_labels"), -3, 3);
    w_.set(id("targets"), {0, 2, 1, 2});
    run(1);
  }
  TensorId id(const std::string& name) const {
    const TensorId found = graph_.find_tensor(name);
    EXPECT_TRUE(found.valid()) << name;
    return found;
  }
  std::vector<double> get(const std::string& name) const { return w_.get(id(name)); }
  void run(double step) {
    w_.set(id("step"), {step});
    w_.run();
  }
  // Returns softmax(x / tau) of each sample.
  static std::vector<double> softmax(std::vector<double> x, double tau) {
    for (size_t i = 0; i < x.size(); i += kClasses) {
      double sum = 0;
      for (size_t c = i; c < i + kClasses; ++c) sum += x[c] = std::exp(x[c] / tau);
      for (size_t c = i; c < i + kClasses; ++c) x[c] /= sum;
    }
    return x;
  }

  const Graph graph_;
  Workspace w_;
};

TEST_F(Smc, TheShareOfSoftLabelsRisesAlongACosine) {
  const auto share_in = [&](double t) {
    run(t + 1);
    return get("share.now")[0];
  };
  EXPECT_EQ(share_in(0), 0);
  EXPECT_NEAR(share_in(kSteps / 2), kAlpha / 2, 1e-15);
  EXPECT_NEAR(share_in(kSteps), kAlpha, 1e-15);
  EXPECT_NEAR(share_in(3), kAlpha * (1 - (1 + std::cos(std::numbers::pi * 3 / kSteps)) / 2), 1e-15);
  w_.context().evaluating = true;
  EXPECT_EQ(share_in(kSteps), 0);
}

TEST_F(Smc, TheLossAndItsGradientAreThoseOfTheFormula) {
  const std::vector<double> targets = get("targets");
  for (const double t : {0.0, 3.0, 8.0}) {
    w_.randomise(id("soft_labels"), -3, 3);
    const std::vector<double> q = get("soft_labels");  // the run puts the next ones there
    run(t + 1);
    const double a = kAlpha * (1 - (1 + std::cos(std::numbers::pi * t / kSteps)) / 2);
    const std::vector<double> z = get("head"), hard = softmax(z, 1), own = softmax(z, kTau),
                              soft = softmax(q, kTau);
    double loss = 0;
    std::vector<double> gradient(z.size());
    for (size_t i = 0; i < static_cast<size_t>(kSamples); ++i) {
      const auto target = static_cast<size_t>(targets[i]);
      loss -= (1 - a) * std::log(hard[i * kClasses + target]);
      for (size_t c = 0; c < static_cast<size_t>(kClasses); ++c) {
        const size_t k = i * kClasses + c;
        loss += a * soft[k] * std::log(soft[k] / own[k]);
        const double one_hot = c == target ? 1 : 0;
        gradient[k] = ((1 - a) * (hard[k] - one_hot) + a * (own[k] - soft[k]) / kTau) / kSamples;
      }
    }
    EXPECT_NEAR(get("loss.mean")[0], loss / kSamples, 1e-12) << "t = " << t;
    EXPECT_LT(relative_error(get("grad.head"), gradient), 1e-12) << "t = " << t;
  }
}

TEST_F(Smc, NoGradientReachesTheSoftLabelsOrThePassThatMakesThem) {
  for (const Tensor& tensor : graph_.tensors()) {
    if (tensor.role != Role::kGradient || !tensor.of.valid()) continue;
    const std::string& of = graph_.tensor(tensor.of).name;
    EXPECT_NE(of, "soft_labels");
    EXPECT_EQ(of.find("ahead"), std::string::npos) << of;
  }
}

TEST_F(Smc, OnlyThePassAheadMovesWhatRuns) {
  const std::vector<std::string> carried = {"updated.soft_labels",
                                            "updated.blocks.0.bn_1.running_mean",
                                            "updated.blocks.2.bn_1.running_variance"};
  std::vector<std::vector<double>> before;
  for (const std::string& name : carried) before.push_back(get(name));
  EXPECT_EQ(before[0], get("ahead.head"));
  const double loss = get("loss.mean")[0];
  begin(2, 1);
  EXPECT_NE(get("loss.mean")[0], loss);
  for (size_t i = 0; i < carried.size(); ++i) EXPECT_EQ(get(carried[i]), before[i]) << carried[i];
  begin(2, 2);
  for (size_t i = 0; i < carried.size(); ++i) EXPECT_NE(get(carried[i]), before[i]) << carried[i];
}

}  // namespace
}  // namespace tessera::smc_test
