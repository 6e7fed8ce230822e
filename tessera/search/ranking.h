// Ranks the choices of a space by formula. Units are priced as rarely as possible: recomputation
// makes a step longer, so a choice with it is priced only where the same choice without it does not
// fit and is no slower than what fits already.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/search/planner.h"

namespace tessera {

using DimList = std::vector<std::string>;  // ChoiceAxis::dims

// What a planner tries. Degrees are all that divide the devices.
struct Space {
  // By the inner axis of a stage: the lists of dims that it may cut.
  std::vector<DimList> lists;
  std::vector<std::string> recompute;  // least first; "none" is among them
  std::vector<std::string> schedules;
  std::vector<int64_t> chunks;
};

class Ranking {
 public:
  // All outlive the ranking.
  Ranking(const PlanQuestion& question, const Fold& fold, UnitPricer& pricer);
  std::vector<PlanCandidate> rank(const Space& space);

  // Lists of dims found by trying on the smallest inner axis: a beam search whose step inserts a
  // dim at some place of a list, until no step shortens the time of a sequence; once without
  // replicas and once from {"batch"} on. Of each, those that no other list beats in both time and
  // memory are returned, the fastest first; and each of these made longer at its end by dims
  // that save activations for at most a few percent of time.
  std::vector<DimList> find_lists();

  double limit_bytes() const { return limit_; }  // of a device; 0: none
  const std::string& last_refusal() const { return refusal_; }
  const Fold& fold() const { return fold_; }
  // The value that is fixed; 0: it is not.
  int64_t fixed(const std::string& key) const;
  bool allows(const std::string& key, int64_t value) const;
  bool allows(const std::string& key, const std::string& value) const;

 private:
  struct Shape {  // how the devices are divided
    int64_t stages, replicas, inner;
  };
  std::vector<Shape> shapes() const;
  void rank_shape(const Shape& shape, const Space& space, const std::string& recompute,
                  std::vector<PlanCandidate>& out);

  const PlanQuestion& question_;
  const Fold& fold_;
  UnitPricer& pricer_;
  Estimator estimator_;
  double limit_ = 0;
  double best_s_ = 0;  // of the choices that fit by formula; 0: none yet
  std::string refusal_;
};

using SpaceMaker = std::function<Result<Space>(Ranking&)>;
// What every planner does with its space: ranks it, simulates the best, answers.
Result<PlanAnswer> find_in_space(const PlanQuestion& question, const SpaceMaker& space_of);
Result<Space> whole_space(Ranking& ranking);
Result<Space> megatron_space(Ranking& ranking);

}  // namespace tessera
