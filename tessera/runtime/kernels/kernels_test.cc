// Tests every kind: in pieces against whole, added to present values, float32 and bfloat16 against
// float64 through a whole chain of ops, and gradients against finite differences.
// narrow_kernels_test.cc tests each kernel by itself in every narrow dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/graph/kinds.h"
#include "tessera/runtime/kernels/test_kernel_cases.h"

namespace tessera {
namespace {

using testing::build_graph;
using testing::Case;
using testing::cases;
using testing::fill_inputs;
using testing::large_cases;
using testing::relative_error;
using testing::Workspace;

class Kernels : public ::testing::TestWithParam<Case> {};

TEST_P(Kernels, GradientsEqualFiniteDifferences) {
  const Graph graph = build_graph(GetParam(), DType::kFloat64, true);
  Workspace w(graph);
  fill_inputs(w, GetParam().high);
  w.run();
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    const TensorId gradient = graph.find_tensor("grad." + tensor.name);
    if (!gradient.valid()) continue;
    const std::vector<double> analytic = w.get(gradient), at = w.get(tensor.id);
    std::vector<double> numeric(at.size());
    constexpr double kStep = 1e-5;
    for (size_t i = 0; i < at.size(); ++i) {
      double loss[2];
      for (const int side : {0, 1}) {
        std::vector<double> moved = at;
        moved[i] += side == 0 ? kStep : -kStep;
        Workspace other(graph);
        fill_inputs(other, GetParam().high);
        other.set(tensor.id, moved);
        for (const Op& op : graph.ops()) {
          if (op.phase == Phase::kForward) other.run(op);
        }
        loss[side] = other.get(graph.loss)[0];
      }
      numeric[i] = (loss[0] - loss[1]) / (2 * kStep);
    }
    EXPECT_LT(relative_error(analytic, numeric), 2e-8) << tensor.name;
  }
}

TEST_P(Kernels, PiecesMakeTheWhole) {
  const Graph graph = build_graph(GetParam(), DType::kFloat64, true);
  Workspace whole(graph);
  fill_inputs(whole, GetParam().high);
  whole.run();
  for (const Op& op : graph.ops()) {
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const OpDim& dim = op.annotation.dims[d];
      if (dim.mark == Mark::kFrozen || dim.size == 1) continue;
      for (const int64_t pieces : {int64_t{2}, int64_t{3}, dim.size + 1}) {
        Workspace w(graph);
        fill_inputs(w, GetParam().high);
        w.run();
        for (const TensorId out : op.outputs) w.randomise(out);  // what is there must not matter
        w.run_in_pieces(op, static_cast<int>(d), pieces);
        for (const TensorId out : op.outputs) {
          EXPECT_LT(relative_error(w.get(out), whole.get(out)), 1e-12)
              << op.path << " (" << op.kind << ") in " << pieces << " pieces of " << dim.name
              << ": " << graph.tensor(out).name;
        }
      }
    }
  }
}

TEST_P(Kernels, AddsToItsOutputs) {
  const Graph graph = build_graph(GetParam(), DType::kFloat64, true);
  Workspace whole(graph);
  fill_inputs(whole, GetParam().high);
  whole.run();
  for (const Op& op : graph.ops()) {
    // Integers are never parts of a sum.
    const bool integers = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      return !is_floating(graph.tensor(id).dtype);
    });
    if (integers) continue;
    Workspace w(graph);
    fill_inputs(w, GetParam().high);
    w.run();
    Box box;
    for (const OpDim& dim : op.annotation.dims) box.dims.push_back({0, dim.size});
    for (const TensorId out : op.outputs) w.randomise(out);
    std::vector<std::vector<double>> expected;
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      expected.push_back(w.get(op.outputs[i]));
      const std::vector<double> made = whole.get(op.outputs[i]);
      for (size_t e = 0; e < made.size(); ++e) {
        if (op.annotation.outputs[i].combiner == Combiner::kWeighted) {
          const size_t row = e / static_cast<size_t>(graph.tensor(op.outputs[i]).dims.back().size);
          const double there = std::exp(w.get(op.outputs[i + 1])[row]),
                       added = std::exp(whole.get(op.outputs[i + 1])[row]);
          expected[i][e] = (expected[i][e] * there + made[e] * added) / (there + added);
        } else if (op.annotation.outputs[i].combiner == Combiner::kLogSumExp) {
          expected[i][e] = std::log(std::exp(expected[i][e]) + std::exp(made[e]));
        } else if (op.annotation.outputs[i].combiner == Combiner::kMax) {
          expected[i][e] = std::max(expected[i][e], made[e]);
        } else {
          expected[i][e] += made[e];
        }
      }
    }
    w.run_box(op, box, std::vector<bool>(op.outputs.size(), true));
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (op.annotation.outputs[i].combiner == Combiner::kMoments) continue;
      EXPECT_LT(relative_error(w.get(op.outputs[i]), expected[i]), 1e-12) << op.path;
    }
  }
}

