#include "tessera/runtime/arrays/roundings.h"

#include <cmath>
#include <vector>

#include "tessera/base/philox.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

// Returns whether ops of this work class sum along dims that are frozen in their annotation.
bool sums_by_itself(WorkClass work) {
  switch (work) {
    case WorkClass::kAttention:
    case WorkClass::kScan:
    case WorkClass::kNorm:
    case WorkClass::kLoss: return true;
    case WorkClass::kMatmul:
    case WorkClass::kConvolution:
    case WorkClass::kElementwise:
    case WorkClass::kLookup:
    case WorkClass::kRouting:
    case WorkClass::kOptimizer:
    case WorkClass::kMove: return false;
  }
  return false;
}

}  // namespace

double terms_of_sum(const Graph& graph, const Op& op, size_t output) {
  const KindInfo& info = info_of(op);
  if (graph.tensor(op.outputs[output]).dtype != DType::kFloat64) return 1;
  if (info.merges == Combiner::kSum) return static_cast<double>(op.inputs.size());
  const Annotation& annotation = op.annotation;
  if (annotation.outputs[output].combiner == Combiner::kMax) return 1;
  double terms = 1;
  for (size_t d = 0; d < annotation.dims.size(); ++d) {
    const OpDim& dim = annotation.dims[d];
    const bool inside =
        dim.mark == Mark::kFrozen && !dim.hidden && info.work && sums_by_itself(*info.work);
    if (inside || annotation.reduces(static_cast<int>(d), output))
      terms *= static_cast<double>(dim.size);
  }
  return terms;
}

void round_otherwise(const Graph& graph, const Op& op, std::span<const kernels::Array> outputs,
                     uint64_t seed, int64_t step) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const kernels::Array& array = outputs[o];
    if (array.dtype != DType::kFloat64 || array.data == nullptr) continue;
    const double terms = terms_of_sum(graph, op, o);
    if (terms <= 1) continue;
    constexpr double kRounding = 0x1p-53;  // the largest relative error of one addition
    const double most = std::sqrt(terms) * kRounding;
    const std::string& name = graph.tensor(op.outputs[o]).name;
    const Philox random{seed, stable_hash(name.data(), name.size(), static_cast<uint64_t>(step))};
    std::vector<int64_t> at(array.shape.size(), 0);
    int64_t elements = 1;
    for (const int64_t size : array.shape) elements *= size;
    for (int64_t i = 0; i < elements; ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * array.strides[d];
      auto* value = reinterpret_cast<double*>(array.data) + offset;
      *value *= 1 + most * (2 * random.uniform(static_cast<uint64_t>(i)) - 1);
      for (size_t d = at.size(); d-- > 0 && ++at[d] == array.shape[d];) at[d] = 0;
    }
  }
}

}  // namespace tessera
