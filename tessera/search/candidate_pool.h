// Decides which candidate of a search is simulated next, and whether another one is worth a
// program. Each candidate comes with an estimate by formula. The step times of simulated programs
// correct the times that are expected of the candidates that are not yet simulated.
//
//   CandidatePool pool(question, question.margin, 4, false);
//   for (PlanCandidate& one : ranked) pool.add(std::move(one));
//   while (auto next = pool.take(best, Care::kNarrow, kInfinity)) {
//     simulate(*next);      // sets step_s and need_bytes
//     pool.learn(*next);
//   }
//
// The expected time of a candidate is its estimate times a ratio. The ratio is the simulated step
// time divided by the estimate, averaged over the simulated choices most similar to the candidate.
// Where no simulated choice is similar, the ratio follows from the formula's mean error in this
// search, which is believed the more, the better the errors agree. Candidates are taken as long as
// they are expected to be at most a little slower than the best program. This allowance is smaller
// for candidates that are much like simulated choices, and where the formula's errors were nearly
// equal for all simulated choices. A candidate is taken in any case if it differs from the best
// program in Choice::sharded alone and is faster by formula.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tessera/search/question/answer.h"
#include "tessera/search/question/question.h"

namespace tessera {

// The error that take() allows in an expected time. kNarrow: an error that is smaller, the more the
// candidate resembles simulated ones. kWide: PlanQuestion::margin, for the beginning of a search.
// kAll: PlanQuestion::margin, but at least kFormulaErrs, for small models. kEvery: any error, so
// that every candidate is simulated. kSmallest: the candidate with the least expected memory is
// taken first, for the end of a search in which no candidate fitted.
enum class Care : uint8_t { kNarrow, kWide, kAll, kEvery, kSmallest };

class CandidatePool {
 public:
  // Replaces a candidate's estimate by a more exact one. Because this is slow, the pool refines
  // only the candidate that it is about to take, and then decides anew.
  using Refine = std::function<void(PlanCandidate&)>;

  // Makes an empty pool. `question` outlives it. `margin`: PlanQuestion::margin. `most_too_large`: the most candidates that
  // may be taken although they are not expected to fit. `is_small`: whether the model is small
  // (is_small() in plan_search.h). `refine` may be empty.
  CandidatePool(const PlanQuestion& question, double margin, size_t most_too_large, bool is_small,
                Refine refine = {})
      : question_(question),
        margin_(margin),
        most_too_large_(most_too_large),
        is_small_(is_small),
        refine_(std::move(refine)) {}

  size_t size() const { return all_.size(); }

  // Adds a candidate. If a candidate with the same estimates of time and memory, stages, unit
  // settings and cuts is known, drops the new one, because two such choices nearly always write one
  // plan. For small models keeps all candidates; the texts of their plans are compared before a
  // program is made.
  void add(PlanCandidate candidate);
  // Adds the candidate unless the pool has seen a candidate of equal expected merit. Edits of one
  // plan that change different stages often save equally much. Simulating one of these edits shows
  // what they are worth, and the other edits are made again from the simulated one.
  void add_if_unlike(PlanCandidate candidate);

  // Learns from a simulated program by how much it exceeded its estimates of time and memory.
  // Similar waiting candidates are now expected to exceed their estimates by the same factors,
  // which count the more, the more similar the candidate is.
  void learn(const PlanCandidate& simulated);

  // Takes the candidate that is expected to be the best of those expected to fit. If no candidate is
  // expected to fit and `best` is null (no program fits yet), takes the smallest candidate, at most
  // `most_too_large` times. Returns nothing if no candidate can be better than the simulated `best`
  // within the error that `care` allows. `most_work`: candidates that were put aside are
  // taken only if no other candidate is left, and only if their work is at most this.
  std::optional<PlanCandidate> take(const PlanCandidate* best, Care care, double most_work);

  // Puts a candidate that was taken back into the pool, where it waits until all other candidates
  // were taken.
  void put_aside(PlanCandidate candidate) { append(std::move(candidate)); }

 private:
  struct Lesson {
    Choice choice;
    double step_s = 0, estimated_s = 0;
    // Logarithms of the simulated value divided by the estimate.
    double time_log = 0, memory_log = 0;
  };
  struct Waiting {
    std::unique_ptr<Choice> choice;  // apart, because each take() reads all other members
    Estimate estimate;
    UsedDevices used;
    bool fits = false, is_refined = false;
    Merit order = {};  // as expected; of the candidates that fit, the best is taken first
    double work = 0;   // PlanCandidate::work if the candidate was put aside, else 0
    // Over the simulated choices that are most like this candidate: the number of respects in which
    // they are alike (alike_most), their number, and the sums of their logarithms. The ratios are
    // what the candidate's estimates are multiplied by: the mean ratio of program to estimate,
    // weakened where the choices are less alike.
    int alike_most = 0, lessons = 0;
    double time_log = 0, memory_log = 0;
    double time_ratio = 1, memory_ratio = 1;

    void learn(const Lesson& lesson);
    // Returns whether the choice differs from the simulated one in Choice::replicas_apart alone and
    // the formula gives both the same time.
    bool is_turned(const Lesson& lesson) const;
    // Returns whether the choice differs from the simulated one in Choice::sharded alone and is
    // faster by formula.
    bool is_faster_in_shards(const Lesson& lesson) const;
    double memory_bytes() const { return estimate.memory_bytes * memory_ratio; }
    bool comes_before(const Waiting& other) const {
      if (fits != other.fits) return fits;
      return fits ? order < other.order : memory_bytes() < other.memory_bytes();
    }
  };

  void append(PlanCandidate candidate);
  std::optional<PlanCandidate> take_of(const PlanCandidate* best, Care care, double most_work);
  Waiting* expected_next(const PlanCandidate* best, Care care, double most_work);
  double margin(Care care) const;

  const PlanQuestion& question_;
  double margin_;
  // usual_log_: the expected logarithm of (program / estimate) for candidates that no simulated
  // choice resembles. spread_: the standard deviation of this logarithm over all lessons.
  double usual_log_ = 0, spread_ = 0;
  // The largest ratio of estimate to program that was seen, at least 1.
  double most_too_slow_ = 1;
  size_t too_large_ = 0;  // number of candidates taken that were not expected to fit
  size_t most_too_large_;
  bool is_small_;
  Refine refine_;
  std::vector<Waiting> all_;
  std::vector<size_t> waiting_;  // positions in all_ of the candidates that were not taken, rising
  std::unordered_map<double, std::vector<size_t>> by_step_;  // positions in all_, by estimated time
  std::vector<Lesson> lessons_;
};

}  // namespace tessera
