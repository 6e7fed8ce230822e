// The model of a row: by name where it is known, by its sizes, or by its parameters alone.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/predict/architecture.h"
#include "tessera/predict/row.h"

namespace tessera {

// Returns the model of a row; the row's own figures go before those that are known of the name.
// `reasons` gets what was inferred. Errors: a model of which neither name, sizes nor parameters say
// anything; a model without a builder.
Result<Architecture> infer_model(const Row& row, std::vector<std::string>& reasons);

}  // namespace tessera
