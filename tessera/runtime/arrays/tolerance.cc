#include "tessera/runtime/arrays/tolerance.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera {
namespace {

constexpr double kDeviations = 2;
constexpr double kFloat32 = 0x1p-24;

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 0x1p-8;
    case DType::kFloat16: return 0x1p-11;
    default: return kFloat32;
  }
}

// Returns the number of ops on the longest path through the graph. One pass suffices, because the
// ops are in topological order.
double depth(const Graph& graph) {
  std::vector<int> of(graph.tensors().size(), 0);
  int longest = 0;
  for (const Op& op : graph.ops()) {
    int before = 0;
    for (const TensorId in : op.inputs) before = std::max(before, of[in.index()]);
    for (const TensorId out : op.outputs) of[out.index()] = before + 1;
    longest = std::max(longest, before + 1);
  }
  return longest;
}

// Returns the largest number of terms that any op sums for an element of an output. The number is
// the product of the sizes of the op dims that the output lacks.
double longest_sum(const Graph& graph) {
  double longest = 1;
  for (const Op& op : graph.ops()) {
    for (size_t out = 0; out < op.outputs.size(); ++out) {
      double terms = 1;
      for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
        if (op.annotation.reduces(static_cast<int>(d), out))
          terms *= static_cast<double>(op.annotation.dims[d].size);
      }
      longest = std::max(longest, terms);
    }
  }
  return longest;
}

}  // namespace

Tolerances tolerances(DType compute, const Graph& training, double wide) {
  if (compute == DType::kFloat64) return {wide, wide, wide, 1e-6, 1e-2};
  const double u = unit_roundoff(compute);
  const double each = u + std::sqrt(longest_sum(training)) * kFloat32;
  const double limit = kDeviations * std::sqrt(depth(training)) * each;
  return {each, limit, limit, std::sqrt(u), 1e-2};
}

}  // namespace tessera
