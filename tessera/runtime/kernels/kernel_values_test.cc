// Compares each kind with formulas written out element by element (docs/reference/ops.md), in
// float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "tessera/base/philox.h"
#include "tessera/graph/builder.h"
#include "tessera/runtime/initialise.h"
#include "tessera/runtime/testing.h"

namespace tessera::kernel_values_test {
namespace {

using testing::relative_error;
using testing::Workspace;
using Values = std::vector<double>;

constexpr DType kWide = DType::kFloat64;
constexpr double kTolerance = 1e-13;

// Makes a graph of one op on random parameters and runs it whole.
struct OneOp {
  OneOp(const char* kind, const std::vector<std::vector<Dim>>& inputs,
        const Attributes& attributes = {}, const std::vector<size_t>& integer_inputs = {}) {
    GraphBuilder g("one");
    std::vector<TensorId> ids;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool integers =
          std::find(integer_inputs.begin(), integer_inputs.end(), i) != integer_inputs.end();
      ids.push_back(g.input("x" + std::to_string(i), inputs[i], integers ? DType::kInt64 : kWide));
    }
    outputs = g.op("op", kind, ids, attributes);
    auto built = g.finish();
    EXPECT_TRUE(built.has_value()) << (built ? "" : built.error().message);
    graph = built.value_or(Graph());
    workspace = std::make_unique<Workspace>(graph, 3);
    for (const TensorId id : ids) workspace->randomise(id);
    in = [this, ids](size_t i) { return workspace->get(ids[i]); };
    set = [this, ids](size_t i, const Values& values) { workspace->set(ids[i], values); };
  }
  Values out(size_t i = 0) {
    workspace->run();
    return workspace->get(outputs[i]);
  }
  Graph graph;
  std::vector<TensorId> outputs;
  std::unique_ptr<Workspace> workspace;
  std::function<Values(size_t)> in;
  std::function<void(size_t, const Values&)> set;
};

Attributes text(const char* key, const char* value) { return {{key, std::string(value)}}; }

TEST(KernelValues, SigmoidIsTheLogisticFunction) {
  OneOp one("sigmoid", {{{"h", 7}}});
  Values expected = one.in(0);
  for (double& x : expected) x = 1 / (1 + std::exp(-x));
  EXPECT_LT(relative_error(one.out(), expected), kTolerance);
}

TEST(KernelValues, SinusoidsAreOfThePositionInTheWhole) {
  for (const int64_t begin : {0, 3}) {
    Attributes attributes = {{"dim", std::string("s")}, {"base", 100.0}};
    if (begin > 0) attributes["within"] = std::string("s=3/9/1");
    OneOp one("sinusoid_add", {{{"b", 2}, {"s", 5}, {"h", 3}}}, attributes);
    Values expected = one.in(0);
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t j = i % 3;
      const double position = static_cast<double>(begin) + static_cast<double>(i / 3 % 5);
      const double angle = position / std::pow(100.0, static_cast<double>(j - j % 2) / 3);
      expected[i] += j % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
    EXPECT_LT(relative_error(one.out(), expected), kTolerance) << begin;
  }
}

TEST(KernelValues, RollMovesElementsCyclically) {
  for (const int64_t shift : {0, 2, 5, -1, -7}) {
    OneOp one("roll", {{{"b", 2}, {"s", 5}, {"h", 3}}},
              {{"dim", std::string("s")}, {"shift", shift}});
    const Values x = one.in(0);
    Values expected(30);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t s = 0; s < 5; ++s) {
        for (int64_t h = 0; h < 3; ++h) {
          const int64_t to = ((s + shift) % 5 + 5) % 5;
          expected[static_cast<size_t>((b * 5 + to) * 3 + h)] =
              x[static_cast<size_t>((b * 5 + s) * 3 + h)];
        }
      }
    }
    EXPECT_EQ(one.out(), expected) << shift;
  }
}

