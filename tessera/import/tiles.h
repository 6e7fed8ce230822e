// Reads regions of large arrays piece by piece, and copies arrays to another order of dims. The
// memory used at a time is at most one tile.
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

// kTileBytes: the most bytes of one write. kReadBytes: the most bytes of one read of an array whose
// order of dims changes.
inline constexpr int64_t kTileBytes = 64 << 20;
inline constexpr int64_t kReadBytes = 1 << 20;

// Visits disjoint parts of the box, each of at most `most` elements, that cover it. The box is cut
// along the first dim of `order` first, then along the second, and so on. Stops at the first error.
Status for_each_tile(const Box& box, const std::vector<int>& order, int64_t most,
                     const std::function<Status(const Box&)>& visit);

// Returns the boxes that together are elements [begin, begin + count) of a row-major array, in
// order. The elements of each are contiguous.
std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t count);

// Returns the order 0, 1, ... of `rank` dims for for_each_tile().
std::vector<int> in_order(size_t rank);

// Copies an array of a source to array number `number` of a writer. The writer's array must have
// the same number of elements and the same dtype; the elements keep their order.
Status copy_array(const TensorSource& source, const SourceArray& array, size_t number,
                  ArrayWriter& writer);

// Copies the elements of an array of `shape`, each of `element_bytes` bytes, from `in` to `out`.
// Each side has its own strides, counted in elements.
void copy_strided(const std::vector<int64_t>& shape, int64_t element_bytes, const std::byte* in,
                  const std::vector<int64_t>& in_strides, std::byte* out,
                  const std::vector<int64_t>& out_strides);

}  // namespace tessera
