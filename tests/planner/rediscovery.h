// Asks a search for a plan, and checks which strategy the answer uses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/compile/compile.h"
#include "tessera/planners/all_planners.h"
#include "tessera/search/choices/spaces.h"
#include "tessera/search/rank/ranking.h"

namespace tessera::planner_test {

inline constexpr size_t kPrograms = 16;  // a strategy is among the first that are tried

class Found {
 public:
  Found(const std::string& model, const std::string& machine, int64_t batch,
        const std::map<std::string, std::string>& fixed = {}, int64_t limit = 0,
        DType compute = DType::kBFloat16, int64_t devices_a_node = 0)
      : cluster_(load_cluster(machine).value()) {
    if (devices_a_node > 0) cluster_.parts.front().type.devices = devices_a_node;
    question_.model = model;
    question_.batch = batch;
    question_.cluster = &cluster_;
    question_.options.style = parse_style("tessera").value();
    question_.compute = compute;
    question_.fixed = fixed;
    question_.memory_limit_bytes = limit;
    question_.evaluations = kPrograms;
    // Without the recipes to which `auto` gives the programs that are left.
    answer_ = find_in_space(question_, whole_space).value();
    EXPECT_TRUE(answer_.best.has_value()) << to_text(answer_, question_, true);
  }

  const Choice& choice() const { return answer_.simulated[*answer_.best].choice; }
  // Returns the dims along which the axis inside a stage cuts ops of the model.
  std::set<std::string> cuts() const {
    Compiler compiler;
    const auto model = compiler.model(question_.model, question_.batch, DType::kFloat32).value();
    std::set<std::string> out;
    for (const Op& op : model->graph.ops()) {
      for (size_t a = 1; a < choice().axes.size(); ++a)
        out.insert(dim_to_cut(op, choice().axes[a]));
    }
    out.erase("");
    return out;
  }
  // Returns whether pieces of the dim travel around an axis inside a stage.
  bool travels(const std::string& dim) const {
    return std::any_of(choice().axes.begin(), choice().axes.end(), [&](const ChoiceAxis& axis) {
      return std::any_of(axis.dims.begin(), axis.dims.end(), [&](const std::string& entry) {
        return axis.size > 1 && parse_entry(entry).travels == dim;
      });
    });
  }
  std::string text() const { return to_text(answer_, question_, true); }
  // Returns the number of collectives by kind in the forward pass of the plan's program on rank 0,
  // over ops whose paths begin with `scope`.
  std::map<CollectiveKind, int> collectives(const std::string& scope) const {
    Compiler compiler;
    const auto model = compiler.model(question_.model, question_.batch, DType::kFloat32).value();
    const auto lowering =
        compiler.lower(forward_of(model), parse_plan(answer_.plan, "answer").value()).value();
    const Program program = lowering->lower(0).value();
    std::map<CollectiveKind, int> out;
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue == nullptr || ref.kind != BlockKind::kForward || !instruction.cause.valid())
          continue;
        if (lowering->graph().op(instruction.cause).path.starts_with(scope)) ++out[issue->kind];
      }
    }
    return out;
  }

 private:
  Cluster cluster_;
  PlanQuestion question_;
  PlanAnswer answer_;
};

}  // namespace tessera::planner_test
