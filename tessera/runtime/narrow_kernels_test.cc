// Tests every kernel in float32, bfloat16 and float16, each by itself: the reference is the op on
// equal operands in float64, so that roundings of earlier ops do not count.
//
// The bound. A kernel reads operands that are exact, computes in float32 and rounds each element of
// its result once to the output's dtype. With u = 2^-(bits of the mantissa, the hidden one too),
// the error relative to the largest element of the result is at most u for that rounding; kernels
// of libtorch that hold an intermediate result in the narrow dtype (the weights of attention, an
// element-wise op of two steps) round twice or three times. Hence kRoundings. float32 adds
// u(float32) for each term of a sum, kTerms at most in these cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "tessera/runtime/test_kernel_cases.h"

namespace tessera {
namespace {

using testing::build_graph;
using testing::Case;
using testing::fill_inputs;
using testing::relative_error;
using testing::Workspace;

constexpr double kRoundings = 4, kTerms = 128;

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 0x1p-24;
    case DType::kFloat16: return 0x1p-11;
    case DType::kBFloat16: return 0x1p-8;
    default: return 0;
  }
}

double bound(DType out) {
  return kRoundings * unit_roundoff(out) + kTerms * unit_roundoff(DType::kFloat32);
}

constexpr std::array kNarrow{DType::kFloat32, DType::kBFloat16, DType::kFloat16};

// Makes the kinds that no case of test_kernel_cases.h has, all in one graph; nothing is
// differentiated.
Graph other_kinds(DType t) {
  const DType statistics = t == DType::kFloat64 ? t : DType::kFloat32;
  const std::vector<Dim> dims{{"a", 3}, {"b", 4}};
  GraphBuilder g("others");
  const auto tensor = [&](const char* name) { return g.input(name, dims, t); };
  const auto scalar = [&](const char* name) { return g.input(name, {}, statistics); };
  const auto name = [](DType dtype) { return std::string(dtype_name(dtype)); };
  const TensorId p = tensor("p"), gradient = tensor("g"), m = tensor("m"), v = tensor("v");
  g.op("adamw", "adamw", {p, gradient, m, v, scalar("lr"), scalar("step"), scalar("clip")},
       {{"weight_decay", 0.1}});
  g.op("sgd", "sgd", {p, gradient, m, scalar("rate")}, {{"weight_decay", 0.1}});
  const TensorId step = g.graph().find_tensor("step"), rate = g.graph().find_tensor("rate");
  g.op("lion", "lion", {p, gradient, m, rate}, {{"weight_decay", 0.1}});
  g.op("lars", "lars", {p, gradient, m, rate, rate}, {{"weight_decay", 0.1}});
  g.op("adam_direction", "adam_direction", {p, gradient, m, v, step}, {{"weight_decay", 0.1}});
  g.op("momentum_direction", "momentum_direction", {p, gradient, m}, {{"nesterov", 1.0}});
  g.op("apply_update", "apply_update", {p, gradient, rate, rate}, {{"weight_decay", 0.1}});
  g.op("decayed_mean", "decayed_mean", {v, m, step});
  const TensorId total = g.op1("total", "sum_squares", {gradient});
  g.op1("coefficient", "clip_coefficient", {total}, {{"max_norm", 0.5}});
  const TensorId narrow = g.input("narrow_total", {}, t);
  g.op1("narrow_coefficient", "clip_coefficient", {narrow}, {{"max_norm", 0.5}});
  g.op1("trust_ratio", "trust_ratio", {narrow, narrow}, {{"weight_decay", 0.1}});
  g.op1("adafactor_rate", "adafactor_rate", {narrow, narrow, narrow, narrow}, {{"elements", 3}});
  g.op1("unscaled", "unscale", {gradient, scalar("scale")}, {{"dtype", name(t)}, {"factor", 0.5}});
  g.op1("flag", "non_finite", {gradient});
  g.op1("most", "max_n", {p, gradient, m});
  g.op1("wide", "cast", {p}, {{"dtype", name(statistics)}});
  g.op1("narrow", "cast", {scalar("statistic")}, {{"dtype", name(t)}});
  g.op1("filled", "fill", {},
        {{"dims", std::string("a=3 b=4")}, {"value", 0.3}, {"dtype", name(t)}});
  g.op1("largest", "reduce_max", {p}, {{"dims", std::string("b")}});
  g.op("adagrad", "adagrad", {p, gradient, v, rate}, {{"weight_decay", 0.1}});
  const Dim rows{"rows", 11}, width{"width", 4}, samples{"samples", 3};
  const TensorId ids = g.input("ids", {samples, {"bag", 2}}, DType::kInt64);
  g.op1("collected", "collect", {p}, {{"dim", std::string("a")}});
  const auto table = [&](const char* of) { return g.input(of, {rows, width}, t); };
  const TensorId weight = table("weight"), first = table("first"), second = table("second");
  const TensorId of_rows = g.input("of_rows", {rows}, t),
                 pooled = g.input("pooled", {samples, width}, t);
  const Attributes modes = {{"modes", std::string("mean")}};
  g.op("row_sgd", "row_sgd", {weight, ids, pooled, rate}, modes);
  g.op("row_adagrad", "row_adagrad", {weight, second, ids, pooled, rate}, modes);
  g.op("rowwise_adagrad", "rowwise_adagrad", {weight, of_rows, ids, pooled, rate}, modes);
  g.op("row_adam", "row_adam", {weight, first, second, ids, pooled, rate, step}, modes);
  g.op1("row_squares", "row_sum_squares", {weight, ids, pooled}, modes);
  const TensorId squares = g.op1("squares", "row_squares", {weight, ids, pooled}, modes);
  g.op1("row_sums", "row_sums", {of_rows, ids, squares},
        {{"modes", std::string("ids")}, {"width", int64_t{4}}});
  g.op1("rowwise_step", "rowwise_step", {weight, of_rows, ids, pooled, rate}, modes);
  const TensorId of_ids = g.input("of_ids", {samples, {"bag", 2}}, t);
  const Attributes weighted = {{"modes", std::string("weighted")}};
  g.op("row_sgd_weighted", "row_sgd", {weight, ids, pooled, of_ids, rate}, weighted);
  g.op1("codes", "code_ids", {p});
  g.op1("carried", "carry", {p, gradient}, {{"keep", 0.9}, {"factor", 0.5}, {"offset", 0.1}});
  std::vector<TensorId> state;
  for (const char* one : {"s0", "s1", "s2", "s3", "s4"}) state.push_back(g.input(one, {}, t));
  g.op("next", "loss_scale", state);
  auto graph = g.finish();
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : graph.error().message);
  return graph.value_or(Graph());
}

