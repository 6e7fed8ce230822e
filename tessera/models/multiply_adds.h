// What a forward graph costs, in the unit that papers on vision models use.
#pragma once

#include "tessera/models/model.h"

namespace tessera {

// Of one sample: those of products and convolutions, by the formulas of their kinds.
double multiply_adds_a_sample(const Model& model);

}  // namespace tessera
