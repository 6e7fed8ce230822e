// Copies and combinations of strided regions: the kernels under all back ends. copy_region and
// combine_region are declared in communicator.h; here are their flat forms, which see an array as
// the row-major sequence of its elements. Memory called `packed` holds a range of that sequence
// contiguously.
#pragma once

#include "tessera/comm/communicator.h"

namespace tessera::comm {

bool is_contiguous(const ArrayView& view);  // row-major without gaps
ArrayView packed_view(std::byte* data, const Box& box);

// Returns boxes that together are elements [range.begin, range.end()) of `box` in row-major order;
// the boxes are in that order.
std::vector<Box> boxes_of_flat_range(const Box& box, Interval range);

void pack_flat(DType dtype, const ArrayView& from, Interval range, std::byte* packed);
void unpack_flat(DType dtype, const std::byte* packed, const ArrayView& to, Interval range);
// Combines elements into packed memory: packed = combine(packed, from).
void combine_flat(DType dtype, Combiner combiner, const ArrayView& from, Interval range,
                  std::byte* packed);
// Combines contiguous elements: to = combine(to, from).
void combine_run(DType dtype, Combiner combiner, const std::byte* from, std::byte* to,
                 int64_t count);

}  // namespace tessera::comm
