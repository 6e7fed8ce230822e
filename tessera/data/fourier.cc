#include "tessera/data/fourier.h"

#include <bit>
#include <cstddef>
#include <numbers>
#include <utility>

#include "tessera/base/check.h"

namespace tessera {
namespace {

using Complex = std::complex<double>;

// Returns exp(-2 pi i j / side) for each j below side / 2; with `back`, exp(2 pi i j / side).
std::vector<Complex> roots_of(size_t side, bool back) {
  std::vector<Complex> roots(side / 2);
  for (size_t j = 0; j < roots.size(); ++j) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(side);
    roots[j] = std::polar(1.0, back ? angle : -angle);
  }
  return roots;
}

// Transforms a line of the cube in place (Cooley and Tukey).
void transform_line(std::vector<Complex>& line, const std::vector<Complex>& roots) {
  const size_t side = line.size();
  for (size_t i = 1, j = 0; i < side; ++i) {
    size_t bit = side / 2;
    for (; (j & bit) != 0; bit /= 2) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(line[i], line[j]);
  }
  for (size_t size = 2; size <= side; size *= 2) {
    const size_t half = size / 2, stride = side / size;
    for (size_t begin = 0; begin < side; begin += size) {
      for (size_t j = 0; j < half; ++j) {
        const Complex upper = line[begin + j], lower = roots[j * stride] * line[begin + j + half];
        line[begin + j] = upper + lower;
        line[begin + j + half] = upper - lower;
      }
    }
  }
}

}  // namespace

void fourier_transform(std::vector<Complex>& cube, int64_t side, bool back) {
  const auto n = static_cast<size_t>(side);
  TESSERA_CHECK(std::has_single_bit(n) && cube.size() == n * n * n,
                "a cube of side {} has {} elements", side, cube.size());
  const std::vector<Complex> roots = roots_of(n, back);
  std::vector<Complex> line(n);
  for (const size_t stride : {size_t{1}, n, n * n}) {
    for (size_t first = 0; first < cube.size(); ++first) {
      if (first / stride % n != 0) continue;  // not the first element of a line
      for (size_t j = 0; j < n; ++j) line[j] = cube[first + j * stride];
      transform_line(line, roots);
      for (size_t j = 0; j < n; ++j) cube[first + j * stride] = line[j];
    }
  }
  if (!back) return;
  for (Complex& value : cube) value /= static_cast<double>(cube.size());
}

}  // namespace tessera
