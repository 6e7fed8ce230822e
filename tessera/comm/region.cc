#include "tessera/comm/region.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tessera/base/check.h"
#include "tessera/base/half.h"

namespace tessera::comm {
namespace {

constexpr size_t kMaxRank = 16;
constexpr int64_t kMoments = 3;

// One dim of the loop nest over a region, with both strides in elements.
struct Loop {
  int64_t size;
  int64_t from;
  int64_t to;
};

// The loop nest over a region. Dims of size 1 are left out, and neighbouring dims that are
// contiguous in both arrays are merged into one loop.
struct Nest {
  std::array<Loop, kMaxRank> loops;
  size_t depth = 0;
  int64_t from_offset = 0;
  int64_t to_offset = 0;
};

// Makes the loop nest without the last `keep` dims, which the kernel handles itself (the triple of
// the moments combiner).
Nest make_nest(const ArrayView& from, const ArrayView& to, const Box& region, size_t keep) {
  TESSERA_CHECK(region.rank() <= kMaxRank, "{} dims, at most {}", region.rank(), kMaxRank);
  TESSERA_CHECK(from.box.contains(region) && to.box.contains(region), "{} from {} to {}",
                region.to_string(), from.box.to_string(), to.box.to_string());
  Nest nest;
  for (size_t i = 0; i < region.rank(); ++i) {
    nest.from_offset += (region.dims[i].begin - from.box.dims[i].begin) * from.strides[i];
    nest.to_offset += (region.dims[i].begin - to.box.dims[i].begin) * to.strides[i];
    const Loop loop = {region.dims[i].size, from.strides[i], to.strides[i]};
    if (loop.size == 1 || i + keep >= region.rank()) continue;
    if (nest.depth > 0) {
      Loop& outer = nest.loops[nest.depth - 1];
      if (outer.from == loop.size * loop.from && outer.to == loop.size * loop.to) {
        outer = {outer.size * loop.size, loop.from, loop.to};
        continue;
      }
    }
    nest.loops[nest.depth++] = loop;
  }
  if (nest.depth == 0) nest.loops[nest.depth++] = {1, 1, 1};
  return nest;
}

// Calls run(offset in `from`, offset in `to`, innermost loop) for each index of the outer loops.
template <class Run>
void for_each_run(const Nest& nest, const Run& run) {
  const Loop& inner = nest.loops[nest.depth - 1];
  std::array<int64_t, kMaxRank> index{};
  int64_t from = nest.from_offset;
  int64_t to = nest.to_offset;
  while (true) {
    run(from, to, inner);
    size_t dim = nest.depth - 1;
    while (dim > 0) {
      const Loop& loop = nest.loops[dim - 1];
      from += loop.from;
      to += loop.to;
      if (++index[dim - 1] < loop.size) break;
      from -= loop.size * loop.from;
      to -= loop.size * loop.to;
      index[--dim] = 0;
    }
    if (dim == 0) return;
  }
}

template <size_t Bytes>
void copy_nest(const Nest& nest, const std::byte* from, std::byte* to) {
  constexpr int64_t kBytes = static_cast<int64_t>(Bytes);
  for_each_run(nest, [&](int64_t from_offset, int64_t to_offset, const Loop& loop) {
    const std::byte* a = from + from_offset * kBytes;
    std::byte* b = to + to_offset * kBytes;
    if (loop.from == 1 && loop.to == 1) {
      std::memcpy(b, a, static_cast<size_t>(loop.size) * Bytes);
      return;
    }
    for (int64_t i = 0; i < loop.size; ++i) {
      std::memcpy(b + i * loop.to * kBytes, a + i * loop.from * kBytes, Bytes);
    }
  });
}

// How an element is stored (Stored) and in which type it is computed with (Value).
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored x) { return x; }
  static Stored store(Value x) { return x; }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored x) { return half::from_bfloat16(x); }
  static Stored store(Value x) { return half::to_bfloat16(x); }
};
struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored x) { return half::from_float16(x); }
  static Stored store(Value x) { return half::to_float16(x); }
};
struct Bool {
  using Stored = uint8_t;
  using Value = uint8_t;
  static Value load(Stored x) { return x != 0; }
  static Stored store(Value x) { return x != 0; }
};

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {  // wraps around
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a >= b || a != a ? a : b;  // a NaN on either side stays
  }
};
struct LogSumExp {
  template <class T>
  T operator()(T a, T b) const {
    if (a == b) return a + static_cast<T>(0.693147180559945309417232121458);  // infinities, too
    const T high = a < b ? b : a;
    const T low = a < b ? a : b;
    return high + std::log1p(std::exp(low - high));
  }
};

