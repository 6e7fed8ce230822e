// The functions of the device side (spmm_kernel.cu) that the host side (device.cc) calls.
#pragma once

#include <cstdint>

#include "tessera/sparse/graphs/slot_formula.h"

namespace tessera::sparse::cuda {

// x is column_count x features, y rows x features, both without gaps.
struct Product {
  int64_t rows, column_count, edges, first_row;
  const int64_t* begin;
  const int64_t* end;
  const int32_t* columns;
  const float* values;  // null: all 1
  Sampler sampler;
  int64_t width;  // 2^31 - 1 without a sampler
  uint64_t seed;
  bool mean, rescale;
  float norm_bias;
  int64_t features;
  const float* x;
  float* y;
};

// Returns null if a device is present, else the device's error message, as the functions below do.
const char* no_device();
// Copies operands from the host's memory to the device, multiplies, and copies y back.
const char* run(const Product& product);
// Starts the product of operands in the device's memory (default stream); returns before it is
// done.
const char* launch(const Product& on_device);

}  // namespace tessera::sparse::cuda
