// Halos of dims that are read through windows. By default a rank receives the halo of its piece
// from its neighbours before it computes. Two keys of a split entry change this. With over = ["h",
// "time:rims"] a rank computes the interior of its piece while the halo is on its way, and the rims
// afterwards. With halo = "compute" a rank computes the halo of its own outputs, so that the ranks
// exchange fewer and wider halos.
//
// Interior and rims are computed in a time loop of 1 + 2n steps, where n is the number of dims of
// the op with "time:rims". Step 0 computes the interior, which is the places whose windows need
// only elements that the rank holds. Each further step computes one slab. Every dim has two slabs:
// the places with smaller indices than the interior along this dim, then those with larger indices.
// The slabs of the last dim come first. Along the dims before its own, a slab is as long as the
// interior; along the dims after its own, it is as long as the whole piece. So the steps are
// disjoint and together make all places:
//
//      h=2, w=2, a rank in the middle      0 interior
//      3 3 3 3                             1, 2 slabs of w: rows of the interior
//      1 0 0 2                             3, 4 slabs of h: whole rows, with the corners
//      4 4 4 4
//
// An op that computes its halo makes more than its piece: it makes all elements that the op that
// reads it needs on this rank, also those for the halo that this reader computes itself. Several
// ranks then make the same elements, and each has their complete values. Ops that sum over the dim
// never compute halos, because an element that two ranks make would be counted twice in the sum.
#pragma once

#include "tessera/plan/layout/layout.h"
#include "tessera/plan/plan.h"

namespace tessera {

// A `RimCut` describes one dim of a loop over interior and rims: how the dim is cut over the ranks,
// and through which windows the op reads tensors along it. From these rim_interval finds which
// places a rank can compute without a halo.
struct RimCut {
  size_t position = 0;  // index of this dim among the dims of the loop, outermost first
  size_t dims = 1;      // number of dims of the loop
  int64_t size = 0;     // size of the op's dim
  Axes axes;            // axes that cut the dim and the tensors that the op reads along it
  std::vector<WindowRead> grown;  // as DimSplit::grown (plan.h)
  // Windows of which an interior place needs only what the rank holds.
  std::vector<WindowRead> inside;
  friend bool operator==(const RimCut&, const RimCut&) = default;
};
// Returns the cut of a dim of the op's loop; the dim must be one of rim_dims.
RimCut rim_cut(const Op& op, const OpPlan& plan, int dim, const Graph& graph);
// Returns the op dims with DimSplit::rims, which are the dims of the loop over interior and rims,
// outermost first.
std::vector<int> rim_dims(const OpPlan& plan);
// Returns the number of steps of a loop over interior and rims of so many dims.
inline int64_t rim_steps(size_t dims) { return 1 + 2 * static_cast<int64_t>(dims); }
// Returns the indices of the dim that the step of the loop computes at the coordinates.
Interval rim_interval(const RimCut& cut, int64_t step, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates);

// Settles in `plan` what the keys "time:rims" and halo = "compute" mean for each op. `rims` stays
// true only for ops that make the dim, read it through windows and wait for a halo. A backward op
// gets `computes_halo` if it makes the gradient of a tensor whose halo is computed. `grown` says
// how far the piece of an op with `computes_halo` grows. It stays empty if a reader of the op is at
// another stage, if the op makes parts of a sum, or if the readers need less than the piece itself.
void settle_halos(const Graph& graph, ResolvedPlan& plan);

}  // namespace tessera
