#include "freedom.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "tessera/plan/recipes.h"
#include "tessera/search/planner.h"

namespace tessera::planner_test {
namespace {

using Fix = std::pair<std::string, std::string>;

constexpr double kRounding = 1e-9;  // of the time

bool is_key(const std::string& name) {
  for (const auto& [key, meaning] : fix_keys()) {
    if (key == name) return true;
  }
  return false;
}

// What the candidate's plan has.
std::set<Fix> values_of(const PlanCandidate& candidate) {
  std::set<Fix> out;
  if (!candidate.call.empty()) {
    // "megatron(tp=2) with bucket_bytes=6553600"
    const auto call = parse_recipe_call(candidate.call.substr(0, candidate.call.find(" with ")));
    EXPECT_TRUE(call.has_value()) << candidate.call;
    for (const auto& [name, value] : call->arguments.numbers) {
      if (is_key(name)) out.insert({name, std::to_string(value)});
    }
    for (const auto& [name, value] : call->arguments.texts) {
      if (is_key(name)) out.insert({name, value});
    }
    return out;
  }
  const Choice& choice = candidate.choice;
  const auto add = [&](const char* key, int64_t value) {
    out.insert({key, std::to_string(value)});
  };
  add("devices", choice.ranks());
  add("pp", choice.stages);
  add("micro_batches", choice.micro_batches);
  add("zero", choice.sharded);
  add("chunks", choice.chunks);
  out.insert({"schedule", choice.schedule});
  if (choice.units.empty()) out.insert({"recompute", choice.recompute});
  if (choice.stage_axes.empty()) {
    add("dp", choice.axes.front().size);
    add("tp", choice.ranks() / choice.stages / choice.axes.front().size);
  }
  return out;
}

}  // namespace

void expect_no_fix_is_faster(const std::string& model, const std::string& machine, int64_t batch) {
  const Cluster cluster = load_cluster(machine).value();
  PlanQuestion question;
  question.model = model;
  question.batch = batch;
  question.cluster = &cluster;
  question.options.style = parse_style("tessera").value();
  question.compute = DType::kBFloat16;
  const PlanAnswer free = find_plan(question, "auto").value();
  ASSERT_TRUE(free.best.has_value()) << model;
  const PlanCandidate& best = free.simulated[*free.best];
  std::set<Fix> fixes = values_of(best);
  const PlanAnswer recipes = find_plan(question, "recipes").value();
  if (recipes.best) {
    const std::set<Fix> more = values_of(recipes.simulated[*recipes.best]);
    fixes.insert(more.begin(), more.end());
    EXPECT_LE(*best.step_s, *recipes.simulated[*recipes.best].step_s * (1 + kRounding))
        << model << ": " << best.name() << " against " << recipes.simulated[*recipes.best].name();
  }
  for (const auto& [key, value] : fixes) {
    PlanQuestion fixed = question;
    fixed.fixed[key] = value;
    const auto answer = find_plan(fixed, "auto");
    if (!answer || !answer->best) continue;
    const PlanCandidate& found = answer->simulated[*answer->best];
    EXPECT_GE(*found.step_s, *best.step_s * (1 - kRounding))
        << model << " with --fix " << key << "=" << value << ": " << found.name() << " against "
        << best.name();
  }
}

}  // namespace tessera::planner_test
