#pragma once

#include <optional>

#include "tessera/graph/graph.h"

namespace tessera {

struct Band {
  int query = -1, key = -1;  // op dims, of equal size
  int64_t before = 0, after = 0;
  int64_t size = 0;  // of each of the two dims

  // Returns how a piece of the queries reads the keys.
  WindowRead read() const {
    return {{before + 1 + after, 1, before}, WindowUse::kUnder, size, size};
  }
  Interval keys_seen(Interval queries) const { return read().of(queries); }
  bool misses(const Box& box) const {  // whether no point of the band is in the box
    return intersect(keys_seen(box.dims[static_cast<size_t>(query)]),
                     box.dims[static_cast<size_t>(key)])
        .empty();
  }
  Interval queries_seeing(Interval keys) const {
    return WindowRead{{before + 1 + after, 1, after}, WindowUse::kUnder, size, size}.of(keys);
  }
};

// Returns the band of the op. Returns nothing if the op has no window or a window that leaves out
// nothing, if its keys are in another order than that of their indices, if it has different numbers
// of queries and keys, or if an output has an element for each pair of a query and a key (then all
// pairs have to be computed).
std::optional<Band> band_of(const Op& op);

}  // namespace tessera