TEST(KernelValues, RearrangeCutsWindows) {
  OneOp one("rearrange", {{{"b", 2}, {"r", 4}, {"c", 6}, {"h", 2}}},
            {{"spec", std::string("b (wr ir) (wc ic) h -> (b wr wc) (ir ic) h")},
             {"sizes", std::string("ir=2 ic=3")},
             {"dims", std::string("b s h")}});
  const Values x = one.in(0);
  Values expected;
  for (size_t b = 0; b < 2; ++b) {
    for (size_t window = 0; window < 4; ++window) {
      for (size_t inside = 0; inside < 6; ++inside) {
        const size_t row = window / 2 * 2 + inside / 3, column = window % 2 * 3 + inside % 3;
        for (size_t h = 0; h < 2; ++h) expected.push_back(x[((b * 4 + row) * 6 + column) * 2 + h]);
      }
    }
  }
  EXPECT_EQ(one.out(), expected);
}

TEST(KernelValues, StopGradientIsTheIdentity) {
  OneOp one("stop_gradient", {{{"b", 2}, {"s", 5}}});
  EXPECT_EQ(one.out(), one.in(0));
}

TEST(KernelValues, EinsumSumsProducts) {
  OneOp one("einsum", {{{"b", 2}, {"s", 3}, {"h", 4}}, {{"h", 4}, {"f", 5}}, {{"f", 5}}},
            text("spec", "b s h+, h f, f -> b s f"));
  const Values x = one.in(0), w = one.in(1), bias = one.in(2);
  Values expected(30);
  for (size_t row = 0; row < 6; ++row) {
    for (size_t f = 0; f < 5; ++f) {
      expected[row * 5 + f] = bias[f];
      for (size_t h = 0; h < 4; ++h) expected[row * 5 + f] += x[row * 4 + h] * w[h * 5 + f];
    }
  }
  EXPECT_LT(relative_error(one.out(), expected), kTolerance);
}

TEST(KernelValues, Activations) {
  const auto check = [](const char* kind, double (*f)(double)) {
    OneOp one(kind, {{{"a", 40}}});
    one.workspace->randomise(one.graph.find_tensor("x0"), -6, 6);
    Values expected = one.in(0);
    for (double& x : expected) x = f(x);
    EXPECT_LT(relative_error(one.out(), expected), kTolerance) << kind;
  };
  check("gelu", [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  });
  check("silu", [](double x) { return x / (1 + std::exp(-x)); });
  check("relu", [](double x) { return std::max(x, 0.0); });
  check("exp", [](double x) { return std::exp(x); });
}

