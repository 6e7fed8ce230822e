#include "tessera/search/planners/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/plan/plan.h"
#include "tessera/plan/recipes.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/question.h"

namespace tessera {
namespace {

constexpr size_t kMostDegrees = 3;  // of one call that are above their least
// Programs of a recipe that may be simulated unless the question says how many: few of large models.
constexpr size_t kFewPrograms = 10, kManyPrograms = 48;
constexpr size_t kOpsOfRecipe = 10000;  // of these programs together

constexpr int64_t kMostTexts = 30000;  // of ops and their loops' steps: such programs take seconds

// A call with its plan, and what its program takes.
struct Tried {
  RecipeCall call;
  Plan plan;
  PlanCandidate candidate;
};

bool is_better(const PlanCandidate& a, const PlanCandidate& b) {
  if (a.fits != b.fits) return a.fits;
  return a.fits ? *a.step_s < *b.step_s : a.need_bytes < b.need_bytes;
}

// The smallest prime that divides n > 1.
int64_t least_prime(int64_t n) {
  for (int64_t p = 2; p * p <= n; ++p) {
    if (n % p == 0) return p;
  }
  return n;
}

// Finds the arguments of one recipe. Numbers that change how many ranks a plan has are degrees: all
// ways to make as many ranks as there are devices are known first, some of them are simulated, and
// from the best of these one goes to neighbours (a factor from one degree to another, another number
// or choice) as long as they are better.
class RecipeSweep {
 public:
  RecipeSweep(PlanSearch& search, const Recipe& recipe, int64_t devices, size_t most)
      : search_(search), recipe_(recipe), devices_(devices), most_(most) {}

  // Nothing if the recipe makes no plan of the model that can be simulated.
  std::optional<Tried> run() {
    if (!make_base()) return {};
    find_degrees();
    const std::vector<RecipeCall> starts = starts_of();
    const size_t first = std::max<size_t>(1, most_ / 3);
    // Evenly over all, and where these are refused the ones behind them.
    const size_t step = std::max<size_t>(1, starts.size() / first);
    for (size_t offset = 0; offset < step; ++offset) {
      for (size_t i = offset; i < starts.size() && simulated_ < first && !stopped(); i += step)
        try_call(starts[i]);
    }
    std::set<std::string> left;
    while (simulated_ < most_ && !stopped()) {
      const Tried* from = nullptr;
      for (const Tried& one : tried_) {
        if (!left.contains(one.candidate.call) &&
            (from == nullptr || is_better(one.candidate, from->candidate))) {
          from = &one;
        }
      }
      if (from == nullptr) break;
      left.insert(from->candidate.call);
      go_on_from(*from);
    }
    const Tried* best = nullptr;
    for (const Tried& one : tried_) {
      if (best == nullptr || is_better(one.candidate, best->candidate)) best = &one;
    }
    return best == nullptr ? std::nullopt : std::optional<Tried>(*best);
  }

  size_t simulated() const { return simulated_; }

 private:
  bool stopped() const { return search_.question().stop && search_.question().stop(); }
  bool is_fixed(const RecipeArgument& argument) const {
    return search_.question().fixed.contains(argument.name);
  }

