// Tensors whose values are known when a model is imported: buffers, tables of positions, masks.
// Results that a program computes only from such tensors are computed here at import. So the graph
// has no ops for these results: an op reads the result as a table (rotary angles), or needs no
// operand for it (the ids of positions 0, 1, 2, ...).
//
// Values are held as float64, which holds all values of every other dtype exactly, except large
// int64 numbers. Results are rounded to the dtype that the program states for them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"

namespace tessera::pt2 {

struct Constant {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major
  int64_t elements() const { return static_cast<int64_t>(values.size()); }
};

// Returns the product of the sizes, or nothing if it is more than kMaxConstant.
std::optional<int64_t> constant_elements(const std::vector<int64_t>& shape);

// Applies f element by element to a and b, broadcast as in PyTorch. Returns nothing if the shapes
// do not fit.
std::optional<Constant> merge(const Constant& a, const Constant& b,
                              const std::function<double(double, double)>& f);
// Takes the elements of a where the condition is not 0, and the elements of b elsewhere.
std::optional<Constant> choose(const Constant& condition, const Constant& a, const Constant& b);
// Broadcasts x to `shape`, where -1 stands for the size that x has. Returns nothing if x cannot be
// broadcast so.
std::optional<Constant> expand(const Constant& x, std::vector<int64_t> shape);
std::optional<Constant> permute(const Constant& x, const std::vector<int64_t>& order);
std::optional<Constant> slice(const Constant& x, int64_t dim, int64_t begin, int64_t end,
                              int64_t step);
std::optional<Constant> concatenate(const std::vector<const Constant*>& parts, int64_t dim);
std::optional<Constant> matrix_product(const Constant& a, const Constant& b);
// Sets the elements above (if `lower`) or below (if not) diagonal number `diagonal` of the last two
// dims to 0.
std::optional<Constant> triangle(Constant x, int64_t diagonal, bool lower);

// Returns x without repetitions: size 1 for each dim along which all elements are equal, except the
// last `kept` dims.
Constant without_repeats(const Constant& x, size_t kept = 0);

// Returns whether all values are `value`.
bool all_equal(const Constant& x, double value);
bool counts_up(const Constant& x);  // whether the values are 0, 1, 2, ...
// Returns whether x is a causal mask over its last two indices (i, j), whose sizes must be equal:
// its values are not zero exactly where j > i if `above`, or where j <= i if not. The mask must be
// equal for all values of the other indices.
bool is_causal_mask(const Constant& x, bool above);

// Rounds each value to the dtype of x.
void round_values(Constant& x);
}  // namespace tessera::pt2
