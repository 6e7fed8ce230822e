#include "tessera/search/edits/recipe_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "tessera/base/text.h"
#include "tessera/search/constants.h"
#include "tessera/search/question/plan_key.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

// Returns the smallest prime that divides n > 1.
int64_t least_prime(int64_t n) {
  for (int64_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

// Returns the leads: the values of the best candidates that fit, the best first.
std::vector<CallValues> leads_of(const PlanQuestion& question,
                                 const std::vector<PlanCandidate>& candidates) {
  std::vector<const PlanCandidate*> order;
  for (const PlanCandidate& one : candidates) {
    if (one.step_s && one.fits) order.push_back(&one);
  }
  std::ranges::stable_sort(order, {},
                           [&](const PlanCandidate* one) { return merit_of(question, *one); });
  if (order.size() > kFew) order.resize(kFew);
  std::vector<CallValues> out;
  for (const PlanCandidate* one : order) {
    CallValues values = values_of(one->choice);
    if (std::find(out.begin(), out.end(), values) == out.end()) out.push_back(std::move(values));
  }
  return out;
}

}  // namespace

CallValues values_of(const Choice& choice) {
  const int64_t replicas = choice.axes.empty() ? 1 : choice.axes.front().size;
  return {{"pp", std::to_string(choice.stages)},
          {"dp", std::to_string(replicas)},
          {"tp", std::to_string(choice.ranks() / choice.stages / replicas)},
          {"micro_batches", std::to_string(choice.micro_batches)},
          {"zero", std::to_string(choice.sharded)},
          {"chunks", std::to_string(choice.chunks)},
          {"schedule", choice.schedule},
          {"recompute", choice.recompute}};
}

void JudgedPlans::note(const Objective& objective, const PlanCandidate& simulated) {
  if (!simulated.step_s) return;
  work += simulated.work;
  ++programs;
  if (!simulated.fits || (best && objective.merit(facts_of(simulated).scaled(1 / kGain)) > *best))
    return;
  best = objective.merit(facts_of(simulated));
  last_gain = programs;
  work_at_gain = work;
}

bool JudgedPlans::is_over() const {
  return work >= most_work ||
         (may_tire && (programs - last_gain > std::max(2 * kLeastPrograms, programs / 2) ||
                       work - work_at_gain > kRaceWork / 4));
}

RecipeSweep::RecipeSweep(PlanSearch& search, const Recipe& recipe, int64_t devices,
                         JudgedPlans& judged)
    : search_(search), recipe_(recipe), devices_(devices), judged_(judged) {}

bool RecipeSweep::begin() {
  if (!make_base()) return false;
  find_degrees();
  starts_ = starts_of();
  return true;
}

void RecipeSweep::line_up(const std::vector<CallValues>& leads) {
  for (const CallValues& lead : leads) {
    const auto call = with_values(base_, lead, true);
    if (call) queue_.push_back(*call);
  }
  // Takes the middle of the list, the middles of its halves, of its quarters, and so on.
  // After every two starts come both again with the first lead's values for arguments that
  // are no degrees.
  std::vector<RecipeCall> waiting;
  size_t size = 1;
  while (size < starts_.size()) size *= 2;
  for (size_t next = 0; next < size; ++next) {
    size_t at = 0;
    for (size_t bit = 1, value = size / 2; bit < size; bit *= 2, value /= 2)
      at += (next & bit) != 0 ? value : 0;
    at = (at + size / 2) % size;
    if (at >= starts_.size()) continue;
    queue_.push_back(starts_[at]);
    const auto led = leads.empty() ? std::nullopt : with_values(starts_[at], leads.front(), false);
    if (led) waiting.push_back(*led);
    if (next % 2 == 0) continue;
    queue_.insert(queue_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }
  queue_.insert(queue_.end(), waiting.begin(), waiting.end());
}

// Returns the call with `values` for those of its arguments that are not fixed; nothing if it has
// no such argument. `degrees`: whether to set degrees, too.
std::optional<RecipeCall> RecipeSweep::with_values(RecipeCall call, const CallValues& values,
                                                   bool degrees) const {
  bool has_any = false;
  for (const RecipeArgument& argument : recipe_.arguments) {
    const auto value = values.find(argument.name);
    const bool is_degree = std::any_of(degrees_.begin(), degrees_.end(), [&](const Degree& degree) {
      return degree.argument == &argument;
    });
    if (value == values.end() || is_fixed(argument) || (is_degree && !degrees)) continue;
    if (argument.is_text) {
      if (!check_choice(argument, value->second)) continue;
      call.arguments.texts[argument.name] = value->second;
    } else {
      const auto number = parse_int(value->second);
      if (!number || *number < argument.minimum) continue;
      call.arguments.numbers[argument.name] = *number;
    }
    has_any = true;
  }
  return has_any ? std::optional(std::move(call)) : std::nullopt;
}

void RecipeSweep::run(size_t most) {
  most_ = most;
  const size_t first = std::max<size_t>(1, most / 3);
  // Takes starts evenly spread over the list. If some are refused, takes the ones that follow them.
  const size_t step = std::max<size_t>(1, starts_.size() / first);
  for (size_t offset = 0; offset < step; ++offset) {
    for (size_t i = offset; i < starts_.size() && simulated_ < first && !stopped(); i += step)
      try_call(starts_[i]);
  }
  while (simulated_ < most && open() != nullptr && !stopped()) climb(most - simulated_);
}

void RecipeSweep::try_starts(size_t programs) {
  most_ = simulated_ + programs;
  while (next_start_ < queue_.size() && simulated_ < most_ && !stopped())
    try_call(queue_[next_start_++]);
}

const TriedCall* RecipeSweep::open() const {
  const TriedCall* out = nullptr;
  for (const TriedCall& one : tried_) {
    if (left_.contains(one.candidate.call)) continue;
    if (out == nullptr || merit(one.candidate) < merit(out->candidate)) out = &one;
  }
  return out;
}

void RecipeSweep::climb(size_t programs) {
  const TriedCall* from = open();
  if (from == nullptr) return;
  most_ = simulated_ + programs;
  left_.insert(from->candidate.call);
  go_on_from(*from);
}

const TriedCall* RecipeSweep::best() const {
  const TriedCall* best = nullptr;
  for (const TriedCall& one : tried_) {
    if (best == nullptr || merit(one.candidate) < merit(best->candidate)) best = &one;
  }
  if (best == nullptr || !best->candidate.fits) return best;
  const double share = tie_share(*search_.question().cluster);
  const TriedCall* out = best;
  for (const TriedCall& one : tried_) {
    if (one.candidate.fits && ties(merit(one.candidate), merit(best->candidate), share) &&
        is_simpler(one.candidate, out->candidate))
      out = &one;
  }
  return out;
}

bool RecipeSweep::is_fixed(const RecipeArgument& argument) const {
  return search_.question().fixed.contains(argument.name);
}

// Makes base_, the call in which every argument has its fixed value, its default, its least number
// or its first choice. Returns false if an argument must be a text of the user's, or if something
// is fixed that is no argument of the recipe.
bool RecipeSweep::make_base() {
  base_.recipe = &recipe_;
  std::set<std::string> names;
  for (const RecipeArgument& argument : recipe_.arguments) {
    names.insert(argument.name);
    std::string value;
    if (const auto fixed = search_.question().fixed.find(argument.name);
        fixed != search_.question().fixed.end()) {
      value = fixed->second;
    } else if (argument.otherwise) {
      value = *argument.otherwise;
    } else if (!argument.is_text) {
      value = std::to_string(argument.minimum);
    } else if (argument.choices.empty()) {
      return false;
    } else {
      value = argument.choices.front();
    }
    if (argument.is_text) {
      if (!check_choice(argument, value)) return false;
      base_.arguments.texts[argument.name] = value;
    } else {
      const auto number = parse_int(value);
      if (!number || *number < argument.minimum) return false;
      base_.arguments.numbers[argument.name] = *number;
    }
  }
  compute_in(search_.question().compute, base_);
  for (const auto& [key, value] : search_.question().fixed) {
    if (key != "devices" && !names.contains(key)) return false;
  }
  return true;
}

// Returns the call's plan with the question's part; nothing if the recipe refuses the arguments, or
// writes a text that is no plan.
std::optional<Plan> RecipeSweep::plan_of(const RecipeCall& call) const {
  const PlanQuestion& question = search_.question();
  auto plan = question.broken->run([&]() -> Result<Plan> {
    TESSERA_TRY(const std::string text, emit_recipe(call, search_.forward(), to_string(call)));
    TESSERA_TRY(Plan own, parse_plan(text, to_string(call)));
    return question.part ? add_part(std::move(own), *question.part) : own;
  });
  return plan ? std::optional<Plan>(*std::move(plan)) : std::nullopt;
}

void RecipeSweep::find_degrees() {
  std::vector<RecipeCall> bases = {base_, base_};
  for (const RecipeArgument& argument : recipe_.arguments) {
    if (argument.is_text || is_fixed(argument)) continue;
    int64_t& number = bases.back().arguments.numbers[argument.name];
    number = std::max<int64_t>(number, 2);
  }
  for (const RecipeArgument& argument : recipe_.arguments) {
    if (argument.is_text || is_fixed(argument)) continue;
    std::map<int64_t, int64_t> ranks;  // the plan's ranks, by value of the argument
    for (RecipeCall call : bases) {
      ranks.clear();
      for (const int64_t value : {1, 2, 3, 4}) {
        if (value < argument.minimum) continue;
        call.arguments.numbers[argument.name] = value;
        if (const auto plan = plan_of(call)) ranks[value] = plan->ranks();
      }
      if (!ranks.empty() && ranks.begin()->second != ranks.rbegin()->second) break;
    }
    if (ranks.empty() || ranks.begin()->second == ranks.rbegin()->second) {
      numbers_.push_back(&argument);
      continue;
    }
    const bool squares = ranks.contains(1) && ranks.contains(2) && ranks[2] == 4 * ranks[1];
    degrees_.push_back({&argument, squares ? 2 : 1});
  }
}

// Returns the starts: calls whose degrees multiply to the number of devices. At most kFew
// degrees are above their least value; calls with fewer of these come first. Whether a plan really
// has as many ranks as there are devices shows only when it is written.
std::vector<RecipeCall> RecipeSweep::starts_of() const {
  std::vector<RecipeCall> out;
  const std::vector<int64_t> values = divisors_of(devices_);
  // The base call may already have several ranks, because of fixed arguments.
  const auto least = plan_of(base_);
  const int64_t ranks = least ? least->ranks() : 1;
  for (size_t above = 0; above <= std::min(kFew, degrees_.size()); ++above)
    add_starts(base_, 0, above, ranks, ranks, values, out);
  return out;
}
// Adds starts in which `above` more degrees are raised, from number `from` on. `product`: of the
// degrees so far; `ranks`: the product of their powers (Degree::power).
void RecipeSweep::add_starts(const RecipeCall& call, size_t from, size_t above, int64_t product,
                             int64_t ranks, const std::vector<int64_t>& values,
                             std::vector<RecipeCall>& out) const {
  if (above == 0) {
    if (product == devices_ || ranks == devices_) out.push_back(call);
    return;
  }
  for (size_t i = from; i < degrees_.size(); ++i) {
    RecipeCall next = call;
    int64_t& number = next.arguments.numbers[degrees_[i].argument->name];
    const int64_t least = std::max<int64_t>(1, number);
    for (const int64_t value : values) {
      if (value <= least || value % least != 0 || product * (value / least) > devices_) continue;
      number = value;
      const int64_t times = value / least;
      add_starts(next, i + 1, above - 1, product * times,
                 ranks * (degrees_[i].power == 2 ? times * times : times), values, out);
    }
  }
}

// Returns a bound on the ops of the plan's program: the model's ops times the steps of the plan's
// longest loop.
int64_t RecipeSweep::texts_of(const Plan& plan) const {
  int64_t steps = 1;
  for (const SplitEntry& entry : plan.splits) steps = std::max(steps, entry.steps);
  for (const LoopEntry& entry : plan.loops) steps = std::max(steps, entry.steps);
  return steps * static_cast<int64_t>(search_.forward().ops().size());
}

// Simulates the call's program and returns the tried call. If an equal plan was simulated before,
// takes its result. Returns null if the call was tried before, has another number of ranks than
// devices, cannot be simulated, or its plan equals that of an earlier call of this recipe.
const TriedCall* RecipeSweep::try_call(const RecipeCall& call) {
  if (simulated_ >= most_ || judged_.is_over()) return nullptr;
  if (!known_.insert(to_string(call)).second) return nullptr;
  auto plan = plan_of(call);
  // Plans that change values on their way are no answer to the question.
  if (!plan || plan->ranks() != devices_ || !plan->compress.empty()) return nullptr;
  if (texts_of(*plan) > static_cast<int64_t>(kSearchOps)) return nullptr;
  const auto [it, is_new] = judged_.by_key.try_emplace(plan_key(*plan, search_.forward()));
  // A call whose plan equals that of an earlier call is no new start for neighbours.
  if (!own_plans_.insert(it->first).second) return nullptr;
  if (is_new) {
    search_.say(fmt::format("{} of at most {}: {}", simulated_ + 1, most_, to_string(call)));
    search_.judge_plan(*plan, it->second, judged_.most_work_of_one);
    if (it->second.step_s) ++simulated_;
    judged_.note(search_.question().objective, it->second);
  }
  if (!it->second.step_s) return nullptr;
  PlanCandidate candidate = it->second;
  candidate.call = to_string(call);
  tried_.push_back({call, *std::move(plan), std::move(candidate)});
  return &tried_.back();
}

// Goes to the first better neighbour until there is none.
void RecipeSweep::go_on_from(TriedCall at) {
  bool gained = true;
  while (gained && simulated_ < most_ && !stopped()) {
    gained = false;
    for (const RecipeCall& next : neighbours(at.call)) {
      const TriedCall* one = try_call(next);
      if (one == nullptr || merit(one->candidate) >= merit(at.candidate)) continue;
      at = *one;
      gained = true;
      break;
    }
  }
}

std::vector<RecipeCall> RecipeSweep::neighbours(const RecipeCall& call) const {
  std::vector<RecipeCall> out;
  for (const RecipeArgument* argument : numbers_) {
    const int64_t now = call.arguments.number(argument->name);
    for (const int64_t next : {2 * now, now / 2, now + 1, now - 1}) {
      if (next == now || next < argument->minimum) continue;
      out.push_back(call);
      out.back().arguments.numbers[argument->name] = next;
    }
  }
  for (const RecipeArgument& argument : recipe_.arguments) {
    if (!argument.is_text || is_fixed(argument) || argument.by_name) continue;
    for (const std::string& choice : argument.choices) {
      if (choice == call.arguments.text(argument.name)) continue;
      out.push_back(call);
      out.back().arguments.texts[argument.name] = choice;
    }
  }
  for (const auto& [from, from_power] : degrees_) {
    const int64_t has = call.arguments.number(from->name);
    if (has < 2) continue;
    const int64_t factor = least_prime(has);
    if (has / factor < from->minimum) continue;
    for (const auto& [to, to_power] : degrees_) {
      if (to == from) continue;
      out.push_back(call);
      out.back().arguments.numbers[from->name] = has / factor;
      int64_t& number = out.back().arguments.numbers[to->name];
      number = std::max<int64_t>(1, number) * factor;
    }
  }
  return out;
}

RecipeRace race_recipes(PlanSearch& search, int64_t devices, size_t programs,
                        const std::vector<PlanCandidate>& before) {
  const PlanQuestion& question = search.question();
  const auto stopped = [&] { return question.stop && question.stop(); };
  JudgedPlans judged;
  judged.most_work = kRaceWork;
  judged.most_work_of_one = kRaceWork / 8;
  for (const PlanCandidate& one : before) {
    const auto plan = search.plan_of(one.choice);
    if (plan) judged.by_key.emplace(plan_key(*plan, search.forward()), one);
  }
  const std::vector<CallValues> leads = leads_of(question, before);
  std::vector<RecipeSweep> all;
  for (const Recipe& recipe : all_recipes()) {
    if (stopped()) break;
    RecipeSweep sweep(search, recipe, devices, judged);
    if (!sweep.begin()) continue;
    sweep.line_up(leads);
    all.push_back(std::move(sweep));
  }
  RecipeRace out;
  const auto left = [&] {
    size_t used = 0;
    for (const RecipeSweep& sweep : all) used += sweep.simulated();
    return judged.is_over() ? 0 : programs - std::min(programs, used);
  };
  const auto merit = [&](const PlanCandidate& one) { return merit_of(question, one); };
  const auto is_far_worse = [&](const PlanCandidate& one, const Merit& best, double times) {
    return one.fits && question.objective.merit(facts_of(one).scaled(1 / times)) > best;
  };
  std::optional<Merit> best_before;
  for (const PlanCandidate& one : before) {
    if (one.step_s && one.fits && (!best_before || merit(one) < *best_before))
      best_before = merit(one);
  }
  // Recipes are hopeless if their best start is far worse than the best of all.
  const auto is_hopeless = [&](const RecipeSweep& sweep) {
    return std::ranges::any_of(std::array{best_before, judged.best}, [&](const auto& best) {
      return best && is_far_worse(sweep.best()->candidate, *best, static_cast<double>(kFew));
    });
  };
  std::vector<RecipeSweep*> racing;
  for (RecipeSweep& sweep : all) racing.push_back(&sweep);
  // The first round has one start for each recipe, which shows that most of them cannot win.
  const auto may_start = [&] {
    return 2 * left() > programs && judged.work < kRaceWork / 4 && !stopped();
  };
  for (size_t round = 0; racing.size() > kFew && may_start(); ++round) {
    const size_t starts = round == 0 ? 1 : round == 1 ? kFew - 1 : kFew;
    for (RecipeSweep* sweep : racing) {
      if (may_start()) sweep->try_starts(std::min(starts, left()));
    }
    std::erase_if(racing, [&](const RecipeSweep* sweep) {
      return sweep->best() == nullptr || is_hopeless(*sweep);
    });
    if (round == 0) continue;
    std::ranges::stable_sort(
        racing, {}, [&](const RecipeSweep* sweep) { return merit(sweep->best()->candidate); });
    racing.resize((racing.size() + 1) / 2);
  }
  // Climbs from the best open() call of all recipes, again and again.
  judged.may_tire = true;
  judged.last_gain = judged.programs;
  judged.work_at_gain = judged.work;
  while (left() > 0 && !stopped()) {
    RecipeSweep* next = nullptr;
    const PlanCandidate* best = nullptr;
    for (RecipeSweep& sweep : all) {
      if (sweep.best() != nullptr &&
          (best == nullptr || merit(sweep.best()->candidate) < merit(*best)))
        best = &sweep.best()->candidate;
      const TriedCall* open = sweep.open();
      if (open != nullptr &&
          (next == nullptr || merit(open->candidate) < merit(next->open()->candidate)))
        next = &sweep;
    }
    if (next == nullptr) break;
    const PlanCandidate& from = next->open()->candidate;
    if (best->fits && (!from.fits || is_far_worse(from, merit(*best), kFormulaErrs))) break;
    if (is_hopeless(*next)) break;
    next->climb(left());
  }
  for (const RecipeSweep& sweep : all) {
    out.programs += sweep.simulated();
    out.recipes += sweep.simulated() > 0 ? 1 : 0;
    if (sweep.best() != nullptr) out.found.push_back(*sweep.best());
  }
  std::ranges::stable_sort(out.found, {},
                           [&](const TriedCall& one) { return merit(one.candidate); });
  return out;
}

}  // namespace tessera
