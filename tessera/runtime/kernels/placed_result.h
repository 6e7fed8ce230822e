// Internal to kernels/: makes functions of libtorch that have no out-variant write their results
// directly into given memory.
//
// Some functions of libtorch (convolutions) allocate their result, and a kernel then copies it into
// the memory that was planned for it. While a PlacedResult lives, one allocation of exactly `bytes`
// by its thread gets the given memory instead of new memory. To choose it, `turn` keeps which of
// the function's allocations of this size became the result in an earlier call on the same shapes
// (the first, the second, ...). If this time the result is another allocation, it is not in the
// given memory; holds() then returns false and the caller copies the result, so the outcome is
// right in any case:
//
//   std::optional<size_t> turn;  // kept from call to call; the first one is not placed
//   ...
//   PlacedResult placed(out.data_ptr(), out.nbytes(), turn);
//   const at::Tensor result = at::convolution(...);
//   if (!placed.holds(result.data_ptr())) out.copy_(result);
//
// The given memory must overlap no operand. Tensors of libtorch that use this memory must not
// outlive the PlacedResult. A thread has at most one PlacedResult at a time.
#pragma once

#include <cstddef>
#include <optional>

namespace tessera::kernels {

class PlacedResult {
 public:
  PlacedResult(void* at, size_t bytes, std::optional<size_t>& turn);
  ~PlacedResult();
  PlacedResult(const PlacedResult&) = delete;
  PlacedResult& operator=(const PlacedResult&) = delete;

  // Returns whether the function's result, which begins at `result`, is in the given memory. If
  // not, sets `turn` to the number of the allocation that became the result.
  bool holds(const void* result);

  // Makes libtorch allocate through PlacedResult, from now on and in the whole process. Call this
  // function once, before threads compute; without the call a PlacedResult does nothing.
  static void install();

 private:
  const void* at_;
  std::optional<size_t>& turn_;
};

}  // namespace tessera::kernels
