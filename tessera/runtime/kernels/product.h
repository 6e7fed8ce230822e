// Internal to kernels/: matrix products into given memory, by the faster of the two libraries
// inside libtorch.
//
// libtorch multiplies float32 matrices by MKL. On processors of other makers than Intel MKL keeps
// to older instructions: on an AMD EPYC with AVX-512 one thread reaches 110 GFLOP/s, oneDNN (also
// inside libtorch, used there for bfloat16) 210-260. The choice depends on the processor, the type
// and the sizes only, so it is the same on all ranks of a machine and in every run.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::kernels {

// y = a b, or y += a b; all have rank 2, or rank 3 with a batch. They may be strided views; no
// argument overlaps y.
struct Product {
  at::Tensor y, a, b;
  bool add = false;
  bool onednn = false;  // set by prepare
};

// Returns whether oneDNN is faster than MKL here for float32.
bool onednn_is_faster();

// Chooses the library and brings the operands into the form that it needs.
Product prepare_product(at::Tensor y, at::Tensor a, at::Tensor b, bool add);
void run_product(Product& product);

}  // namespace tessera::kernels
