// Executes conversion paths on arrays, on threads: every pair of layouts of a tensor, all pairs of
// a case in one run.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan/layout/layout.h"

namespace tessera {

struct ConversionCase {
  Mesh mesh;
  std::vector<int64_t> shape;
  std::vector<Layout> layouts;  // every convertible pair of these
};

// Expects that each rank starts with its piece (parts are random summands) and ends with exactly
// its piece of the goal, and that it sends as much as traffic() says. Returns the number of pairs.
int64_t expect_conversions_are_right(const ConversionCase& test);

}  // namespace tessera
