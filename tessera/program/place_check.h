// What holds of every place text, whatever lowering has decided. Lowering checks each text that it
// makes where assertions are on; a text from a file is checked before it is believed.
#pragma once

#include <vector>

#include "tessera/plan/plan.h"
#include "tessera/program/place_text.h"

namespace tessera {

// The first broken rule, in one line ("place 0, backward@1[17] wait #5: ..."):
//   names       tensors, ops, axes and buffers exist; an op has as many operands as in the graph;
//               a layout has a cut for each dim and uses an axis once
//   regions     a view lies inside its buffer's region, and that inside the tensor
//   when        first and last stand only in blocks that run once a micro-batch
//   collectives a reduction has a combiner, anything else has none; all arrays have one dtype
//   handles     no two instructions have the same. In every order in which the place's blocks run,
//               what is issued is awaited once before it is issued again and before the step ends
//   in flight   what an instruction in flight reads is not written, and what it writes is not
//               touched, before its wait. Micro-batches have buffers of their own
Status check(const std::vector<PlaceText>& texts, PlaceId place, const Graph& graph,
             const ResolvedPlan& plan);

}  // namespace tessera
