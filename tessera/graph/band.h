// A `Band` describes an op with queries and keys (KindInfo::query_key) whose window leaves keys
// out: query i sees only the keys i - before to i + after, and other points are no work. So a piece
// of the queries needs, and makes, a piece of the keys, as through a window.
#pragma once

#include <optional>

#include "tessera/graph/graph.h"

namespace tessera {

struct Band {
  int query = -1, key = -1;  // op dims of one size
  int64_t before = 0, after = 0;
  int64_t size = 0;  // of both dims

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

// Returns none if the op has no window or a window that leaves out nothing, keys in another order
// than that of their indices, different numbers of queries and keys, or an output with an element
// for each query and key (all of which have to be made).
std::optional<Band> band_of(const Op& op);

}  // namespace tessera
