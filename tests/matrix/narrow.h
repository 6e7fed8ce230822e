// The matrix in the dtypes in which models are trained: cases of matrix.toml in float32, bfloat16
// and float16, each compared with the serial run in the same dtype (limits: runtime/arrays/tolerance.h).
#pragma once

namespace tessera {

// Registers a test for each case that matrix.toml marks `narrow` and each dtype; with `only_quick`,
// only for quick cases, each in one of the dtypes, which take turns. With TESSERA_WRITE_MATRIX set
// and all cases run, the results are written to docs/matrix-narrow.md.
void register_narrow_matrix(bool only_quick);

}  // namespace tessera
