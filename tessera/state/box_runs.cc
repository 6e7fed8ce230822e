#include "tessera/state/box_runs.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/check.h"

namespace tessera {

BoxRuns::BoxRuns(const Box& common, const Box& a, const Box& b) {
  if (common.empty()) return;
  TESSERA_CHECK(a.contains(common) && b.contains(common), "{} in {} and {}", common.to_string(),
                a.to_string(), b.to_string());
  const std::vector<int64_t> strides_a = row_major_strides(a.shape()),
                             strides_b = row_major_strides(b.shape());
  // A run consists of the last dims that `common` takes whole in both arrays, and the dim before
  // these.
  size_t outer = common.rank();
  length_ = 1;
  while (outer > 0) {
    --outer;
    const int64_t size = common.dims[outer].size;
    length_ *= size;
    if (size != a.dims[outer].size || size != b.dims[outer].size) break;
  }
  count_ = 1;
  for (size_t d = 0; d < common.rank(); ++d) {
    const int64_t begin = common.dims[d].begin;
    first_.in_a += (begin - a.dims[d].begin) * strides_a[d];
    first_.in_b += (begin - b.dims[d].begin) * strides_b[d];
    if (d >= outer) continue;
    outer_.push_back({common.dims[d].size, strides_a[d], strides_b[d]});
    count_ *= common.dims[d].size;
  }
}

BoxRuns::Run BoxRuns::at(int64_t index) const {
  Run run = first_;
  for (auto dim = outer_.rbegin(); dim != outer_.rend() && index > 0; ++dim) {
    const int64_t place = index % dim->size;
    run.in_a += place * dim->stride_a;
    run.in_b += place * dim->stride_b;
    index /= dim->size;
  }
  return run;
}

void copy_cut_out(int64_t element_bytes, const std::byte* from, const Box& from_box, const Box& box,
                  int64_t begin, int64_t bytes, std::byte* to) {
  const BoxRuns runs(box, from_box, box);
  const int64_t length = runs.length() * element_bytes;
  while (bytes > 0) {
    const int64_t k = begin / length, inside = begin % length;
    const int64_t some = std::min(bytes, length - inside);
    std::memcpy(to, from + runs.at(k).in_a * element_bytes + inside, static_cast<size_t>(some));
    to += some;
    begin += some;
    bytes -= some;
  }
}

}  // namespace tessera
