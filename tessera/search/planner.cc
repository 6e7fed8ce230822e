#include "tessera/search/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/plan/recipes/parts.h"
#include "tessera/plan/schedules/schedule.h"
#include "tessera/search/choices/offload_levels.h"
#include "tessera/search/choices/spaces.h"
#include "tessera/search/constants.h"
#include "tessera/search/edits/expansion.h"
#include "tessera/search/edits/recipes.h"
#include "tessera/search/edits/table_plans.h"
#include "tessera/search/explain.h"
#include "tessera/search/price/schedule_facts.h"
#include "tessera/search/question/with_part.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {
namespace {

// the largest value to which `prefetch` may be fixed, in blocks
constexpr int64_t kMostPrefetch = 64;

std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string candidate_row(const PlanCandidate& candidate, bool is_best) {
  std::string outcome = candidate.refused;
  if (candidate.step_s) {
    outcome =
        fmt::format("{}, {}{}", time_text(*candidate.step_s), memory_text(candidate.need_bytes),
                    candidate.fits ? "" : ": does not fit");
  }
  const std::string formula =
      candidate.call.empty()
          ? fmt::format("by formula {}, {}; ", time_text(candidate.estimate.step_s),
                        memory_text(candidate.estimate.memory_bytes))
          : "";
  return fmt::format("  {} {}\n      {}program {}\n", is_best ? "*" : " ", candidate.name(),
                     formula, outcome);
}

// Returns a line that says how much host memory a device uses at most; "" if no tensor rests on
// the host.
std::string host_line(const PlanAnswer& answer) {
  if (answer.offloaded.empty()) return "";
  int64_t most = 0;
  for (const RankResult& role : answer.simulation->roles)
    most = std::max(most, role.memory.arena_bytes[static_cast<size_t>(Tier::kHost)]);
  return fmt::format("host      {} a device ({})\n", memory_text(static_cast<double>(most)),
                     offload_text(answer.offloaded));
}

// Returns a text on what limits the best plan, as shares of the devices' time.
std::string what_binds(const Simulation& simulation) {
  std::array<double, kSpent> spent{};
  for (const RankResult& role : simulation.roles) {
    for (size_t i = 0; i < kSpent; ++i) {
      spent[i] += role.spent_s[i] * static_cast<double>(role.ranks) /
                  (simulation.step_time_s * static_cast<double>(simulation.ranks));
    }
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < kSpent; ++i) {
    if (spent[i] >= .005) {
      parts.push_back(
          fmt::format("{} {:.1f} %", spent_name(static_cast<Spent>(i)), spent[i] * 100));
    }
  }
  return join(parts, ", ");
}

// Searches the space and, if the model has embedding tables, also the plans that spread the tables
// over devices. Returns the faster answer.
Result<PlanAnswer> find_with_tables(const PlanQuestion& question) {
  auto plain = find_in_space(question, whole_space);
  if (!question.uses(Mechanism::kTables) || !may_spread_tables(question)) return plain;
  auto spread = plan_tables(question, "auto");
  return spread && spread->best && (!plain || is_better(question, *spread, *plain)) ? spread
                                                                                    : plain;
}

// Answers as the planner megatron_grid. It simulates more programs than other planners, because a
// baseline must not lose through errors of the formula.
Result<PlanAnswer> find_in_megatron_grid(const PlanQuestion& question) {
  PlanQuestion wider = question;
  if (wider.evaluations == 0) wider.evaluations = kFew * kLeastPrograms;
  return find_in_space(wider, megatron_space);
}

// Returns whether the question fixes a degree that only recipes have arguments for.
bool asks_for_recipes(const PlanQuestion& question) {
  return question.fixed.contains("cp") || question.fixed.contains("ep");
}

Result<PlanAnswer> find_automatically(const PlanQuestion& question) {
  if (asks_for_recipes(question)) return find_by_recipes(question);
  Expanded found{question, {}};
  if (question.uses(Mechanism::kExpansion)) {
    TESSERA_TRY(found, find_with_expansions(question, find_with_tables));
  } else {
    TESSERA_TRY(found.answer, find_with_tables(question));
  }
  if (!question.uses(Mechanism::kRecipes) || (question.part && !goes_with_recipes(*question.part)))
    return std::move(found.answer);
  return find_with_recipes(found.question, std::move(found.answer));
}

// Returns a function that hands on each plan that is better than all that it was given before. A
// planner may make several searches, of which each tells of its own; copies of the function share
// what they know.
std::function<void(const PlanCandidate&, const std::string&)> only_better(
    const Objective& objective,
    std::function<void(const PlanCandidate&, const std::string&)> told) {
  auto best = std::make_shared<std::optional<Merit>>();
  return [=, told = std::move(told)](const PlanCandidate& one, const std::string& plan) {
    const Merit merit = objective.merit(facts_of(one));
    if (*best && merit >= **best) return;
    *best = merit;
    told(one, plan);
  };
}

// Answers the question. Where steps may take so many times the least time, finds the fastest plan
// first, which is then among the plans of the answer.
Result<PlanAnswer> find_by_objective(PlanQuestion question, const Planner& planner) {
  if (question.objective.within == 0) {
    if (question.found) question.found = only_better(question.objective, question.found);
    return planner.find(question);
  }
  PlanQuestion fastest = question;
  fastest.objective = {Goal::kTime, question.objective.usd_an_hour};
  fastest.explain = false;
  TESSERA_TRY(PlanAnswer first, find_by_objective(fastest, planner));
  if (!first.best) return first;
  const double fastest_s = *first.simulated[*first.best].step_s;
  question.objective.deadline_s = std::exchange(question.objective.within, 0) * fastest_s;
  auto second = find_by_objective(question, planner);
  PlanAnswer out =
      second ? better_of(question, *std::move(second), std::move(first)) : std::move(first);
  out.fastest_s = fastest_s;
  out.deadline_s = question.objective.deadline_s;
  return out;
}

// Returns the line on what the best plan costs and until when its step must end; "" if only its time
// was asked for and no prices are known.
std::string cost_line(const PlanAnswer& answer, const PlanQuestion& question) {
  const PlanCandidate& best = answer.simulated[*answer.best];
  std::vector<std::string> parts;
  if (best.used.usd_an_hour > 0) {
    const double usd = usd_a_step(*best.step_s, best.used);
    parts.push_back(
        fmt::format("{:.4g} USD a step, {:.4g} USD for 1000 sequences, {:.4g} USD an hour", usd,
                    usd * 1000 / static_cast<double>(question.batch), best.used.usd_an_hour));
  }
  if (answer.deadline_s > 0) {
    parts.push_back(fmt::format("a step of at most {}", time_text(answer.deadline_s)) +
                    (answer.fastest_s > 0
                         ? fmt::format(", as the fastest takes {}", time_text(answer.fastest_s))
                         : ""));
  }
  if (parts.empty() && question.objective.goal == Goal::kTime) return "";
  parts.insert(parts.begin(),
               goal_names()[static_cast<size_t>(question.objective.goal)] + " as little as can be");
  return fmt::format("objective {}\n", join(parts, "; "));
}

}  // namespace