TEST(KernelValues, FloatExponentialOverItsWholeRange) {
  GraphBuilder g("one");
  const TensorId x = g.input("x", {{"a", 4000}}, DType::kFloat32);
  const TensorId shift = g.input("lse", {}, DType::kFloat32);
  const TensorId y = g.op1("op", "softmax_apply", {x, shift});
  const Graph graph = g.finish().value();
  Workspace w(graph);
  Values values(4000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(-100 + 0.047 * static_cast<double>(i));
  values[0] = -std::numeric_limits<double>::infinity();
  w.set(x, values);
  w.run();
  const Values out = w.get(y);
  EXPECT_EQ(out[0], 0);
  for (size_t i = 1; i < values.size(); ++i) {
    const double exact = std::exp(values[i]);
    if (values[i] > 88.7) continue;
    if (values[i] < -87.3) {
      EXPECT_LT(out[i], 1.3e-38) << values[i];
    } else {
      EXPECT_LT(std::abs(out[i] / exact - 1), 3e-7) << values[i];
    }
  }
}

TEST(KernelValues, Norms) {
  const std::vector<Dim> h{{"h", 8}}, x_dims{{"b", 3}, {"h", 8}};
  OneOp layer("layer_norm", {x_dims, h, h}, {{"eps", 1e-3}});
  OneOp rms("rms_norm", {x_dims, h}, {{"eps", 1e-3}});
  Values layer_expected(24), rms_expected(24);
  const Values x = layer.in(0), gamma = layer.in(1), beta = layer.in(2), rx = rms.in(0),
               rgamma = rms.in(1);
  for (size_t b = 0; b < 3; ++b) {
    double mean = 0, variance = 0, square = 0;
    for (size_t i = 0; i < 8; ++i) mean += x[b * 8 + i] / 8;
    for (size_t i = 0; i < 8; ++i) variance += (x[b * 8 + i] - mean) * (x[b * 8 + i] - mean) / 8;
    for (size_t i = 0; i < 8; ++i) square += rx[b * 8 + i] * rx[b * 8 + i] / 8;
    for (size_t i = 0; i < 8; ++i) {
      layer_expected[b * 8 + i] =
          (x[b * 8 + i] - mean) / std::sqrt(variance + 1e-3) * gamma[i] + beta[i];
      rms_expected[b * 8 + i] = rx[b * 8 + i] / std::sqrt(square + 1e-3) * rgamma[i];
    }
  }
  EXPECT_LT(relative_error(layer.out(), layer_expected), kTolerance);
  EXPECT_LT(relative_error(rms.out(), rms_expected), kTolerance);
}

TEST(KernelValues, RotaryTurnsPairs) {
  OneOp one("rotary",
            {{{"b", 1}, {"s", 2}, {"n", 1}, {"d", 4}}, {{"s", 2}, {"p", 2}}, {{"s", 2}, {"p", 2}}});
  const Values x = one.in(0), c = one.in(1), s = one.in(2);
  Values expected(8);
  for (size_t t = 0; t < 2; ++t) {
    for (size_t i = 0; i < 2; ++i) {
      const double a = x[t * 4 + i], b = x[t * 4 + 2 + i], cosine = c[t * 2 + i],
                   sine = s[t * 2 + i];
      expected[t * 4 + i] = a * cosine - b * sine;
      expected[t * 4 + 2 + i] = b * cosine + a * sine;
    }
  }
  EXPECT_LT(relative_error(one.out(), expected), kTolerance);
}

TEST(KernelValues, AttentionWithItsLogSumExp) {
  constexpr size_t kSeq = 5, kHeads = 2, kGroup = 2, kDim = 3;
  const Dim b{"b", 1}, s{"s", kSeq}, n{"n", kHeads}, group{"g", kGroup}, d{"d", kDim};
  for (const bool causal : {false, true}) {
    OneOp one("attention", {{b, s, n, group, d}, {b, s, n, d}, {b, s, n, d}},
              {{"causal", int64_t{causal}}});
    const Values q = one.in(0), k = one.in(1), v = one.in(2);
    Values o(kSeq * kHeads * kGroup * kDim, 0), lse(kSeq * kHeads * kGroup);
    for (size_t i = 0; i < kSeq; ++i) {
      for (size_t h = 0; h < kHeads * kGroup; ++h) {
        const size_t row = i * kHeads * kGroup + h, key_head = h / kGroup;
        double sum = 0;
        const size_t end = causal ? i + 1 : kSeq;
        for (size_t j = 0; j < end; ++j) {
          double score = 0;
          for (size_t e = 0; e < kDim; ++e)
            score += q[row * kDim + e] * k[(j * kHeads + key_head) * kDim + e];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(kDim)));
          sum += weight;
          for (size_t e = 0; e < kDim; ++e)
            o[row * kDim + e] += weight * v[(j * kHeads + key_head) * kDim + e];
        }
        for (size_t e = 0; e < kDim; ++e) o[row * kDim + e] /= sum;
        lse[row] = std::log(sum);
      }
    }
    EXPECT_LT(relative_error(one.out(0), o), kTolerance);
    EXPECT_LT(relative_error(one.out(1), lse), kTolerance);
  }
}

