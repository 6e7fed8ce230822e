#include "tessera/cost/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

double padded(double size, double alignment) { return std::ceil(size / alignment) * alignment; }

// Returns the tiling with this tile and split on `units` units. Its time, measured in flops of one
// unit at its peak, is waves * 2 * rows * columns * (k / split) / efficiency. `share` is the flops
// of the shape over the flops that all units of the device could do in that time.
Tiling tile_up(const MatmulShape& shape, const Tile& tile, double split, double units,
               const TilingDevice& device) {
  Tiling out;
  out.tile = tile;
  out.split = split;
  const auto rows = static_cast<double>(tile.rows), columns = static_cast<double>(tile.columns);
  out.tiles = shape.batch * std::ceil(shape.m / rows) *
              std::ceil(padded(shape.n, device.alignment) / columns) * split;
  out.waves = std::ceil(out.tiles / units);
  const double unit_flops = out.waves * 2 * rows * columns *
                            std::ceil(padded(shape.k, device.alignment) / split) / tile.efficiency;
  out.share = 2 * shape.batch * shape.m * shape.n * shape.k / (unit_flops * device.units);
  if (split > 1) out.extra_bytes = 4 * shape.batch * shape.m * shape.n * split;
  return out;
}

}  // namespace

Tiling choose_tiling(const MatmulShape& shape, double bytes, const TilingDevice& device) {
  const double flops = 2 * shape.batch * shape.m * shape.n * shape.k;
  Tiling best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Tile& tile, double split) {
    const Tiling tiling = tile_up(shape, tile, split, device.units, device);
    const double time =
        std::max(flops / tiling.share, (bytes + tiling.extra_bytes) * device.flops_a_byte);
    if (time >= least) return;
    least = time;
    best = tiling;
  };
  for (const Tile& tile : kTiles) {
    consider(tile, 1);
    if (tile_up(shape, tile, 1, device.units, device).tiles >= device.units / 2) continue;
    for (const double split : {2.0, 4.0, 8.0}) {
      if (split * device.alignment <= shape.k) consider(tile, split);
    }
  }
  return best;
}

Tiling with_units(const MatmulShape& shape, const Tiling& tiling, const TilingDevice& device,
                  double units) {
  return tile_up(shape, tiling.tile, tiling.split, units, device);
}

}  // namespace tessera
