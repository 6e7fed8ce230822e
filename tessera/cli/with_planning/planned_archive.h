// A .pt2 archive as the model of a command that plans or prices it. Its graph is read, its weights
// are not, so they may be absent (torch.export under meta or fake tensors).
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/result.h"

namespace tessera::cli {

// Returns whether the text names a .pt2 archive, "model.pt2" or "model.pt2:seq=4096".
bool names_archive(const std::string& text);

// Returns the text with which the model is built: for an archive the path of a graph file, which is
// removed when the program ends, else planned_model(text). `batch` (0: that of the example) and the
// key `seq` are the sizes that the module leaves open. Other keys are those of the importer.
Result<std::string> planned_model_or_archive(const std::string& text, int64_t batch);

}  // namespace tessera::cli