// Worked example: docs/strategies/sequence-parallel.md section 5, two ranks' rows and two chunks of
// keys.
TEST(KernelValues, AttentionOverChunksOfKeysMergesAsInTheWorkedExample) {
  const Dim one{"b", 1}, s{"s", 4}, n{"n", 1}, g{"g", 1}, d{"d", 1};
  const Values q = {1, 0, -1, 2}, k = {1, 2, 0, -1}, v = {1, 2, 3, 4}, d_o = {1, 0, 0, 1};
  // The example has six decimals; the tolerance is half of the last one against a tensor's largest
  // value.
  constexpr double kDigits = 1e-6, kGradientDigits = 1e-5;
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  struct Expected {
    std::vector<Values> o, lse;  // after each step of device 0, then of device 1
    Values dq, dk, dv;
  };
  const std::map<bool, Expected> examples = {
      {false,
       {{{1.731059, 1.5}, {1.914379, 2.5}, {3.731059, 3.119203}, {3.437567, 1.903071}},
        {{2.313262, 0.693147}, {2.440190, 1.386294}, {1.313262, 0.126928}, {1.440190, 4.145078}},
        {-0.173197, 0, 0, 0.057470},
        {-0.428026, 0.222811, 0.129361, 0.075854},
        {0.353942, 1.508869, 0.102987, 0.034203}}},
      {true,
       {{{1, 1.5}, {1, 1.5}, {3, 3.119203}, {2.420512, 1.903071}},
        {{1, 0.693147}, {1, 0.693147}, {0, 0.126928}, {0.407606, 4.145078}},
        {0, 0, 0, 0.057470},
        {-0.211425, 0.167678, 0.034756, 0.008992},
        {1.117059, 0.864955, 0.015842, 0.002144}}},
  };
  for (const auto& [causal, expected] : examples) {
    const Attributes attributes = {{"causal", int64_t{causal}}, {"scale", 1.0}};
    OneOp forward("attention", {{one, s, n, g, d}, {one, s, n, d}, {one, s, n, d}}, attributes);
    forward.set(0, q);
    forward.set(1, k);
    forward.set(2, v);
    const auto run = [](OneOp& one_op, int64_t device, int64_t chunk,
                        const std::vector<bool>& add) {
      const Op& op = one_op.graph.ops()[0];
      Box box;
      for (const OpDim& dim : op.annotation.dims) box.dims.push_back({0, dim.size});
      box.dims[static_cast<size_t>(op.annotation.find("seq"))] = {2 * device, 2};
      box.dims[static_cast<size_t>(op.annotation.find("kv"))] = {2 * chunk, 2};
      one_op.workspace->run_box(op, box, add);
    };
    const auto get = [](const OneOp& one_op, size_t output) {
      return one_op.workspace->get(one_op.outputs[output]);
    };
    size_t row = 0;
    for (int64_t device = 0; device < 2; ++device) {
      for (int64_t step = 0; step < 2; ++step) {
        const int64_t chunk = (device + 2 - step) % 2;
        run(forward, device, chunk, {step > 0, step > 0});
        const auto rows = [&](size_t output) {
          const Values all = get(forward, output);
          return Values(all.begin() + 2 * device, all.begin() + 2 * device + 2);
        };
        EXPECT_LT(relative_error(rows(0), expected.o[row]), kDigits) << causal << " step " << row;
        EXPECT_LT(relative_error(rows(1), expected.lse[row]), kDigits) << causal << " step " << row;
        ++row;
      }
    }
    // No query sees this block: it adds nothing, and no NaN.
    run(forward, 0, 1, {false, false});
    if (causal) {
      EXPECT_EQ(get(forward, 0)[0], 0);
      EXPECT_EQ(get(forward, 1)[0], kNone);
      run(forward, 0, 1, {true, true});
      EXPECT_EQ(get(forward, 0)[0], 0);
      EXPECT_EQ(get(forward, 1)[0], kNone);
    }
    OneOp backward("attention_grad",
                   {{one, s, n, g, d},
                    {one, s, n, g, d},
                    {one, s, n, d},
                    {one, s, n, d},
                    {one, s, n, g, d},
                    {one, s, n, g}},
                   attributes);
    backward.set(0, d_o);
    backward.set(1, q);
    backward.set(2, k);
    backward.set(3, v);
    for (int64_t device = 0; device < 2; ++device) {
      run(forward, device, device, {false, false});
      run(forward, device, 1 - device, {true, true});
    }
    backward.set(4, get(forward, 0));
    backward.set(5, get(forward, 1));
    for (int64_t device = 0; device < 2; ++device) {
      for (int64_t chunk = 0; chunk < 2; ++chunk) {
        const bool later = device > 0;
        run(backward, device, chunk, {chunk > 0, later, later});
      }
    }
    EXPECT_LT(relative_error(get(backward, 0), expected.dq), kGradientDigits);
    EXPECT_LT(relative_error(get(backward, 1), expected.dk), kGradientDigits);
    EXPECT_LT(relative_error(get(backward, 2), expected.dv), kGradientDigits);
  }
}

