// Units of ops for prefetching. The ops of a unit have paths that begin with the same match of a
// glob, such as the ops of one layer. A tensor at rest is gathered a number of units ahead of its
// first reader. Private to tessera/program.
#pragma once

#include <string>

#include "tessera/plan/resolve/selector.h"

namespace tessera {

// Returns the shortest prefix of the path that the glob matches, which is the unit's name; "" if
// the glob matches no prefix.
std::string unit_of(const Glob& glob, const std::string& path);

}  // namespace tessera
