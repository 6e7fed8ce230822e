// The elements of a box inside two row-major arrays, as a sequence of runs. A run is a range of
// elements that is contiguous in both arrays. All runs of a box have the same length, so the
// position of the k-th run can be computed directly and no list is made.
//
//   const BoxRuns runs(common, file_box, memory_box);   // both contain `common`
//   for (int64_t k = 0; k < runs.count(); ++k)
//     copy(memory + runs.at(k).in_b, file + runs.at(k).in_a, runs.length());   // in elements
//
// The elements of the runs are in row-major order in both arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/base/box.h"

namespace tessera {

class BoxRuns {
 public:
  BoxRuns(const Box& common, const Box& a, const Box& b);

  struct Run {
    int64_t in_a = 0, in_b = 0;  // where the first element of the run is in each array, in elements
  };
  int64_t count() const { return count_; }    // 0 if the box is empty
  int64_t length() const { return length_; }  // elements of each run
  Run at(int64_t index) const;

 private:
  struct Dim {
    int64_t size, stride_a, stride_b;
  };
  std::vector<Dim> outer_;  // the dims over which the runs are enumerated
  Run first_;
  int64_t count_ = 0, length_ = 0;
};

// Takes the elements of `box` out of an array of `from_box`, which contains `box`, as a row-major
// array of their own, and writes bytes [begin, begin + bytes) of this array to `to`.
void copy_cut_out(int64_t element_bytes, const std::byte* from, const Box& from_box, const Box& box,
                  int64_t begin, int64_t bytes, std::byte* to);

}  // namespace tessera
