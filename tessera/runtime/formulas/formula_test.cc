// Compares formulas with the kernels of the processor, on all cases of test_kernel_cases.h: whole
// and in pieces that are added up, and in 16 bits.
#include "tessera/runtime/formulas/formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tessera/base/text.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/kernels/test_kernel_cases.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

using testing::build_graph;
using testing::Case;
using testing::cases;
using testing::fill_inputs;
using testing::fill_others;
using testing::large_cases;
using testing::other_kinds;
using testing::relative_error;
using testing::Workspace;

class Formulas : public ::testing::TestWithParam<Case> {};

// A graph and how its inputs are set.
struct Filled {
  Graph graph;
  double high = 1;

  static Filled of(const Case& one, DType dtype) {
    return {build_graph(one, dtype, true), one.high};
  }
  static Filled of_others(DType dtype) { return {other_kinds(dtype)}; }
  void fill(Workspace& work) const {
    fill_inputs(work, high);
    if (graph.name == "others") fill_others(work);
  }
};

// The kinds of which a formula was compared.
std::set<std::string>& compared() {
  static std::set<std::string> all;
  return all;
}

// Runs the graph by the kernels of the processor; then each op that has a formula by the formula, on
// the same inputs.
void expect_equal(const Filled& filled, double tolerance) {
  const Graph& graph = filled.graph;
  Workspace expected(graph), found(graph);
  for (Workspace* each : {&expected, &found}) filled.fill(*each);
  found.context().formulas = true;
  expected.run();
  for (const Op& op : graph.ops()) {
    for (const TensorId id : op.inputs) found.set(id, expected.get(id));
    if (!kernels::has_formula(op)) continue;
    found.run(op);
    compared().insert(op.kind);
    for (const TensorId id : op.outputs) {
      EXPECT_LT(relative_error(found.get(id), expected.get(id)), tolerance)
          << op.kind << " " << graph.tensor(id).name;
    }
  }
}

// Runs each op that has a formula by it, on the processor and on the stand-in, which computes by the
// same functions of libtorch and refuses what a GPU refuses. So the bits are the same.
void expect_equal_on_accelerator(const Filled& filled) {
  const auto device = device::open("stand-in");
  ASSERT_TRUE(device) << device.error().message;
  Workspace expected(filled.graph), found(filled.graph);
  for (Workspace* each : {&expected, &found}) {
    filled.fill(*each);
    each->context().formulas = true;
  }
  found.use(device->get());
  for (const Op& op : filled.graph.ops()) {
    for (const TensorId id : op.inputs) found.set(id, expected.get(id));
    expected.run(op);
    if (!kernels::has_formula(op)) continue;
    ASSERT_NO_THROW(found.run(op)) << op.kind;
    // Fused functions and running sums compute in another order on the processor.
    const std::set<std::string> other_order{
        "attention",  "attention_grad",  "attention_bias_grad", "adamw",
        "state_scan", "state_scan_grad", "gated_delta_rule",    "gated_delta_rule_grad"};
    const bool fused = other_order.contains(op.kind);
    const bool narrow = filled.graph.tensor(op.outputs[0]).dtype == DType::kBFloat16;
    const double tolerance = narrow ? 2e-2 : 1e-6;
    for (const TensorId id : op.outputs) {
      EXPECT_LE(relative_error(found.get(id), expected.get(id)), fused ? tolerance : 0)
          << op.kind << " " << filled.graph.tensor(id).name;
    }
  }
}

void expect_pieces_equal(const Filled& filled) {
  const Graph& graph = filled.graph;
  Workspace whole(graph);
  filled.fill(whole);
  whole.run();
  for (const Op& op : graph.ops()) {
    if (!kernels::has_formula(op)) continue;
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      if (op.annotation.dims[d].mark == Mark::kFrozen || op.annotation.dims[d].size < 2) continue;
      Workspace pieces(graph);
      pieces.context().formulas = true;
      for (const TensorId id : op.inputs) pieces.set(id, whole.get(id));
      pieces.run_in_pieces(op, static_cast<int>(d), 2);
      for (const TensorId id : op.outputs) {
        EXPECT_LT(relative_error(pieces.get(id), whole.get(id)), 1e-11)
            << op.kind << " " << graph.tensor(id).name << " along " << op.annotation.dims[d].name;
      }
    }
  }
}

TEST_P(Formulas, EqualTheKernelsOfTheProcessor) {
  expect_equal(Filled::of(GetParam(), DType::kFloat64), 1e-12);
}

