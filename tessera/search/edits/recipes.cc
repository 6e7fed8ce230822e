#include "tessera/search/edits/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/recipes.h"
#include "tessera/search/constants.h"
#include "tessera/search/edits/recipe_sweep.h"
#include "tessera/search/edits/table_plans.h"
#include "tessera/search/edits/transfer_choices.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/question/question.h"
#include "tessera/search/question/with_part.h"

namespace tessera {
namespace {

int64_t devices_of(const PlanQuestion& question) {
  const int64_t fixed = fixed_number(question, "devices");
  return fixed > 0 ? fixed : question.cluster->devices();
}

// A call whose plan may have been edited: it may have other buckets, or gather parameters earlier,
// than the recipe writes.
struct Edited {
  TriedCall best;
  bool is_edited = false;
  std::vector<PlanCandidate> simulated;
};

// Returns the plan with those edits of its transfers that make it faster. Simulates at most so
// many programs.
Edited with_better_transfers(PlanSearch& search, TriedCall from, size_t programs) {
  Edited out{std::move(from), false, {}};
  const PlanQuestion& question = search.question();
  for (bool gained = true; gained;) {
    gained = false;
    const TriedCall at = out.best;
    for (const TransferEdit& edit : transfer_edits_of(at.plan, at.candidate, question)) {
      if (out.simulated.size() == programs || (question.stop && question.stop())) return out;
      TriedCall next = at;
      set_transfers(next.plan, edit.transfers);
      next.candidate = {};
      next.candidate.call =
          fmt::format("{} with {}", to_string(at.call), transfers_text(edit.transfers));
      search.say("simulating " + next.candidate.call);
      search.judge_plan(next.plan, next.candidate);
      if (!next.candidate.step_s) continue;
      out.simulated.push_back(next.candidate);
      if (merit_of(question, next.candidate) >= merit_of(question, out.best.candidate)) continue;
      out.best = std::move(next);
      out.is_edited = gained = true;
      break;
    }
  }
  return out;
}

// Returns the answer's candidates whose plans follow from their choices alone: none if tables are
// spread, because the plans then have a part.
std::vector<PlanCandidate> choices_among(const PlanAnswer& answer, const PlanQuestion& question) {
  std::vector<PlanCandidate> out;
  if (may_spread_tables(question)) return out;
  for (const PlanCandidate& one : answer.simulated) {
    if (one.call.empty() && !one.choice.axes.empty()) out.push_back(one);
  }
  return out;
}

}  // namespace

Result<PlanAnswer> find_by_recipes(const PlanQuestion& question) {
  if (question.part && !goes_with_recipes(*question.part)) {
    return invalid_input(fmt::format(
        "{}:{}: planner recipes: expected a part without axes and entries, as recipes take "
        "arguments (--fix KEY=VALUE), found one with '{}'",
        question.part->plan.file, growing_parts(*question.part).front().first,
        join(question.part->keys, "', '")));
  }
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  const int64_t devices = devices_of(question);
  const std::vector<Recipe>& recipes = all_recipes();
  const size_t most = question.evaluations > 0
                          ? std::max<size_t>(1, question.evaluations / recipes.size())
                          : std::clamp(kSearchOps / 2 / search->forward().ops().size(),
                                       kLeastPrograms, kFew * kLeastPrograms);
  std::vector<TriedCall> found;
  JudgedPlans judged;
  size_t programs = 0;
  for (const Recipe& recipe : recipes) {
    if (question.stop && question.stop()) break;
    RecipeSweep sweep(*search, recipe, devices, judged);
    if (!sweep.begin()) continue;
    sweep.run(most);
    if (const TriedCall* best = sweep.best()) found.push_back(*best);
    programs += sweep.simulated();
  }
  if (found.empty()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : question.fixed)
      keys.push_back(fmt::format(" --fix {}={}", key, value));
    return invalid_input(fmt::format(
        "plan: planner recipes: expected a recipe that makes a plan of the model for {} devices{}, "
        "found none",
        devices, join(keys, "")));
  }
  std::ranges::stable_sort(found, {},
                           [&](const TriedCall& one) { return merit_of(question, one.candidate); });
  PlanAnswer answer;
  answer.limit_bytes = search->limit_bytes();
  answer.ended =
      fmt::format("{} programs of {} recipes were simulated, {} of them make plans of the model",
                  programs, recipes.size(), found.size());
  for (const TriedCall& one : found) answer.simulated.push_back(one.candidate);
  answer.curve = pareto_curve(answer.simulated);
  if (!found.front().candidate.fits) return answer;
  answer.best = 0;
  const TriedCall& best = found.front();
  if (question.part) {
    answer.plan = fmt::format("# {}\n{}", best.candidate.call, to_toml(best.plan));
  } else {
    TESSERA_TRY(answer.plan, emit_recipe(best.call, search->forward(), best.candidate.call));
  }
  return search->answer_with(std::move(answer), best.plan);
}

Result<PlanAnswer> find_with_recipes(const PlanQuestion& question, PlanAnswer answer) {
  const size_t used = answer.simulated.size();
  // Half of the allowed programs are the recipes', even if the search simulated more than the other
  // half: what a recipe reaches must be among what the search tries.
  const size_t half = answer.programs_allowed / 2;
  if (half < 2 * kLeastPrograms || (question.stop && question.stop())) return answer;
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  // For small models with a given number of evaluations, the search has already simulated what
  // it may.
  if (is_small(question, search->fold()) && question.evaluations > 0) return answer;
  if (question.progress) question.progress("recipes");
  const size_t programs =
      std::max(half, answer.programs_allowed - std::min(used, answer.programs_allowed));
  // Where fewer devices are better in themselves, on as many as the best plan uses.
  const int64_t devices = question.objective.counts_devices() && answer.best
                              ? answer.simulated[*answer.best].used.count
                              : devices_of(question);
  RecipeRace race = race_recipes(*search, devices, programs - kLeastPrograms / 2,
                                 choices_among(answer, question));
  if (race.found.empty()) return answer;
  answer.ended += fmt::format("; then {} programs of {} recipes", race.programs, race.recipes);
  for (const TriedCall& one : race.found) answer.simulated.push_back(one.candidate);
  const Edited edited = with_better_transfers(*search, race.found.front(), kLeastPrograms / 2);
  answer.simulated.insert(answer.simulated.end(), edited.simulated.begin(), edited.simulated.end());
  const PlanCandidate& best = edited.best.candidate;
  if (!best.fits || (answer.best && !wins(question.objective, best, answer.simulated[*answer.best],
                                          tie_share(*question.cluster))))
    return answer;
  const auto is_best = [&](const PlanCandidate& one) { return one.call == best.call; };
  const auto at = std::find_if(answer.simulated.begin(), answer.simulated.end(), is_best);
  answer.best = static_cast<size_t>(at - answer.simulated.begin());
  answer.offloaded.clear();
  answer.blocks.clear();  // blocks are rows of a choice
  if (edited.is_edited || question.part) {
    answer.plan = fmt::format("# {}\n{}", best.call, to_toml(edited.best.plan));
  } else {
    TESSERA_TRY(answer.plan, emit_recipe(edited.best.call, search->forward(), best.call));
  }
  return search->answer_with(std::move(answer), edited.best.plan);
}

}  // namespace tessera
