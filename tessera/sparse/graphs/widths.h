// Chooses widths of samples by layer under an accuracy budget. Either the first layers of a graph
// network bear narrower samples than the last, or the other way round; only a trained network
// tells.
//
//   TESSERA_TRY(const WidthChoice choice,
//               choose_widths(2, {4, 8, 16, 64}, accuracy_on_validation_nodes, slots, 0.79));
//
// All layers begin at the largest candidate. In each round every layer is tried at its next smaller
// candidate; among the trials whose quality stays at or above `least`, the one that saves most cost
// is taken (among equal ones the better quality, then the earlier layer). The search ends when no
// layer can go on: the result meets the budget, and no single layer can be narrowed by one
// candidate within the budget. Quality is asked for at most layers * candidates * layers times. No
// optimum is promised: two layers that could only be narrowed together stay wide.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::sparse {

struct WidthChoice {
  std::vector<int64_t> widths;  // by layer
  double quality = 0, cost = 0;
  int64_t asked = 0;  // how often quality was asked for
};
// Chooses the widths. `quality` takes widths by layer; `cost` is that of a layer at a width and
// falls with the width. Errors: no layers, candidates that do not ascend from above 0; a failed
// check: the largest candidates do not reach `least`.
Result<WidthChoice> choose_widths(int64_t layers, const std::vector<int64_t>& candidates,
                                  const std::function<double(const std::vector<int64_t>&)>& quality,
                                  const std::function<double(int64_t layer, int64_t width)>& cost,
                                  double least);

}  // namespace tessera::sparse
