// Internal to kernels/: matrix products into given memory, by the faster of two libraries inside
// libtorch, MKL and oneDNN.
//
// libtorch multiplies float32 matrices by MKL. But on processors that are not Intel's, MKL uses
// only older instructions: on an AMD EPYC with AVX-512 one thread reaches 110 GFLOP/s by MKL and
// 210-260 by oneDNN, which libtorch uses for bfloat16. Which library is used here depends only on
// the processor, the type and the sizes. So the choice is the same on all ranks of a machine and in
// every run.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::kernels {

// The product y = a b, or y += a b with `add`. All three tensors have two dims, or three if the
// first is a batch of matrices. They may be strided views. Neither a nor b overlaps y.
struct Product {
  at::Tensor y, a, b;
  bool add = false;
  bool onednn = false;  // whether oneDNN is used; set by prepare_product
};

// Returns whether oneDNN is faster than MKL on this processor for float32.
bool onednn_is_faster();

// Chooses the library and converts the operands to the form that the library needs.
Product prepare_product(at::Tensor y, at::Tensor a, at::Tensor b, bool add);
void run_product(Product& product);

}  // namespace tessera::kernels
