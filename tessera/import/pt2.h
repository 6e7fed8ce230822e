// The importer of .pt2 archives, which torch.export.save writes. It works without libtorch.
#pragma once

#include "tessera/import/import.h"

namespace tessera {

Importer pt2_importer();

}  // namespace tessera
