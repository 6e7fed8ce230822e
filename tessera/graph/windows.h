// Counts the windows that a piece of an op concerns, as a measure of the piece's work.
#pragma once

#include <cstdint>

#include "tessera/graph/annotation.h"

namespace tessera {

// Counts the windows that `piece`, of an op dim, concerns. If the dim counts windows, these are the
// windows of the piece. If the dim counts the elements under windows (WindowUse::kOver), these are
// the windows that hold an element of the piece, each counted by the share of the window's elements
// that are in the piece. For a dim without windows, returns the piece's size.
int64_t windows_of(const Annotation& annotation, int op_dim, Interval piece);

}  // namespace tessera
