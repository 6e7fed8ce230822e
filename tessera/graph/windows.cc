#include "tessera/graph/windows.h"

#include <algorithm>

namespace tessera {

namespace {

// Counts the pairs of a window and an element of the piece in the window, divided by `kernel`, the
// elements of a window. The counts of the pieces of a dim add up to about the count of the whole
// dim, which is the number of its windows.
int64_t windows_over(const WindowRead& read, Interval piece) {
  const Window& window = read.window;
  int64_t pairs = 0, inside = 0;
  for (int64_t w = read.of(piece).begin; w < read.of(piece).end(); ++w) {
    const Interval held = {w * window.stride - window.padding, window.kernel};
    pairs += intersect(held, piece).size;
    ++inside;
  }
  if (piece == Interval{0, read.size}) return inside;
  return std::min(inside, (pairs + window.kernel - 1) / window.kernel);
}

}  // namespace

int64_t windows_of(const Annotation& annotation, int op_dim, Interval piece) {
  for (const OperandDims& input : annotation.inputs) {
    for (const OperandDims::Windowed& windowed : input.windowed) {
      const auto dim = static_cast<size_t>(windowed.dim);
      if (windowed.use == WindowUse::kOver && input.dims[dim].front() == op_dim)
        return windows_over(*annotation.window_read(input, dim), piece);
    }
  }
  return piece.size;
}

}  // namespace tessera
