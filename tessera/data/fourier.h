// The discrete Fourier transform of a cube whose sides are powers of two. It is used to make fields
// from their spectrum. It is plain radix 2; a cube of 64^3 takes a fraction of a second.
//
//   std::vector<std::complex<double>> cube(side * side * side);
//   fourier_transform(cube, side, false);  // X[k] = sum of x[j] exp(-2 pi i j k / side), in each dim
//   fourier_transform(cube, side, true);   // the inverse, with 1 / side^3: gives x again
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace tessera {

// Transforms `cube` in place. It has side^3 elements, row-major. With `back`, computes the inverse
// transform.
void fourier_transform(std::vector<std::complex<double>>& cube, int64_t side, bool back);

}  // namespace tessera
