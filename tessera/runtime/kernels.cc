#include "tessera/runtime/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <numeric>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/sampling.h"

namespace tessera::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

const std::map<std::string_view, KernelInfo>& registry() {
  static const std::map<std::string_view, KernelInfo> all = [] {
    std::map<std::string_view, KernelInfo> kinds;
    for (const auto family :
         {attention_kernels(), batch_norm_kernels(), convolution_kernels(), einsum_kernels(),
          indexing_kernels(), pointwise_kernels(), row_update_kernels(), scan_kernels(),
          shape_kernels(), norm_kernels(), lookup_kernels(), moe_kernels(), random_kernels(),
          position_kernels(), quantise_kernels(), sampling_kernels(), sparse_kernels(),
          update_kernels()}) {
      for (const KernelInfo& info : family) kinds.emplace(info.kind, info);
    }
    return kinds;
  }();
  return all;
}

const KernelInfo& find(std::string_view kind) {
  const auto found = registry().find(kind);
  TESSERA_CHECK(found != registry().end(), "no kernel for kind {}", kind);
  return found->second;
}

Kernel prepare_identity(const Array& out, Combiner combiner) {
  const double value = identity(combiner);
  const Nest<1> nest({&out}, out.shape.size());
  const DType dtype = out.dtype;
  if (!is_floating(dtype)) {  // the identity of a sum is zero
    TESSERA_CHECK(combiner == Combiner::kSum, "integers are only summed");
    return [=, bytes = static_cast<size_t>(dtype_bytes(dtype))] {
      nest.each([&](const std::array<std::byte*, 1>& at) { std::memset(at[0], 0, bytes); });
    };
  }
  return [=] {
    nest.each([&](const std::array<std::byte*, 1>& at) { store_element(at[0], dtype, value); });
  };
}

double merged(Combiner combiner, double a, double b) {
  if (combiner == Combiner::kSum) return a + b;
  if (combiner == Combiner::kMax) return std::max(a, b);
  const double m = std::max(a, b);
  return std::isinf(m) ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
}

// Makes a kernel that merges the moments (count, mean, M2) of `from` into those of `into`, by
// Chan's parallel update. The last dim of both arrays has size 3.
Kernel prepare_merge_moments(const Array& from, const Array& into) {
  const Nest<2> nest({&into, &from}, into.shape.size() - 1);
  const DType dtype = into.dtype;
  const int64_t to_step = into.strides.back() * dtype_bytes(dtype);
  const int64_t from_step = from.strides.back() * dtype_bytes(dtype);
  return [=] {
    nest.each([&](const std::array<std::byte*, 2>& at) {
      const auto to = [&](int64_t i) { return at[0] + i * to_step; };
      const auto other = [&](int64_t i) {
        return load_element<double>(at[1] + i * from_step, dtype);
      };
      const double na = load_element<double>(to(0), dtype), nb = other(0), n = na + nb;
      if (nb == 0) return;
      const double mean = load_element<double>(to(1), dtype), delta = other(1) - mean;
      const double m2 = load_element<double>(to(2), dtype) + other(2) + delta * delta * na * nb / n;
      store_element(to(0), dtype, n);
      store_element(to(1), dtype, mean + delta * nb / n);
      store_element(to(2), dtype, m2);
    });
  };
}

Kernel prepare_merge(const Array& from, const Array& into, Combiner combiner) {
  TESSERA_CHECK(combiner != Combiner::kWeighted, "weighted parts are merged by the kind's kernel");
  if (combiner == Combiner::kMoments) return prepare_merge_moments(from, into);
  if (combiner == Combiner::kSum && from.dtype != into.dtype) return prepare_add(from, into);
  const Nest<2> nest({&into, &from}, into.shape.size());
  const DType dtype = into.dtype;
  return [=] {
    nest.each([&](const std::array<std::byte*, 2>& at) {
      const double value =
          merged(combiner, load_element<double>(at[0], dtype), load_element<double>(at[1], dtype));
      store_element(at[0], dtype, value);
    });
  };
}

Kernel sequence(std::vector<Kernel> kernels) {
  std::erase_if(kernels, [](const Kernel& kernel) { return !kernel; });
  if (kernels.empty()) return {};
  if (kernels.size() == 1) return std::move(kernels.front());
  return [kernels = std::move(kernels)] {
    for (const Kernel& kernel : kernels) kernel();
  };
}

// Returns the dtype in which the kind's kernel computes the output: that of the first floating
// operand if the op's output has a dtype for sums of its own, else the dtype of the output.
DType made_dtype(const KernelCall& call, size_t output) {
  const DType dtype = call.outputs[output].dtype;
  if (!has_sum_dtype(*call.op, output)) return dtype;
  const auto first = std::find_if(call.inputs.begin(), call.inputs.end(),
                                  [](const Array& array) { return is_floating(array.dtype); });
  return first == call.inputs.end() ? dtype : first->dtype;
}

