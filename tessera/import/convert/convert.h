// Converts a training run's state from one form to another (state.h), streamed: without the devices
// and ranks that wrote it, in memory that does not grow with the model beyond one rank's largest
// piece. The result appears whole or not at all.
//
//   TESSERA_TRY(const ConvertReport done,
//               convert_checkpoint({"run/step-100", "checkpoints", "tessera", "llama/config.json"}));
#pragma once

#include "tessera/base/result.h"
#include "tessera/state/conversion.h"

namespace tessera {

// Converts. Errors: invalid input, one line that says what was expected and found and where; a fault if a file
// cannot be read or written.
Result<ConvertReport> convert_checkpoint(const ConvertRequest& request);

}  // namespace tessera
