// Reads an optimizer from a word of the command line, for commands that predict a training step.
// The memory and time of a step depend on the optimizer.
//
//   "adamw"                             all parameters by AdamW
//   "adamw,tables.*=rowwise_adagrad"    but those that match the pattern by another
//
// A pattern is as in `optimizer.group` of a run file. It matches the name of a parameter or a
// prefix of the name. If two patterns match a parameter, the later one counts.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/graph/builder.h"

namespace tessera {

// Reads an optimizer; "" means the default, AdamW. Errors, one line: a name that is no optimizer
// (the error suggests the nearest one); a part after the first that is not PATTERN=OPTIMIZER. A
// pattern that matches no parameter is an error only later, when the model is compiled.
Result<OptimizerSpec> parse_optimizer_text(std::string_view text);
// Returns such a word. It says which optimizer each parameter has, and none of its numbers.
std::string optimizer_text(const OptimizerSpec& optimizer);

}  // namespace tessera
