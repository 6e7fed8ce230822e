#include "tessera/runtime/kernels/product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <utility>

// libtorch_cpu exports this function, and at::mm calls it for bfloat16, but no installed header
// declares it. The declaration is weak, so that a build of libtorch without the function still
// links; MKL then computes all products.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& y,
                                         float beta, float alpha);
}

namespace tessera::kernels {
namespace {

// The least number of multiplications for which oneDNN is used. For smaller products the 10
// microseconds that a call to oneDNN costs are more than it saves.
constexpr int64_t kLeastWork = int64_t{1} << 20;

bool prefers_onednn() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") &&
         at::native::mkldnn_matmul != nullptr;
#else
  return false;
#endif
}

}  // namespace

bool onednn_is_faster() {
  static const bool preferred = prefers_onednn();
  return preferred;
}

Product prepare_product(at::Tensor y, at::Tensor a, at::Tensor b, bool add) {
  const int64_t rank = y.dim(), rows = y.size(rank - 2), columns = y.size(rank - 1),
                depth = a.size(rank - 1);
  const int64_t batch = rank == 3 ? y.size(0) : 1;
  const bool onednn = onednn_is_faster() && y.scalar_type() == at::kFloat &&
                      batch * rows * columns * depth >= kLeastWork;
  if (onednn && y.stride(rank - 1) != 1) {
    // oneDNN is slow if the output is stored by columns, so the transposed product y' = b' a' is
    // computed instead.
    at::Tensor b_transposed = b.transpose(rank - 2, rank - 1);
    b = a.transpose(rank - 2, rank - 1);
    a = std::move(b_transposed);
    y = y.transpose(rank - 2, rank - 1);
  }
  const bool by_rows = y.stride(rank - 1) == 1 || y.size(rank - 1) == 1;
  return {std::move(y), std::move(a), std::move(b), add, onednn && by_rows};
}

void run_product(Product& product) {
  auto& [y, a, b, add, onednn] = product;
  if (onednn) {
    at::native::mkldnn_matmul(a, b, y, add ? 1.0F : 0.0F, 1.0F);
  } else if (y.dim() == 3) {
    if (add) {
      at::baddbmm_out(y, y, a, b);
    } else {
      at::bmm_out(y, a, b);
    }
  } else if (add) {
    at::addmm_out(y, y, a, b);
  } else {
    at::mm_out(y, a, b);
  }
}

}  // namespace tessera::kernels
