// An array of samples that is open, and how a part of a sample becomes a part of an input (arrays.h).
// Private to tessera/runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/base/small_vector.h"
#include "tessera/data/array_file.h"
#include "tessera/runtime/kernels.h"

namespace tessera {

// The change of one dim of a sample: a shift, and after the shift perhaps a mirroring.
struct SampleMove {
  int64_t by = 0;
  bool mirrored = false;
  // Returns the element that moves to place `at`; a result outside of [0, size) means that no
  // element moves there.
  int64_t source(int64_t at, int64_t size) const { return (mirrored ? size - 1 - at : at) - by; }
  // Returns the places to which the elements `have` move, counted from the begin of the interval
  // `at`. Consecutive elements move to consecutive places.
  Interval places(Interval have, Interval at, int64_t size) const {
    if (have.empty()) return {};
    const int64_t first = mirrored ? size - 1 - (have.end() - 1 + by) : have.begin + by;
    return {first - at.begin, have.size};
  }
  // Returns the interval of elements that move into the places `at`.
  Interval sources(Interval at, int64_t size) const {
    if (at.empty()) return {};
    const int64_t first = source(mirrored ? at.end() - 1 : at.begin, size);
    return intersect({first, at.size}, {0, size});
  }
};
using SampleMoves = SmallVector<SampleMove, 4>;  // one for each dim of a sample

struct OpenedArray {
  std::string name;  // name of the file, with the dataset
  std::unique_ptr<ArrayFile> file;
  int64_t sample_elements = 1;   // elements of one sample
  int64_t samples_of_batch = 0;  // samples of a batch of the input
  size_t leading = 0;            // dims of the input that count samples
  // For each dim of a sample in the input: the array's dim, or 0 if the dim has one element and the
  // array lacks it. Empty if a sample is flat in the array.
  std::vector<size_t> dims;
  std::vector<int64_t> sizes, strides;  // by dim of a sample in the input
  int64_t values = 0;                   // an integer input's elements are in [0, values)
  bool ignores = false;                 // whether an integer input may have -1
  double scale = 1;                     // factor of a floating input
  int64_t ahead = 0;                    // how many steps later samples are taken from
  bool moved = false;  // whether samples are shifted or mirrored along their last two dims

  int64_t samples() const { return file->shape().front(); }
};

// A box of a sample and the numbers that were read for it.
struct SamplePart {
  int64_t sample = 0;
  Box box;
  const std::byte* numbers = nullptr;
};

// Finds how many leading dims of the input count samples, and which dims of the array belong to the
// other dims of the input. Returns whether the array fits the input.
bool match_dims(const std::vector<int64_t>& input, OpenedArray& array);

// Reads the box `rest` of a sample, which is given in the input's dims, to `to`: row-major, packed.
Status read_sample(const OpenedArray& array, int64_t sample, const Box& rest, std::byte* to);

// Returns the box of a sample's elements that move into the box `rest`.
Box sources(const OpenedArray& array, const Box& rest, const SampleMoves& moves);

// Stores the elements that move into the box `rest` of a sample, and zeros at places of the box
// to which no element moves. `at` is the address of the box's first element.
Status store_part(const OpenedArray& array, const SamplePart& part, const Box& rest,
                  const SampleMoves& moves, std::byte* at, const kernels::Array& to);

// Calls f for each element of the box, in row-major order, with the element's coordinates, counted
// from the box's first element, and the number of elements before it.
template <class F>
void each_place(const Box& box, F&& f) {
  std::vector<int64_t> at(box.rank(), 0);
  const int64_t volume = box.volume();
  for (int64_t i = 0; i < volume; ++i) {
    f(at, i);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == box.dims[d].size;) at[d] = 0;
  }
}

}  // namespace tessera
