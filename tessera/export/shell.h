// Reads the flags of a command line out of a shell script, as people start training: with arrays of
// flags, texts of flags in variables, lines that go on after a backslash, and values in variables
// that the script sets. Nothing is executed.
//
//   TESSERA_TRY(const SaidKeys flags, flags_of_script("TP=8\ntorchrun train.py --tp-size $TP"));
//   flags[0]   // {"tp-size", "8", 2}
#pragma once

#include "tessera/base/result.h"
#include "tessera/export/keys.h"

namespace tessera {

// Returns the flags in the order of the script. Names have no leading dashes, and dashes in place of
// underscores. The words after a flag are its value, joined by a space; a flag without one has the
// value "true". Words before the launcher's name (torchrun, python, ...) in a command are
// skipped: those are other programs' options. Values that the script does not set stay as they are
// written ("$TP"). Overrides of dotted names, "model.hidden_size=8", are keys of these names.
SaidKeys flags_of_script(const std::string& text);

}  // namespace tessera
