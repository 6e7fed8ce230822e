// Chooses for each layer of a graph network how wide its samples are (sample.h), under an accuracy
// budget. In some networks the first layers can do with narrower samples than the last, in others
// the last; only measuring a trained network shows which.
//
//   TESSERA_TRY(const WidthChoice choice,
//               choose_widths(2, {4, 8, 16, 64}, accuracy_on_validation_nodes, slots, 0.79));
//
// All layers begin at the largest candidate width. In each round, every layer is tried at its next
// smaller candidate. Among the trials whose quality stays at or above `least`, the one that saves
// the most cost is kept (among equal savings the one with the better quality, then the earlier
// layer). The search ends when no trial of a round is good enough. So the result meets the budget,
// and no single layer can be narrowed by one more candidate within it. Quality is computed at most
// layers * candidates * layers times. The result need not be optimal: two layers that can only be
// narrowed together stay wide.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::sparse {

struct WidthChoice {
  std::vector<int64_t> widths;  // by layer
  double quality = 0, cost = 0;
  int64_t asked = 0;  // how often `quality` was called
};
// Chooses the widths. `quality` gets the width of each layer. `cost` gets one layer and its width,
// and must fall with the width. Errors: no layers; candidates that do not ascend from above 0; a
// failed check if the quality at the largest candidates is below `least`.
Result<WidthChoice> choose_widths(int64_t layers, const std::vector<int64_t>& candidates,
                                  const std::function<double(const std::vector<int64_t>&)>& quality,
                                  const std::function<double(int64_t layer, int64_t width)>& cost,
                                  double least);

}  // namespace tessera::sparse