template <class Element, class Operation>
void combine_contiguous(const std::byte* from, std::byte* to, int64_t count) {
  using Stored = typename Element::Stored;
  const Stored* __restrict a = reinterpret_cast<const Stored*>(from);
  Stored* __restrict b = reinterpret_cast<Stored*>(to);
  const Operation operation;
  for (int64_t i = 0; i < count; ++i) {
    b[i] = Element::store(operation(Element::load(b[i]), Element::load(a[i])));
  }
}

template <class Element, class Operation>
void combine_nest(const Nest& nest, const std::byte* from, std::byte* to) {
  using Stored = typename Element::Stored;
  const Operation operation;
  for_each_run(nest, [&](int64_t from_offset, int64_t to_offset, const Loop& loop) {
    const Stored* a = reinterpret_cast<const Stored*>(from) + from_offset;
    Stored* b = reinterpret_cast<Stored*>(to) + to_offset;
    if (loop.from == 1 && loop.to == 1) {
      combine_contiguous<Element, Operation>(reinterpret_cast<const std::byte*>(a),
                                             reinterpret_cast<std::byte*>(b), loop.size);
      return;
    }
    for (int64_t i = 0; i < loop.size; ++i) {
      Stored& out = b[i * loop.to];
      out = Element::store(operation(Element::load(out), Element::load(a[i * loop.from])));
    }
  });
}

// Merges (count, mean, M2) of one sample into that of another, disjoint sample (Chan's update).
// Computes in double throughout.
template <class Element>
void merge_moments(const typename Element::Stored* from, int64_t from_stride,
                   typename Element::Stored* to, int64_t to_stride) {
  using Value = typename Element::Value;
  const double n_b = static_cast<double>(Element::load(from[0]));
  if (n_b == 0.0) return;
  const double n_a = static_cast<double>(Element::load(to[0]));
  if (n_a == 0.0) {
    for (int64_t i = 0; i < kMoments; ++i) to[i * to_stride] = from[i * from_stride];
    return;
  }
  const double mean_a = static_cast<double>(Element::load(to[to_stride]));
  const double mean_b = static_cast<double>(Element::load(from[from_stride]));
  const double m2_a = static_cast<double>(Element::load(to[2 * to_stride]));
  const double m2_b = static_cast<double>(Element::load(from[2 * from_stride]));
  const double n = n_a + n_b;
  const double delta = mean_b - mean_a;
  to[0] = Element::store(static_cast<Value>(n));
  to[to_stride] = Element::store(static_cast<Value>(mean_a + delta * (n_b / n)));
  to[2 * to_stride] =
      Element::store(static_cast<Value>(m2_a + m2_b + delta * delta * (n_a * (n_b / n))));
}

template <class Element>
void combine_moments(const ArrayView& from, const ArrayView& to, const Box& region) {
  using Stored = typename Element::Stored;
  TESSERA_CHECK(region.rank() > 0 && region.dims.back().size == kMoments, "moments of {}",
                region.to_string());
  const Nest nest = make_nest(from, to, region, 1);
  for_each_run(nest, [&](int64_t from_offset, int64_t to_offset, const Loop& loop) {
    for (int64_t i = 0; i < loop.size; ++i) {
      merge_moments<Element>(
          reinterpret_cast<const Stored*>(from.data) + from_offset + i * loop.from,
          from.strides.back(), reinterpret_cast<Stored*>(to.data) + to_offset + i * loop.to,
          to.strides.back());
    }
  });
}

