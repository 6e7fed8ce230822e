// The parts of resolve() (plan.h), each in a file of its own: entries of one kind are applied to the
// ops and tensors that they select. All parts read the graph, the plan and the stages of the ops, and
// write splits, pins and store keys into one ResolvedPlan, in this order:
//
//   forward split entries, forward pins -> backward ops inherit -> entries and pins with another
//   phase -> pins remove their axis from splits -> checks -> store entries -> compress entries
//
// Errors are those of resolve(): one line that begins with the entry's file and line. Private to
// tessera/plan.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/plan/resolve/selection.h"
#include "tessera/plan/stages.h"

namespace tessera {

// A `Resolving` is what the parts share. Its members are references, so parts take it as const.
struct Resolving {
  const Graph& graph;
  Selection& selection;
  const Stages& stages;  // assigned
  ResolvedPlan& out;     // its plan, meshes, places and stages are set
  // By op and dim: why a dim stays whole that an entry wants to cut.
  std::map<std::pair<OpId, int>, LeftWhole>& left_whole;

  const Plan& plan() const { return out.plan; }
  const Mesh& mesh_of(OpId op) const { return out.stages[out.ops[op.index()].stage.index()].mesh; }
  // Returns an error of the plan's line.
  tl::unexpected<Error> error(int line, const std::string& message) const {
    return plan_error(plan(), line, message);
  }
  void leave_whole(OpId op, int dim, size_t entry, WhyWhole why) const {
    left_whole[{op, dim}] = {op, dim, static_cast<int>(entry), why};
  }
};

// Returns whether a dim of the op is frozen: its mark says so, or it is a later dim of a bracket,
// because only the first dim of a bracket may be split.
bool is_frozen(const Op& op, size_t dim);
// Returns whether the op can be taken apart into ops that have the dim free.
bool expands(const Op& op, const std::string& dim);
// Returns the number of pieces, in space and time, into which the split cuts a dim.
int64_t pieces(const DimSplit& split, const Mesh& mesh);

// Applies the split entry with this index to the ops of its phase.
Status apply_split(const Resolving& r, size_t entry);
// Gives a backward op the splits and pins of its mirror. Dims are matched by name.
void inherit(const Resolving& r, const Op& op);
// Checks that no axis cuts two dims of the op and that the op has at most one time loop; dims with
// "time:rims" share one loop.
Status check_op(const Resolving& r, const Op& op);

// Applies the pin entries of forward ops if `forward`, else those of the other phases.
Status apply_pins(const Resolving& r, bool forward);
// Pins an op; a pin replaces another one of the same axis.
void pin(OpPlan& to, AxisPin pin);
// Removes the axis of each pin from the splits of the op, so that a pin overrides split entries. A
// time loop that is skewed by that axis is an error.
Status settle_pins(const Resolving& r, const Op& op);

// Applies all store entries, and finds the activations that are computed again.
Status apply_stores(const Resolving& r);
// Applies one store entry that says whether activations are computed again.
Status apply_recompute(const Resolving& r, const StoreEntry& entry, int index,
                       const std::vector<TensorId>& selected);
// Sets ResolvedPlan::to_recompute. It stays empty if no backward op reads a tensor that is to be
// recomputed or that is needed to make one, so that nothing is left to do after the transform. A
// tensor that another stage reads for its backward pass is kept, because that backward pass comes
// first.
void find_recomputed(const Resolving& r);
// Applies the compress entries. Integers and scalars (the loss, norms, flags) are not compressed.
Status apply_compress(const Resolving& r);

}  // namespace tessera
