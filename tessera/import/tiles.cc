#include "tessera/import/tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

// Two dims of a copy: `lines` lines of `count` elements each, with the strides of the input and the
// output (between lines, and between the elements of a line).
struct Plane {
  int64_t lines, count;
  int64_t in_line, in_stride, out_line, out_stride;
};

constexpr int64_t kSide = 64;

// Copies a square whose lines are contiguous in the input and whose columns are contiguous in the
// output. Copies it through a small buffer, because the distance between lines is often a power of
// two, so that the elements of a column would be in the same set of a cache.
template <class T>
void turn_square(const Plane& plane, const std::byte* in, std::byte* out) {
  constexpr int64_t kPitch = kSide + 1;
  std::array<T, kSide * kPitch> square;
  for (int64_t i = 0; i < plane.lines; ++i) {
    std::memcpy(square.data() + i * kPitch,
                in + i * plane.in_line * static_cast<int64_t>(sizeof(T)),
                static_cast<size_t>(plane.count) * sizeof(T));
  }
  std::array<T, kSide> column;
  for (int64_t k = 0; k < plane.count; ++k) {
    for (int64_t i = 0; i < plane.lines; ++i)
      column[static_cast<size_t>(i)] = square[static_cast<size_t>(i * kPitch + k)];
    std::memcpy(out + k * plane.out_stride * static_cast<int64_t>(sizeof(T)), column.data(),
                static_cast<size_t>(plane.lines) * sizeof(T));
  }
}

template <class T>
void copy_plane(const Plane& plane, const std::byte* in, std::byte* out) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  if (plane.in_stride == 1 && plane.out_stride == 1) {
    for (int64_t i = 0; i < plane.lines; ++i) {
      std::memcpy(out + i * plane.out_line * kBytes, in + i * plane.in_line * kBytes,
                  static_cast<size_t>(plane.count * kBytes));
    }
  } else if (plane.in_stride == 1 && plane.out_line == 1) {
    for (int64_t i = 0; i < plane.lines; i += kSide) {
      for (int64_t k = 0; k < plane.count; k += kSide) {
        Plane square = plane;
        square.lines = std::min(kSide, plane.lines - i);
        square.count = std::min(kSide, plane.count - k);
        turn_square<T>(square, in + (i * plane.in_line + k) * kBytes,
                       out + (i + k * plane.out_stride) * kBytes);
      }
    }
  } else {
    for (int64_t i = 0; i < plane.lines; ++i) {
      for (int64_t k = 0; k < plane.count; ++k) {
        std::memcpy(out + (i * plane.out_line + k * plane.out_stride) * kBytes,
                    in + (i * plane.in_line + k * plane.in_stride) * kBytes, sizeof(T));
      }
    }
  }
}

using CopyPlane = void (*)(const Plane&, const std::byte*, std::byte*);

CopyPlane copy_plane_of(int64_t element_bytes) {
  switch (element_bytes) {
    case 1: return copy_plane<uint8_t>;
    case 2: return copy_plane<uint16_t>;
    case 4: return copy_plane<uint32_t>;
    default: return copy_plane<uint64_t>;
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

std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t count) {
  std::vector<Box> out;
  while (count > 0) {
    // The box takes whole all dims behind `dim`, and some of dim `dim`.
    size_t dim = shape.size();
    int64_t inner = 1;
    while (dim > 0) {
      const int64_t outer = inner * shape[dim - 1];
      if (begin % outer != 0 || outer > count) break;
      inner = outer;
      --dim;
    }
    Box box = Box::whole(shape);
    int64_t rest = begin / inner, taken = inner;
    for (size_t d = dim; d-- > 0;) {
      const int64_t at = rest % shape[d];
      const bool last = d + 1 == dim;
      box.dims[d] = {at, last ? std::min(shape[d] - at, count / inner) : 1};
      if (last) taken = box.dims[d].size * inner;
      rest /= shape[d];
    }
    out.push_back(std::move(box));
    begin += taken;
    count -= taken;
  }
  return out;
}

std::vector<int> in_order(size_t rank) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Status copy_array(const TensorSource& source, const SourceArray& array, size_t number,
                  ArrayWriter& writer) {
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
  const CopyPlane copy = copy_plane_of(element_bytes);
  // Chooses the two dims of the plane. One is the last dim, along which `in` is usually contiguous.
  // The other is the dim, of all others, with the smallest stride in `out`.
  const size_t last = shape.size() - 1;
  size_t other = last;
  for (size_t d = 0; d < last; ++d) {
    if (other == last || out_strides[d] <= out_strides[other]) other = d;
  }
  Plane plane{1, shape[last], 0, in_strides[last], 0, out_strides[last]};
  if (other != last) {
    plane.lines = shape[other];
    plane.in_line = in_strides[other];
    plane.out_line = out_strides[other];
  }
  std::vector<int64_t> at(last, 0);
  for (;;) {
    int64_t from = 0, to = 0;
    for (size_t d = 0; d < last; ++d) {
      from += at[d] * in_strides[d];
      to += at[d] * out_strides[d];
    }
    copy(plane, in + from * element_bytes, out + to * element_bytes);
    size_t d = last;
    while (d > 0 && (d - 1 == other || ++at[d - 1] == shape[d - 1])) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace tessera
