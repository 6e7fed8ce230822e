// Which candidate of a search is simulated next, and whether another one is worth a program. Candidates
// come with estimates; what programs took corrects the expectations of those that wait.
//
//   CandidatePool pool(question.margin, 4, false);
//   for (PlanCandidate& one : ranked) pool.add(std::move(one));
//   while (auto next = pool.take(best_s, Care::kNarrow, kInfinity)) {
//     simulate(*next);      // sets step_s and need_bytes
//     pool.learn(*next);
//   }
//
// An expectation is the estimate times what programs of the most similar choices took, measured by their
// own estimates. Where no simulated choice is similar, a part of what the formula errs in the mean of
// this search is taken to hold. A candidate is taken as long as it is expected to be at most a little slower
// than the best program. How much is a little: less for choices much like simulated ones, and less where
// the formula was seen to err nearly alike for all choices of the search. A candidate that is faster by
// formula than the best program, and differs from it in shards alone, is taken in any case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tessera/search/answer.h"
#include "tessera/search/question.h"

namespace tessera {

// How much an expectation may err. kNarrow: the less, the more a candidate is like what was simulated.
// kWide: more, for the beginning of a search. kAll: by PlanQuestion::margin or twice, for small models.
// kEvery: by anything, so that every candidate is simulated. kSmallest: as kEvery, and those that are expected
// to be the smallest come first, for the end of a search in which nothing fitted.
enum class Care : uint8_t { kNarrow, kWide, kAll, kEvery, kSmallest };

class CandidatePool {
 public:
  // A better estimate, which is too slow for all candidates; asked for those that come next.
  using Refine = std::function<void(PlanCandidate&)>;

  // `margin`: PlanQuestion::margin. `most_too_large`: candidates that may be taken though they are not
  // expected to fit. `refine` may be empty.
  CandidatePool(double margin, size_t most_too_large, bool is_small, Refine refine = {})
      : margin_(margin),
        most_too_large_(most_too_large),
        is_small_(is_small),
        refine_(std::move(refine)) {}

  size_t size() const { return all_.size(); }

  // Choices of equal estimates are nearly always one plan, written in two ways: the first is kept. Of
  // small models all are kept; the texts of their plans are compared before a program is made.
  void add(PlanCandidate candidate);
  // Edits of one plan in several stages that save equally much: one of them shows what they are worth,
  // and the others are edits of that one again.
  void add_if_unlike(PlanCandidate candidate);

  // A program was simulated: choices like it are expected to be slower and larger than by formula as
  // it is, the more so the more they are like it.
  void learn(const PlanCandidate& simulated);

  // Takes the candidate that is expected to be the fastest of those expected to fit; if there are
  // none and `best_s` is 0, the smallest, a few times. Nothing if no candidate can be expected to take
  // less than best_s, allowing for an error of the expectation. `most_work`: of those that were put
  // aside only these are taken, and only if there are no others.
  std::optional<PlanCandidate> take(double best_s, Care care, double most_work);

  // A candidate that was taken waits again, until the others were taken.
  void put_aside(PlanCandidate candidate) { append(std::move(candidate)); }

 private:
  struct Lesson {
    Choice choice;
    double step_s = 0, estimated_s = 0;
    double time_log = 0, memory_log = 0;  // logarithms of program by formula
  };
  struct Waiting {
    Choice choice;
    Estimate estimate;
    bool fits = false, is_refined = false;
    double order_s = 0;  // of candidates that fit: the least is taken first
    double work = 0;     // of those that were put aside
    // Sums over the simulated choices that are most like this one, and what programs are expected to take,
    // times the estimates, if these choices are believed as far as they are like this one.
    int alike_most = 0, lessons = 0;
    double time_log = 0, memory_log = 0;
    double time_ratio = 1, memory_ratio = 1;

    void learn(const Lesson& lesson);
    // Is it the simulated choice with replicas and stages in the other order on the nodes, where the
    // formula sees no difference between the two?
    bool is_turned(const Lesson& lesson) const;
    // Does it differ from the simulated choice in Choice::sharded alone, and is it faster by formula?
    bool is_faster_in_shards(const Lesson& lesson) const;
    double memory_bytes() const { return estimate.memory_bytes * memory_ratio; }
    bool comes_before(const Waiting& other) const {
      if (fits != other.fits) return fits;
      return fits ? order_s < other.order_s : memory_bytes() < other.memory_bytes();
    }
  };

  void append(PlanCandidate candidate);
  std::optional<PlanCandidate> take_of(double best_s, Care care, double most_work);
  Waiting* expected_next(double best_s, Care care, double most_work);
  double margin(Care care) const;

  double margin_;
  // The logarithm of program by formula that is expected where no simulated choice is similar, and the
  // standard deviation of this logarithm over all lessons.
  double usual_log_ = 0, spread_ = 0;
  // So many times longer than a program's step the formula said, at the most.
  double most_too_slow_ = 1;
  size_t too_large_ = 0;  // candidates that were taken though they were not expected to fit
  size_t most_too_large_;
  bool is_small_;
  Refine refine_;
  std::vector<Waiting> all_;
  std::vector<size_t> waiting_;  // where in all_, in this order: those that were not taken
  std::unordered_map<double, std::vector<size_t>> by_step_;  // where in all_, by estimated time
  std::vector<Lesson> lessons_;
};

}  // namespace tessera
