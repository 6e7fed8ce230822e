// Halos of dims that are read through windows: ranks exchange them, but may do two things besides.
// They may compute the interior of their piece first, and the rims when the halo has arrived (over
// = ["h", "time:rims"]). Or they may compute the halo of their own outputs (halo = "compute"), so
// that fewer and wider halos are exchanged.
//
// Rims are a time loop of 1 + 2n steps over the n dims of an op that ask for it. Step 0 is the
// interior: the places whose windows all lie in what the rank holds. Then come the slabs, those of
// the last dim first: the places before the interior along that dim, then the places behind it.
// Along the dims before its own a slab is as large as the interior, along the dims behind its own
// it is whole, so that steps are disjoint and make all places:
//
//      h=2, w=2, a rank in the middle      0 interior
//      3 3 3 3                             1, 2 slabs of w: rows of the interior
//      1 0 0 2                             3, 4 slabs of h: whole rows, with the corners
//      4 4 4 4
//
// An op that computes its halo makes more than its piece: the region that its reader's piece reads,
// and the region for what that reader computes beyond its own piece in turn. Several ranks make the
// same elements, each of them complete. Ops that sum over the dim never compute halos, so nothing
// is counted twice.
#pragma once

#include "tessera/plan/layout.h"
#include "tessera/plan/plan.h"

namespace tessera {

// A `RimCut` is a dim of a loop over interior and rims: the part of it that a rank works on, and
// the part that the rank holds of the tensors that are read through its windows.
struct RimCut {
  size_t position = 0;             // among the dims of the loop, outermost first
  size_t dims = 1;                 // of the loop
  int64_t size = 0;                // of the op's dim
  Axes axes;                       // axes that cut the dim, and what is held
  std::vector<WindowRead> grown;   // as in DimSplit
  std::vector<WindowRead> inside;  // reads that an interior place finds in what is held
  friend bool operator==(const RimCut&, const RimCut&) = default;
};
// Returns the cut of a dim of the op's loop; the dim must be one of rim_dims.
RimCut rim_cut(const Op& op, const OpPlan& plan, int dim, const Graph& graph);
// Returns the op dims of the loop, outermost first.
std::vector<int> rim_dims(const OpPlan& plan);
inline int64_t rim_steps(size_t dims) { return 1 + 2 * static_cast<int64_t>(dims); }
Interval rim_interval(const RimCut& cut, int64_t step, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);

// Settles the consequences of `rims` and `computes_halo`: which ops have rims (those that make the
// dim, read it through windows and wait for a halo), which halos backward ops compute (those of the
// gradients of tensors whose halos forward ops compute), and how far each piece grows. An op's
// piece does not grow if a reader works elsewhere, if the op makes parts, or if readers need less
// than the piece itself.
void settle_halos(const Graph& graph, ResolvedPlan& plan);

}  // namespace tessera
