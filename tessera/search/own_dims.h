// Makes edits that give units dims of their own. A search cuts all units by the same lists of
// dims. Where a model's layers differ (convolutions of large maps and of many channels, an
// encoder and a decoder, dense layers after convolutions), some units may be faster with another
// list. The gain must be larger than the cost of changing the layout of tensors between
// neighbouring units. A dynamic program over the row of units finds such lists from prices of the
// folded model (unit_cuts.h; "chain program" there and here). The search then simulates these
// edits like all others.
//
//   OwnDims own(*search, ranking);
//   for (const PlanCandidate& edit : own.edits(best, space)) ...
#pragma once

#include <vector>

#include "tessera/search/ranking.h"
#include "tessera/search/unit_cuts.h"

namespace tessera {

class OwnDims {
 public:
  // Makes edits for the candidates of a search. Both arguments outlive the object.
  OwnDims(PlanSearch& search, Ranking& ranking);

  // Returns edits of the candidate in which units have the dims that the chain program chooses. One
  // edit lets each unit choose among all lists of the space, the batch and single dims. Every other
  // edit lets the units choose between the candidate's own list and one other list. The edits with
  // the largest gain by formula come first. If the candidate has replicas only, they become an axis
  // inside the stage, so that units may be cut along other dims than the batch. Returns none if
  // nothing is gained, or if the candidate has units with own dims already, slices, meshes by
  // stage, or replicas_apart with replicas only.
  std::vector<PlanCandidate> edits(const PlanCandidate& from, const Space& space);

 private:
  // Sets the lists that the chain program may choose from: the lists of the space, single dims, the
  // batch, and the lists of `inner`, the candidate's axes inside a stage.
  void offer(const std::vector<ChoiceAxis>& inner, const Space& space);

  PlanSearch& search_;
  Ranking& ranking_;
  UnitCuts cuts_;
};

}  // namespace tessera
