// Loads regions of inputs where they are first needed.
#include "tessera/program/walk/loads.h"

namespace tessera {

Held Loads::load(const Site& site, TensorId tensor, const Layout& need) {
  std::vector<Held>& loads = loads_[site.place.index()][tensor];
  for (const Held& held : loads) {
    if (held.region.layout == need && seen(held.block, site.block)) return held;
  }
  Held held;
  held.region = {need, std::nullopt};
  held.buffer = writer_.new_buffer(site.place, tensor, loads.empty() ? "" : "load", held.region);
  held.block = site.block;
  writer_.emit(site, TextLoad{tensor, held.view()});
  loads.push_back(held);
  return held;
}

// Returns whether block `made` has always run when `used` runs for the same micro-batch.
bool Loads::seen(BlockRef made, BlockRef used) const {
  if (made == used || made.kind == BlockKind::kPrologue) return true;
  if (used.kind == BlockKind::kUpdate) return facts_.one_micro_batch();
  return made.chunk == used.chunk && made.kind < used.kind;
}

}  // namespace tessera
