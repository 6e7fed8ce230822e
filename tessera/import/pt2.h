// The importer of .pt2 archives, which torch.export.save writes. It works without libtorch.
#pragma once

#include "tessera/import/import.h"

namespace tessera {

Importer pt2_importer();

// Returns the text of the graph in an archive without reading its weights, which may be absent:
// parameters have initial values. A plan and a simulation need no more. `keys` and `batch` are those
// of ArchiveReader in models/model_name.h. Errors: a key that the importer does not have; the errors
// of an import but those of weights.
Result<std::string> archive_graph(const std::string& path, const std::string& keys, int64_t batch);

}  // namespace tessera
