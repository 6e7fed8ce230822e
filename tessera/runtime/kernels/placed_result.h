// Internal to kernels/: results of libtorch's functions that have no out-variant, written straight
// into given memory.
//
// Some functions of libtorch (convolutions) allocate their result, and a kernel then copies it into
// the memory that was planned for it. While a PlacedResult lives, one allocation of exactly `bytes`
// by its thread gets the given memory instead: the allocation that became the result in an earlier
// call of the same function on the same shapes, whose number `turn` remembers. If another
// allocation comes at that turn, the result lies elsewhere and the caller copies, so the outcome is
// right anyway:
//
//   std::optional<size_t> turn;  // kept from call to call; the first one is not placed
//   ...
//   PlacedResult placed(out.data_ptr(), out.nbytes(), turn);
//   const at::Tensor result = at::convolution(...);
//   if (!placed.holds(result.data_ptr())) out.copy_(result);
//
// The memory overlaps no operand, and tensors that came to lie in it do not outlive the
// PlacedResult. A thread has one PlacedResult at a time.
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

  // Returns whether the result, which begins at `result`, is in the given memory. If not, learns
  // its turn.
  bool holds(const void* result);

  // Makes libtorch allocate through PlacedResult, from then on and for the whole process. Call it
  // once, before threads compute; without it a PlacedResult does nothing.
  static void install();

 private:
  const void* at_;
  std::optional<size_t>& turn_;
};

}  // namespace tessera::kernels
