// Counts what formulas launch, and compares it with the table by which steps on GPUs are priced
// (tessera/cost/launches.h). With TESSERA_REWRITE_GOLDEN set the table is written anew.
#include "tessera/cost/launches.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/graph/optimizers.h"
#include "tessera/runtime/formulas/formula.h"
#include "tessera/runtime/kernels/test_kernel_cases.h"
#include "tessera/test/source_dir.h"

namespace tessera::launches_test {
namespace {

// Functions of libtorch that are running, innermost last: whether each has called others.
thread_local std::vector<bool> running;
thread_local int64_t launched = 0;

bool takes_memory_alone(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
         name == "aten::resize_" || name == "aten::set_";
}

// Returns whether a function that has called no other one runs a kernel. Views do not, nor what only
// takes memory, nor what consists of other functions and needed none of them (to, contiguous).
bool is_kernel(const at::RecordFunction& function) {
  const auto schema = function.operator_schema();
  if (!schema.has_value() || takes_memory_alone(function.name())) return false;
  const bool view = std::ranges::any_of(schema->returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
  if (view) return false;
  const auto found = c10::Dispatcher::singleton().findSchema(schema->operator_name());
  return !found || !found->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
  if (!running.empty()) running.back() = true;
  running.push_back(false);
  return nullptr;
}

void end(const at::RecordFunction& function, at::ObserverContext*) {
  const bool called = running.back();
  running.pop_back();
  if (!called && is_kernel(function)) ++launched;
}

class Counting {
 public:
  Counting()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}))) {}
  ~Counting() { at::removeCallback(handle_); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  at::CallbackHandle handle_;
};

using Sums = std::map<std::string, std::pair<double, double>>;  // by kind: launches, ops

void add_launches(const Graph& graph, double high, Sums& sums) {
  testing::Workspace work(graph);
  testing::fill_inputs(work, high);
  work.context().formulas = true;
  const Counting counting;
  for (const Op& op : graph.ops()) {
    launched = 0;
    work.run(op);
    if (!kernels::has_formula(op)) continue;
    sums[op.kind].first += static_cast<double>(launched);
    sums[op.kind].second += 1;
  }
}

// Returns the mean number of launches of each kind over all cases, and over steps of each optimizer.
std::map<std::string, double> count_launches(DType dtype) {
  Sums sums;
  for (const testing::Case& one : testing::cases())
    add_launches(testing::build_graph(one, dtype, true), one.high, sums);
  for (const std::string& name : optimizer_names()) {
    OptimizerSpec spec;
    spec.kind = name;
    const auto graph = differentiate(testing::build_graph(testing::cases()[0], dtype, false), spec);
    EXPECT_TRUE(graph) << name << ": " << (graph ? "" : graph.error().message);
    if (graph) add_launches(*graph, 1, sums);
  }
  std::map<std::string, double> out;
  for (const auto& [kind, sum] : sums) out[kind] = sum.first / sum.second;
  return out;
}

TEST(Launches, OfATinyFormulaAreCounted) {
  const Counting counting;
  const at::Tensor ones = at::ones({2, 3});
  launched = 0;
  const at::Tensor sum = ones.t().contiguous() + ones.view({3, 2});
  EXPECT_EQ(launched, 2) << "a copy and an addition";
  launched = 0;
  EXPECT_EQ(sum.contiguous().data_ptr(), sum.data_ptr());
  EXPECT_EQ(launched, 0) << "it lies as it is wanted";
}

// Launches differ from op to op by what is broadcast and by what is added to present values.
TEST(Launches, AreThoseOfTheTable) {
  const auto wide = count_launches(DType::kFloat32), narrow = count_launches(DType::kBFloat16);
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) {
    std::string text =
        "# Kernels that the formula of a kind launches, by tessera/runtime/launches_test.cc (means "
        "of "
        "its cases): in 32 bits\n# and more, in 16 bits. cost/launches.h explains them.\ncounts = "
        "[\n";
    for (const auto& [kind, count] : wide)
      text += fmt::format("  [\"{}\", {:.1f}, {:.1f}],\n", kind, count, narrow.at(kind));
    ASSERT_TRUE(write_file(TESSERA_SOURCE_DIR "/tessera/cost/data/launches.toml", text + "]\n"));
    return;
  }
  for (const auto& [dtype, counted] :
       {std::pair{DType::kFloat32, &wide}, std::pair{DType::kBFloat16, &narrow}}) {
    for (const auto& [kind, count] : *counted) {
      const auto rows = std::ranges::count(all_launches(), kind, &KindLaunches::kind);
      EXPECT_EQ(rows, 1) << kind << ": write the table anew with TESSERA_REWRITE_GOLDEN=1";
      EXPECT_NEAR(launches_of(kind, dtype), count, .25 * count + .5) << kind;
    }
  }
  EXPECT_EQ(all_launches().size(), wide.size());
}

}  // namespace
}  // namespace tessera::launches_test
