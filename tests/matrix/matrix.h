// The combination matrix: each case of matrix.toml, run on threads and compared with the serial
// run.
#pragma once

#include <string>

namespace tessera {

struct MatrixCase;

// Registers a test for each case, or, with `only_quick`, for each quick case. With
// TESSERA_WRITE_MATRIX set and all cases run, the results are written to docs/matrix.md.
void register_matrix(bool only_quick);
std::string matrix_test_name(const MatrixCase& one);

}  // namespace tessera
