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

// Returns whether `text` is the text of a plan itself and not the name of one. The text of a plan
// has several lines.
bool is_plan_text(const std::string& text);
// Returns the name of the plan for messages and tables. For a file or a recipe call this is `text`
// itself. For the text of a plan it is the comment on its first line, or "<plan>" without one.
std::string plan_label(const std::string& text);
// Returns whether `text` names a plan file: it ends in .toml, contains a slash, or a file of this
// name exists. A text of one line that names no file is a recipe call.
bool names_plan_file(const std::string& text);

// Reads the plan file, or emits the plan of the recipe call for `graph`. A recipe takes only facts
// from the graph (number of blocks, sizes), so the forward graph is enough. A relative path is
// looked up in the working directory, then in the folder of the file `beside`, in which the plan is
// named; "" if there is no such file. `compute`: the dtype in which the run computes
// (graph/precision.h). A recipe call gets this dtype as its argument `precision`.
Result<Plan> load_plan(const std::string& text, const Graph& graph, const std::string& beside = "",
                       DType compute = DType::kFloat32);
// A `PlanText` is the text of a plan: the content of a plan file, or the output of a recipe.
struct PlanText {
  std::string text, file;  // file: the path, or the recipe call
};
Result<PlanText> load_plan_text(const std::string& text, const Graph& graph,
                                const std::string& beside = "", DType compute = DType::kFloat32);

// Checks that `ranks`, the number of ranks of a run, is the number of ranks of the plan. `found`
// says where the number comes from ("--ranks", "mpirun").
Status check_ranks(const Plan& plan, int64_t ranks, std::string_view found = "--ranks");

// Returns the smallest batch that gives every replica at least one sequence in each micro-batch. It
// is the number of micro-batches times the largest number of pieces into which a split entry cuts
// the micro-batch dim, times the number of islands (outer_steps.h).
int64_t smallest_batch(const Plan& plan);

}  // namespace tessera
