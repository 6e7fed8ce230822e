#include "tessera/program/verify/points.h"

#include <iterator>
#include <set>
#include <utility>

#include "tessera/graph/band.h"

namespace tessera::verifying {
namespace {

// Returns the interval `some` with the elements outside of `all` that it stands for: from 0 if it
// has the first element of `all`, and up to `size` if it has the last. The result is empty if
// `some` has no element of `all`.
Interval stretched(Interval some, Interval all, int64_t size) {
  if (intersect(some, all).empty()) return {some.begin, 0};
  const int64_t begin = some.begin <= all.begin ? 0 : some.begin;
  const int64_t end = some.end() >= all.end() ? size : some.end();
  return {begin, end - begin};
}

}  // namespace

Box counted_by_queries(const Op& op, Box box) {
  const Annotation& annotation = op.annotation;
  if (const auto band = band_of(op)) {
    Interval& keys = box.dims[static_cast<size_t>(band->key)];
    keys = stretched(keys, band->keys_seen(box.dims[static_cast<size_t>(band->query)]), band->size);
    return box;
  }
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    const int query = annotation.dims[d].causal_of;
    if (query < 0) continue;
    const int64_t end = box.dims[static_cast<size_t>(query)].end();
    Interval& keys = box.dims[d];
    if (keys.begin >= end) {
      keys.size = 0;
    } else if (keys.end() >= end) {
      keys.size = annotation.dims[d].size - keys.begin;
    }
  }
  return box;
}

Box counted(const Op& op, const OperandDims& output, const Box& box) {
  const Annotation& annotation = op.annotation;
  Box out = counted_by_queries(op, box);
  if (band_of(op)) return out;  // an output with the keys: stretches_of counts its elements
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    const int query = annotation.dims[d].causal_of;
    if (query < 0 || !output.contains(static_cast<int>(d)) || output.contains(query)) continue;
    const Interval keys = box.dims[d];
    Interval& queries = out.dims[static_cast<size_t>(query)];
    out.dims[d] = keys;
    if (queries.end() <= keys.begin) {
      queries.size = 0;
    } else if (queries.begin <= keys.begin) {
      queries = {0, queries.end()};
    }
  }
  return out;
}

std::vector<KeyStretch> stretches_of(const Op& op, const OperandDims& output, const Box& box) {
  std::vector<KeyStretch> out;
  const auto band = band_of(op);
  if (!band || output.contains(band->query)) return out;
  const auto query = static_cast<size_t>(band->query);
  const Interval keys = box.dims[static_cast<size_t>(band->key)], queries = box.dims[query];
  for (size_t t = 0; t < output.dims.size() && !keys.empty(); ++t) {
    if (output.dims[t] != DimGroup{band->key}) continue;
    std::set<int64_t> cuts{keys.begin, keys.end()};
    for (const int64_t at : {queries.begin - band->before, queries.begin + band->after,
                             queries.end() - band->before, queries.end() + band->after}) {
      if (at > keys.begin && at < keys.end()) cuts.insert(at);
    }
    for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
      KeyStretch stretch{t, {*at, *std::next(at) - *at}, box};
      stretch.box.dims[query] = stretched(queries, band->queries_seeing(stretch.keys), band->size);
      out.push_back(std::move(stretch));
    }
    return out;
  }
  return out;
}

}  // namespace tessera::verifying
