// Brings an op's output to its home and to its readers.
#include "tessera/program/walk/bring_home.h"

#include <set>

namespace tessera {

void BringHome::produced(const Op& op, TensorId tensor, const Held& made) {
  const PlaceId place = facts_.place_of(op);
  if (facts_.tensor(tensor).update_of.valid()) {
    const Held home = put_back(op, tensor, made);
    // Ops after the update may read the new value, which then is at the home.
    if (facts_.first_reader(tensor) != nullptr) holds_.set_home(place, tensor, home);
    return;
  }
  const bool summed = facts_.sums_micro_batches(tensor);
  holds_.set_home(place, tensor, made);
  if (summed) sharded_.scatter_each_time(op, tensor);
  const Op* reader = facts_.first_reader(tensor);
  if (reader == nullptr) return;
  if (const auto early = completion_.complete_early(op, tensor, *reader))
    sharded_.leave_backward(early->site, tensor, early->parts, early->done);
  if (!summed) send_to_readers(op, tensor);
}

void BringHome::send_to_readers(const Op& op, TensorId tensor) {
  const PlaceId place = facts_.place_of(op);
  std::set<PlaceId> sent;
  for (OpId id : facts_.readers(tensor)) {
    const Op& reader = facts_.graph().op(id);
    const PlaceId there = facts_.place_of(reader);
    if (there == place || !sent.insert(there).second) continue;
    if (holds_.home(there, tensor) != nullptr) continue;
    between_.cross(tensor, place, facts_.block_of(op), reader);
  }
}

// Converts the new value of a tensor at rest back to the tensor's home layout and returns the
// result. The update op has made the value in its own layout.
Held BringHome::put_back(const Op& op, TensorId tensor, const Held& made) {
  Site site = facts_.site(op);
  const Held home = *holds_.home(site.place, facts_.tensor(tensor).update_of);
  if (made.region.layout == home.region.layout) return made;
  site.block = BlockKind::kUpdate;
  const Held back = converter_.convert(site, tensor, made, home.region.layout, home.buffer);
  if (back.buffer != home.buffer)
    writer_.emit(site, TextCopy{tensor, back.view(), home.view(), Write::kSet});
  return {home.buffer, home.region, -1, site.block};
}

}  // namespace tessera