Status check_own_keys(const PlanQuestion& question, const Planner& planner,
                      const std::vector<Planner>& planners) {
  struct Own {
    std::string key;
    std::function<bool(const std::string&)> is_usual;  // whether all planners do so
    std::string does;                                  // what planners do that do not choose
  };
  const auto is = [](const std::string& value) {
    return [value](const std::string& fixed) { return fixed == value; };
  };
  const auto is_for_whole_sequences = [](const std::string& schedule) {
    return slice_schedule(schedule) == nullptr;
  };
  const std::vector<Own> all = {
      {"offload", is(offload_names().front()), "leaves all tensors on the devices"},
      {"rims", is("0"), "waits for halos before it computes"},
      {"halo_layers", is("1"), "exchanges a halo for each layer"},
      {"slices", is("1"), "leaves sequences whole"},
      {"schedule", is_for_whole_sequences, "leaves sequences whole"},
      {"prefetch", is(std::to_string(TransferChoice{}.ahead)), "gathers one block ahead"},
      {"bucket_bytes", is(std::to_string(kPlainBucket)), "leaves the size of buckets as it is"},
      {"compression", is("1"), "sends everything as it is"},
      {"outer_every", is(""), "has no outer steps"},
      {"cp", is("1"), "leaves sequences whole"},
      {"ep", is("1"), "does not choose groups of experts"}};
  const auto chooses = [](const Planner& one, const std::string& key) {
    return std::find(one.chooses.begin(), one.chooses.end(), key) != one.chooses.end();
  };
  for (const Own& own : all) {
    const auto fixed = question.fixed.find(own.key);
    if (fixed == question.fixed.end() || chooses(planner, own.key) || own.is_usual(fixed->second))
      continue;
    const auto other = std::find_if(planners.begin(), planners.end(),
                                    [&](const Planner& one) { return chooses(one, own.key); });
    return invalid_input(fmt::format(
        "plan: --fix {}={}: expected {}, found planner '{}', which {}", own.key, fixed->second,
        other == planners.end() ? "another planner" : "--planner " + other->name, planner.name,
        own.does));
  }
  return {};
}

