// Rules that hold for every place text, whatever lowering has decided. Lowering checks each text
// that it makes where assertions are on; a text from a file is checked before it is used.
#pragma once

#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/place_text.h"

namespace tessera {

// Returns the first broken rule as an error of one line ("place 0, backward@1[17] wait #5: ...").
// Rules:
//   names       tensors, ops, axes and buffers exist; an op has as many operands as in the graph;
//               a layout has a cut for each dim and uses an axis once
//   regions     a view lies inside its buffer's region, and that inside the tensor
//   when        first and last stand only in blocks that run once a micro-batch
//   collectives a reduction has a combiner, anything else has none; all arrays have one dtype
//   handles     no two instructions have the same. In every order in which the place's blocks run,
//               what is issued is awaited once before it is issued again and before the step ends
//   in flight   before its wait, an instruction's inputs are not written, and its outputs are not
//               touched. Micro-batches have buffers of their own
Status check(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
             const ResolvedPlan& plan);

}  // namespace tessera
