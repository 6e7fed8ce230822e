// Multiply-adds of a forward graph, the unit of cost that papers on vision models use.
#pragma once

#include "tessera/models/model.h"

namespace tessera {

// Returns the multiply-adds of one sample: those of its products and convolutions, by the formulas
// of their kinds.
double multiply_adds_a_sample(const Model& model);

}  // namespace tessera
