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

#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera {
namespace {

using testing::build_graph;
using testing::Case;
using testing::fill_inputs;
using testing::fill_others;
using testing::other_kinds;
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
  if (narrow.name == "others") fill_others(work);
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
