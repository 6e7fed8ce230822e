// An optimizer as a word of the command line, for commands that predict a step and so must know how
// a model will be trained. Memory and time of a step depend on it.
//
//   "adamw"                             all parameters by AdamW
//   "adamw,tables.*=rowwise_adagrad"    but those that match the pattern by another
//
// A pattern is like that of `optimizer.group` in a run file: it matches parameters or paths that
// contain them. If two patterns match a parameter, the later one counts.
#pragma once

#include <string_view>

#include "tessera/base/result.h"
#include "tessera/graph/builder.h"

namespace tessera {

// Reads an optimizer; "" is the default, AdamW. Errors, one line: a name that is no optimizer, with
// the nearest one; a part behind the first that is not PATTERN=OPTIMIZER. Patterns that match
// nothing are found when the model is compiled.
Result<OptimizerSpec> parse_optimizer_text(std::string_view text);

}  // namespace tessera
