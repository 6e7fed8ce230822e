// Finds the model of a row by its name, by its sizes, or only by its number of parameters.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/models/architecture.h"
#include "tessera/predict/row.h"

namespace tessera {

// Returns the model of a row. If the name is known, sizes in the row replace the known sizes of
// this name. `reasons` gets the values that were inferred. Returns an error if the name is unknown
// and the row states neither sizes nor parameters, or if the model has no builder.
Result<Architecture> infer_model(const Row& row, std::vector<std::string>& reasons);

}  // namespace tessera
