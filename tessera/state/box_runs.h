// A box of elements inside two row-major arrays, as runs: stretches that are contiguous in both
// arrays. All runs of a box have one length, so the k-th is found without those before it, and no
// list is made.
//
//   const BoxRuns runs(common, file_box, memory_box);   // both contain `common`
//   for (int64_t k = 0; k < runs.count(); ++k)
//     copy(memory + runs.at(k).in_b, file + runs.at(k).in_a, runs.length());   // in elements
//
// Runs are in the order of both arrays.
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
    int64_t in_a = 0, in_b = 0;  // offsets of the first element
  };
  int64_t count() const { return count_; }    // 0: the box is empty
  int64_t length() const { return length_; }  // elements
  Run at(int64_t index) const;

 private:
  struct Dim {
    int64_t size, stride_a, stride_b;
  };
  std::vector<Dim> outer_;  // dims over which runs are counted
  Run first_;
  int64_t count_ = 0, length_ = 0;
};

// Writes bytes [begin, begin + bytes) of the row-major array that cutting `box` out of an array of
// `from_box`, which contains it, would give.
void copy_cut_out(int64_t element_bytes, const std::byte* from, const Box& from_box, const Box& box,
                  int64_t begin, int64_t bytes, std::byte* to);

}  // namespace tessera
