// Finds the arguments of recipes that are the fastest by simulation. A sweep does not know what a
// recipe does. It takes the arguments and their choices from the table of recipes. It finds out
// which numbers are degrees (numbers on which the plan's number of ranks depends) by writing plans
// with different values.
//
//   JudgedPlans judged;
//   RecipeSweep sweep(search, *find_recipe("megatron"), devices, judged);
//   if (sweep.begin()) sweep.run(48);
//   sweep.best();            // the call, its plan and the simulated candidate
//
//   std::vector<TriedCall> found = race_recipes(search, devices, 100).found;   // all recipes together
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/plan/recipes.h"
#include "tessera/search/plan_search.h"

namespace tessera {

// A call with its plan and the simulated candidate.
struct TriedCall {
  RecipeCall call;
  Plan plan;
  PlanCandidate candidate;
};

// The values of arguments, by the names that the planner `auto` and recipes have in
// common (fix_keys()).
using CallValues = std::map<std::string, std::string>;
CallValues values_of(const Choice& choice);

// The plans that were simulated, by key (plan_key.h), so that a plan that several recipes write is
// simulated only once; and counters of a race.
struct JudgedPlans {
  std::map<std::string, PlanCandidate> by_key;
  // The sum of PlanCandidate::work, and the sum at which simulating ends.
  double work = 0, most_work = kInfinity;
  double most_work_of_one = kInfinity;
  size_t programs = 0;        // number of programs that the race has simulated
  std::optional<Merit> best;  // the best merit of these programs that fits
  size_t last_gain = 0;       // `programs` when `best` was found
  double work_at_gain = 0;    // `work` when `best` was found
  // Whether the race ends when the last half of its programs, or much work, have brought no gain.
  bool may_tire = false;
  void note(const Objective& objective, const PlanCandidate& simulated);
  bool is_over() const;
};

// Finds the arguments of one recipe. Starts are calls whose degrees make as many ranks as there are
// devices. The sweep lists all starts and simulates some of them. From the best of these it goes to
// neighbours (a factor moved from one degree to another, another number or choice of one argument)
// as long as they are better.
class RecipeSweep {
 public:
  // Prepares a sweep. `judged`: may be shared with the sweeps of other recipes. All arguments
  // outlive the sweep.
  RecipeSweep(PlanSearch& search, const Recipe& recipe, int64_t devices, JudgedPlans& judged);
  // Finds the degrees and the starts. Returns false if an argument must be a text of the user's, or
  // if the recipe has no argument for something that the question fixes.
  bool begin();
  // Simulates at most so many programs: a third for starts, the others for neighbours.
  void run(size_t most);

  // Sets the order in which try_starts() takes starts. (A race uses line_up(), try_starts() and
  // climb() in place of run().) `leads`: values from fast plans of an earlier search. First come
  // calls with the values of each lead. Then come all starts, in an order that spreads evenly over
  // them, and each of these also with the first lead's values for arguments that are no degrees.
  void line_up(const std::vector<CallValues>& leads);
  // Simulates at most so many more programs of starts.
  void try_starts(size_t programs);
  // Returns the best call from which the sweep has not yet gone to neighbours; null if there
  // is none.
  const TriedCall* open() const;
  // Goes from open() to better neighbours until there is no better one, or so many programs
  // were simulated.
  void climb(size_t programs);

  // Returns the simplest of the calls that tie with the fastest one (effort.h); null if none
  // was simulated.
  const TriedCall* best() const;
  size_t simulated() const { return simulated_; }

 private:
  // An argument on whose number the plan's number of ranks depends, and the power of the number
  // with which the ranks grow.
  struct Degree {
    const RecipeArgument* argument;
    int power = 1;
  };
  Merit merit(const PlanCandidate& simulated) const {
    return merit_of(search_.question(), simulated);
  }
  bool stopped() const { return search_.question().stop && search_.question().stop(); }
  bool is_fixed(const RecipeArgument& argument) const;
  bool make_base();
  std::optional<RecipeCall> with_values(RecipeCall call, const CallValues& values,
                                        bool degrees) const;
  std::optional<Plan> plan_of(const RecipeCall& call) const;
  void find_degrees();
  std::vector<RecipeCall> starts_of() const;
  void add_starts(const RecipeCall& call, size_t from, size_t above, int64_t product, int64_t ranks,
                  const std::vector<int64_t>& values, std::vector<RecipeCall>& out) const;
  int64_t texts_of(const Plan& plan) const;
  const TriedCall* try_call(const RecipeCall& call);
  void go_on_from(TriedCall at);
  std::vector<RecipeCall> neighbours(const RecipeCall& call) const;

  PlanSearch& search_;
  const Recipe& recipe_;
  int64_t devices_;
  JudgedPlans& judged_;
  size_t most_ = 0, simulated_ = 0;  // numbers of programs
  RecipeCall base_;
  std::vector<Degree> degrees_;
  std::vector<const RecipeArgument*> numbers_;  // numeric arguments that are no degrees
  std::vector<RecipeCall> starts_;
  std::vector<RecipeCall> queue_;  // the starts for try_starts(), in order
  size_t next_start_ = 0;
  std::set<std::string> known_;  // calls that were tried
  std::set<std::string> own_plans_;
  std::set<std::string> left_;    // calls whose neighbours were tried
  std::vector<TriedCall> tried_;  // calls whose programs are known
};

// The result of a race of all recipes for a limited number of programs. In the first round each
// recipe simulates a few starts. Each further round gives more starts to the better half of the
// recipes; hopelessly slow ones are dropped. Then the race climbs (RecipeSweep::climb) from the
// best calls of all recipes, as long as these are not much slower than the best one. A race ends
// earlier if its programs are large (PlanCandidate::work), or no longer bring a gain.
struct RecipeRace {
  std::vector<TriedCall> found;      // the best call of each recipe, the best first
  size_t programs = 0, recipes = 0;  // programs simulated, and recipes with at least one
};
// Races all recipes. `before`: simulated candidates of an earlier search for the question. Their
// plans are not simulated again, and the values of the fastest ones are tried in recipes that have
// such arguments.
RecipeRace race_recipes(PlanSearch& search, int64_t devices, size_t programs,
                        const std::vector<PlanCandidate>& before);

}  // namespace tessera
