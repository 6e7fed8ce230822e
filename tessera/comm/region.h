// Copies and combinations of strided regions, which all back ends use. communicator.h declares
// copy_region and combine_region. The functions here take flat ranges instead: ranges of the
// row-major sequence of an array's elements. Memory called `packed` has the elements of such a
// range one after the other.
#pragma once

#include "tessera/comm/communicator.h"

namespace tessera::comm {

bool is_contiguous(const ArrayView& view);  // row-major without gaps
ArrayView packed_view(std::byte* data, const Box& box);

// Returns boxes that together have the elements [range.begin, range.end()) of the row-major
// sequence of `box`. The boxes are in the order of the sequence.
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