// Prepares the kind's own kernel. An output that the kernel cannot add to, or whose dtype it cannot
// write, is replaced by scratch memory and merged into the output afterwards.
Kernel prepare_with_scratch(const KernelInfo& info, const KernelCall& call) {
  KernelCall inner = call;
  std::vector<size_t> detached;
  int64_t bytes = 0;
  const auto padded = [&](size_t i) {
    int64_t n = dtype_bytes(made_dtype(call, i));
    for (const int64_t size : call.outputs[i].shape) n *= size;
    return (n + 63) / 64 * 64;
  };
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i].empty()) continue;
    const bool adds_itself = !call.add[i] || ((info.accumulates >> i) & 1U) != 0;
    if (adds_itself && made_dtype(call, i) == call.outputs[i].dtype) continue;
    detached.push_back(i);
    bytes += padded(i);
  }
  if (detached.empty()) return info.prepare(call);
  std::byte* memory = call.context->accumulate.take(bytes);
  for (const size_t i : detached) {
    inner.outputs[i] = Array::contiguous(memory, made_dtype(call, i), call.outputs[i].shape);
    inner.add[i] = false;
    memory += padded(i);
  }
  std::vector<Kernel> kernels{info.prepare(inner)};
  for (const size_t i : detached) {
    kernels.push_back(call.add[i] ? prepare_merge(inner.outputs[i], call.outputs[i],
                                                  call.op->annotation.outputs[i].combiner)
                                  : prepare_copy(inner.outputs[i], call.outputs[i]));
  }
  return sequence(std::move(kernels));
}

}  // namespace

double identity(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum:
    case Combiner::kMoments:
    case Combiner::kWeighted: return 0;
    case Combiner::kMax:
    case Combiner::kLogSumExp: return -std::numeric_limits<double>::infinity();
  }
  return 0;
}

bool Array::empty() const {
  return std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size == 0; });
}

Array Array::contiguous(std::byte* data, DType dtype, std::vector<int64_t> shape) {
  std::vector<int64_t> strides = row_major_strides(shape);
  return {data, dtype, std::move(shape), std::move(strides)};
}

void Scratch::Release::operator()(std::byte* memory) const {
  ::operator delete(memory, kAlignment);
}

std::byte* Scratch::take(int64_t bytes) {
  if (bytes > largest_ || chunks_.empty()) {
    largest_ = std::max({bytes, largest_ * 3 / 2, int64_t{4096}});
    total_ += largest_;
    chunks_.emplace_back(
        static_cast<std::byte*>(::operator new(static_cast<size_t>(largest_), kAlignment)));
  }
  return chunks_.back().get();
}

int64_t Scratch::bytes() const { return total_; }

std::vector<int> op_dims(const OperandDims& operand) {
  std::vector<int> order;
  for (const DimGroup& group : operand.dims) order.insert(order.end(), group.begin(), group.end());
  return order;
}

Array align(const Array& array, const OperandDims& operand, const std::vector<int>& order,
            const Box& box) {
  Array result{array.data, array.dtype, {}, {}, array.place};
  for (const int dim : order) {
    int64_t stride = 0;
    for (size_t t = 0; t < operand.dims.size(); ++t) {
      const DimGroup& group = operand.dims[t];
      const auto member = std::find(group.begin(), group.end(), dim);
      if (member == group.end()) continue;
      stride = array.strides[t];
      for (auto inner = member + 1; inner != group.end(); ++inner)
        stride *= box.dims[static_cast<size_t>(*inner)].size;
    }
    result.shape.push_back(box.dims[static_cast<size_t>(dim)].size);
    result.strides.push_back(stride);
  }
  return result;
}

Array input_along(const KernelCall& call, size_t i, const std::vector<int>& order) {
  return align(call.inputs[i], call.op->annotation.inputs[i], order, call.box);
}
Array output_along(const KernelCall& call, size_t i, const std::vector<int>& order) {
  return align(call.outputs[i], call.op->annotation.outputs[i], order, call.box);
}

std::vector<std::string_view> kernel_kinds() {
  std::vector<std::string_view> names;
  for (const auto& [name, info] : registry()) names.push_back(name);
  return names;
}

Kernel prepare_kernel(const KernelCall& call) {
  const KernelInfo& info = find(call.op->kind);
  TESSERA_CHECK(call.add.size() == call.outputs.size(), "{}: {} write modes for {} outputs",
                call.op->path, call.add.size(), call.outputs.size());
  if (std::all_of(call.outputs.begin(), call.outputs.end(),
                  [](const Array& a) { return a.empty(); }))
    return {};
  if (call.box.empty()) {
    std::vector<Kernel> kernels;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.add[i] || call.outputs[i].empty()) continue;
      kernels.push_back(prepare_identity(call.outputs[i], call.op->annotation.outputs[i].combiner));
    }
    return sequence(std::move(kernels));
  }
  return prepare_with_scratch(info, call);
}

}  // namespace tessera::kernels
