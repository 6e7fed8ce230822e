// Decides which candidate of a search is simulated next, and whether another one is worth a
// program. Candidates come with estimates; the step times of simulated programs correct what is
// expected of the candidates that wait.
//
//   CandidatePool pool(question.margin, 4, false);
//   for (PlanCandidate& one : ranked) pool.add(std::move(one));
//   while (auto next = pool.take(best_s, Care::kNarrow, kInfinity)) {
//     simulate(*next);      // sets step_s and need_bytes
//     pool.learn(*next);
//   }
//
// The expected time of a candidate is its estimate times a ratio: that of program to estimate for
// the simulated choices most similar to it. Where no simulated choice is similar, the ratio is a
// part of the formula's mean error in this search. A candidate is taken as long as it is expected
// to be at most a little slower than the best program. This allowance is smaller for choices much
// like simulated ones, and where the formula was seen to err nearly alike for all choices of the
// search. A candidate that is faster by formula than the best program, and differs from it in
// shards alone, is taken in any case.
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

// How much an expected time may err. kNarrow: less, the more a candidate resembles simulated ones.
// kWide: more, for the beginning of a search. kAll: by PlanQuestion::margin or twice, for small
// models. kEvery: by any amount, so that every candidate is simulated. kSmallest: as kEvery, but
// the candidates with the least expected memory come first, for the end of a search in which none
// fitted.
enum class Care : uint8_t { kNarrow, kWide, kAll, kEvery, kSmallest };

class CandidatePool {
 public:
  // Replaces a candidate's estimate by a better one. This is too slow for all candidates, so it is
  // called only for those that come next.
  using Refine = std::function<void(PlanCandidate&)>;

  // Makes an empty pool. `margin`: PlanQuestion::margin. `most_too_large`: how many candidates may
  // be taken though they are not expected to fit. `refine` may be empty.
  CandidatePool(double margin, size_t most_too_large, bool is_small, Refine refine = {})
      : margin_(margin),
        most_too_large_(most_too_large),
        is_small_(is_small),
        refine_(std::move(refine)) {}

  size_t size() const { return all_.size(); }

  // Adds a candidate. Choices of equal estimates are nearly always one plan, written in two ways:
  // the first is kept. For small models all are kept; the texts of their plans are compared before
  // a program is made.
  void add(PlanCandidate candidate);
  // Adds the candidate unless the pool has seen one of equal estimated time. Edits of one plan in
  // several stages often save equally much: simulating one of them shows what they are worth, and
  // the others come back as edits of that one.
  void add_if_unlike(PlanCandidate candidate);

  // Learns from a simulated program: choices like it are now expected to exceed their estimates of
  // time and memory as this program did, the more so the more they are like it.
  void learn(const PlanCandidate& simulated);

  // Takes the candidate that is expected to be the fastest of those expected to fit. If no
  // candidate is expected to fit and `best_s` is 0, takes the smallest, a few times. Returns
  // nothing if no candidate can be expected to take less than best_s, allowing for an error of the
  // expectation. `most_work`: candidates that were put aside are taken only if no others are left,
  // and only with at most this work.
  std::optional<PlanCandidate> take(double best_s, Care care, double most_work);

  // Puts a candidate that was taken back into the pool, to wait until the others were taken.
  void put_aside(PlanCandidate candidate) { append(std::move(candidate)); }

 private:
  struct Lesson {
    Choice choice;
    double step_s = 0, estimated_s = 0;
    double time_log = 0, memory_log = 0;  // logarithms of program divided by estimate
  };
  struct Waiting {
    Choice choice;
    Estimate estimate;
    bool fits = false, is_refined = false;
    double order_s = 0;  // of candidates that fit: the one with the least is taken first
    double work = 0;     // of candidates that were put aside
    // Sums over the simulated choices that are most like this one. The ratios are those of program
    // to estimate, if these choices are believed as far as they are like this one.
    int alike_most = 0, lessons = 0;
    double time_log = 0, memory_log = 0;
    double time_ratio = 1, memory_ratio = 1;

    void learn(const Lesson& lesson);
    // Returns whether the choice is the simulated one with replicas and stages in the other order
    // on the nodes, where the formula sees no difference between the two.
    bool is_turned(const Lesson& lesson) const;
    // Returns whether the choice differs from the simulated one in Choice::sharded alone and is
    // faster by formula.
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
  // The logarithm of program divided by estimate that is expected where no simulated choice is
  // similar, and the standard deviation of this logarithm over all lessons.
  double usual_log_ = 0, spread_ = 0;
  // The largest ratio of estimate to program that was seen, at least 1.
  double most_too_slow_ = 1;
  size_t too_large_ = 0;  // candidates that were taken though they were not expected to fit
  size_t most_too_large_;
  bool is_small_;
  Refine refine_;
  std::vector<Waiting> all_;
  std::vector<size_t> waiting_;  // of candidates that were not taken: positions in all_, in order
  std::unordered_map<double, std::vector<size_t>> by_step_;  // positions in all_, by estimated time
  std::vector<Lesson> lessons_;
};

}  // namespace tessera