// Returns the kinds of which a kernel has run with an operand or a result of the dtype.
std::map<DType, std::set<std::string>>& executed() {
  static std::map<DType, std::set<std::string>> all;
  return all;
}

bool has(const Graph& graph, const Op& op, DType dtype) {
  const auto is = [&](TensorId id) { return graph.tensor(id).dtype == dtype; };
  return std::any_of(op.inputs.begin(), op.inputs.end(), is) ||
         std::any_of(op.outputs.begin(), op.outputs.end(), is);
}

// Runs the narrow graph op by op, and each op again in the wide graph on the narrow graph's
// operands. Returns the largest error of an output, as a multiple of its bound; `worst` names the
// output.
double compare(const Graph& wide, const Graph& narrow, DType dtype, double high,
               std::string& worst) {
  EXPECT_EQ(wide.ops().size(), narrow.ops().size()) << narrow.name;
  if (wide.ops().size() != narrow.ops().size()) return 0;
  Workspace exact(wide), work(narrow);
  fill_inputs(exact, high);
  fill_inputs(work, high);
  if (narrow.find_tensor("v").valid() && narrow.name == "others") {
    // Optimizers take roots of sums of squares, and of values that depend on the step.
    for (const char* name : {"v", "second", "of_rows", "narrow_total"})
      work.randomise(narrow.find_tensor(name), 0.5, 1);
    work.randomise(narrow.find_tensor("step"), 1, 2);
  }
  double largest = 0;
  for (const Op& op : narrow.ops()) {
    const Op& same = wide.op(op.id);
    for (size_t i = 0; i < op.inputs.size(); ++i) exact.set(same.inputs[i], work.get(op.inputs[i]));
    work.run(op);
    exact.run(same);
    if (has(narrow, op, dtype)) executed()[dtype].insert(op.kind);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const Tensor& out = narrow.tensor(op.outputs[i]);
      const double error =
          relative_error(work.get(out.id), exact.get(same.outputs[i])) / bound(out.dtype);
      if (error <= largest) continue;
      largest = error;
      worst =
          op.path + " (" + op.kind + "): " + out.name + " in " + std::string(dtype_name(out.dtype));
    }
  }
  return largest;
}

TEST(NarrowKernels, EachAgreesWithFloat64OnTheSameOperands) {
  for (const DType dtype : kNarrow) {
    std::string worst;
    for (const Case& one : testing::cases()) {
      const double error = compare(build_graph(one, DType::kFloat64, true),
                                   build_graph(one, dtype, true), dtype, one.high, worst);
      EXPECT_LT(error, 1) << one.name << ": " << worst;
    }
    const double error = compare(other_kinds(DType::kFloat64), other_kinds(dtype), dtype, 1, worst);
    EXPECT_LT(error, 1) << worst;
    for (const std::string_view kind : kernels::kernel_kinds()) {
      const bool of_statistics = kind == "norm_finish" || kind == "rms_finish";  // always float32
      EXPECT_TRUE(of_statistics || executed()[dtype].contains(std::string(kind)))
          << kind << " never ran in " << dtype_name(dtype);
    }
  }
}

// One op has a factor that is 3 % too large.
TEST(NarrowKernels, AWrongKernelExceedsTheBound) {
  const auto scaled = [](DType dtype, double factor) {
    const Case one{"scale", [=](GraphBuilder& g, DType t) {
                     return g.op1("op", "scale", {g.parameter("x", {{"b", 3}, {"s", 5}}, {}, t)},
                                  {{"factor", factor}});
                   }};
    return build_graph(one, dtype, false);
  };
  for (const DType dtype : kNarrow) {
    std::string worst;
    EXPECT_LT(compare(scaled(DType::kFloat64, 1), scaled(dtype, 1), dtype, 1, worst), 1);
    EXPECT_GT(compare(scaled(DType::kFloat64, 1), scaled(dtype, 1.03), dtype, 1, worst), 1);
    EXPECT_EQ(worst.substr(0, 10), "op (scale)");
  }
}

}  // namespace
}  // namespace tessera
