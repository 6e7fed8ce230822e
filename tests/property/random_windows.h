// Random networks of ops that read their spatial dims through windows, under random plans: one to
// three convolutions, transposed convolutions, pools and resizes over lines, maps or volumes, whose
// windows, strides, paddings, dilations, groups and sizes are drawn. Any dims are cut, in any number
// of pieces: pieces are uneven, smaller than a halo, or empty.
#pragma once

#include <cstdint>
#include <vector>

#include "random_case.h"

namespace tessera {

// Returns a case as random_case() does, from a stream of choices that shrinks to a simpler case.
RandomCase random_windows(const std::vector<uint32_t>& stream);

// Returns all features that random_windows may draw.
const Features& all_window_features();

}  // namespace tessera
