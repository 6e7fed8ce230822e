// Internal to the runtime: which elements of a piece of a map the windows of convolutions and pools
// have, for the kernels of the processor and for the formulas. A piece of x has those elements of
// its windows that are inside the tensor, so a piece at the border may need padding on one side
// only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera::kernels {

// Returns the numbers of a text attribute, `count` of them if the text has a single one.
std::vector<int64_t> numbers_of(const Op& op, std::string_view attribute, size_t count);

// Returns which interval of tensor dim d of an operand the op reads or writes in a box.
Interval interval_of(const Op& op, const Box& box, const OperandDims& operand, size_t d);
// Returns the size of tensor dim d of an operand in the whole tensor.
int64_t extent_of(const Op& op, const OperandDims& operand, size_t d);
// Returns interval_of() for the last `spatial` dims.
std::vector<Interval> spatial_intervals(const Op& op, const Box& box, const OperandDims& operand,
                                        size_t spatial);

// The padding that the windows of a piece need, by spatial dim.
struct PlacedFilter {
  std::vector<int64_t> padding;  // padding on both sides, for libtorch
  std::vector<int64_t> pads;     // pads for constant_pad_nd, applied to x first; empty: none
};

// The windows of an op, by spatial dim.
struct Frame {
  std::vector<int64_t> kernel;  // elements from the first to the last of a window
  std::vector<int64_t> stride, padding;

  // Returns the interval from the begin of the first window of `positions` to the end of the
  // last window.
  Interval span(Interval positions, size_t d) const;
  // Finds the padding for the windows `positions` on a piece of x with the elements `elements`;
  // everything outside of these elements is padding.
  PlacedFilter place(const std::vector<Interval>& elements,
                     const std::vector<Interval>& positions) const;
  // Returns the pads for constant_pad_nd, the last dim first, that extend `elements` to the span of
  // the positions (sign 1) or cut the span back to the elements (sign -1).
  std::vector<int64_t> to_cover(const std::vector<Interval>& elements,
                                const std::vector<Interval>& positions, int64_t sign) const;
  double volume() const;  // the elements of a window, if it has all from the first to the last
};

struct ConvNumbers {
  Frame frame;
  size_t spatial = 2;
  std::vector<int64_t> dilation, zeros;
  int64_t groups = 1;  // groups in the piece
};
// Returns the numbers of a convolution with a weight [out, in of a group, kernel..] and maps x, or
// their gradients, of these shapes in a piece. A piece has whole groups.
ConvNumbers conv_numbers(const Op& op, const std::vector<int64_t>& weight,
                         const std::vector<int64_t>& x);

struct PoolNumbers {
  Frame frame;
  size_t spatial = 2;
};
PoolNumbers pool_numbers(const Op& op);

at::Tensor padded(const at::Tensor& x, const std::vector<int64_t>& pads, double value = 0);

}  // namespace tessera::kernels
