// Parts of the same elements on neighbours (Layout::windows with axes that are partial, too). An op
// makes them from operands that it reads with a halo: an example is the gradient of keys that the
// queries of several ranks see. An element's value is the sum over the ranks that have it in their
// region.
#pragma once

#include "tessera/plan/layout.h"

namespace tessera {

// Returns whether parts overlap along that dim, or along any dim.
bool parts_overlap(const Layout& layout, size_t dim);
bool parts_overlap(const Layout& layout);
// Returns the layout of the sum of the parts: each rank has of the sum what it has of the parts,
// without halos.
Layout completed(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);

}  // namespace tessera
