// Tests every form of attention: against a plain reference, expanded into single ops, and in an
// order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tessera/graph/kinds.h"
#include "tessera/graph/transform.h"
#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera::attention_values_test {
namespace {

using testing::fill_inputs;
using testing::relative_error;
using testing::Workspace;
using Values = std::vector<double>;

constexpr int64_t kBatch = 2, kHeads = 2, kGroup = 2, kWidth = 3;

struct Form {
  int64_t queries = 7, keys = 7, causal = 0, window = 0;
  bool bias = false, segments = false;
  double p = 0;
  std::string text() const {
    return fmt::format("queries {} keys {} causal {} window {} bias {} segments {} p {}", queries,
                       keys, causal, window, bias, segments, p);
  }
};

std::vector<Form> forms(double p) {
  std::vector<Form> out;
  for (int form = 0; form < 32; ++form) {
    const bool fewer = (form & 16) != 0;
    out.push_back(
        {fewer ? 4 : 7, 7, form & 1, (form & 2) != 0 ? 3 : 0, (form & 4) != 0, (form & 8) != 0, p});
  }
  return out;
}

// The loss is the sum of squares of o.
Graph graph_of(const Form& form, DType dtype = DType::kFloat64) {
  const Dim batch{"batch", kBatch}, heads{"heads", kHeads}, group{"group", kGroup},
      width{"head_dim", kWidth}, queries{"seq", form.queries}, keys{"seq", form.keys};
  GraphBuilder g("attention");
  const auto parameter = [&](const char* name, const std::vector<Dim>& dims) {
    return g.parameter(name, dims, {Init::Kind::kNormal, 1.0}, dtype);
  };
  std::vector<TensorId> operands = {parameter("q", {batch, queries, heads, group, width}),
                                    parameter("k", {batch, keys, heads, width}),
                                    parameter("v", {batch, keys, heads, width})};
  if (form.bias)
    operands.push_back(parameter("bias", {{"seq", form.queries}, {"kv", form.keys}, heads}));
  if (form.segments) {
    operands.push_back(g.input("segments", {batch, queries}, DType::kInt64));
    operands.push_back(form.queries == form.keys
                           ? operands.back()
                           : g.input("segments.keys", {batch, keys}, DType::kInt64));
  }
  const TensorId o = g.op("op", "attention", operands,
                          {{"causal", form.causal},
                           {"window", form.window},
                           {"p", form.p},
                           {"key", std::string(form.p > 0 ? "weights" : "")}})[0];
  g.graph().loss = g.op1("loss", "reduce_sum", {g.op1("square", "mul", {o, o})},
                         {{"dims", std::string("batch seq heads group head_dim")}});
  auto graph = g.finish();
  EXPECT_TRUE(graph) << form.text() << ": " << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

Values value(const Graph& graph, const Workspace& work, std::string_view name) {
  const TensorId id = graph.find_tensor(name);
  EXPECT_TRUE(id.valid()) << name;
  return id.valid() ? work.get(id) : Values();
}

TEST(AttentionForms, EqualThePlainReference) {
  for (const Form& form : forms(0)) {
    const Graph graph = graph_of(form);
    Workspace work(graph);
    fill_inputs(work, 1);
    work.run();
    const Values q = value(graph, work, "q"), k = value(graph, work, "k"),
                 v = value(graph, work, "v");
    const Values bias = form.bias ? value(graph, work, "bias") : Values();
    const Values own = form.segments ? value(graph, work, "segments") : Values();
    const bool shared = form.queries == form.keys;
    const Values others = form.segments && !shared ? value(graph, work, "segments.keys") : own;
    Values o(q.size(), 0), lse;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < form.queries; ++i) {
        for (int64_t h = 0; h < kHeads * kGroup; ++h) {
          const int64_t row = (b * form.queries + i) * kHeads * kGroup + h, head = h / kGroup;
          double sum = 0;
          for (int64_t j = 0; j < form.keys; ++j) {
            const int64_t apart = i + form.keys - form.queries - j;
            const bool leaves = (form.causal != 0 && apart < 0) ||
                                (form.window > 0 && std::abs(apart) >= form.window);
            const auto at = [](int64_t index) { return static_cast<size_t>(index); };
            if (leaves) continue;
            if (form.segments && own[at(b * form.queries + i)] != others[at(b * form.keys + j)])
              continue;
            double score = 0;
            const int64_t key = (b * form.keys + j) * kHeads + head;
            for (int64_t e = 0; e < kWidth; ++e)
              score += q[at(row * kWidth + e)] * k[at(key * kWidth + e)];
            score /= std::sqrt(static_cast<double>(kWidth));
            if (form.bias) score += bias[at((i * form.keys + j) * kHeads + head)];
            sum += std::exp(score);
            for (int64_t e = 0; e < kWidth; ++e)
              o[at(row * kWidth + e)] += std::exp(score) * v[at(key * kWidth + e)];
          }
          for (int64_t e = 0; e < kWidth && sum > 0; ++e)
            o[static_cast<size_t>(row * kWidth + e)] /= sum;
          lse.push_back(sum > 0 ? std::log(sum) : -std::numeric_limits<double>::infinity());
        }
      }
    }
    EXPECT_LT(relative_error(value(graph, work, "op.o"), o), 1e-12) << form.text();
    const Values made = value(graph, work, "op.lse");
    for (size_t i = 0; i < lse.size(); ++i) {
      if (std::isinf(lse[i])) {
        EXPECT_EQ(made[i], lse[i]) << form.text();
      } else {
        EXPECT_NEAR(made[i], lse[i], 1e-12) << form.text();
      }
    }
  }
}

