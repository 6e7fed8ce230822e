// What ranks do about the halos of dims that are read through windows, beyond exchanging them: they
// compute the interior of their piece first and the rims when the halo has arrived
// (over = ["h", "time:rims"]), or they compute the halo of what they make themselves
// (halo = "compute"), so that fewer and wider halos are exchanged.
//
// Rims are a time loop of 1 + 2n steps over the n dims of an op that ask for it. Step 0 is the
// interior: the places all of whose windows lie in what the rank holds. Behind it come the slabs,
// of the last dim first: places before the interior along that dim, then those behind it. A slab
// has of the dims before its own the interior, and of the dims behind it everything, so that steps
// are apart and make all places:
//
//      h=2, w=2, a rank in the middle      0 interior
//      3 3 3 3                             1, 2 slabs of w: rows of the interior
//      1 0 0 2                             3, 4 slabs of h: whole rows, with the corners
//      4 4 4 4
//
// An op that computes its halo makes more than its piece: what its reader's piece reads, and what
// that reader computes beyond its own piece in turn. Ranks make the same elements twice, each of
// them complete. Ops that sum over the dim never do it, so nothing is counted twice.
#pragma once

#include "tessera/plan/layout.h"
#include "tessera/plan/plan.h"

namespace tessera {

// A dim of a loop over interior and rims: what a rank works on of it, and what of the tensors that
// are read through its windows it holds.
struct RimCut {
  size_t position = 0;             // among the dims of the loop, outermost first
  size_t dims = 1;                 // of the loop
  int64_t size = 0;                // of the op's dim
  Axes axes;                       // that cut it, and what is held
  std::vector<WindowRead> grown;   // as of DimSplit
  std::vector<WindowRead> inside;  // reads that an interior place finds in what is held
  friend bool operator==(const RimCut&, const RimCut&) = default;
};
// The cut of that dim of the op's loop; the dim is one of rim_dims.
RimCut rim_cut(const Op& op, const OpPlan& plan, int dim, const Graph& graph);
// The op dims of the loop, outermost first.
std::vector<int> rim_dims(const OpPlan& plan);
inline int64_t rim_steps(size_t dims) { return 1 + 2 * static_cast<int64_t>(dims); }
Interval rim_interval(const RimCut& cut, int64_t step, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);

// Sets what follows of `rims` and `computes_halo`: which ops have rims (those that make the dim,
// read it through windows and wait for a halo), what backward ops compute of halos (the gradients
// of what forward ops compute so), and how far each piece grows. An op's piece does not grow if a
// reader works elsewhere, if the op makes parts, or if readers need less than the piece itself.
void settle_halos(const Graph& graph, ResolvedPlan& plan);

}  // namespace tessera
