// Compares the layers of dhen with plain loops over the formulas of docs/theory/dhen.md section 2,
// and their gradients with finite differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/data/click_metrics.h"
#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/runtime/testing.h"

namespace tessera::dhen_values_test {
namespace {

using testing::Workspace;
using Values = std::vector<double>;

// The input has m embeddings of width d; a module makes l.
constexpr int64_t batch = 2, m = 4, d = 3, l = 2, f = 5, filters = 2, kernel = 3;
const std::string kFeatures =
    "dhen:dense=2,rows=5-4-3,width=3,bottom=3,top=4-1,heads=1,ffn=5,filters=2,kernel=3,";
// Returns the keys of one layer of these modules.
std::string alone(const std::string& modules) { return "layers=1,embeddings=2,modules=" + modules; }

Graph forward_of(const std::string& keys) {
  const auto model = build_model(kFeatures + keys, batch, DType::kFloat64);
  EXPECT_TRUE(model) << keys << ": " << model.error().message;
  return model ? model->graph : Graph();
}

// Runs the forward pass with random parameters, and gives its tensors by name.
class Forward {
 public:
  explicit Forward(Graph graph) : graph_(std::move(graph)), work_(graph_) {
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.role == Role::kParameter) work_.randomise(tensor.id);
    }
    work_.randomise(graph_.find_tensor("dense"));
    for (const char* ids : {"ids.0", "ids.1", "ids.2"}) work_.set(graph_.find_tensor(ids), {1, 2});
    work_.set(graph_.find_tensor("targets"), {1, 0});
    work_.run();
  }
  Values operator()(const std::string& name) const {
    const TensorId id = graph_.find_tensor(name);
    EXPECT_TRUE(id.valid()) << name;
    return id.valid() ? work_.get(id) : Values();
  }
  Values of_block(const std::string& name) const { return (*this)("blocks.0." + name); }
  // Returns embedding i of sample b, column c, of the layer's input.
  double x(int64_t b, int64_t i, int64_t c) const {
    return (*this)("embed.hidden")[static_cast<size_t>((b * m + i) * d + c)];
  }
  double dot(int64_t b, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += x(b, i, c) * x(b, j, c);
    return sum;
  }
  // Returns number i of sample b, i below `count`, for all samples.
  template <class Number>
  static Values each(int64_t count, Number number) {
    Values all;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < count; ++i) all.push_back(number(b, i));
    }
    return all;
  }
  // Returns numbers [batch, n] times a weight [n, l d].
  Values projected(const Values& numbers, int64_t n, const Values& weight) const {
    return each(l * d, [&](int64_t b, int64_t out) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        sum +=
            numbers[static_cast<size_t>(b * n + i)] * weight[static_cast<size_t>(i * l * d + out)];
      return sum;
    });
  }
  // Returns y [batch, n, d] times a weight [n, outputs] on its embeddings: [batch, outputs, d].
  static Values mixed(const Values& y, int64_t n, const Values& weight, int64_t outputs) {
    return each(outputs * d, [&](int64_t b, int64_t at) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        sum += y[static_cast<size_t>((b * n + i) * d + at % d)] *
               weight[static_cast<size_t>(i * outputs + at / d)];
      return sum;
    });
  }
  // Returns the inner products of pairs, in the order (1, 0), (2, 0), (2, 1), ...
  Values pairs() const {
    return each(m * (m - 1) / 2, [&](int64_t b, int64_t at) {
      int64_t i = 1;
      for (; at >= i; ++i) at -= i;
      return dot(b, i, at);
    });
  }

 private:
  Graph graph_;
  Workspace work_;
};

// Returns rows of width d, normed and scaled.
Values normed(Values rows, const Values& gamma, const Values& beta) {
  for (size_t row = 0; row < rows.size(); row += d) {
    double mean = 0, square = 0;
    for (size_t c = 0; c < d; ++c) mean += rows[row + c] / d;
    for (size_t c = 0; c < d; ++c) square += std::pow(rows[row + c] - mean, 2) / d;
    for (size_t c = 0; c < d; ++c)
      rows[row + c] = (rows[row + c] - mean) / std::sqrt(square + 1e-5) * gamma[c] + beta[c];
  }
  return rows;
}

// Returns rows of width `in` times a weight [in, out], plus a bias.
Values dense(const Values& rows, const Values& weight, const Values& bias) {
  const size_t out = bias.size(), in = weight.size() / out;
  Values y;
  for (size_t row = 0; row < rows.size(); row += in) {
    for (size_t o = 0; o < out; ++o) {
      double sum = bias[o];
      for (size_t i = 0; i < in; ++i) sum += rows[row + i] * weight[i * out + o];
      y.push_back(sum);
    }
  }
  return y;
}

