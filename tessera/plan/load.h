// A plan as users name it, on the command line and in RUN.toml: a plan file, a recipe call, or the
// text of a plan itself.
//
//   TESSERA_TRY(Plan plan, load_plan("megatron(tp=2, dp=2)", graph));
//   TESSERA_TRY_VOID(check_ranks(plan, 4));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/plan/plan.h"

namespace tessera {

// Returns whether the text is the text of a plan, which has several lines.
bool is_plan_text(const std::string& text);
// Returns the name of the plan for messages and tables: the text itself, or the comment on the
// first line of a plan's text.
std::string plan_label(const std::string& text);
// Returns whether the text names a file (it ends in .toml, has a slash, or such a file exists).
// Otherwise it is a recipe call.
bool names_plan_file(const std::string& text);

// Reads a file or emits a recipe for `graph`; a recipe takes only facts from it (number of blocks,
// sizes), so the forward graph will do. A relative path is looked up in the working directory, then
// in the folder of `beside`, a file that names the plan ("" for none).
// `compute`: the dtype in which the run computes (graph/precision.h); a recipe call gets it as its
// argument `precision`.
Result<Plan> load_plan(const std::string& text, const Graph& graph, const std::string& beside = "",
                       DType compute = DType::kFloat32);
// A `PlanText` is the text of such a plan: the content of the file, or the output of the recipe.
struct PlanText {
  std::string text, file;  // file: its path, or the call
};
Result<PlanText> load_plan_text(const std::string& text, const Graph& graph,
                                const std::string& beside = "", DType compute = DType::kFloat32);

// Checks that there are as many ranks as in the plan's mesh. `found` says where the number comes
// from ("--ranks", "mpirun").
Status check_ranks(const Plan& plan, int64_t ranks, std::string_view found = "--ranks");

// Returns the smallest batch that gives every replica and micro-batch one sequence: micro_batches
// times the largest product of axes over which the plan splits the micro-batch dim.
int64_t smallest_batch(const Plan& plan);

}  // namespace tessera
