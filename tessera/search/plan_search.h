// The first and the last step of every planner. The first step folds the question's model and makes
// a pricer for its units. In between the planner ranks candidates by formula. The last step lowers
// and simulates the programs of the best candidates; the fastest that fits is the answer.
//
//   TESSERA_TRY(const auto search, PlanSearch::begin(question));
//   std::vector<PlanCandidate> ranked = ...;       // by an algorithm of the planner's own
//   return search->answer(std::move(ranked));
//
// A planner whose algorithm yields a single plan passes one candidate.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/infinity.h"
#include "tessera/search/candidate_pool.h"
#include "tessera/search/price/unit_prices.h"
#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

class PlanSearch {
 public:
  // Prepares a search; `question` outlives it. Errors: those of the model's text.
  static Result<std::unique_ptr<PlanSearch>> begin(const PlanQuestion& question);

  const PlanQuestion& question() const { return question_; }
  const Graph& forward() const { return *forward_; }
  const Fold& fold() const { return fold_; }
  UnitPricer& pricer() { return *pricer_; }
  double limit_bytes() const { return limit_; }  // memory limit of the smallest device; 0: no limit

  // Returns edits of a candidate, with estimates, for a local search around the best candidates.
  using EditsOf = std::function<std::vector<PlanCandidate>(const PlanCandidate&)>;
  using Refine = CandidatePool::Refine;
  // Simulates the best of the candidates and returns the answer. Each candidate needs a choice and
  // an estimate. The candidate that is expected to be the fastest is always simulated next; earlier
  // programs correct the estimates of similar choices (candidate_pool.h). Then edits of the best
  // programs are simulated, as long as they find better ones. `refusal`: the reason to report if
  // there are no candidates. Errors: no candidate, or none that contains the question's part.
  Result<PlanAnswer> answer(std::vector<PlanCandidate> ranked, const std::string& refusal = "",
                            const EditsOf& edits_of = {}, const Refine& refine = {});

  // Returns the plan of the choice, with the question's part in it.
  Result<Plan> plan_of(const Choice& choice) const;

  // Lowers and simulates a plan, and writes the outcome into the candidate. This is for planners
  // whose plans are no choices. `most_work`: programs with more work (PlanCandidate::work) are not
  // simulated; `refused` then says so.
  void judge_plan(const Plan& plan, PlanCandidate& candidate, double most_work = kInfinity);
  // Completes the answer of a planner that used judge_plan(). `answer` has the candidates and the
  // index of the best one, and `plan` is the plan of the best one.
  Result<PlanAnswer> answer_with(PlanAnswer answer, const Plan& plan);

  // Returns whether the search may simulate so many programs that it need not trust the formulas.
  bool has_cheap_programs() const;

  void say(const std::string& what) const;

 private:
  explicit PlanSearch(const PlanQuestion& question) : question_(question) {}
  Result<Simulation> simulate_quickly(const Lowering& lowering,
                                      std::function<bool(int64_t)> may_play = {}) const;
  Result<Simulation> simulate_in_full(const Lowering& lowering) const;
  // Writes the outcome of a simulation into the candidate. Returns false if an internal invariant
  // was broken; the candidate is then left out and its `refused` says why.
  bool note(const Lowering& lowering, const Simulation& simulation, PlanCandidate& candidate) const;
  // Lowers a plan. This function and play() turn a broken internal invariant into an error of
  // the plan.
  Result<std::unique_ptr<Lowering>> lower(const Plan& plan);
  Result<Simulation> play(const Lowering& lowering, const SimulateOptions& options) const;
  enum class Judged : uint8_t {
    kSimulated,
    kNothingNew,  // an earlier plan is equal, or the plan cannot contain the question's part
    // Not simulated, because its programs are far larger than others; a second call does so.
    kPutAside
  };
  // Lowers and simulates the candidate's program, and writes the outcome into the candidate.
  // `before`: the candidates that were simulated.
  Judged judge(PlanCandidate& candidate, const std::vector<PlanCandidate>& before);
  Result<std::string> text_of(const Choice& choice) const;
  // Tells whoever asked which plan is the best so far.
  void tell_found(const PlanCandidate& best) const;
  // Returns why the plan of the choice cannot contain the part: the error of the first entry of the
  // part with which the plan is refused.
  Error why_not(const Choice& choice);
  // When judge_pool() ends. kNoneIsFaster: when no candidate is expected to be better. kOneFits: as
  // soon as a program fits; the smallest candidates are then simulated first.
  enum class Until : uint8_t { kNoneIsFaster, kOneFits };
  // Simulates candidates of the pool until the answer has `most` programs, or `until` ends it.
  void judge_pool(CandidatePool& pool, size_t most, PlanAnswer& answer,
                  Until until = Until::kNoneIsFaster);
  std::optional<size_t> worth_an_edit(const PlanAnswer& answer,
                                      const std::set<size_t>& edited) const;
  // Returns whether the search simulates more programs than allowed: for small models of which no
  // program fits. The search then goes on with edits of simulated programs, and then with the
  // smallest of the other candidates. It does so because near the memory limit the estimates of
  // memory err by more than plans differ.
  bool goes_on(const PlanAnswer& answer) const;
  // Simulates edits of the best program, and then of each better program that is found. `most`: the
  // most programs of the whole answer. `too_large`: as CandidatePool's most_too_large. `edited`:
  // indices of simulated programs whose edits were made already.
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
  // The lowerings of the candidate that was simulated last, and of the best candidate so far. The
  // best one is simulated once more, with all details, when the search ends.
  std::unique_ptr<Lowering> judged_last_, judged_best_;
  // Keys (plan_key.h) of the plans that were simulated, the part included.
  std::set<std::string> judged_;
  // Work of programs (PlanCandidate::work). least_work_: of the smallest program. usual_work_: the
  // sum over programs that were simulated on their first turn. dear_work_: the sum over programs
  // that were put aside first and simulated later.
  double least_work_ = 0, usual_work_ = 0, dear_work_ = 0;
  // The work of a program that was put aside, by the shape of its meshes. Further candidates of
  // this shape are put aside without lowering.
  std::map<std::vector<int64_t>, double> dear_;
  std::optional<Choice> without_part_;  // the first candidate whose plan cannot contain the part
};

// Returns whether the model is small for so many devices (kSmallOps), so that most
// choices can be simulated.
bool is_small(const PlanQuestion& question, const Fold& fold);

}  // namespace tessera