Values sum(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Values rectified(Values values) {
  for (double& value : values) value = std::max(value, 0.0);
  return values;
}

void expect_equal(const Values& found, const Values& expected) {
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_LT(testing::relative_error(found, expected), 1e-12);
}

TEST(DhenValues, LinearMixesEmbeddings) {
  const Forward run(forward_of(alone("linear")));
  expect_equal(run.of_block("linear.mixed"),
               Forward::mixed(run("embed.hidden"), m, run.of_block("linear.mix.weight"), l));
}

TEST(DhenValues, CrossProjectsAllInnerProducts) {
  const Forward run(forward_of(alone("cross")));
  const Values products =
      Forward::each(m * m, [&](int64_t b, int64_t at) { return run.dot(b, at / m, at % m); });
  Values y = run.projected(products, m * m, run.of_block("cross.mix.weight"));
  const Values bias = run.of_block("cross.mix.bias");
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  expect_equal(run.of_block("cross.mixed"), y);
}

TEST(DhenValues, DotProjectsInnerProductsOfPairs) {
  const Forward run(forward_of(alone("dot")));
  expect_equal(run.of_block("dot.mixed"),
               run.projected(run.pairs(), m * (m - 1) / 2, run.of_block("dot.mix.weight")));
}

TEST(DhenValues, DlrmProjectsAnMlpBesideThePairs) {
  const Forward run(forward_of(alone("dlrm")));
  const auto layer = [&](const Values& rows, const std::string& name) {
    return dense(rows, run.of_block(name + ".weight"), run.of_block(name + ".bias"));
  };
  const Values vector =
      layer(rectified(layer(run("embed.hidden"), "mlp.dense.up")), "mlp.dense.down");
  const Values pairs = run.pairs();
  constexpr int64_t count = m * (m - 1) / 2, all = d + count;
  const Values numbers = Forward::each(all, [&](int64_t b, int64_t i) {
    return i < d ? vector[static_cast<size_t>(b * d + i)]
                 : pairs[static_cast<size_t>(b * count + i - d)];
  });
  expect_equal(run.of_block("dlrm.mixed"),
               run.projected(numbers, all, run.of_block("dlrm.mix.weight")));
}

TEST(DhenValues, ConvolutionMixesItsMaps) {
  const Forward run(forward_of(alone("convolution")));
  const Values maps = run.of_block("conv.maps.weight"), weight = run.of_block("conv.mix.weight");
  const auto pixel = [&](int64_t b, int64_t i, int64_t c) {
    return i < 0 || i >= m || c < 0 || c >= d ? 0 : run.x(b, i, c);
  };
  expect_equal(run.of_block("conv.mixed"), Forward::each(l * d, [&](int64_t b, int64_t at) {
                 double sum = 0;
                 for (int64_t filter = 0; filter < filters; ++filter) {
                   for (int64_t i = 0; i < m; ++i) {
                     double map = 0;
                     for (int64_t k = 0; k < kernel * kernel; ++k)
                       map += maps[static_cast<size_t>(filter * kernel * kernel + k)] *
                              pixel(b, i + k / kernel - 1, at % d + k % kernel - 1);
                     sum += map * weight[static_cast<size_t>((filter * m + i) * l + at / d)];
                   }
                 }
                 return sum;
               }));
}

TEST(DhenValues, AttentionIsAnEncoderLayerThatMixesEmbeddings) {
  const Forward run(forward_of(alone("attention")));
  const auto of = [&](const std::string& name) { return run.of_block(name); };
  const auto layer = [&](const Values& rows, const std::string& name) {
    return dense(rows, of(name + ".weight"), of(name + ".bias"));
  };
  const auto norm = [&](const Values& rows, const std::string& name) {
    return normed(rows, of(name + ".weight"), of(name + ".bias"));
  };
  const Values x = run("embed.hidden");
  const Values q = layer(x, "attn.q"), k = layer(x, "attn.k"), v = layer(x, "attn.v");
  Values core(x.size(), 0);
  for (size_t row = 0; row < static_cast<size_t>(batch * m); ++row) {
    const size_t first = row / m * m;
    Values share(m);
    double all = 0;
    for (size_t j = 0; j < m; ++j) {
      double score = 0;
      for (size_t c = 0; c < d; ++c) score += q[row * d + c] * k[(first + j) * d + c];
      share[j] = std::exp(score / std::sqrt(d));
      all += share[j];
    }
    for (size_t j = 0; j < m; ++j) {
      for (size_t c = 0; c < d; ++c) core[row * d + c] += share[j] / all * v[(first + j) * d + c];
    }
  }
  const Values h = norm(sum(x, layer(core, "attn.out")), "ln_1");
  const Values y = norm(sum(h, layer(rectified(layer(h, "mlp.up")), "mlp.down")), "ln_2");
  expect_equal(of("attn.mixed"), Forward::mixed(y, m, of("attn.mix.weight"), l));
}

// Y = Norm(ensemble + shortcut): concatenated, summed, and summed with weights.
TEST(DhenValues, ALayerNormsTheEnsembleAndTheShortcut) {
  for (const std::string ensemble : {"concat", "sum", "weighted"}) {
    for (const int64_t outputs : {int64_t{2}, int64_t{3}, m}) {
      const Forward run(forward_of(fmt::format(
          "layers=1,modules=linear-cross,ensemble={},embeddings={}", ensemble, outputs)));
      const Values a = run.of_block("linear.mixed"), b = run.of_block("cross.mixed");
      const bool joins = ensemble == "concat";
      const bool weighs = ensemble == "weighted";
      const double w = weighs ? run.of_block("ensemble.linear.weight")[0] : 1;
      const double v = weighs ? run.of_block("ensemble.cross.weight")[0] : 1;
      const int64_t made = joins ? 2 * outputs : outputs, size = outputs * d;
      Values y = Forward::each(made * d, [&](int64_t sample, int64_t at) {
        const auto i = static_cast<size_t>(sample * size + at % size);
        if (joins) return at < size ? a[i] : b[i];
        return w * a[i] + v * b[i];
      });
      const Values x = run("embed.hidden");
      y = sum(y, made == m ? x : Forward::mixed(x, m, run.of_block("shortcut.mix.weight"), made));
      expect_equal(run.of_block("ln_out.y"),
                   normed(y, run.of_block("ln_out.weight"), run.of_block("ln_out.bias")));
    }
  }
}

// Two layers of two modules (docs/theory/dhen.md section 7): each gradient of the loss along a
// random direction of its parameter.
TEST(DhenValues, GradientsAreThoseOfFiniteDifferences) {
  OptimizerSpec none;
  none.kind = kNoOptimizer;
  for (const char* modules : {"linear-attention", "dlrm-convolution", "cross-dot"}) {
    const Graph forward =
        forward_of(fmt::format("layers=2,embeddings=2,ensemble=weighted,modules={}", modules));
    const auto made = differentiate(forward, none);
    ASSERT_TRUE(made) << made.error().message;
    const Graph& graph = *made;
    Workspace work(graph);
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.role == Role::kParameter) work.randomise(tensor.id);
    }
    work.randomise(graph.find_tensor("dense"));
    for (const char* ids : {"ids.0", "ids.1", "ids.2"}) work.set(graph.find_tensor(ids), {1, 2});
    work.set(graph.find_tensor("targets"), {1, 0});
    work.run();
    int compared = 0;
    for (const Tensor& gradient : graph.tensors()) {
      if (gradient.role != Role::kGradient || !gradient.of.valid()) continue;
      const Tensor& parameter = graph.tensor(gradient.of);
      if (parameter.role != Role::kParameter || gradient.name != "grad." + parameter.name) continue;
      work.run();
      const Values slope = work.get(gradient.id), at = work.get(parameter.id);
      Values direction(at.size());
      double expected = 0;
      for (size_t i = 0; i < at.size(); ++i) {
        direction[i] = std::cos(static_cast<double>(i) + 1);
        expected += slope[i] * direction[i];
      }
      const auto loss = [&](double step) {
        Values moved = at;
        for (size_t i = 0; i < at.size(); ++i) moved[i] += step * direction[i];
        work.set(parameter.id, moved);
        work.run();
        return work.get(graph.loss)[0];
      };
      constexpr double step = 1e-5;
      const double found = (loss(step) - loss(-step)) / (2 * step);
      work.set(parameter.id, at);
      EXPECT_NEAR(found, expected, 1e-7 + 1e-5 * std::abs(expected)) << parameter.name;
      ++compared;
    }
    EXPECT_GT(compared, 20) << modules;
  }
}

