// Counts multiply-adds of a forward graph. Papers on vision models give costs in this unit.
#pragma once

#include "tessera/models/model.h"

namespace tessera {

// Returns the number of multiply-adds of one sample in all products and convolutions of the model,
// by the formulas of their kinds.
double multiply_adds_a_sample(const Model& model);

}  // namespace tessera
