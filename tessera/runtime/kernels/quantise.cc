// code_score, code_place and code_ids find the code nearest to each point. code_score and
// code_place sum each distance in the same order, in any piece. So code_place finds the first code
// with the largest score by comparing scores for equality.
#include <algorithm>
#include <limits>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/sampling.h"

namespace tessera::kernels {
namespace {

// Computes the scores of one point with all codes of the piece.
template <class A>
struct Codes {
  explicit Codes(const KernelCall& call)
      : point(call.inputs[0]),
        code(call.inputs[1]),
        first(call.inputs[1].data),
        step(call.inputs[1].strides[0] * dtype_bytes(call.inputs[1].dtype)),
        count(call.inputs[1].shape[0]) {}

  // Calls f(score) for each code until f returns true. Returns the number of that code; `count` if
  // f never returns true.
  template <class F>
  int64_t find(const std::byte* at, F&& f) const {
    const A* x = point.read(at);
    for (int64_t k = 0; k < count; ++k) {
      const A* c = code.read(first + k * step);
      A sum = 0;
      for (int64_t i = 0; i < point.size(); ++i) sum += (x[i] - c[i]) * (x[i] - c[i]);
      if (f(-sum)) return k;
    }
    return count;
  }
  Row<A> point, code;
  const std::byte* first;
  int64_t step, count;
};

// Prepares the kernel with inputs (x, codes) and output score.
Kernel code_score(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Codes<A> codes(call);
    const Array& score = call.outputs[0];
    const Nest<2> nest({&score, &call.inputs[0]}, score.shape.size());
    return [codes, nest, dtype = score.dtype] {
      nest.each([&](const std::array<std::byte*, 2>& at) {
        A most = -std::numeric_limits<A>::infinity();
        codes.find(at[1], [&](A one) {
          most = std::max(most, one);
          return false;
        });
        store_element(at[0], dtype, most);
      });
    };
  });
}

// Prepares the kernel with inputs (x, codes, score) and output place.
Kernel code_place(const KernelCall& call) {
  return with_compute_type(call.outputs[0].dtype, [&]<class A>() -> Kernel {
    const Codes<A> codes(call);
    const Array& place = call.outputs[0];
    const int dim = call.op->annotation.inputs[1].dims[0].front();
    const int64_t begin = call.box.dims[static_cast<size_t>(dim)].begin;
    const Nest<3> nest({&place, &call.inputs[0], &call.inputs[2]}, place.shape.size());
    return [codes, nest, begin, dtype = place.dtype] {
      nest.each([&](const std::array<std::byte*, 3>& at) {
        const A wanted = load_element<A>(at[2], dtype);
        const int64_t found = codes.find(at[1], [&](A one) { return one == wanted; });
        store_element(at[0], dtype,
                      found < codes.count ? -static_cast<A>(begin + found)
                                          : -std::numeric_limits<A>::infinity());
      });
    };
  });
}

// Prepares the kernel with input place and output ids. A point with a NaN is nearest to no code and
// gets the first code.
Kernel code_ids(const KernelCall& call) {
  const Array& place = call.inputs[0];
  const Nest<2> nest({&call.outputs[0], &place}, place.shape.size());
  return [nest, dtype = place.dtype] {
    nest.each([&](const std::array<std::byte*, 2>& at) {
      const double value = -load_element<double>(at[1], dtype);
      *reinterpret_cast<int64_t*>(at[0]) = std::isfinite(value) ? std::llround(value) : 0;
    });
  };
}

constexpr KernelInfo kQuantiseKernels[] = {
    {"code_score", code_score},
    {"code_place", code_place},
    {"code_ids", code_ids},
};

}  // namespace

std::span<const KernelInfo> quantise_kernels() { return kQuantiseKernels; }

}  // namespace tessera::kernels
