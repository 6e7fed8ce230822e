// How much work a piece of an op that reads through windows is.
#pragma once

#include <cstdint>

#include "tessera/graph/annotation.h"

namespace tessera {

// The windows that `piece` of an op dim concerns: those at its places, or, where the dim counts the
// elements under windows (WindowUse::kOver), those that hold one of them, each by the share of its
// elements that are in the piece. Without windows its size.
int64_t windows_of(const Annotation& annotation, int op_dim, Interval piece);

}  // namespace tessera
