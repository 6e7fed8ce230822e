// Tests state space blocks: the scan against its recurrence token by token, the convolution against
// sums written out, in float64; hybrids under plans against the serial run. kernels_test.cc tests
// the gradients, by finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/models/model.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/testing.h"

namespace tessera::state_space_test {
namespace {

using testing::relative_error;
using testing::Workspace;
using Values = std::vector<double>;

constexpr int64_t kBatch = 2, kSeq = 11, kHeads = 2, kGroup = 3, kHeadDim = 4, kState = 5;

// Computes h = exp(dt A) h + dt x B^T, y = C h + D x, as written.
Values recurrence(const Values& x, const Values& dt, const Values& a, const Values& b,
                  const Values& c, const Values& d) {
  Values y(x.size());
  for (int64_t n = 0; n < kBatch; ++n) {
    for (int64_t head = 0; head < kHeads * kGroup; ++head) {
      const int64_t key = head / kGroup;
      Values h(kHeadDim * kState);
      for (int64_t t = 0; t < kSeq; ++t) {
        const int64_t at = (n * kSeq + t) * kHeads * kGroup + head;
        const int64_t of_key = ((n * kSeq + t) * kHeads + key) * kState;
        const auto u = [](int64_t i) { return static_cast<size_t>(i); };
        const double decay = std::exp(dt[u(at)] * a[u(head)]);
        for (int64_t p = 0; p < kHeadDim; ++p) {
          const double value = x[u(at * kHeadDim + p)];
          double sum = d[u(head)] * value;
          for (int64_t k = 0; k < kState; ++k) {
            double& state = h[u(p * kState + k)];
            state = decay * state + dt[u(at)] * value * b[u(of_key + k)];
            sum += c[u(of_key + k)] * state;
          }
          y[u(at * kHeadDim + p)] = sum;
        }
      }
    }
  }
  return y;
}

TEST(StateScan, IsItsRecurrenceWhateverTheChunk) {
  const Dim batch{"batch", kBatch}, seq{"seq", kSeq}, heads{"heads", kHeads},
      group{"group", kGroup}, p{"head_dim", kHeadDim}, n{"state", kState};
  for (const int64_t chunk : {1, 3, 4, 11, 100}) {
    GraphBuilder g("one");
    const DType t = DType::kFloat64;
    const std::vector<TensorId> in = {g.input("x", {batch, seq, heads, group, p}, t),
                                      g.input("dt", {batch, seq, heads, group}, t),
                                      g.input("a", {heads, group}, t),
                                      g.input("b", {batch, seq, heads, n}, t),
                                      g.input("c", {batch, seq, heads, n}, t),
                                      g.input("d", {heads, group}, t)};
    const TensorId y = g.op1("op", "state_scan", in, {{"chunk", chunk}});
    const auto graph = g.finish();
    ASSERT_TRUE(graph) << graph.error().message;
    Workspace w(*graph, 3);
    for (const TensorId id : in) w.randomise(id);
    w.randomise(in[1], 0.01, 1);
    w.randomise(in[2], -2, -0.1);
    w.run();
    EXPECT_LT(relative_error(w.get(y), recurrence(w.get(in[0]), w.get(in[1]), w.get(in[2]),
                                                  w.get(in[3]), w.get(in[4]), w.get(in[5]))),
              1e-14)
        << "chunk " << chunk;
  }
}

// Computes S = e^g S, S = S + beta k (v - k^T S)^T, y = q^T S, as written.
Values delta_recurrence(const Values& q, const Values& k, const Values& v, const Values& g,
                        const Values& beta) {
  const auto u = [](int64_t i) { return static_cast<size_t>(i); };
  Values y(v.size());
  for (int64_t n = 0; n < kBatch; ++n) {
    for (int64_t head = 0; head < kHeads * kGroup; ++head) {
      Values state(kState * kHeadDim);
      for (int64_t t = 0; t < kSeq; ++t) {
        const int64_t at = (n * kSeq + t) * kHeads * kGroup + head;
        const int64_t of_key = ((n * kSeq + t) * kHeads + head / kGroup) * kState;
        for (double& number : state) number *= std::exp(g[u(at)]);
        for (int64_t p = 0; p < kHeadDim; ++p) {
          double said = 0, sum = 0;
          for (int64_t i = 0; i < kState; ++i)
            said += k[u(of_key + i)] * state[u(i * kHeadDim + p)];
          const double delta = beta[u(at)] * (v[u(at * kHeadDim + p)] - said);
          for (int64_t i = 0; i < kState; ++i) {
            double& number = state[u(i * kHeadDim + p)];
            number += k[u(of_key + i)] * delta;
            sum += q[u(of_key + i)] * number;
          }
          y[u(at * kHeadDim + p)] = sum;
        }
      }
    }
  }
  return y;
}

// Also where decays are so strong that e^g, and the product of several of them, become zero.
TEST(GatedDeltaRule, IsItsRecurrenceWhateverTheChunk) {
  const Dim batch{"batch", kBatch}, seq{"seq", kSeq}, heads{"heads", kHeads},
      group{"group", kGroup}, p{"head_dim", kHeadDim}, n{"state", kState};
  for (const double lowest : {-2., -2000.}) {
    for (const int64_t chunk : {1, 3, 4, 11, 64}) {
      GraphBuilder g("one");
      const DType t = DType::kFloat64;
      const std::vector<TensorId> in = {g.input("q", {batch, seq, heads, n}, t),
                                        g.input("k", {batch, seq, heads, n}, t),
                                        g.input("v", {batch, seq, heads, group, p}, t),
                                        g.input("g", {batch, seq, heads, group}, t),
                                        g.input("beta", {batch, seq, heads, group}, t)};
      const TensorId y = g.op1("op", "gated_delta_rule", in, {{"chunk", chunk}});
      const auto graph = g.finish();
      ASSERT_TRUE(graph) << graph.error().message;
      Workspace w(*graph, 3);
      for (const TensorId id : in) w.randomise(id);
      w.randomise(in[3], lowest, 0);
      w.randomise(in[4], 0, 1);
      w.run();
      EXPECT_LT(relative_error(w.get(y), delta_recurrence(w.get(in[0]), w.get(in[1]), w.get(in[2]),
                                                          w.get(in[3]), w.get(in[4]))),
                1e-13)
          << "chunk " << chunk << ", decays from " << lowest;
    }
  }
}

TEST(CausalConv, SumsWhatLiesBeforeEachToken) {
  constexpr int64_t kChannels = 3, kWidth = 4;
  GraphBuilder g("one");
  const DType t = DType::kFloat64;
  const Dim channels{"c", kChannels};
  const TensorId x = g.input("x", {{"batch", kBatch}, {"seq", kSeq}, channels}, t),
                 w = g.input("w", {channels, {"taps", kWidth}}, t), b = g.input("b", {channels}, t);
  const TensorId y = g.op1("op", "causal_conv", {x, w, b});
  const auto graph = g.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  Workspace work(*graph, 5);
  for (const TensorId id : {x, w, b}) work.randomise(id);
  work.run();
  const Values xs = work.get(x), ws = work.get(w), bs = work.get(b);
  Values expected;
  for (int64_t row = 0; row < kBatch * kSeq; ++row) {
    for (int64_t c = 0; c < kChannels; ++c) {
      double sum = bs[static_cast<size_t>(c)];
      for (int64_t back = 0; back < std::min(kWidth, row % kSeq + 1); ++back) {
        sum += ws[static_cast<size_t>(c * kWidth + kWidth - 1 - back)] *
               xs[static_cast<size_t>((row - back) * kChannels + c)];
      }
      expected.push_back(sum);
    }
  }
  EXPECT_LT(relative_error(work.get(y), expected), 1e-14);
}

// ---- plans
constexpr const char* kHybrid =
    "nemotron_h:pattern=M-M*ME,hidden=16,heads=4,kv_heads=2,seq=12,vocab=32,ffn=24,ssm_heads=8,"
    "ssm_head_dim=4,ssm_groups=4,state=6,chunk=5,experts=4,expert_ffn=12,shared_ffn=8,latent=8";

Result<VerifyReport> verify(const std::string& plan, const std::string& model = kHybrid) {
  VerifyConfig config;
  config.model = model;
  config.plan = plan;
  config.batch = 4;
  return verify_plan(config);
}

TEST(NemotronH, EqualsTheSerialRunUnderRecipes) {
  for (const char* plan :
       {"data_parallel(3)", "fsdp(2)", "tensor_parallel(2)", "tensor_parallel(3)",
        "tensor_parallel(2,sequence_shard=true)", "megatron(tp=2,dp=2,zero=1)",
        "megatron(pp=2,dp=2,micro_batches=2,recompute=selective)",
        "megatron(pp=2,micro_batches=4,recompute=full)", "expert_parallel(ep=2,tp=2)"}) {
    const auto report = verify(plan);
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

// The embeddings of the further tokens come from the first stage.
TEST(NemotronH, EqualsTheSerialRunWithFurtherTokensPredicted) {
  for (const char* plan : {"tensor_parallel(2)", "megatron(pp=2,dp=2,micro_batches=2)",
                           "expert_parallel(ep=2,tp=2)"}) {
    const auto report = verify(plan, std::string(kHybrid) + ",mtp=2");
    ASSERT_TRUE(report) << plan << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << plan << ": " << report->why;
  }
}

// The kinds allow splits beyond the recipes: the heads of each group, the numbers of each head.
TEST(NemotronH, EqualsTheSerialRunWithOtherDimsOfTheScanSplit) {
  const std::string path = ::testing::TempDir() + "/scan.toml";
  for (const char* dim : {"group", "head_dim"}) {
    const std::string plan = std::string(
                                 "mesh = { tp = 2 }\nsplit = [ { ops = \"blocks.*.ssm\", "
                                 "dim = \"") +
                             dim + "\", over = \"tp\" } ]\n";
    ASSERT_TRUE(write_file(path, plan));
    const auto report = verify(path);
    ASSERT_TRUE(report) << dim << ": " << report.error().message;
    EXPECT_TRUE(report->ok) << dim << ": " << report->why;
  }
}

TEST(NemotronH, RefusesToSplitTheRecurrenceAndMoreRanksThanGroups) {
  const std::string path = ::testing::TempDir() + "/seq.toml";
  ASSERT_TRUE(write_file(path,
                         "mesh = { sp = 2 }\nsplit = [ { ops = \"blocks.0.ssm.scan\", dim = "
                         "\"seq\", over = \"sp\" } ]\n"));
  const auto refused = verify(path);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(
                "dim 'seq' of op 'blocks.0.ssm.scan' (state_scan) cannot be split; dims that can: "
                "batch, heads, group, head_dim"),
            std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace tessera::state_space_test
