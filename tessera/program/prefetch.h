// Units of ops: a tensor at rest is gathered some units ahead of its use. Private to
// tessera/program.
#pragma once

#include <string>

#include "tessera/plan/selector.h"

namespace tessera {

// Returns the shortest prefix of the path that the glob matches; empty: none.
std::string unit_of(const Glob& glob, const std::string& path);

}  // namespace tessera
