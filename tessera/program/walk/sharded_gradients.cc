// Sends parts of gradients to their shards, and writes their arrivals one bucket later.
#include "tessera/program/walk/sharded_gradients.h"

#include <utility>

namespace tessera {

void ShardedGradients::scatter_each_time(const Op& op, TensorId tensor) {
  const Site site = facts_.site(op);
  const Held made = *holds_.home(site.place, tensor);
  if (!facts_.scatters_each_time(tensor, site.place, made.region.layout)) return;
  const Layout& rest = facts_.analysis().homes[tensor.index()].at(site.place);
  const Held moved = converter_.convert(site, tensor, made, rest);
  Held home;
  home.region = {rest, std::nullopt};
  home.buffer = writer_.new_buffer(site.place, tensor, "sum", home.region);
  writer_.buffer(site.place, home.buffer).accumulates = true;
  home.block = site.block;
  leave(made, {moved, TextCopy{tensor, moved.view(), home.view(), Write::kAddExceptFirst}, site});
  holds_.set_home(site.place, tensor, home);
}

void ShardedGradients::leave_backward(const Site& site, TensorId tensor, const Held& made,
                                      const Held& moved) {
  const BlockKind kind = site.block.kind;
  const bool backward = kind == BlockKind::kBackward || kind == BlockKind::kWeight;
  if (backward && facts_.rests_sharded(tensor, site.place))
    leave(made, {moved, std::nullopt, site});
}

void ShardedGradients::leave(const Held& made, Leaving leaving) {
  const PlaceId place = leaving.site.place;
  const Mesh& mesh = facts_.mesh(place);
  UnderWay& under_way = under_way_[place.index()][leaving.site.block];
  const TextBuffer& parts = writer_.buffer(place, made.buffer);
  const std::vector<int64_t> origin(mesh.axes.size(), 0);
  under_way.bytes += evaluate(parts.region, mesh, facts_.shape(parts.tensor), origin).volume() *
                     dtype_bytes(parts.dtype);
  under_way.parts.push_back(std::move(leaving));
  if (under_way.bytes < facts_.plan().plan.bucket_bytes) return;
  under_way.bytes = 0;
  let_arrive(std::exchange(under_way.before, std::exchange(under_way.parts, {})));
}

void ShardedGradients::let_arrive(const std::vector<Leaving>& parts) {
  for (const Leaving& leaving : parts) {
    if (leaving.moved.handle >= 0) writer_.due(leaving.site.place, leaving.moved.handle);
    if (leaving.add) writer_.emit(leaving.site, *leaving.add);
  }
}

void ShardedGradients::finish() {
  for (auto& blocks : under_way_) {
    for (auto& [block, under_way] : blocks) {
      let_arrive(std::exchange(under_way.before, {}));
      let_arrive(std::exchange(under_way.parts, {}));
    }
  }
}

}  // namespace tessera
