// Internal to formulas/: the operands of a formula as tensors of libtorch, and how each file lists its
// formulas.
//
//   {"sub", [](const Call& c) -> Values { return {c.aligned(0) - c.aligned(1)}; }}
//
// A formula returns the value of each output over the box of the call, with the dims of the output
// tensor in their order, or with dims of size 1 that are broadcast. It computes in the dtype of the
// inputs, where narrow ones come in as float32. A formula that changes few elements of a large
// output writes them itself (updated()) and returns an undefined tensor for that output.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>
#include <vector>

#include "tessera/runtime/kernels.h"

namespace tessera::kernels {

using Values = std::vector<at::Tensor>;

class Call {
 public:
  explicit Call(const KernelCall& call);

  const Op& op() const { return *call_.op; }
  const Box& box() const { return call_.box; }
  const KernelContext& context() const { return *call_.context; }
  size_t inputs() const { return call_.inputs.size(); }
  const Array& input(size_t i) const { return call_.inputs[i]; }
  // Returns whether the op has this optional input.
  bool has(size_t i) const { return i < inputs() && call_.inputs[i].data != nullptr; }
  // Returns input i with the dims of its tensor.
  at::Tensor in(size_t i) const;
  // Returns input i as in(), but in the dtype in which it is stored.
  at::Tensor stored(size_t i) const;
  // Returns the memory of output i, which is the new input i, with the values of the latter.
  at::Tensor updated(size_t i) const;
  // Returns input i with one dim for each op dim of `order`, of size 1 where the input lacks it.
  at::Tensor along(size_t i, const std::vector<int>& order) const;
  // Returns input i with the dims of output `output`.
  at::Tensor aligned(size_t i, size_t output = 0) const;
  // Returns the place of the dim of that name among the dims of input i.
  int64_t dim(size_t i, std::string_view name) const;
  // Returns the op dims of an output in the order of its tensor's dims.
  std::vector<int> dims_of_output(size_t output) const;
  // Sums a value with the op dims `order` over those that output `output` lacks.
  at::Tensor summed(const at::Tensor& value, const std::vector<int>& order, size_t output) const;
  // Returns a value with the op dims of an output as a tensor with the dims of the output, one for
  // each bracket.
  at::Tensor regrouped(const at::Tensor& value, size_t output = 0) const;
  // Returns an output itself; a formula that has written it returns an undefined value for it.
  at::Tensor output(size_t i) const;
  // Returns which ids name rows of the box, where the op dim `dim` is the rows of a table.
  Interval rows_of(int dim) const;
  // Returns the box's interval of the op dim of that name, and the size of the dim in the whole op.
  Interval interval(std::string_view dim) const;
  int64_t whole(std::string_view dim) const;
  const std::vector<int64_t>& output_shape(size_t output) const {
    return call_.outputs[output].shape;
  }
  int64_t output_size(size_t output, size_t dim) const { return call_.outputs[output].shape[dim]; }
  double number(std::string_view name) const { return op().number(name); }

 private:
  const KernelCall& call_;
};

// Returns the numbers as a tensor of int64 on the device of `like`, made of runs of equal steps, so
// that nothing is copied from the host.
at::Tensor numbers(const std::vector<int64_t>& list, const at::Tensor& like);

struct Formula {
  std::string_view kind;
  Values (*value)(const Call&);
  bool (*covers)(const Op&) = nullptr;  // null: all ops of the kind
  // Whether that is also so where the rows of the op's table lie in a cache. null: yes
  bool (*covers_cached)(const Op&) = nullptr;
};
std::span<const Formula> elementwise_formulas();
std::span<const Formula> row_formulas();
std::span<const Formula> product_formulas();
std::span<const Formula> lookup_formulas();
std::span<const Formula> update_formulas();
std::span<const Formula> mask_formulas();
std::span<const Formula> mixture_formulas();
std::span<const Formula> random_formulas();
std::span<const Formula> row_update_formulas();
std::span<const Formula> sparse_formulas();
std::span<const Formula> batch_norm_formulas();
std::span<const Formula> convolution_formulas();
std::span<const Formula> grid_formulas();
std::span<const Formula> moving_formulas();
std::span<const Formula> picking_formulas();
std::span<const Formula> pool_formulas();
std::span<const Formula> recurrence_formulas();

}  // namespace tessera::kernels
