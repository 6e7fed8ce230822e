// The tile model of a matrix product (docs/theory/cost-model.md section 3.1). The output is cut
// into tiles, and each unit of the device computes one tile at a time. So the tiles run in waves of
// as many tiles as there are units, and in the last wave most units may be idle.
#pragma once

#include "tessera/cost/constants.h"

namespace tessera {

struct MatmulShape {  // batch products of m x k by k x n; flops = 2 batch m n k
  double batch = 1, m = 1, n = 1, k = 1;
};

struct Tiling {
  Tile tile;
  double split = 1;  // number of parts of k that are computed in parallel, then summed
  double tiles = 0, waves = 0;
  double share = 0;        // flops of the shape over what all units could do in its time
  double extra_bytes = 0;  // bytes moved for the parts of a split k: 4 batch m n split
};

struct TilingDevice {
  double units = 1;
  double alignment = 8;     // n and k are padded to multiples of this number of elements
  double flops_a_byte = 0;  // flops that all units do at `share` 1 while one byte moves
};
// Returns the fastest tiling. The time of a tiling is that of its arithmetic or that of moving
// `bytes` and its extra bytes, whichever is longer.
Tiling choose_tiling(const MatmulShape& shape, double bytes, const TilingDevice& device);
// Returns the tiling with the same tile and split if only `units` units are free. The tile and
// split stay, because a library chooses them without knowing what else runs.
Tiling with_units(const MatmulShape& shape, const Tiling& tiling, const TilingDevice& device,
                  double units);

}  // namespace tessera
