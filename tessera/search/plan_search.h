// What every planner starts from and ends with. It starts from the question's model, folded, and a
// pricer for its units; it ends with candidates that are ranked by formula. The programs of the best
// of these are lowered and simulated, and the fastest that fits is the answer.
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

// A plan that needs so many times the memory of a device may fit after small changes.
inline constexpr double kNearlyFits = 1.3;

class PlanSearch {
 public:
  // `question` outlives the search. Errors: those of the model's text.
  static Result<std::unique_ptr<PlanSearch>> begin(const PlanQuestion& question);

  const PlanQuestion& question() const { return question_; }
  const Graph& forward() const { return *forward_; }
  const Fold& fold() const { return fold_; }
  UnitPricer& pricer() { return *pricer_; }
  double limit_bytes() const { return limit_; }  // of the smallest device; 0: none

  // Candidates that a better one leads to, with estimates: what a local search tries next.
  using EditsOf = std::function<std::vector<PlanCandidate>(const PlanCandidate&)>;
  using Refine = CandidatePool::Refine;
  // Candidates need a choice and an estimate. The one that is expected to be the fastest is
  // simulated next, where the programs that were simulated before correct the estimates of choices
  // like theirs; edits of each new best one join the candidates. `refusal`: why there are no
  // candidates, if there are none. Errors: no candidate, or none that contains the question's part.
  Result<PlanAnswer> answer(std::vector<PlanCandidate> ranked, const std::string& refusal = "",
                            const EditsOf& edits_of = {}, const Refine& refine = {});

  // With the question's part in it.
  Result<Plan> plan_of(const Choice& choice) const;

  // For planners whose plans are no choices. Lowers and simulates a plan and notes the outcome in the
  // candidate.
  // `most_work`: larger programs (PlanCandidate::work) are refused before they are simulated.
  void judge_plan(const Plan& plan, PlanCandidate& candidate, double most_work = kInfinity);
  // The end of such a planner: `answer` has its candidates and which of them is best, whose plan this
  // is.
  Result<PlanAnswer> answer_with(PlanAnswer answer, const Plan& plan);

  // May so many programs be simulated that these decide where formulas err?
  bool has_cheap_programs() const;

  void say(const std::string& what) const;

 private:
  explicit PlanSearch(const PlanQuestion& question) : question_(question) {}
  Result<Simulation> simulate_quickly(const Lowering& lowering,
                                      std::function<bool(int64_t)> may_play = {}) const;
  Result<Simulation> simulate_in_full(const Lowering& lowering) const;
  // False: the candidate is left out, and says why.
  bool note(const Lowering& lowering, const Simulation& simulation, PlanCandidate& candidate) const;
  // Lowering and playing: a broken invariant of ours is an error of the plan that shows it.
  Result<std::unique_ptr<Lowering>> lower(const Plan& plan);
  Result<Simulation> play(const Lowering& lowering, const SimulateOptions& options) const;
  enum class Judged : uint8_t {
    kSimulated,
    kNothingNew,  // an earlier candidate's plan says the same, or the question's part cannot stand in it
    kPutAside  // its programs are far larger than others; asked again, they are simulated
  };
  // Lowers and simulates the candidate's program, and notes the outcome in it.
  Judged judge(PlanCandidate& candidate, const std::vector<PlanCandidate>& before);
  Result<std::string> text_of(const Choice& choice) const;
  // Why a plan cannot contain the part: the first of its entries with which the choice is refused.
  Error why_not(const Choice& choice);
  // Simulates candidates of the pool until `most` programs were simulated or no other candidate is
  // expected to be faster. kOneFits: at the most until one fits, the smallest first.
  enum class Until : uint8_t { kNoneIsFaster, kOneFits };
  void judge_pool(CandidatePool& pool, size_t most, PlanAnswer& answer,
                  Until until = Until::kNoneIsFaster);
  std::optional<size_t> worth_an_edit(const PlanAnswer& answer,
                                      const std::set<size_t>& edited) const;
  // A small question may have used all its programs up without one that fits. It goes on then, because
  // estimates of memory err by more than plans differ where the limit is near to what every plan needs:
  // with edits of what was simulated, then with the smallest of the other candidates.
  bool goes_on(const PlanAnswer& answer) const;
  // Simulates edits of the best program, and of each better one that is found. `most`: programs of the whole
  // answer; `too_large`: as most_too_large of a pool; `edited`: programs whose edits are known.
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
  // Lowerings: that of the candidate that was judged last, and that of the best one so far, whose program
  // is simulated in full when the search ends.
  std::unique_ptr<Lowering> judged_last_, judged_best_;
  std::set<std::string> judged_;  // keys of plans (plan_key.h), with the part in them
  // Work of programs (PlanCandidate::work): the smallest; all that were simulated at once, and all that were
  // put aside before.
  double least_work_ = 0, usual_work_ = 0, dear_work_ = 0;
  // By how the devices are divided: the work of a program that was put aside.
  std::map<std::vector<int64_t>, double> dear_;
  std::optional<Choice> without_part_;  // the first candidate in which the part cannot stand
};

// Are programs so cheap, and devices so few, that most choices of a space can be simulated?
bool is_small(const PlanQuestion& question, const Fold& fold);

// What a device may hold: the least of the devices' memories and of what is asked; 0: no limit.
double memory_limit(const PlanQuestion& question);

// By formula: those that fit, the fastest first, then the others, the smallest first.
std::vector<const PlanCandidate*> in_order(const std::vector<PlanCandidate>& ranked);

// Those of which no other one is both faster and smaller by formula, the smallest first.
std::vector<PlanCandidate> pareto_curve(const std::vector<PlanCandidate>& ranked);

}  // namespace tessera
