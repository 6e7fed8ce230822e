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

// Is it the text of a plan: does it have several lines?
bool is_plan_text(const std::string& text);
// What messages and tables call the plan: the text itself, or the comment on the first line of a
// plan's text.
std::string plan_label(const std::string& text);
// Does the text name a file (it ends in .toml, has a slash, or such a file exists)? Otherwise it
// is a recipe call.
bool names_plan_file(const std::string& text);

// Reads a file or emits a recipe for `graph`; a recipe takes only facts from it (number of blocks,
// sizes), so the forward graph will do. A relative path is looked up in the working directory, then
// in the folder of `beside`, a file that names the plan ("" for none).
// `compute`: the dtype in which the run computes (graph/precision.h); a recipe call gets it as its
// argument `precision`.
Result<Plan> load_plan(const std::string& text, const Graph& graph, const std::string& beside = "",
                       DType compute = DType::kFloat32);
// The text of such a plan: of the file as it stands, or what the recipe emits.
struct PlanText {
  std::string text, file;  // file: its path, or the call
};
Result<PlanText> load_plan_text(const std::string& text, const Graph& graph,
                                const std::string& beside = "", DType compute = DType::kFloat32);

// A plan runs on exactly the ranks of its mesh. `found` says where the number comes from
// ("--ranks", "mpirun").
Status check_ranks(const Plan& plan, int64_t ranks, std::string_view found = "--ranks");

// The smallest batch that gives every replica and micro-batch one sequence: micro_batches times the
// largest product of axes over which the plan splits the micro-batch dim.
int64_t smallest_batch(const Plan& plan);

}  // namespace tessera
