// Internal to formulas/: random numbers by Philox (base/philox.h) in functions of libtorch, with the
// bits of the kernels of the processor (kernels/random.h). Numbers of 32 bits are elements of int64,
// whose products are taken modulo 2^64.
//
//   const at::Tensor first = first_indices(c, dims, x);           // of each row of x
//   const at::Tensor mask = kept(c, Keep(c.op()), first, x.size(-1));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/kernels/random.h"

namespace tessera::kernels {

// Returns the words of the elements first + 0 .. first + n - 1, with the dims of `first` and then n.
at::Tensor random_words(uint64_t seed, uint64_t stream, const at::Tensor& first, int64_t n);

// Returns for those elements whether dropout keeps them in the present step; undefined in an
// evaluation, which keeps all.
at::Tensor kept(const Call& c, const Keep& keep, const at::Tensor& first, int64_t n);

// Returns the index of the first element of each row of the box in a tensor of the op dims `dims`, as
// the op's attribute `within` places it. A row is the last dim; the result has the other dims.
at::Tensor first_indices(const Call& c, const std::vector<int>& dims, const at::Tensor& like);

// Returns the values in `dtype`, rounded by store_stochastic() of kernels/nest.h with those words.
at::Tensor rounded_stochastically(const at::Tensor& values, at::ScalarType dtype,
                                  const at::Tensor& words);

}  // namespace tessera::kernels