// Calls f.template operator()<Element>() with the element type of a dtype.
template <class F>
void with_float(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat64: return f.template operator()<Plain<double>>();
    case DType::kFloat32: return f.template operator()<Plain<float>>();
    case DType::kBFloat16: return f.template operator()<BFloat16>();
    case DType::kFloat16: return f.template operator()<Float16>();
    case DType::kInt64:
    case DType::kInt32:
    case DType::kUInt8:
    case DType::kBool: break;
  }
  TESSERA_CHECK(is_floating(dtype), "a combiner for floating point on {}", dtype_name(dtype));
}
template <class F>
void with_element(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kInt64: return f.template operator()<Plain<int64_t>>();
    case DType::kInt32: return f.template operator()<Plain<int32_t>>();
    case DType::kUInt8: return f.template operator()<Plain<uint8_t>>();
    case DType::kBool: return f.template operator()<Bool>();
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kFloat16: return with_float(dtype, f);
  }
}

void flat_boxes(const Box& whole, Box& prefix, size_t dim, int64_t begin, int64_t end,
                std::vector<Box>& out) {
  if (begin >= end) return;
  if (dim == whole.rank()) {
    out.push_back(prefix);
    return;
  }
  int64_t row = 1;
  for (size_t i = dim + 1; i < whole.rank(); ++i) row *= whole.dims[i].size;
  const Interval saved = prefix.dims[dim];
  const int64_t origin = whole.dims[dim].begin;
  const int64_t first = begin / row;
  if (begin % row != 0 || end < (first + 1) * row) {  // a part of row `first`
    const int64_t stop = std::min(end, (first + 1) * row);
    prefix.dims[dim] = {origin + first, 1};
    flat_boxes(whole, prefix, dim + 1, begin - first * row, stop - first * row, out);
    prefix.dims[dim] = saved;
    begin = stop;
  }
  if (const int64_t rows = end / row - begin / row; rows > 0) {  // whole rows
    prefix.dims[dim] = {origin + begin / row, rows};
    out.push_back(prefix);
    begin += rows * row;
  }
  if (begin < end) {  // the head of the last row
    prefix.dims[dim] = {origin + begin / row, 1};
    flat_boxes(whole, prefix, dim + 1, 0, end - begin, out);
  }
  prefix.dims[dim] = saved;
}

// Calls f(box, view of the box's elements in `packed`) for the boxes that make up a flat range.
template <class F>
void for_each_part(DType dtype, const ArrayView& view, Interval range, std::byte* packed,
                   const F& f) {
  for (const Box& box : boxes_of_flat_range(view.box, range)) {
    f(box, packed_view(packed, box));
    packed += box.volume() * dtype_bytes(dtype);
  }
}

}  // namespace

bool is_contiguous(const ArrayView& view) {
  int64_t stride = 1;
  for (size_t i = view.box.rank(); i-- > 0;) {
    if (view.box.dims[i].size != 1 && view.strides[i] != stride) return false;
    stride *= view.box.dims[i].size;
  }
  return true;
}

ArrayView packed_view(std::byte* data, const Box& box) {
  return {data, box, row_major_strides(box.shape())};
}

std::vector<Box> boxes_of_flat_range(const Box& box, Interval range) {
  std::vector<Box> out;
  Box prefix = box;
  flat_boxes(box, prefix, 0, range.begin, range.end(), out);
  return out;
}

