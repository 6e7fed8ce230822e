#include "tessera/models/multiply_adds.h"

#include "tessera/graph/kinds.h"

namespace tessera {

double multiply_adds_a_sample(const Model& model) {
  double products = 0;
  for (const Op& op : model.graph.ops()) {
    const std::optional<WorkClass> work = info_of(op).work;
    if (op.phase != Phase::kForward) continue;
    if (work == WorkClass::kMatmul || work == WorkClass::kConvolution)
      products += static_cast<double>(op_flops(op)) / 2;
  }
  return products / static_cast<double>(model.batch);
}

}  // namespace tessera
