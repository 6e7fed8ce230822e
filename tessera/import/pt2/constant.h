// Tensors whose values are known when a model is imported: buffers, tables of positions, masks.
// Values that a program computes only from them are computed here, so that an op of the graph reads
// a table instead (rotary angles), or nothing at all (the ids of positions 0, 1, 2, ...).
//
// Values are held as float64, which holds every other dtype exactly except large int64; results are
// rounded to the dtype that the program says they have.
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

// Returns the product of the sizes, if it is at most kMaxConstant.
std::optional<int64_t> constant_elements(const std::vector<int64_t>& shape);

// Applies f element by element after broadcasting, as PyTorch does; nothing if shapes do not fit.
std::optional<Constant> merge(const Constant& a, const Constant& b,
                              const std::function<double(double, double)>& f);
// Takes elements of a where the condition is not 0, elsewhere of b.
std::optional<Constant> choose(const Constant& condition, const Constant& a, const Constant& b);
// Broadcasts x to `shape`, which must be possible; -1 keeps a size.
std::optional<Constant> expand(const Constant& x, std::vector<int64_t> shape);
std::optional<Constant> permute(const Constant& x, const std::vector<int64_t>& order);
std::optional<Constant> slice(const Constant& x, int64_t dim, int64_t begin, int64_t end,
                              int64_t step);
std::optional<Constant> concatenate(const std::vector<const Constant*>& parts, int64_t dim);
std::optional<Constant> matrix_product(const Constant& a, const Constant& b);
// Sets elements above (lower = true) or below the diagonal of the last two dims to 0.
std::optional<Constant> triangle(Constant x, int64_t diagonal, bool lower);

// Returns whether all values are `value`, a property on which a program may rely. Others follow.
bool all_equal(const Constant& x, double value);
bool counts_up(const Constant& x);  // 0, 1, 2, ...
// Returns whether values are not zero exactly where the last index is above the index before it
// (above = true), or not above it; the dims before these repeat the mask.
bool is_causal_mask(const Constant& x, bool above);

// Rounds each value to the dtype.
void round_values(Constant& x);
}  // namespace tessera::pt2
