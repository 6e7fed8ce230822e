// Internal to kernels/: the random numbers of dropout. Whether an element is kept depends only on
// its global index, the seed and the step. So every cut of a tensor gives the same mask, and the
// backward pass computes the mask again instead of storing it.
//
//   const Keep keep(*call.op);
//   const uint64_t stream = keep.stream(context.step);
//   philox_words(words, context.seed, stream, first / 4, blocks);
//   ops.keep(y, x, words + first % 4, keep.threshold, keep.factor, n);
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/graph/within.h"

namespace tessera::kernels {

// The dropout of an op that has the attributes p and key.
struct Keep {
  Keep() = default;
  explicit Keep(const Op& op);
  uint64_t stream(int64_t step) const;  // returns the stream of random numbers of a step
  Keep all() const;                     // returns a Keep that keeps every element

  double p = 0;
  uint32_t threshold = 0;
  double factor = 1;  // factor of kept elements
  uint64_t key = 0;
};

// Returns, for each of the given dims of the op, which part of a larger dim it is, as the op's
// attribute `within` says.
std::vector<Within> places_of(const Op& op, const std::vector<int>& dims);

}  // namespace tessera::kernels
