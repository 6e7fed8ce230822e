// The functions of the device side (spmm_kernel.cu) that the host side (device.cc) calls.
#pragma once

#include <cstdint>

#include "tessera/sparse/graphs/slot_formula.h"

namespace tessera::sparse::cuda {

// The operands of a product: x is column_count x features and y is rows x features, both without
// gaps; the matrix is as in CsrView (graphs/spmm.h).
struct Product {
  int64_t rows, column_count, edges, first_row;
  const int64_t* begin;
  const int64_t* end;
  const int32_t* columns;
  const float* values;  // null: all 1
  Sampler sampler;
  int64_t width;  // edges of a row that are used at most; 2^31 - 1 without a sampler
  uint64_t seed;
  bool mean, rescale;
  float norm_bias;
  int64_t features;
  const float* x;
  float* y;
};

// Returns null if a device is present, else the device's error message. The functions below return
// null on success, else the error message.
const char* no_device();
// Copies operands from the host's memory to the device, multiplies, and copies y back.
const char* run(const Product& product);
// Starts the product on the default stream; all pointers are into the device's memory. Returns
// before the product is done.
const char* launch(const Product& on_device);

}  // namespace tessera::sparse::cuda