// If every prediction is the share of clicks, the loss is the entropy of that share: a normalised
// entropy of 1.
TEST(DhenValues, AConstantPredictionHasTheNormalisedEntropyOne) {
  constexpr int64_t samples = 20;
  const auto model = build_model(kFeatures + alone("linear"), samples, DType::kFloat64);
  ASSERT_TRUE(model) << model.error().message;
  const Graph& graph = model->graph;
  Workspace work(graph);
  const double share = 0.05;  // one of 20 clicks
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    const bool last = tensor.name == "top.1.bias";
    work.set(tensor.id, Values(static_cast<size_t>(tensor.elements()),
                               last ? std::log(share / (1 - share)) : 0));
  }
  Values clicks(samples, 0);
  clicks[7] = 1;
  work.set(graph.find_tensor("targets"), clicks);
  work.run();
  const double entropy = -share * std::log(share) - (1 - share) * std::log(1 - share);
  EXPECT_NEAR(entropy, 0.1985, 5e-5);
  EXPECT_NEAR(work.get(graph.loss)[0] / entropy, 1, 1e-12);
  const std::vector<float> labels(clicks.begin(), clicks.end());
  EXPECT_NEAR(normalized_entropy(labels, work.get(graph.find_tensor("top.1"))), 1, 1e-12);
}

}  // namespace
}  // namespace tessera::dhen_values_test