Graph with_gradients(const Graph& forward) {
  OptimizerSpec none;
  none.kind = "none";
  auto graph = differentiate(forward, none);
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

// Expects that two graphs of the form give equal gradients; `way` says how the other graph was
// made.
void expect_equal_gradients(const Form& form, const Graph& one, const Graph& other,
                            const std::string& way) {
  const Graph first = with_gradients(one), second = with_gradients(other);
  Workspace a(first), b(second);
  fill_inputs(a, 1);
  fill_inputs(b, 1);
  a.run();
  b.run();
  for (const char* name : {"grad.q", "grad.k", "grad.v", "grad.bias"}) {
    if (!form.bias && name == std::string("grad.bias")) continue;
    EXPECT_LT(relative_error(value(first, a, name), value(second, b, name)), 1e-12)
        << name << " " << way << " " << form.text();
  }
}

// A causal mask of single ops has as many keys as queries.
TEST(AttentionForms, AreWhatTheirSingleOpsMake) {
  for (const double p : {0.0, 0.3}) {
    for (const Form& form : forms(p)) {
      if (form.queries != form.keys) continue;
      const Graph forward = graph_of(form);
      const auto expanded = expand_ops(forward, {forward.ops()[0].id});
      ASSERT_TRUE(expanded) << form.text() << ": " << expanded.error().message;
      expect_equal_gradients(form, forward, *expanded, "in single ops");
    }
  }
}

TEST(AttentionForms, InAnOrderAreTheSame) {
  for (const Form& form : forms(0)) {
    if (form.queries != form.keys) continue;
    const Graph natural = graph_of(form);
    for (const char* order : {"zigzag:4", "striped:3"}) {
      const auto ordered = reorder_dim(natural, "seq", order);
      ASSERT_TRUE(ordered) << form.text() << ": " << ordered.error().message;
      expect_equal_gradients(form, natural, *ordered, order);
    }
  }
}

TEST(AttentionForms, DroppedWeightsStandInNoOrder) {
  Form form;
  form.p = 0.3;
  const auto ordered = reorder_dim(graph_of(form), "seq", "zigzag:4");
  ASSERT_FALSE(ordered);
  EXPECT_EQ(ordered.error().message,
            "dim 'seq' cannot be reordered: what op 'op' (attention) does with an element depends "
            "on its place");
}

}  // namespace
}  // namespace tessera::attention_values_test
