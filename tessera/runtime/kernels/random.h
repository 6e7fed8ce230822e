// Internal to kernels/: the draws of dropout. An element is kept or not by its global index alone,
// so that every cut gives one mask, which is made again rather than stored.
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

// The dropout of an op with the attributes p and key.
struct Keep {
  Keep() = default;
  explicit Keep(const Op& op);
  uint64_t stream(int64_t step) const;  // of random numbers
  Keep all() const;                     // keeps every element

  double p = 0;
  uint32_t threshold = 0;
  double factor = 1;  // factor of kept elements
  uint64_t key = 0;
};

// Returns the places of the op's dims inside larger ones, as its attribute `within` says.
std::vector<Within> places_of(const Op& op, const std::vector<int>& dims);

}  // namespace tessera::kernels
