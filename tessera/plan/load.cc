#include "tessera/plan/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/plan/islands.h"
#include "tessera/plan/recipes.h"

namespace tessera {
namespace {

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::filesystem::path find_file(const std::string& text, const std::string& beside) {
  std::filesystem::path path(text);
  if (is_file(path) || path.is_absolute() || beside.empty()) return path;
  std::filesystem::path other = std::filesystem::path(beside).parent_path() / path;
  return is_file(other) ? other : path;
}

int64_t axis_size(const Plan& plan, const std::string& name) {
  int64_t size = 1;
  for (const auto& [axis, axis_size] : plan.mesh) {
    if (axis == name) size = std::max(size, axis_size);
  }
  for (const StageEntry& stage : plan.stages) {
    for (const auto& [axis, axis_size] : stage.mesh) {
      if (axis == name) size = std::max(size, axis_size);
    }
  }
  return size;
}

}  // namespace

bool is_plan_text(const std::string& text) { return text.find('\n') != std::string::npos; }

std::string plan_label(const std::string& text) {
  if (!is_plan_text(text)) return text;
  const std::string first = text.substr(0, text.find('\n'));
  return first.starts_with("# ") ? first.substr(2) : "<plan>";
}

bool names_plan_file(const std::string& text) {
  if (is_plan_text(text)) return false;
  return text.ends_with(".toml") || (text.find('/') != std::string::npos) || is_file(text);
}

Result<PlanText> load_plan_text(const std::string& text, const Graph& graph,
                                const std::string& beside, DType compute) {
  const std::string name(trim(text));
  if (name.empty()) {
    return invalid_input("expected a plan: a file or a recipe call (tessera plan --list)");
  }
  if (name == "auto") {
    return invalid_input(
        "plan 'auto' is not known here; tessera plan MODEL --cluster C --batch B writes a plan "
        "file");
  }
  if (is_plan_text(text)) return PlanText{text, plan_label(text)};
  if (!names_plan_file(name) && !(!beside.empty() && is_file(find_file(name, beside)))) {
    TESSERA_TRY(RecipeCall call, parse_recipe_call(name));
    compute_in(compute, call);
    TESSERA_TRY(std::string emitted, emit_recipe(call, graph, name));
    return PlanText{std::move(emitted), name};
  }
  const std::string path = find_file(name, beside).string();
  TESSERA_TRY(std::string content, read_file(path));
  return PlanText{std::move(content), path};
}

Result<Plan> load_plan(const std::string& text, const Graph& graph, const std::string& beside,
                       DType compute) {
  TESSERA_TRY(const PlanText found, load_plan_text(text, graph, beside, compute));
  TESSERA_TRY(Plan plan, parse_plan(found.text, found.file));
  plan.precision = computing_in(compute, plan.precision);
  return plan;
}

Status check_ranks(const Plan& plan, int64_t ranks, std::string_view found) {
  const int64_t needed = plan.ranks();
  if (needed == ranks) return {};
  return invalid_input(fmt::format("{}: its mesh {} needs {} rank{}, found {} ({})", plan.file,
                                   Mesh::row_major(plan.mesh).to_string(), needed,
                                   needed == 1 ? "" : "s", ranks, found));
}

int64_t smallest_batch(const Plan& plan) {
  int64_t replicas = 1;
  for (const SplitEntry& split : plan.splits) {
    if (split.dim != plan.micro_batch_dim) continue;
    int64_t product = split.steps;
    for (const std::string& axis : split.over) product *= axis_size(plan, axis);
    replicas = std::max(replicas, product);
  }
  return replicas * plan.micro_batches * islands(plan);
}

}  // namespace tessera
