// The tile model of a matrix product (docs/theory/cost-model.md section 3.1): the output is cut
// into tiles, and each unit of the device computes one tile at a time, so that the tiles run in
// waves; the last wave may be mostly idle.
#pragma once

#include "tessera/cost/constants.h"

namespace tessera {

struct MatmulShape {  // batch products of m x k by k x n; flops = 2 batch m n k
  double batch = 1, m = 1, n = 1, k = 1;
};

struct Tiling {
  Tile tile;
  double split = 1;  // parts of k that are computed side by side, then summed
  double tiles = 0, waves = 0;
  double share = 0;        // of the peak that the shape's own flops reach
  double extra_bytes = 0;  // parts of a split k: written and read, 4 m n split
};

struct TilingDevice {
  double units = 1;
  double alignment = 8;     // n and k are padded to it, in elements
  double flops_a_byte = 0;  // what the units do at `share` 1 while one byte moves
};
// Returns the fastest tiling. The time of a tiling is the longer of its arithmetic and of moving
// `bytes` and its extra bytes.
Tiling choose_tiling(const MatmulShape& shape, double bytes, const TilingDevice& device);
// Returns the figures of the same tile and split on fewer units (a library chooses a tiling without
// knowing what else runs).
Tiling with_units(const MatmulShape& shape, const Tiling& tiling, const TilingDevice& device,
                  double units);

}  // namespace tessera
