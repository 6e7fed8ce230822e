// Formulas of convolutions. A piece of a map is padded on each side by what its windows need there.
#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/maps.h"
#include "tessera/runtime/kernels/windows/windows.h"

namespace tessera::kernels {
namespace {

// The windows of a convolution in a piece. x and y say which operands are the map under the windows
// and the map of windows, or their gradients.
struct Placed {
  ConvNumbers n;
  std::vector<Interval> elements, positions;
  PlacedFilter filter;

  Placed(const Call& c, const OperandDims& x, const std::vector<int64_t>& x_shape,
         const OperandDims& y, const std::vector<int64_t>& weight)
      : n(conv_numbers(c.op(), weight, x_shape)),
        elements(spatial_intervals(c.op(), c.box(), x, n.spatial)),
        positions(spatial_intervals(c.op(), c.box(), y, n.spatial)),
        filter(n.frame.place(elements, positions)) {}

  // Returns a map as [samples, channels, spatial..].
  at::Tensor samples(const at::Tensor& map) const { return with_one_lead(map, n.spatial + 1); }
};

Values conv(const Call& c) {
  const Annotation& dims = c.op().annotation;
  const Placed at(c, dims.inputs[0], c.input(0).shape, dims.outputs[0], c.input(1).shape);
  return {c.regrouped(at::convolution(padded(at.samples(c.in(0)), at.filter.pads), c.in(1), {},
                                      at.n.frame.stride, at.filter.padding, at.n.dilation,
                                      /*transposed=*/false, at.n.zeros, at.n.groups))};
}

// Sums for each element of dx over the windows that contain it: a transposed convolution. If the
// windows of the piece need uneven padding, the sums are made for all of their elements, and those
// of the piece are taken.
Values conv_input_grad(const Call& c) {
  if (c.input(0).empty()) return {at::zeros({}, c.in(0).options())};  // no window reaches dx
  const Annotation& dims = c.op().annotation;
  const Placed at(c, dims.outputs[0], c.output_shape(0), dims.inputs[0], c.input(1).shape);
  const bool even = at.filter.pads.empty();
  std::vector<int64_t> beyond = at.n.zeros;  // elements of dx behind the last window
  for (size_t d = 0; d < at.n.spatial && even; ++d) {
    const int64_t covered = at.n.frame.span(at.positions[d], d).size - 2 * at.filter.padding[d];
    beyond[d] = at.elements[d].size - covered;
  }
  const at::Tensor made =
      at::convolution(at.samples(c.in(0)), c.in(1), {}, at.n.frame.stride, at.filter.padding,
                      at.n.dilation, /*transposed=*/true, beyond, at.n.groups);
  return {
      c.regrouped(even ? made : padded(made, at.n.frame.to_cover(at.elements, at.positions, -1)))};
}

Values conv_weight_grad(const Call& c) {
  const std::vector<int64_t>& shape = c.output_shape(0);
  const Annotation& dims = c.op().annotation;
  const Placed at(c, dims.inputs[1], c.input(1).shape, dims.inputs[0], shape);
  const at::Tensor dy = at.samples(c.in(0));
  const at::Tensor weight = at::empty(shape, dy.options());  // its shape counts
  const auto made = at::convolution_backward(dy, padded(at.samples(c.in(1)), at.filter.pads),
                                             weight, at::OptionalIntArrayRef(), at.n.frame.stride,
                                             at.filter.padding, at.n.dilation, /*transposed=*/false,
                                             at.n.zeros, at.n.groups, {false, true, false});
  return {std::get<1>(made)};
}

}  // namespace

std::span<const Formula> convolution_formulas() {
  static const std::vector<Formula> formulas = {
      {"conv", conv},
      {"conv_transpose", conv_input_grad},
      {"conv_input_grad", conv_input_grad},
      {"conv_weight_grad", conv_weight_grad},
  };
  return formulas;
}

}  // namespace tessera::kernels
