// Finds the arguments of recipes that are the fastest by simulation. A sweep knows nothing of what
// a recipe does: its arguments and their choices are those of the table of recipes, and which of
// its numbers are degrees, which count ranks, is found by writing plans.
//
//   JudgedPlans judged;
//   RecipeSweep sweep(search, *find_recipe("megatron"), devices, judged);
//   if (sweep.begin()) sweep.run(48);
//   sweep.best();            // its call, its plan and what the program takes
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
// Returns whether `a` is better: one that fits, then the faster one; of two that do not fit the
// smaller one.
bool is_better(const PlanCandidate& a, const PlanCandidate& b);

// The values of arguments by name, of those names that `auto` and recipes have in common
// (fix_keys()).
using CallValues = std::map<std::string, std::string>;
CallValues values_of(const Choice& choice);

// The plans that were simulated, by key (plan_key.h), so that a plan that several recipes write is
// simulated once.
struct JudgedPlans {
  std::map<std::string, PlanCandidate> by_key;
  // Sum of PlanCandidate::work, and the sum from which on nothing more is simulated.
  double work = 0, most_work = kInfinity;
  double most_work_of_one = kInfinity;
  size_t programs = 0;        // number that the race has simulated
  double best_s = kInfinity;  // the fastest of them that fits
  size_t last_gain = 0;       // `programs` when best_s was found
  double work_at_gain = 0;    // `work` when best_s was found
  // Whether the race ends once half of its programs, or much work, have brought no gain.
  bool may_tire = false;
  void note(const PlanCandidate& simulated);
  bool is_over() const;
};

// Finds the arguments of one recipe. Numbers that change how many ranks a plan has are degrees. All
// ways to make as many ranks as there are devices are known first, and some of them are simulated.
// From the best of these the sweep goes to neighbours (a factor from one degree to another, another
// number or choice) as long as they are better.
class RecipeSweep {
 public:
  // Prepares a sweep. `judged`: of other recipes, too. All arguments outlive the sweep.
  RecipeSweep(PlanSearch& search, const Recipe& recipe, int64_t devices, JudgedPlans& judged);
  // Returns false if the recipe makes no plan of the model, or has no argument for what the
  // question fixes.
  bool begin();
  // Simulates at most so many programs, a third of them where the search starts.
  void run(size_t most);

  // Sets the starts in the order in which they will be tried (the steps of run() for races): calls
  // with the values of the leads, then calls that lie evenly among all, each also with the first
  // lead's values beside the degrees.
  void line_up(const std::vector<CallValues>& leads);
  // Simulates at most so many more programs of starts.
  void try_starts(size_t programs);
  // Returns the best call whose neighbours were not all tried; null: there is none.
  const TriedCall* open() const;
  // Goes from open() to better neighbours until there is none, or so many programs were simulated.
  void climb(size_t programs);

  // Returns the fastest call, or the simplest that ties with it (effort.h); null: none.
  const TriedCall* best() const;
  size_t simulated() const { return simulated_; }

 private:
  // A number whose change gives a plan another number of ranks, and the power of the number with
  // which the ranks grow.
  struct Degree {
    const RecipeArgument* argument;
    int power = 1;
  };
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
  size_t most_ = 0, simulated_ = 0;  // of programs
  RecipeCall base_;
  std::vector<Degree> degrees_;
  std::vector<const RecipeArgument*> numbers_;  // the other numeric arguments
  std::vector<RecipeCall> starts_;
  std::vector<RecipeCall> queue_;  // for try_starts
  size_t next_start_ = 0;
  std::set<std::string> known_;  // calls that were tried
  std::set<std::string> own_plans_;
  std::set<std::string> left_;    // calls whose neighbours were tried
  std::vector<TriedCall> tried_;  // calls whose programs are known
};

// All recipes race against one another, with so many programs together: each gets a few starts, the
// better half of them more, and so on, but none that is hopelessly slow; then the search climbs
// from the best calls of all, as long as these are not much slower than the best one. A race ends
// earlier if its programs are large (PlanCandidate::work), or bring no gain any more.
struct RecipeRace {
  std::vector<TriedCall> found;      // the best call of each recipe, the best first
  size_t programs = 0, recipes = 0;  // programs simulated, recipes that make plans of the model
};
// Races all recipes. `before`: candidates of a search of the same question, with choices. Their
// plans are not simulated again, and the values of the fastest of them are tried in recipes that
// have such arguments.
RecipeRace race_recipes(PlanSearch& search, int64_t devices, size_t programs,
                        const std::vector<PlanCandidate>& before);

}  // namespace tessera
