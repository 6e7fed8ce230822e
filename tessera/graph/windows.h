// Counts the work of a piece of an op that reads through windows.
#pragma once

#include <cstdint>

#include "tessera/graph/annotation.h"

namespace tessera {

// Counts the windows that `piece` of an op dim concerns: those at its places, or, where the dim
// counts the elements under windows (WindowUse::kOver), those that hold one of its elements, each
// by the share of the window's elements that are in the piece. Without windows, returns the piece's
// size.
int64_t windows_of(const Annotation& annotation, int op_dim, Interval piece);

}  // namespace tessera