TEST(KernelValues, SoftmaxAndCrossEntropy) {
  OneOp soft("softmax", {{{"a", 2}, {"v", 6}}}, text("dim", "v"));
  OneOp entropy("cross_entropy", {{{"a", 3}, {"v", 6}}, {{"a", 3}}}, {}, {1});
  entropy.set(1, {4, -1, 0});
  const Values x = soft.in(0), logits = entropy.in(0);
  Values expected(12), lse(3, 0), picked(3, 0);
  for (size_t a = 0; a < 2; ++a) {
    double sum = 0;
    for (size_t v = 0; v < 6; ++v) sum += std::exp(x[a * 6 + v]);
    for (size_t v = 0; v < 6; ++v) expected[a * 6 + v] = std::exp(x[a * 6 + v]) / sum;
  }
  for (const size_t a : {size_t{0}, size_t{2}}) {
    double sum = 0;
    for (size_t v = 0; v < 6; ++v) sum += std::exp(logits[a * 6 + v]);
    lse[a] = std::log(sum);
    picked[a] = logits[a * 6 + (a == 0 ? 4 : 0)];
  }
  EXPECT_LT(relative_error(soft.out(), expected), kTolerance);
  EXPECT_LT(relative_error(entropy.out(0), lse), kTolerance);
  EXPECT_LT(relative_error(entropy.out(1), picked), kTolerance);
}

TEST(KernelValues, EmbeddingTakesRows) {
  OneOp one("embedding", {{{"s", 3}}, {{"v", 4}, {"h", 2}}}, {}, {0});
  one.set(0, {3, 0, 3});
  const Values table = one.in(1);
  EXPECT_EQ(one.out(), (Values{table[6], table[7], table[0], table[1], table[6], table[7]}));
}

TEST(KernelValues, DropoutKeepsByTheGlobalIndex) {
  OneOp one("dropout", {{{"a", 100}, {"b", 50}}}, {{"p", 0.25}, {"key", std::string("k")}});
  const Values x = one.in(0), y = one.out();
  size_t kept = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (y[i] != 0) {
      EXPECT_DOUBLE_EQ(y[i], x[i] / 0.75);
    }
    kept += y[i] != 0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 5000, 0.75, 0.02);
  one.workspace->context().step = 2;
  EXPECT_NE(one.out(), y);
}