  // Every argument at its default or its least. False: an argument must be a text of the user's, or
  // what is fixed is not one of the recipe's arguments.
  bool make_base() {
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

  // Nothing if the recipe refuses the arguments, or writes what is no plan.
  std::optional<Plan> plan_of(const RecipeCall& call) const {
    const auto text = emit_recipe(call, search_.forward(), to_string(call));
    if (!text) return {};
    auto plan = parse_plan(*text, to_string(call));
    return plan ? std::optional<Plan>(*std::move(plan)) : std::nullopt;
  }

  // A number of which a plan has another number of ranks when it changes, and the power of it with
  // which the ranks grow.
  struct Degree {
    const RecipeArgument* argument;
    int power = 1;
  };

  void find_degrees() {
    std::vector<RecipeCall> bases = {base_, base_};
    for (const RecipeArgument& argument : recipe_.arguments) {
      if (argument.is_text || is_fixed(argument)) continue;
      int64_t& number = bases.back().arguments.numbers[argument.name];
      number = std::max<int64_t>(number, 2);
    }
    for (const RecipeArgument& argument : recipe_.arguments) {
      if (argument.is_text || is_fixed(argument)) continue;
      std::map<int64_t, int64_t> ranks;  // by value
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

  // Calls whose degrees are divisors of the number of devices, few of them above their least and of
  // this product: those with one such degree first. Which of them have as many ranks as there are
  // devices is seen when their plans are written.
  std::vector<RecipeCall> starts_of() const {
    std::vector<RecipeCall> out;
    const std::vector<int64_t> values = divisors_of(devices_);
    // What is fixed may cut the model over ranks already.
    const auto least = plan_of(base_);
    const int64_t ranks = least ? least->ranks() : 1;
    for (size_t above = 0; above <= std::min(kMostDegrees, degrees_.size()); ++above)
      add_starts(base_, 0, above, ranks, ranks, values, out);
    return out;
  }
  // `product`: of the degrees so far; `ranks`: of their powers.
  void add_starts(const RecipeCall& call, size_t from, size_t above, int64_t product, int64_t ranks,
                  const std::vector<int64_t>& values, std::vector<RecipeCall>& out) const {
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

  // At most so many ops, each counted for every step of its longest loop, has the plan's program.
  int64_t texts_of(const Plan& plan) const {
    int64_t steps = 1;
    for (const SplitEntry& entry : plan.splits) steps = std::max(steps, entry.steps);
    for (const LoopEntry& entry : plan.loops) steps = std::max(steps, entry.steps);
    return steps * static_cast<int64_t>(search_.forward().ops().size());
  }

  // Simulates the call's program, if it has as many ranks as there are devices and was not tried.
  const Tried* try_call(const RecipeCall& call) {
    if (simulated_ >= most_ || !known_.insert(to_string(call)).second) return nullptr;
    auto plan = plan_of(call);
    // Values that change on their way are no answer to the question.
    if (!plan || plan->ranks() != devices_ || !plan->compress.empty()) return nullptr;
    if (texts_of(*plan) > kMostTexts) return nullptr;
    PlanCandidate candidate;
    candidate.call = to_string(call);
    search_.say(fmt::format("{} of at most {}: {}", simulated_ + 1, most_, candidate.call));
    search_.judge_plan(*plan, candidate);
    if (!candidate.step_s) return nullptr;
    ++simulated_;
    tried_.push_back({call, *std::move(plan), std::move(candidate)});
    return &tried_.back();
  }

  // Goes to the first better neighbour until there is none.
  void go_on_from(Tried at) {
    bool gained = true;
    while (gained && simulated_ < most_ && !stopped()) {
      gained = false;
      for (const RecipeCall& next : neighbours(at.call)) {
        const Tried* one = try_call(next);
        if (one == nullptr || !is_better(one->candidate, at.candidate)) continue;
        at = *one;
        gained = true;
        break;
      }
    }
  }

  std::vector<RecipeCall> neighbours(const RecipeCall& call) const {
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

  PlanSearch& search_;
  const Recipe& recipe_;
  int64_t devices_;
  size_t most_, simulated_ = 0;
  RecipeCall base_;
  std::vector<Degree> degrees_;
  std::vector<const RecipeArgument*> numbers_;  // the others
  std::set<std::string> known_;                 // calls that were tried
  std::vector<Tried> tried_;                    // those that were simulated
};

}  // namespace

Result<PlanAnswer> find_by_recipes(const PlanQuestion& question) {
  if (question.part) {
    return invalid_input(
        fmt::format("{}: planner recipes: expected no part of a plan, recipes take arguments "
                    "(--fix KEY=VALUE)",
                    question.part->plan.file));
  }
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  const int64_t fixed = fixed_number(question, "devices");
  const int64_t devices = fixed > 0 ? fixed : question.cluster->devices();
  const std::vector<Recipe>& recipes = all_recipes();
  const size_t most =
      question.evaluations > 0
          ? std::max<size_t>(1, question.evaluations / recipes.size())
          : std::clamp(kOpsOfRecipe / search->forward().ops().size(), kFewPrograms, kManyPrograms);
  std::vector<Tried> found;
  size_t programs = 0;
  for (const Recipe& recipe : recipes) {
    if (question.stop && question.stop()) break;
    RecipeSweep sweep(*search, recipe, devices, most);
    if (auto best = sweep.run()) found.push_back(*std::move(best));
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
  std::stable_sort(found.begin(), found.end(), [](const Tried& a, const Tried& b) {
    return is_better(a.candidate, b.candidate);
  });
  PlanAnswer answer;
  answer.limit_bytes = search->limit_bytes();
  answer.ended =
      fmt::format("{} programs of {} recipes were simulated, {} of them make plans of the model",
                  programs, recipes.size(), found.size());
  for (const Tried& one : found) answer.simulated.push_back(one.candidate);
  answer.curve = pareto_curve(answer.simulated);
  if (!found.front().candidate.fits) return answer;
  answer.best = 0;
  TESSERA_TRY(answer.plan,
              emit_recipe(found.front().call, search->forward(), found.front().candidate.call));
  return search->answer_with(std::move(answer), found.front().plan);
}

}  // namespace tessera
