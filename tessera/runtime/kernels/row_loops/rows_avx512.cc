#include "tessera/runtime/kernels/row_loops/row_loops.h"

namespace tessera::kernels {
const RowTable& avx512_row_table() { return kRowTable; }
}  // namespace tessera::kernels
