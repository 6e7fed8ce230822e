// Reads regions of large arrays piece by piece, and copies between orders of dims: the memory used
// at once is bounded by a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/result.h"
#include "tessera/import/new_folder.h"
#include "tessera/state/source.h"

namespace tessera {

// The bytes that one write covers, and that one read covers where the order of the dims changes.
inline constexpr int64_t kTileBytes = 64 << 20;
inline constexpr int64_t kReadBytes = 1 << 20;

// Visits disjoint parts of the box, each of at most `most` elements, that cover it. Cuts go along
// the dims in the given order: the first dim is cut first. Stops at the first error.
Status for_each_tile(const Box& box, const std::vector<int>& order, int64_t most,
                     const std::function<Status(const Box&)>& visit);

// Returns the dims 0, 1, ... as such an order.
std::vector<int> in_order(size_t rank);

// Copies an array of a source to array number `number` of a file, which has the same elements in
// the same order, and the source's dtype.
Status copy_array(const TensorSource& source, const SourceArray& array, size_t number,
                  SafetensorsWriter& writer);

// Copies elements of `element_bytes` bytes in `shape`, at strides (in elements) of either side.
void copy_strided(const std::vector<int64_t>& shape, int64_t element_bytes, const std::byte* in,
                  const std::vector<int64_t>& in_strides, std::byte* out,
                  const std::vector<int64_t>& out_strides);

}  // namespace tessera
