// The beginning and the end of every planner. It begins with the question's model, folded, and a
// pricer for its units; it ends with candidates that are ranked by formula. The programs of the
// best of these are lowered and simulated, and the fastest that fits is the answer.
//
//   TESSERA_TRY(const auto search, PlanSearch::begin(question));
//   std::vector<PlanCandidate> ranked = ...;       // by an algorithm of the planner's own
//   return search->answer(std::move(ranked));
//
// A planner whose algorithm decides alone hands over one candidate.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/candidate_pool.h"
#include "tessera/search/infinity.h"
#include "tessera/search/question.h"
#include "tessera/search/unit_prices.h"

namespace tessera {

// A plan that needs up to this many times the memory of a device may fit after small changes.
inline constexpr double kNearlyFits = 1.3;

class PlanSearch {
 public:
  // Prepares a search; `question` outlives it. Errors: those of the model's text.
  static Result<std::unique_ptr<PlanSearch>> begin(const PlanQuestion& question);

  const PlanQuestion& question() const { return question_; }
  const Graph& forward() const { return *forward_; }
  const Fold& fold() const { return fold_; }
  UnitPricer& pricer() { return *pricer_; }
  double limit_bytes() const { return limit_; }  // of the smallest device; 0: none

  // Returns candidates that a better one leads to, with estimates: a local search tries them next.
  using EditsOf = std::function<std::vector<PlanCandidate>(const PlanCandidate&)>;
  using Refine = CandidatePool::Refine;
  // Simulates the best of the candidates, which need a choice and an estimate, and returns the
  // answer. The candidate that is expected to be the fastest is simulated next, where earlier
  // programs correct the estimates of choices like theirs; edits of each new best one join the
  // candidates. `refusal`: why there are no candidates, if there are none. Errors: no candidate, or
  // none that contains the question's part.
  Result<PlanAnswer> answer(std::vector<PlanCandidate> ranked, const std::string& refusal = "",
                            const EditsOf& edits_of = {}, const Refine& refine = {});

  // Returns the plan of the choice, with the question's part in it.
  Result<Plan> plan_of(const Choice& choice) const;

  // Lowers and simulates a plan, and notes the outcome in the candidate. For planners whose plans
  // are no choices. `most_work`: larger programs (PlanCandidate::work) are refused before they are
  // simulated.
  void judge_plan(const Plan& plan, PlanCandidate& candidate, double most_work = kInfinity);
  // Completes the answer of such a planner: `answer` has its candidates and the index of the best
  // one, whose plan is `plan`.
  Result<PlanAnswer> answer_with(PlanAnswer answer, const Plan& plan);

  // Returns whether so many programs may be simulated that these decide where formulas err.
  bool has_cheap_programs() const;

  void say(const std::string& what) const;

 private:
  explicit PlanSearch(const PlanQuestion& question) : question_(question) {}
  Result<Simulation> simulate_quickly(const Lowering& lowering,
                                      std::function<bool(int64_t)> may_play = {}) const;
  Result<Simulation> simulate_in_full(const Lowering& lowering) const;
  // Notes the outcome in the candidate. Returns false if the candidate is left out; it then says
  // why.
  bool note(const Lowering& lowering, const Simulation& simulation, PlanCandidate& candidate) const;
  // Lowers a plan. This and play() treat a broken internal invariant as an error of the plan.
  Result<std::unique_ptr<Lowering>> lower(const Plan& plan);
  Result<Simulation> play(const Lowering& lowering, const SimulateOptions& options) const;
  enum class Judged : uint8_t {
    kSimulated,
    kNothingNew,  // an earlier plan says the same, or the question's part cannot stand in it
    kPutAside     // its programs are far larger than others; asked again, they are simulated
  };
  // Lowers and simulates the candidate's program, and notes the outcome in the candidate.
  Judged judge(PlanCandidate& candidate, const std::vector<PlanCandidate>& before);
  Result<std::string> text_of(const Choice& choice) const;
  // Returns why no plan can contain the part: the first of its entries with which the choice is
  // refused.
  Error why_not(const Choice& choice);
  // kOneFits: a pool is judged at most until a program fits, the smallest candidates first.
  enum class Until : uint8_t { kNoneIsFaster, kOneFits };
  // Simulates candidates of the pool until `most` programs were simulated or no other candidate is
  // expected to be faster.
  void judge_pool(CandidatePool& pool, size_t most, PlanAnswer& answer,
                  Until until = Until::kNoneIsFaster);
  std::optional<size_t> worth_an_edit(const PlanAnswer& answer,
                                      const std::set<size_t>& edited) const;
  // Returns whether a small question that has used all its programs up, and found none that fits,
  // goes on: with edits of what was simulated, then with the smallest of the other candidates.
  // Where the limit is near to what every plan needs, estimates of memory err by more than plans
  // differ.
  bool goes_on(const PlanAnswer& answer) const;
  // Simulates edits of the best program, and of each better one that is found. `most`: programs of
  // the whole answer; `too_large`: as most_too_large of a pool; `edited`: programs whose edits are
  // known.
  void edit_best(const EditsOf& edits_of, size_t most, size_t too_large, std::set<size_t>& edited,
                 PlanAnswer& answer);
  void judge_best(std::vector<PlanCandidate> ranked, const EditsOf& edits_of, const Refine& refine,
                  PlanAnswer& answer);
  size_t programs_allowed() const;
  void set_bound(PlanAnswer& answer) const;
  Error no_choice(const std::string& refusal) const;

  const PlanQuestion& question_;
  std::shared_ptr<const Graph> forward_;
  Fold fold_;
  std::unique_ptr<UnitPricer> pricer_;
  double limit_ = 0;
  bool is_small_ = false;
  Compiler compiler_;
  // The lowerings of the candidate that was judged last and of the best one so far, whose program
  // is simulated in full when the search ends.
  std::unique_ptr<Lowering> judged_last_, judged_best_;
  std::set<std::string> judged_;  // keys of plans (plan_key.h), with the part in them
  // Work of programs (PlanCandidate::work): of the smallest program, of all that were simulated at
  // once, and of all that had been put aside before they were simulated.
  double least_work_ = 0, usual_work_ = 0, dear_work_ = 0;
  // The work of a program that was put aside, by how the devices are divided.
  std::map<std::vector<int64_t>, double> dear_;
  std::optional<Choice> without_part_;  // the first candidate in which the part cannot stand
};

// Returns whether programs are so cheap, and devices so few, that most choices can be simulated.
bool is_small(const PlanQuestion& question, const Fold& fold);

// Returns the bytes that a device may hold: the least of the devices' memories and of the
// question's limit; 0: no limit.
double memory_limit(const PlanQuestion& question);

// Sorts by formula: candidates that fit, the fastest first, then the others, the smallest first.
std::vector<const PlanCandidate*> in_order(const std::vector<PlanCandidate>& ranked);

// Returns the candidates that no other one beats in both time and memory by formula, smallest
// first.
std::vector<PlanCandidate> pareto_curve(const std::vector<PlanCandidate>& ranked);

}  // namespace tessera
