#include "tessera/runtime/arrays/opened_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/data/numbers.h"
#include "tessera/runtime/kernels/nest.h"

namespace tessera {
namespace {

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

int64_t product_of(const std::vector<int64_t>& sizes) { return Box::whole(sizes).volume(); }

template <class To, class From>
To number_as(const std::byte* at) {
  return static_cast<To>(read_number<From>(at));
}

// Numbers that are read one after the other, forwards or backwards, and stored at
// equal distances.
struct Run {
  int64_t stride = 0, step = 0;  // bytes between elements of the destination, and between numbers
  int64_t count = 0;
  const std::byte* source = nullptr;
  std::byte* at = nullptr;
  int64_t element = 0;  // index, in the array, of the run's first element
  int64_t element_of(int64_t i) const { return step < 0 ? element - i : element + i; }
};

void zeros(std::byte* at, int64_t stride, Interval places, DType dtype) {
  for (int64_t i = places.begin; i < places.end(); ++i)
    kernels::store_element(at + i * stride, dtype, 0.0);
}

template <class From, class Put>
Status store_floating(const OpenedArray& array, const Run& run, Put&& put) {
  int64_t first_nan = run.count;
  for (int64_t i = 0; i < run.count; ++i) {
    const auto value = number_as<double, From>(run.source + i * run.step);
    if (std::isnan(value)) first_nan = std::min(first_nan, i);
    put(run.at + i * run.stride, array.scale * value);
  }
  if (first_nan == run.count) return {};
  return invalid_input(fmt::format("'{}', element {}: expected a number, found NaN", array.name,
                                   run.element_of(first_nan)));
}

template <class From>
Status store_integers(const OpenedArray& array, const Run& run) {
  for (int64_t i = 0; i < run.count; ++i) {
    const auto value = number_as<int64_t, From>(run.source + i * run.step);
    if ((value >= 0 && value < array.values) || (value == -1 && array.ignores)) {
      std::memcpy(run.at + i * run.stride, &value, sizeof value);
      continue;
    }
    return invalid_input(fmt::format("'{}', element {}: expected a number from 0 to {}, found {}",
                                     array.name, run.element_of(i), array.values - 1, value));
  }
  return {};
}

Status store(const OpenedArray& array, const Run& run, DType dtype) {
  return with_number(array.file->number(), [&](auto type) {
    using From = decltype(type);
    if (!is_floating(dtype)) return store_integers<From>(array, run);
    if (dtype == DType::kFloat32) {
      return store_floating<From>(array, run, [](std::byte* at, double value) {
        const auto narrow = static_cast<float>(value);
        std::memcpy(at, &narrow, sizeof narrow);
      });
    }
    return store_floating<From>(
        array, run, [&](std::byte* at, double value) { kernels::store_element(at, dtype, value); });
  });
}

// Returns the first of the inner dims over which one loop can run, because their elements are
// consecutive in the sample, in the part that was read and at the destination. These dims are
// neither moved nor mirrored nor read in part, except if only the last dim is left, which is
// always looped over by itself.
size_t first_joined(const OpenedArray& array, const SamplePart& part, const Box& rest,
                    const SampleMoves& moves, const kernels::Array& to) {
  if (rest.rank() == 0) return 0;
  const auto is_plain = [&](size_t d) {
    return moves[d].by == 0 && !moves[d].mirrored && part.box.dims[d] == rest.dims[d];
  };
  size_t d = rest.rank() - 1;
  while (d > 0 && is_plain(d) && is_plain(d - 1) && rest.dims[d].size == array.sizes[d] &&
         to.strides[array.leading + d - 1] == to.strides[array.leading + d] * rest.dims[d].size) {
    --d;
  }
  return d;
}

}  // namespace

bool match_dims(const std::vector<int64_t>& input, OpenedArray& array) {
  const std::vector<int64_t>& shape = array.file->shape();
  if (shape.empty()) return false;
  const std::vector<int64_t> sample(shape.begin() + 1, shape.end());
  for (size_t leading = 1; leading <= input.size(); ++leading) {
    const std::vector<int64_t> rest(input.begin() + static_cast<int64_t>(leading), input.end());
    const bool same = without_ones(sample) == without_ones(rest);
    const bool flat = sample.size() == 1 && sample.front() == product_of(rest);
    if (!same && !flat) continue;
    array.leading = leading;
    array.sizes = rest;
    array.strides = row_major_strides(rest);
    size_t at = 1;
    for (size_t d = 0; same && d < rest.size(); ++d) {
      while (rest[d] != 1 && shape[at] == 1) ++at;
      array.dims.push_back(rest[d] == 1 ? 0 : at++);
    }
    return true;
  }
  return false;
}

Status read_sample(const OpenedArray& array, int64_t sample, const Box& rest, std::byte* to) {
  Box box = Box::whole(array.file->shape());
  box.dims[0] = {sample, 1};
  if (!array.dims.empty() || rest.rank() == 0) {
    for (size_t d = 0; d < rest.rank(); ++d) {
      if (array.dims[d] > 0) box.dims[array.dims[d]] = rest.dims[d];
    }
    return array.file->read(box, to);
  }
  // The array is flat. Reads one run of consecutive elements for the inner dims that the box has in
  // whole, at each position of the outer dims.
  size_t inner = rest.rank();
  int64_t run = 1;
  bool whole = true;
  while (inner > 0 && whole) {
    --inner;
    const int64_t size = inner == 0 ? array.sample_elements / array.strides[0]
                                    : array.strides[inner - 1] / array.strides[inner];
    run *= rest.dims[inner].size;
    whole = rest.dims[inner].size == size;
  }
  std::vector<int64_t> at(inner, 0);
  for (int64_t done = 0; done < rest.volume(); done += run) {
    int64_t from = rest.dims[inner].begin * array.strides[inner];
    for (size_t d = 0; d < inner; ++d) from += (rest.dims[d].begin + at[d]) * array.strides[d];
    box.dims[1] = {from, run};
    TESSERA_TRY_VOID(array.file->read(box, to));
    to += run * number_bytes(array.file->number());
    for (size_t d = inner; d-- > 0 && ++at[d] == rest.dims[d].size;) at[d] = 0;
  }
  return {};
}

Box sources(const OpenedArray& array, const Box& rest, const SampleMoves& moves) {
  Box from = rest;
  for (size_t d = 0; d < rest.rank(); ++d)
    from.dims[d] = moves[d].sources(rest.dims[d], array.sizes[d]);
  return from;
}

Status store_part(const OpenedArray& array, const SamplePart& part, const Box& rest,
                  const SampleMoves& moves, std::byte* at, const kernels::Array& to) {
  const int64_t bytes = dtype_bytes(to.dtype), step = number_bytes(array.file->number());
  const size_t joined = first_joined(array, part, rest, moves, to);
  const Box outer(Box::Dims(rest.dims.begin(), rest.dims.begin() + static_cast<ptrdiff_t>(joined)));
  // The innermost loop stores `length` elements at once. The interval `inside` of them gets
  // numbers of the sample, the others get zeros.
  Run run{.stride = rest.rank() == 0 ? bytes : to.strides.back() * bytes, .step = step};
  int64_t length = 1;
  for (size_t d = joined; d < rest.rank(); ++d) length *= rest.dims[d].size;
  Interval inside{0, length};
  if (joined + 1 == rest.rank()) {
    const size_t d = joined;
    inside = moves[d].places(part.box.dims[d], rest.dims[d], array.sizes[d]);
    if (moves[d].mirrored) run.step = -step;
  }
  run.count = inside.size;
  Status status;
  each_place(outer, [&](const std::vector<int64_t>& place, int64_t) {
    int64_t offset = 0, element = part.sample * array.sample_elements, number = 0;
    bool has_numbers = !inside.empty();
    for (size_t d = 0; d < rest.rank(); ++d) {
      const Interval have = part.box.dims[d];
      const int64_t there = d < joined                            ? place[d]
                            : d + 1 == rest.rank() && d == joined ? inside.begin
                                                                  : 0;
      const int64_t from = moves[d].source(rest.dims[d].begin + there, array.sizes[d]);
      if (d < joined) offset += place[d] * to.strides[array.leading + d] * bytes;
      element += from * array.strides[d];
      number = number * have.size + from - have.begin;
      has_numbers = has_numbers && from >= have.begin && from < have.end();
    }
    const Interval filled = has_numbers ? inside : Interval{0, 0};
    zeros(at + offset, run.stride, {0, filled.begin}, to.dtype);
    zeros(at + offset, run.stride, {filled.end(), length - filled.end()}, to.dtype);
    if (filled.empty()) return;
    run.source = part.numbers + number * step;
    run.at = at + offset + inside.begin * run.stride;
    run.element = element;
    if (auto stored = store(array, run, to.dtype); !stored && status) status = std::move(stored);
  });
  return status;
}

}  // namespace tessera
