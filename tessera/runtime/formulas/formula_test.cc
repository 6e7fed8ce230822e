// Compares formulas with the kernels of the processor, on all cases of test_kernel_cases.h: whole
// and in pieces that are added up, and in 16 bits.
#include "tessera/runtime/formulas/formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tessera/base/text.h"
#include "tessera/runtime/test_kernel_cases.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

using testing::build_graph;
using testing::Case;
using testing::cases;
using testing::fill_inputs;
using testing::relative_error;
using testing::Workspace;

class Formulas : public ::testing::TestWithParam<Case> {};

// Runs the graph by the kernels of the processor; then each op that has a formula by the formula, on
// the same inputs.
void expect_equal(const Graph& graph, double high, double tolerance) {
  Workspace expected(graph), found(graph);
  for (Workspace* each : {&expected, &found}) fill_inputs(*each, high);
  found.context().formulas = true;
  expected.run();
  for (const Op& op : graph.ops()) {
    for (const TensorId id : op.inputs) found.set(id, expected.get(id));
    if (!kernels::has_formula(op)) continue;
    found.run(op);
    for (const TensorId id : op.outputs) {
      EXPECT_LT(relative_error(found.get(id), expected.get(id)), tolerance)
          << op.kind << " " << graph.tensor(id).name;
    }
  }
}

TEST_P(Formulas, EqualTheKernelsOfTheProcessor) {
  expect_equal(build_graph(GetParam(), DType::kFloat64, true), GetParam().high, 1e-12);
}

TEST_P(Formulas, EqualThemInSixteenBits) {
  expect_equal(build_graph(GetParam(), DType::kBFloat16, true), GetParam().high, 2e-2);
}

TEST_P(Formulas, PiecesMakeTheWhole) {
  const Graph graph = build_graph(GetParam(), DType::kFloat64, true);
  Workspace whole(graph);
  fill_inputs(whole, GetParam().high);
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
