// Reads the settings out of a configuration that is Python, without executing it: keyword arguments
// of calls, and assignments to fields.
//
//   training=TrainingConfig(local_batch_size=2)         {"training.local_batch_size", "2"}
//   config.parallelism.tensor_parallel_degree = 8       {"parallelism.tensor_parallel_degree", "8"}
//   activation_checkpoint=FullAC.Config()               {"activation_checkpoint", "FullAC.Config"}
//
// Values that are no numbers, texts or lists are kept as they are written.
#pragma once

#include "tessera/base/result.h"
#include "tessera/export/keys.h"

namespace tessera {

// Returns the settings in the order of the text. The first name of an assignment ("config") is left
// out. `roots`: names of calls whose arguments have paths that begin at the top ("Trainer.Config").
// Errors: brackets that do not match, a text that does not end.
Result<SaidKeys> settings_of_python(const std::string& text, const std::vector<std::string>& roots);

// Returns the texts of the lists in a list of lists, as Python and TOML write them: "[['a'], ['b']]".
std::vector<std::vector<std::string>> lists_of(const std::string& value);

}  // namespace tessera