TEST_P(Kernels, SmallerTypesAgreeWithFloat64) {
  const Graph wide = build_graph(GetParam(), DType::kFloat64, true);
  Workspace exact(wide);
  fill_inputs(exact, GetParam().high);
  exact.run();
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFloat32, 1e-5}, std::pair{DType::kBFloat16, 5e-2}}) {
    const Graph graph = build_graph(GetParam(), dtype, true);
    Workspace w(graph);
    fill_inputs(w, GetParam().high);
    w.run();
    for (const Tensor& tensor : graph.tensors()) {
      const TensorId same = wide.find_tensor(tensor.name);
      if (!tensor.producer.valid() || !same.valid()) continue;
      EXPECT_LT(relative_error(w.get(tensor.id), exact.get(same)), tolerance)
          << tensor.name << " " << dtype_name(tensor.dtype);
    }
  }
}

class LargeKernels : public ::testing::TestWithParam<Case> {};

TEST_P(LargeKernels, Float32AgreesWithFloat64WholeAndInPieces) {
  const Graph wide = build_graph(GetParam(), DType::kFloat64, true);
  const Graph graph = build_graph(GetParam(), DType::kFloat32, true);
  Workspace exact(wide), whole(graph);
  fill_inputs(exact, GetParam().high);
  fill_inputs(whole, GetParam().high);
  exact.run();
  whole.run();
  for (const Op& op : graph.ops()) {
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      const OpDim& dim = op.annotation.dims[d];
      if (d > 0 && (dim.mark == Mark::kFrozen || dim.size == 1)) continue;
      Workspace w(graph);
      fill_inputs(w, GetParam().high);
      w.run();
      for (const TensorId out : op.outputs) w.randomise(out);
      w.run_in_pieces(op, static_cast<int>(d), d == 0 ? 1 : 3);
      for (const TensorId out : op.outputs) {
        EXPECT_LT(relative_error(w.get(out), exact.get(wide.find_tensor(graph.tensor(out).name))),
                  2e-5)
            << op.path << " (" << op.kind << ") in pieces of " << dim.name << ": "
            << graph.tensor(out).name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LargeKernels, ::testing::ValuesIn(large_cases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(cases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(KernelTable, CoversEveryKind) {
  const std::vector<std::string_view> names = kernels::kernel_kinds();
  for (const KindInfo* kind : all_kinds())
    EXPECT_TRUE(std::ranges::binary_search(names, kind->name)) << kind->name;
}

TEST(KernelTable, HasNoKernelWithoutAKind) {
  for (const std::string_view name : kernels::kernel_kinds())
    EXPECT_NE(find_kind(name), nullptr) << name;
}

}  // namespace
TEST(Threads, a_rank_never_uses_more_than_openmp_may_start) {
  EXPECT_EQ(kernels::allowed_threads(2, nullptr), 2);
  EXPECT_EQ(kernels::allowed_threads(2, "1"), 1);
  EXPECT_EQ(kernels::allowed_threads(2, "8"), 2);
  EXPECT_EQ(kernels::allowed_threads(2, "many"), 2);
}

}  // namespace tessera
