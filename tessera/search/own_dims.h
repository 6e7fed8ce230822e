// Makes edits that give units dims of their own. A search cuts all units by the same lists of dims.
// Where a model's layers differ (convolutions of large maps and of many channels, an encoder and a
// decoder, dense layers behind convolutions), another list may be better for some of them, if it
// gains more than the change of layout between neighbours costs. A chain program over the units
// finds such lists (unit_cuts.h), on prices of the folded model. The edits are then simulated like
// all others.
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

  // Returns the candidate with the dims that the chain program chooses, once among all lists of the
  // space, the batch and single dims, and once for its own list with each other one; those with the
  // largest gain by formula come first. Replicas may become an axis inside the stage, so that some
  // units are cut otherwise than by the batch there. Returns nothing where nothing is gained, and
  // for candidates that have such units already, slices, meshes by stage or replicas that lie
  // apart.
  std::vector<PlanCandidate> edits(const PlanCandidate& from, const Space& space);

 private:
  // Sets the lists of dims that the chain program may choose from: those of the space, single dims,
  // the batch, and those of `inner`, the candidate's axes inside a stage.
  void offer(const std::vector<ChoiceAxis>& inner, const Space& space);

  PlanSearch& search_;
  Ranking& ranking_;
  UnitCuts cuts_;
};

}  // namespace tessera