namespace {

// Returns the address of the region's first element.
const std::byte* begin_of(const ArrayView& view, const Box& region, DType dtype) {
  int64_t offset = 0;
  for (size_t d = 0; d < region.rank(); ++d) {
    offset += (region.dims[d].begin - view.box.dims[d].begin) * view.strides[d];
  }
  return view.data + offset * dtype_bytes(dtype);
}

}  // namespace

void copy_region(DType dtype, const ArrayView& from, const ArrayView& to, const Box& region) {
  if (region.empty()) return;
  // The input is the output's own part: a shard that already has its place in the gathered array.
  if (from.strides == to.strides && begin_of(from, region, dtype) == begin_of(to, region, dtype))
    return;
  const Nest nest = make_nest(from, to, region, 0);
  switch (dtype_bytes(dtype)) {
    case 1: return copy_nest<1>(nest, from.data, to.data);
    case 2: return copy_nest<2>(nest, from.data, to.data);
    case 4: return copy_nest<4>(nest, from.data, to.data);
    default: return copy_nest<8>(nest, from.data, to.data);
  }
}

void combine_region(DType dtype, Combiner combiner, const ArrayView& from, const ArrayView& to,
                    const Box& region) {
  if (region.empty()) return;
  if (combiner == Combiner::kMoments) {
    with_float(dtype, [&]<class Element>() { combine_moments<Element>(from, to, region); });
    return;
  }
  const Nest nest = make_nest(from, to, region, 0);
  switch (combiner) {
    case Combiner::kSum:
      return with_element(
          dtype, [&]<class Element>() { combine_nest<Element, Sum>(nest, from.data, to.data); });
    case Combiner::kMax:
      return with_element(
          dtype, [&]<class Element>() { combine_nest<Element, Max>(nest, from.data, to.data); });
    case Combiner::kLogSumExp:
      return with_float(dtype, [&]<class Element>() {
        combine_nest<Element, LogSumExp>(nest, from.data, to.data);
      });
    case Combiner::kMoments: return;
    case Combiner::kWeighted: TESSERA_CHECK(false, "weighted parts are not merged by collectives");
  }
}

void combine_run(DType dtype, Combiner combiner, const std::byte* from, std::byte* to,
                 int64_t count) {
  const Box box = combiner == Combiner::kMoments ? Box::whole({count / kMoments, kMoments})
                                                 : Box::whole({count});
  // A view has no const form; combine_region does not write to `from`.
  combine_region(dtype, combiner, packed_view(const_cast<std::byte*>(from), box),
                 packed_view(to, box), box);
}

void pack_flat(DType dtype, const ArrayView& from, Interval range, std::byte* packed) {
  const int64_t bytes = dtype_bytes(dtype);
  if (range.empty()) return;
  if (is_contiguous(from)) {
    std::memcpy(packed, from.data + range.begin * bytes, static_cast<size_t>(range.size * bytes));
    return;
  }
  for_each_part(dtype, from, range, packed, [&](const Box& box, const ArrayView& part) {
    copy_region(dtype, from, part, box);
  });
}

void unpack_flat(DType dtype, const std::byte* packed, const ArrayView& to, Interval range) {
  const int64_t bytes = dtype_bytes(dtype);
  if (range.empty()) return;
  if (is_contiguous(to)) {
    std::memcpy(to.data + range.begin * bytes, packed, static_cast<size_t>(range.size * bytes));
    return;
  }
  for_each_part(dtype, to, range, const_cast<std::byte*>(packed),
                [&](const Box& box, const ArrayView& part) { copy_region(dtype, part, to, box); });
}

void combine_flat(DType dtype, Combiner combiner, const ArrayView& from, Interval range,
                  std::byte* packed) {
  if (range.empty()) return;
  if (is_contiguous(from)) {
    combine_run(dtype, combiner, from.data + range.begin * dtype_bytes(dtype), packed, range.size);
    return;
  }
  for_each_part(dtype, from, range, packed, [&](const Box& box, const ArrayView& part) {
    combine_region(dtype, combiner, from, part, box);
  });
}

}  // namespace tessera::comm
