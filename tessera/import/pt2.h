// The importer of .pt2 archives, which torch.export.save writes. It works without libtorch.
#pragma once

#include "tessera/import/import.h"

namespace tessera {

Importer pt2_importer();

// Returns the text of the graph in an archive, without reading its weights: parameters have normal
// initial values. A plan and a simulation need no more (models/model_name.h).
Result<std::string> archive_graph(const std::string& path);

}  // namespace tessera