TEST_P(Formulas, EqualThemInSixteenBits) {
  expect_equal(Filled::of(GetParam(), DType::kBFloat16), 2e-2);
}

TEST_P(Formulas, PiecesMakeTheWhole) {
  expect_pieces_equal(Filled::of(GetParam(), DType::kFloat64));
}

TEST_P(Formulas, RunOnAnAccelerator) {
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16})
    expect_equal_on_accelerator(Filled::of(GetParam(), dtype));
}

TEST(Formulas, NormaliseByRunningStatisticsInAnEvaluation) {
  int compared = 0;
  for (const Case& one : cases()) {
    const Graph graph = build_graph(one, DType::kFloat64, true);
    Workspace expected(graph), found(graph);
    for (Workspace* each : {&expected, &found}) {
      fill_inputs(*each, one.high);
      each->context().evaluating = true;
    }
    found.context().formulas = true;
    for (const Op& op : graph.ops()) {
      if (op.kind != "batch_norm" || op.inputs.size() < 5) continue;
      for (const TensorId id : op.inputs) found.set(id, expected.get(id));
      expected.run(op);
      found.run(op);
      for (const TensorId id : op.outputs)
        EXPECT_LT(relative_error(found.get(id), expected.get(id)), 1e-12) << one.name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Formulas, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Formulas, OfLargeOpsEqualTheKernelsOfTheProcessor) {
  for (const Case& one : large_cases()) expect_equal(Filled::of(one, DType::kFloat64), 1e-11);
}

TEST(Formulas, OfOtherKindsEqualTheKernelsOfTheProcessor) {
  expect_equal(Filled::of_others(DType::kFloat64), 1e-12);
  expect_equal(Filled::of_others(DType::kFloat32), 1e-5);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    expect_equal(Filled::of_others(dtype), dtype == DType::kFloat16 ? 2e-3 : 2e-2);
}

TEST(Formulas, OfOtherKindsInPiecesMakeTheWhole) {
  expect_pieces_equal(Filled::of_others(DType::kFloat64));
}

TEST(Formulas, OfOtherKindsRunOnAnAccelerator) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    expect_equal_on_accelerator(Filled::of_others(dtype));
}

// Stochastic rounding draws the same bits: the numbers are equal, not only near.
TEST(Formulas, RoundAsTheKernelsDo) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Filled filled = Filled::of_others(dtype);
    Workspace expected(filled.graph), found(filled.graph);
    for (Workspace* each : {&expected, &found}) {
      filled.fill(*each);
      each->context().step = 3;
    }
    found.context().formulas = true;
    int rounded = 0;
    for (const Op& op : filled.graph.ops()) {
      if (op.text("rounding") != "stochastic") continue;
      ++rounded;
      expected.run(op);
      found.run(op);
      EXPECT_EQ(found.get(op.outputs[0]), expected.get(op.outputs[0])) << op.path;
    }
    EXPECT_EQ(rounded, 6);
  }
}

// Returns whether there is a formula for an op of the kind without attributes.
bool covered(std::string_view kind) {
  Op op;
  op.kind = kind;
  return kernels::has_formula(op);
}

TEST(Formulas, CoverWhatATransformerNeeds) {
  for (const char* kind : {"einsum", "attention", "attention_grad", "layer_norm", "rms_norm",
                           "embedding", "embedding_grad", "cross_entropy", "adamw"}) {
    EXPECT_TRUE(covered(kind)) << kind;
  }
  EXPECT_FALSE(covered("no kind"));
}

TEST(Formulas, AreAllCompared) {
  for (const Case& one : cases()) expect_equal(Filled::of(one, DType::kFloat64), 1e-12);
  expect_equal(Filled::of_others(DType::kFloat64), 1e-12);
  for (const std::string_view kind : kernels::kernel_kinds()) {
    EXPECT_TRUE(covered(kind)) << kind;
    EXPECT_TRUE(compared().contains(std::string(kind))) << kind;
  }
}

TEST(Formulas, AreAsManyAsThePageSays) {
  const std::vector<std::string_view> kinds = kernels::kernel_kinds();
  const auto page = read_file(std::string(TESSERA_SOURCE_DIR) + "/docs/reference/devices.md");
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_NE(page->find(std::to_string(std::ranges::count_if(kinds, covered)) + " kinds have one"),
            std::string::npos)
      << std::ranges::count_if(kinds, covered);
}

}  // namespace
}  // namespace tessera