Status check_objective(const PlanQuestion& question, const Planner& planner,
                       const std::vector<Planner>& planners) {
  if (planner.has_objectives || question.objective.goal == Goal::kTime) return {};
  std::vector<std::string> names;
  for (const Planner& one : planners) {
    if (one.has_objectives) names.push_back(one.name);
  }
  return invalid_input(fmt::format(
      "plan: --objective {}: expected --planner {}, found '{}', which looks for the least time",
      goal_names()[static_cast<size_t>(question.objective.goal)], join(names, " or "),
      planner.name));
}

Status check_question(const PlanQuestion& question) {
  if (question.batch < 1) {
    return invalid_input(
        fmt::format("plan: expected a batch of at least 1, found {}", question.batch));
  }
  std::vector<std::string> keys;
  for (const auto& [key, meaning] : fix_keys()) keys.push_back(key);
  const RecipeArgument schedule = recipes::schedule_argument();
  RecipeArgument offload = schedule;
  offload.name = "offload";
  offload.choices = offload_names();
  const std::vector<RecipeArgument> texts = {schedule, recipes::recompute_argument(), offload};
  for (const auto& [key, value] : question.fixed) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return invalid_input(
          fmt::format("plan: --fix {}={}: unknown key '{}', did you mean '{}'? ({})", key, value,
                      key, nearest(key, keys), join(keys, ", ")));
    }
    const auto text = std::find_if(texts.begin(), texts.end(),
                                   [&](const RecipeArgument& one) { return one.name == key; });
    if (text != texts.end()) {
      if (const Status known = check_choice(*text, value); !known) {
        return invalid_input(
            fmt::format("plan: --fix {}={}: {}", key, value, known.error().message));
      }
      continue;
    }
    const auto number = parse_int(value);
    const std::map<std::string, int64_t> most = {
        {"zero", 3}, {"replicas_apart", 1}, {"rims", 1}, {"prefetch", kMostPrefetch}};
    const auto bound = most.find(key);
    if (bound != most.end() && (!number || *number < 0 || *number > bound->second)) {
      return invalid_input(fmt::format("plan: --fix {}={}: expected a whole number from 0 to {}",
                                       key, value, bound->second));
    }
    if (bound == most.end() && (!number || *number < 1)) {
      return invalid_input(
          fmt::format("plan: --fix {}={}: expected a whole number of at least 1", key, value));
    }
  }
  return {};
}

const std::vector<Planner>& search_planners() {
  static const std::vector<Planner> planners = {
      {"auto",
       "finds which dims each axis cuts, then meshes, stages, shards and recomputation",
       find_automatically,
       {"offload", "rims", "halo_layers", "prefetch", "bucket_bytes", "outer_every", "cp", "ep"},
       true},
      {"megatron_grid",
       "all (tp, pp, dp, micro-batch, chunks, ZeRO, recompute) with Megatron's dims: the baseline",
       find_in_megatron_grid,
       {},
       true},
      {"recipes",
       "every recipe, with the arguments that are its fastest by simulation; --explain lists them",
       find_by_recipes,
       {"cp", "ep"}},
      {"neuroshard", "embedding tables by NeuroShard's search, and the rest as auto",
       [](const PlanQuestion& question) { return plan_tables(question, "neuroshard"); }},
      {"torchrec", "embedding tables by TorchRec's planner, and the rest as auto",
       [](const PlanQuestion& question) { return plan_tables(question, "torchrec"); }}};
  return planners;
}

Result<PlanAnswer> find_plan(const PlanQuestion& question, const std::string& planner,
                             const std::vector<Planner>& planners) {
  TESSERA_TRY_VOID(check_question(question));
  std::vector<std::string> names;
  for (const Planner& one : planners) {
    if (one.name == planner) {
      TESSERA_TRY_VOID(check_own_keys(question, one, planners));
      TESSERA_TRY_VOID(check_objective(question, one, planners));
      TESSERA_TRY(PlanQuestion fixed, fixed_by_part(question));
      // A degree of one is no degree, and leaves every planner its choice.
      std::erase_if(fixed.fixed, [](const auto& degree) {
        return (degree.first == "cp" || degree.first == "ep") && degree.second == "1";
      });
      fixed.broken = std::make_shared<BrokenInvariants>();
      Result<PlanAnswer> found = find_by_objective(fixed, one);
      if (!found) {
        Error error = found.error();
        if (fixed.broken->count > 0) error.message += "; " + fixed.broken->left_out("plan");
        return tl::unexpected(std::move(error));
      }
      PlanAnswer answer = *std::move(found);
      if (answer.deadline_s == 0) answer.deadline_s = fixed.objective.deadline_s;
      fixed.objective.within = 0;
      fixed.objective.deadline_s = answer.deadline_s;
      if (answer.best && !fixed.objective.meets_deadline(*answer.simulated[*answer.best].step_s))
        answer.best.reset();
      if (question.explain && answer.best) {
        answer.with_twice_rates = answer_after(fixed, one, "link:inner*2,link:bridge*2,link:nic*2");
        fixed.memory_limit_bytes *= 2;
        answer.with_twice_memory = answer_after(fixed, one, "device:memory*2");
      }
      answer.broken = *fixed.broken;
      return answer;
    }
    names.push_back(one.name);
  }
  return invalid_input(fmt::format("plan: unknown planner '{}', did you mean '{}'? ({})", planner,
                                   nearest(planner, names), join(names, ", ")));
}