TEST(KernelValues, Updates) {
  const std::vector<Dim> p{{"a", 6}}, scalar;
  const Attributes decay{{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
  OneOp adam("adamw", {p, p, p, p, scalar, scalar, scalar}, decay);
  adam.workspace->randomise(adam.graph.find_tensor("x3"), 0, 1);
  adam.set(4, {0.01});
  adam.set(5, {3});
  adam.set(6, {0.5});
  const Values w = adam.in(0), g = adam.in(1), m = adam.in(2), v = adam.in(3);
  Values expected(6);
  for (size_t i = 0; i < 6; ++i) {
    const double gradient = 0.5 * g[i], first = 0.9 * m[i] + 0.1 * gradient,
                 second = 0.95 * v[i] + 0.05 * gradient * gradient;
    expected[i] =
        w[i] * (1 - 0.01 * 0.1) - 0.01 / (1 - std::pow(0.9, 3)) * first /
                                      (std::sqrt(second / (1 - std::pow(0.95, 3))) + 1e-8);
  }
  EXPECT_LT(relative_error(adam.out(), expected), kTolerance);

  OneOp sgd("sgd", {p, p, p, scalar}, {{"momentum", 0.8}, {"weight_decay", 0.1}});
  sgd.set(3, {0.01});
  const Values sw = sgd.in(0), sg = sgd.in(1), sb = sgd.in(2);
  for (size_t i = 0; i < 6; ++i) expected[i] = sw[i] - 0.01 * (0.8 * sb[i] + sg[i] + 0.1 * sw[i]);
  EXPECT_LT(relative_error(sgd.out(), expected), kTolerance);

  OneOp squares("sum_squares", {p});
  double total = 0;
  for (const double x : squares.in(0)) total += x * x;
  EXPECT_NEAR(squares.out()[0], total, kTolerance);
  OneOp clip("clip_coefficient", {scalar}, {{"max_norm", 1.0}});
  clip.set(0, {16});
  EXPECT_DOUBLE_EQ(clip.out()[0], 1 / (4 + 1e-6));
  clip.set(0, {0.25});
  EXPECT_EQ(clip.out()[0], 1);
}

TEST(Initialise, DoesNotDependOnTheCut) {
  for (const Init::Kind kind :
       {Init::Kind::kNormal, Init::Kind::kUniform, Init::Kind::kRotaryCos, Init::Kind::kConstant}) {
    GraphBuilder g("one");
    const TensorId id = g.parameter("w", {{"a", 6}, {"b", 10}}, {kind, 0.5}, kWide);
    const Graph graph = g.finish().value();
    Workspace whole(graph, 9), parts(graph, 9);
    whole.initialise();
    for (const Box& region :
         {Box({{0, 6}, {0, 3}}), Box({{0, 2}, {3, 7}}), Box({{2, 4}, {3, 7}})}) {
      initialise(graph.tensor(id), region, 9, parts.view(id, region));
    }
    EXPECT_EQ(whole.get(id), parts.get(id)) << init_name(kind);
  }
}

// Compares tables of integers with values from their publications' formulas. A serial run and a
// parallel one share the table, so comparing them would not see an error in it.
Values table_of(const Init& init, int64_t rows, int64_t columns) {
  GraphBuilder g("one");
  const TensorId id = g.buffer("t", {{"a", rows}, {"b", columns}}, init, DType::kInt64);
  const Graph graph = g.finish().value();
  Workspace w(graph);
  w.initialise();
  return w.get(id);
}

TEST(Initialise, BucketsOfDistancesAreThoseOfT5) {
  const Values both = table_of({Init::Kind::kDistanceBuckets, 0, {32, 128, 1}}, 200, 200);
  const auto at = [&](const Values& table, size_t query, size_t key) {
    return table[query * 200 + key];
  };
  EXPECT_EQ(at(both, 50, 50), 0);
  EXPECT_EQ(at(both, 50, 47), 3);   // three before: exact
  EXPECT_EQ(at(both, 50, 53), 19);  // three behind: in the second half
  EXPECT_EQ(at(both, 50, 42), 8);   // the first that is no longer exact
  EXPECT_EQ(at(both, 50, 70), 26);  // 16 + 8 + floor(8 ln(20 / 8) / ln(128 / 8))
  EXPECT_EQ(at(both, 0, 127), 31);
  EXPECT_EQ(at(both, 199, 0), 15);  // beyond 128 all share the last one
  const Values before = table_of({Init::Kind::kDistanceBuckets, 0, {32, 128, 0}}, 200, 200);
  EXPECT_EQ(at(before, 50, 55), 0);  // a decoder does not look behind
  EXPECT_EQ(at(before, 50, 35), 15);
  EXPECT_EQ(at(before, 50, 30), 17);  // 16 + floor(16 ln(20 / 16) / ln(128 / 16))
}

TEST(Initialise, PairsAndRegionsAreThoseOfSwin) {
  // This is the relative position index of a window of 2 x 2.
  EXPECT_EQ(table_of({Init::Kind::kWindowPairs, 0, {2}}, 4, 4),
            (Values{4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4}));
  // Four windows of 2 x 2, shifted by one: the slices (0, -2), (-2, -1), (-1, end) of both sides
  // are numbered 0 to 8; columns are the windows.
  EXPECT_EQ(table_of({Init::Kind::kWindowRegions, 0, {2, 1, 2}}, 4, 4),
            (Values{0, 1, 3, 4, 0, 2, 3, 5, 0, 1, 6, 7, 0, 2, 6, 8}));
}

TEST(Initialise, OnesRiseAndRotaryTablesHaveFactorsAsTheirSizesSay) {
  GraphBuilder g("tables");
  const TensorId ones = g.buffer("ones", {{"a", 7}}, {Init::Kind::kOnes, 0.5, {3}}, kWide);
  constexpr int64_t kUnit = 1'000'000'000'000'000;
  const TensorId cos =
      g.buffer("cos", {{"a", 5}, {"b", 2}},
               {Init::Kind::kRotaryCos, 100, {0, 3 * kUnit, 2 * kUnit, kUnit / 4}}, kWide);
  const Graph graph = g.finish().value();
  Workspace w(graph);
  w.initialise();
  const Values rising = w.get(ones), turned = w.get(cos);
  EXPECT_EQ(rising[1], 1);
  EXPECT_DOUBLE_EQ(rising[2], 1 + 0.5 * std::log(2.0));  // (2 + 1) / 3 = 1
  EXPECT_DOUBLE_EQ(rising[5], 1 + 0.5 * std::log(3.0));
  EXPECT_DOUBLE_EQ(turned[8], 3 * std::cos(4.0 / 2));         // position 4, frequency 1
  EXPECT_DOUBLE_EQ(turned[9], 3 * std::cos(4 * 0.1 / 0.25));  // frequency 100^(-1/2)
  Workspace parts(graph);
  initialise(graph.tensor(ones), Box({{0, 4}}), 9, parts.view(ones, Box({{0, 4}})));
  initialise(graph.tensor(ones), Box({{4, 3}}), 9, parts.view(ones, Box({{4, 3}})));
  EXPECT_EQ(parts.get(ones), rising);
}

TEST(Initialise, TablesOfIntegersMayHoldOneNumber) {
  EXPECT_EQ(table_of({Init::Kind::kConstant, 3}, 2, 2), (Values{3, 3, 3, 3}));
  EXPECT_EQ(table_of({Init::Kind::kOnes, 0}, 1, 2), (Values{1, 1}));
  EXPECT_EQ(table_of({Init::Kind::kZeros, 0}, 1, 2), (Values{0, 0}));
}

TEST(Initialise, NormalHasItsStandardDeviation) {
  GraphBuilder g("one");
  const TensorId id =
      g.parameter("w", {{"a", 100}, {"b", 100}}, {Init::Kind::kNormal, 0.02}, kWide);
  const Graph graph = g.finish().value();
  Workspace w(graph);
  w.initialise();
  double sum = 0, square = 0;
  for (const double x : w.get(id)) {
    sum += x;
    square += x * x;
  }
  EXPECT_NEAR(sum / 1e4, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(square / 1e4), 0.02, 1e-3);
}

}  // namespace
}  // namespace tessera::kernel_values_test
