#include "tessera/runtime/kernels/windows/windows.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/base/text.h"

namespace tessera::kernels {

std::vector<int64_t> numbers_of(const Op& op, std::string_view attribute, size_t count) {
  std::vector<int64_t> numbers;
  for (const std::string& word : split_text(op.text(attribute), ' ')) {
    if (word.empty()) continue;
    const auto number = parse_int(word);
    TESSERA_CHECK(number.has_value(), "{}: {} '{}'", op.path, attribute, word);
    numbers.push_back(*number);
  }
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  return numbers;
}

Interval interval_of(const Op& op, const Box& box, const OperandDims& operand, size_t d) {
  const Interval own = box.dims[static_cast<size_t>(operand.dims[d].front())];
  const auto read = op.annotation.window_read(operand, d);
  return read ? read->of(own) : own;
}

int64_t extent_of(const Op& op, const OperandDims& operand, size_t d) {
  const auto read = op.annotation.window_read(operand, d);
  return read ? read->extent
              : op.annotation.dims[static_cast<size_t>(operand.dims[d].front())].size;
}

std::vector<Interval> spatial_intervals(const Op& op, const Box& box, const OperandDims& operand,
                                        size_t spatial) {
  std::vector<Interval> out;
  for (size_t d = operand.dims.size() - spatial; d < operand.dims.size(); ++d)
    out.push_back(interval_of(op, box, operand, d));
  return out;
}

Interval Frame::span(Interval positions, size_t d) const {
  const int64_t begin = positions.begin * stride[d] - padding[d];
  return {begin, (positions.size - 1) * stride[d] + kernel[d]};
}

PlacedFilter Frame::place(const std::vector<Interval>& elements,
                          const std::vector<Interval>& positions) const {
  PlacedFilter out{{}, {}};
  bool even = true;
  for (size_t d = 0; d < elements.size(); ++d) {
    const int64_t left = elements[d].begin - span(positions[d], d).begin;
    const int64_t room = elements[d].size + 2 * left - kernel[d];
    out.padding.push_back(left);
    even = even && left >= 0 && room >= 0 && room / stride[d] + 1 == positions[d].size;
  }
  if (even) return out;
  out.padding.assign(elements.size(), 0);
  out.pads = to_cover(elements, positions, 1);
  return out;
}

std::vector<int64_t> Frame::to_cover(const std::vector<Interval>& elements,
                                     const std::vector<Interval>& positions, int64_t sign) const {
  std::vector<int64_t> pads;
  for (size_t d = elements.size(); d-- > 0;) {
    const Interval all = span(positions[d], d);
    pads.push_back(sign * (elements[d].begin - all.begin));
    pads.push_back(sign * (all.end() - elements[d].end()));
  }
  return pads;
}

double Frame::volume() const {
  double elements = 1;
  for (const int64_t size : kernel) elements *= static_cast<double>(size);
  return elements;
}

ConvNumbers conv_numbers(const Op& op, const std::vector<int64_t>& weight,
                         const std::vector<int64_t>& x) {
  ConvNumbers n;
  n.spatial = weight.size() - 2;
  n.dilation = numbers_of(op, "dilation", n.spatial);
  n.zeros.assign(n.spatial, 0);
  n.frame = {{}, numbers_of(op, "stride", n.spatial), numbers_of(op, "padding", n.spatial)};
  for (size_t d = 0; d < n.spatial; ++d)
    n.frame.kernel.push_back((weight[d + 2] - 1) * n.dilation[d] + 1);
  const int64_t channels = x[x.size() - n.spatial - 1];
  if (op.integer("groups") > 1) n.groups = channels / std::max<int64_t>(1, weight[1]);
  return n;
}

PoolNumbers pool_numbers(const Op& op) {
  PoolNumbers numbers;
  numbers.spatial = std::max<size_t>(2, numbers_of(op, "kernel", 1).size());
  const auto of = [&](std::string_view name) { return numbers_of(op, name, numbers.spatial); };
  numbers.frame = {of("kernel"), of("stride"), of("padding")};
  return numbers;
}

at::Tensor padded(const at::Tensor& x, const std::vector<int64_t>& pads, double value) {
  return pads.empty() ? x : at::constant_pad_nd(x, pads, value);
}

}  // namespace tessera::kernels
