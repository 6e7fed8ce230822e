// The band of an op with queries and keys (KindInfo::query_key) whose window leaves keys out: query
// i sees the keys i - before to i + after alone, and no point outside of that is work. So a piece of
// the queries needs, and makes, a piece of the keys, as through a window.
#pragma once

#include <optional>

#include "tessera/graph/graph.h"

namespace tessera {

struct Band {
  int query = -1, key = -1;  // op dims of one size
  int64_t before = 0, after = 0;
  int64_t size = 0;  // of both

  // How a piece of the queries reads the keys.
  WindowRead read() const {
    return {{before + 1 + after, 1, before}, WindowUse::kUnder, size, size};
  }
  Interval keys_seen(Interval queries) const { return read().of(queries); }
  bool misses(const Box& box) const {  // is no point of the op's box in it?
    return intersect(keys_seen(box.dims[static_cast<size_t>(query)]),
                     box.dims[static_cast<size_t>(key)])
        .empty();
  }
  Interval queries_seeing(Interval keys) const {
    return WindowRead{{before + 1 + after, 1, after}, WindowUse::kUnder, size, size}.of(keys);
  }
};

// None: the op has no window, one that leaves out nothing, keys in an order that is not that of
// their indices, other numbers of queries and keys, or an output with an element for each query and
// key, of which all have to be made.
std::optional<Band> band_of(const Op& op);

}  // namespace tessera
