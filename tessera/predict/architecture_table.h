// The table behind architecture.h.
#pragma once

#include <vector>

#include "tessera/predict/architecture.h"

namespace tessera {

// Names are in lower case without blanks and hyphens, as find_architecture() compares them. Their
// order says nothing: the longest prefix counts.
const std::vector<Architecture>& known_architectures();

}  // namespace tessera
