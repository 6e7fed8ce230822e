// Parts of the same elements on neighbours (Layout::windows with axes that are partial, too): what an
// op makes of what it reads with a halo, as the gradient of keys that the queries of several ranks
// see. An element's value is the sum over the ranks that have it in their region.
#pragma once

#include "tessera/plan/layout.h"

namespace tessera {

// Of that dim, of any dim.
bool parts_overlap(const Layout& layout, size_t dim);
bool parts_overlap(const Layout& layout);
// The layout of the sum of the parts: each rank has as much of it as it has parts of, but for halos.
Layout completed(Layout layout, const Mesh& mesh, const std::vector<int64_t>& shape);

}  // namespace tessera
