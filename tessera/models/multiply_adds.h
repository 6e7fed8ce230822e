// Counts multiply-adds of a forward graph, the unit of cost in papers on vision models.
#pragma once

#include "tessera/models/model.h"

namespace tessera {

// Returns the multiply-adds of one sample in its products and convolutions, by the formulas of
// their kinds.
double multiply_adds_a_sample(const Model& model);

}  // namespace tessera
