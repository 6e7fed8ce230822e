#include "tessera/graph/windows.h"

namespace tessera {

int64_t windows_of(const Annotation& annotation, int op_dim, Interval piece) {
  for (const OperandDims& input : annotation.inputs) {
    for (const OperandDims::Windowed& windowed : input.windowed) {
      const auto dim = static_cast<size_t>(windowed.dim);
      if (windowed.use == WindowUse::kOver && input.dims[dim].front() == op_dim)
        return annotation.window_read(input, dim)->of(piece).size;
    }
  }
  return piece.size;
}

}  // namespace tessera