std::string to_text(const PlanAnswer& answer, const PlanQuestion& question, bool explain) {
  std::string out;
  if (!answer.best) {
    const PlanCandidate *smallest = nullptr, *late = nullptr;
    for (const PlanCandidate& candidate : answer.simulated) {
      if (!candidate.step_s) continue;
      if (smallest == nullptr || candidate.need_bytes < smallest->need_bytes) smallest = &candidate;
      if (candidate.fits && (late == nullptr || *candidate.step_s < *late->step_s))
        late = &candidate;
    }
    if (late != nullptr) {
      out = fmt::format(
          "no plan takes at most {} a step: the fastest of {} simulated plans takes {} ({}); "
          "expected a later --within or more devices\n",
          time_text(answer.deadline_s), answer.simulated.size(), time_text(*late->step_s),
          late->name());
    } else if (smallest == nullptr) {
      out = fmt::format("no plan: {} programs were tried and refused, the first because {}\n",
                        answer.simulated.size(),
                        answer.simulated.empty() ? "none was tried" : answer.simulated[0].refused);
    } else {
      out = fmt::format(
          "{}: the smallest of {} simulated plans needs {} of {}, {} too much ({}); "
          "more devices, a smaller batch or a larger limit would help{}\n",
          answer.ended == "stopped" ? "stopped before a plan was found that fits" : "nothing fits",
          answer.simulated.size(), memory_text(smallest->need_bytes),
          memory_text(answer.limit_bytes), memory_text(smallest->need_bytes - answer.limit_bytes),
          smallest->name(),
          smallest->call.empty() ? "; by formula the smallest choice needs " +
                                       memory_text(answer.curve.front().estimate.memory_bytes)
                                 : "");
    }
  } else {
    const PlanCandidate& best = answer.simulated[*answer.best];
    out = fmt::format(
        "{}\n"
        "step      {}{}\n"
        "memory    {} a device{}\n"
        "{}"
        "devices   {} of {}\n"
        "bound     {} ({}), gap {:.2f} times\n"
        "{}"
        "searched  {}{}\n",
        best.name(), time_text(*best.step_s),
        best.call.empty() ? fmt::format(" ({} by formula)", time_text(best.estimate.step_s)) : "",
        memory_text(best.need_bytes),
        answer.limit_bytes > 0 ? " of " + memory_text(answer.limit_bytes) : "", host_line(answer),
        answer.simulation->ranks, question.cluster->devices(), time_text(answer.bound_s),
        answer.bound_of, *best.step_s / answer.bound_s, cost_line(answer, question),
        best.call.empty() || answer.estimated > 0
            ? fmt::format("{} choices ranked by formula from {} folded programs, {} "
                          "programs simulated; ",
                          answer.estimated, answer.folded_programs, answer.simulated.size())
            : "",
        answer.ended);
    if (question.part) {
      out += fmt::format("contains  {}, which left out {} of the plans that were to be simulated\n",
                         question.part->plan.file, answer.left_out_for_part);
    }
  }
  if (answer.broken.count > 0) out += "faults    " + answer.broken.left_out("plan") + "\n";
  if (!explain) return out;
  std::vector<std::string> lists;
  for (const auto& list : answer.lists) lists.push_back("[" + join(list, ",") + "]");
  if (!lists.empty())
    out += fmt::format("\nDims that the inner axis was offered: {}\n", join(lists, " "));
  out += "\nCandidates, as they were tried (* the answer):\n";
  for (size_t i = 0; i < answer.simulated.size(); ++i) {
    out += candidate_row(answer.simulated[i], answer.best && *answer.best == i);
  }
  if (answer.simulation) {
    out += fmt::format("\nTime of the devices: {}\n", what_binds(*answer.simulation));
  }
  if (answer.with_twice_memory_s) {
    out += fmt::format("With twice the memory the best choice by formula takes {}\n",
                       time_text(*answer.with_twice_memory_s));
  }
  if (answer.best && !answer.blocks.empty()) out += explanation_text(answer);
  return out;
}

}  // namespace tessera
