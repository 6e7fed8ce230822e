// Rules that every place text must keep, whatever lowering has decided. In builds with assertions,
// lowering checks each text that it makes. A text from a file is checked before it is used.
#pragma once

#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/place_text.h"

namespace tessera {

// Returns the first broken rule as an error of one line ("place 0, backward@1[17] wait #5: ...").
// Rules:
//   names       tensors, ops, axes and buffers exist; an op has as many operands as in the graph;
//               a layout has a cut for each dim and uses an axis once
//   regions     a view lies inside its buffer's region, and the region lies inside the tensor
//   when        first and last stand only in blocks that run once a micro-batch
//   collectives a reduction has a combiner, any other collective has none; all arrays of a
//               collective have one dtype
//   handles     no two instructions have the same handle. In every order in which the place's
//               blocks run, an instruction with a handle is awaited exactly once, before it is
//               issued again and before the step ends
//   in flight   until an instruction with a handle is awaited, its inputs are not written, and its
//               outputs are not touched. Buffers of one micro-batch count as different from those
//               of another
Status check(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
             const ResolvedPlan& plan);

}  // namespace tessera
