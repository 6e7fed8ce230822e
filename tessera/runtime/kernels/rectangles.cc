#include "tessera/runtime/kernels/rectangles.h"

#include <algorithm>

namespace tessera::kernels {
namespace {

// Adds the rectangles in which query i of `queries` sees the keys j <= i of `keys`. The indices in
// the rectangles count from the begins of the two intervals, and the offsets are added to them.
void add_rectangles(Interval queries, Interval keys, int64_t query_offset, int64_t key_offset,
                    std::vector<Rectangle>& out) {
  const auto add = [&](Interval q, Interval k, bool causal) {
    if (q.empty() || k.empty()) return;
    out.push_back({{q.begin - queries.begin + query_offset, q.size},
                   {k.begin - keys.begin + key_offset, k.size},
                   causal});
  };
  const auto cut = [](int64_t begin, int64_t end) {
    return Interval{begin, std::max<int64_t>(end - begin, 0)};
  };
  add(queries, cut(keys.begin, std::min(keys.end(), queries.begin)), false);
  const Interval diagonal = intersect(queries, keys);
  if (diagonal.empty()) return;
  add(diagonal, diagonal, true);
  add(cut(diagonal.end(), queries.end()), diagonal, false);
}

int64_t floor_divide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

std::vector<Rectangle> rectangles(Interval queries, Interval keys, bool causal, const Order& order,
                                  int64_t size) {
  if (!causal) return {{{0, queries.size}, {0, keys.size}, false}};
  std::vector<Rectangle> out;
  const std::vector<OpRun> key_runs = runs_of(order, size, keys);
  for (const OpRun& q : runs_of(order, size, queries)) {
    for (const OpRun& k : key_runs) {
      // q.first + i s >= k.first + j s  <=>  i + floor((q.first - k.first) / s) >= j
      add_rectangles({floor_divide(q.first - k.first, q.stride), q.size}, {0, k.size},
                     q.index - queries.begin, k.index - keys.begin, out);
    }
  }
  return out;
}

}  // namespace tessera::kernels
