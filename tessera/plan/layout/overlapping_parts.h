// Overlapping parts: neighbouring ranks hold parts of the same elements. In a layout this is a dim
// in Layout::windows whose axes are also partial. An op makes such parts if it computes the
// gradient of an operand that it reads with a halo, for example the gradient of keys that the
// queries of several ranks see. The value of an element is the sum of the parts on all ranks whose
// regions contain the element.
#pragma once

#include "tessera/plan/layout/layout.h"

namespace tessera {

// Returns whether parts overlap along tensor dim `dim`; without `dim`, whether parts overlap along
// any dim.
bool parts_overlap(const Layout& layout, size_t dim);
bool parts_overlap(const Layout& layout);
// Returns the layout after the parts are summed. It is complete, and the same axes cut the same
// dims. If parts overlap, it has no halos, so each element is on the rank that has it in its
// own piece.
Layout completed(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);

}  // namespace tessera
