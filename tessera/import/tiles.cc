#include "tessera/import/tiles.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

template <size_t kBytes>
void copy_line(int64_t count, const std::byte* in, int64_t in_stride, std::byte* out,
               int64_t out_stride) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(out + i * out_stride, in + i * in_stride, kBytes);
}

using CopyLine = void (*)(int64_t, const std::byte*, int64_t, std::byte*, int64_t);

CopyLine copy_line_of(int64_t element_bytes) {
  switch (element_bytes) {
    case 1: return copy_line<1>;
    case 2: return copy_line<2>;
    case 4: return copy_line<4>;
    default: return copy_line<8>;
  }
}

}  // namespace

Status for_each_tile(const Box& box, const std::vector<int>& order, int64_t most,
                     const std::function<Status(const Box&)>& visit) {
  if (box.empty()) return {};
  const auto widest = std::find_if(order.begin(), order.end(), [&](int dim) {
    return box.dims[static_cast<size_t>(dim)].size > 1;
  });
  if (box.volume() <= most || widest == order.end()) return visit(box);
  const auto dim = static_cast<size_t>(*widest);
  for (int64_t half = 0; half < 2; ++half) {
    Box part = box;
    part.dims[dim] = split_interval(box.dims[dim], 2, half);
    TESSERA_TRY_VOID(for_each_tile(part, order, most, visit));
  }
  return {};
}

std::vector<int> in_order(size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Status copy_array(const TensorSource& source, const SourceArray& array, size_t number,
                  SafetensorsWriter& writer) {
  const int64_t bytes = dtype_bytes(array.dtype);
  std::vector<std::byte> buffer;
  int64_t at = 0;
  return for_each_tile(
      Box::whole(array.shape), in_order(array.shape.size()), kTileBytes / bytes,
      [&](const Box& tile) -> Status {
        buffer.resize(static_cast<size_t>(tile.volume() * bytes));
        TESSERA_TRY_VOID(source.read(array, tile, array.dtype, buffer.data()));
        TESSERA_TRY_VOID(writer.write(number, at, std::ssize(buffer), buffer.data()));
        at += std::ssize(buffer);
        return {};
      });
}

void copy_strided(const std::vector<int64_t>& shape, int64_t element_bytes, const std::byte* in,
                  const std::vector<int64_t>& in_strides, std::byte* out,
                  const std::vector<int64_t>& out_strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  if (shape.empty()) {
    std::memcpy(out, in, static_cast<size_t>(element_bytes));
    return;
  }
  const CopyLine line = copy_line_of(element_bytes);
  const size_t last = shape.size() - 1;
  std::vector<int64_t> at(last, 0);
  for (;;) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < last; ++d) {
      from += at[d] * in_strides[d];
      to += at[d] * out_strides[d];
    }
    line(shape[last], in + from * element_bytes, in_strides[last] * element_bytes,
         out + to * element_bytes, out_strides[last] * element_bytes);
    size_t d = last;
    while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace tessera
