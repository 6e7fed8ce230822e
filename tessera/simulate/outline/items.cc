#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/simulate/outline/player.h"

namespace tessera {
namespace {

void add(PlayerOutline& p, const Compute& compute) {
  const Op& op = p.graph.op(compute.op);
  const bool families = p.shared.cluster.profile != nullptr;
  const int32_t work = p.known_works != nullptr
                           ? (*p.known_works)[p.computes]
                           : p.works.emplace_back(p.shared.works(
                                 p.part, work_of(p.graph, p.program, compute, families)));
  ++p.computes;
  Item& item = p.push(ItemKind::kCompute, PriceTag::kWork, work);
  item.label = p.shared.label([&] { return op.path; }, [&] { return op.kind; });
  item.spent = op.phase == Phase::kUpdate ? Spent::kUpdate
               : p.graph.runs_again(op)   ? Spent::kRecompute
                                          : Spent::kCompute;
}

// ---- messages

// Returns the message's number. The sender's place sends from all its ranks at the same time.
int32_t message(PlayerOutline& p, int from, int to, int64_t bytes) {  // ranks
  const PlaceId place = p.shared.lowering().plan().places_of(from)[0];
  const int64_t sender = p.shared.lowered.devices.device_of(from);
  const int64_t receiver = p.shared.lowered.devices.device_of(to);
  const GroupPlacement where =
      place_group(p.shared.cluster, {sender, receiver}, p.shared.sharing.ranks_on_node(place, from),
                  p.shared.sharing.nodes_of(place));
  return entry<PricedMessage>(p.shared.out.messages, p.shared.messages,
                              {sender, receiver, bytes, where});
}

void add(PlayerOutline& p, const Send& send) {
  const DType dtype = p.program.buffer(send.view.buffer).dtype;
  const int64_t elements = send.region.volume();
  const int64_t bytes = elements > 0 ? message_bytes(send.codec, dtype, elements) : 0;
  Item& item =
      p.push(ItemKind::kSend, PriceTag::kMessage, message(p, p.program.rank, send.peer, bytes));
  item.lane = Lane::kMessage;
  item.spent = Spent::kMessage;
  // A synchronous device itself receives the message, so the sender waits for it.
  item.rendezvous = bytes > engine::kEagerBytes || p.type.device.synchronous;
  item.handle = p.handles.at(send.handle);
  item.stream = p.channels.to.at(send.peer);
  Key key = crossing_key(p.me, p.shared.class_of(send.peer), send.tensor, send.tag,
                         p.program.smaller(p.ref));
  const Crossing& crossing = p.shared.crossings.at(key);
  const int32_t piece = p.sent[key]++;
  const bool met = piece < crossing.receives;
  item.parties = met ? 2 : 1;
  if (met) {
    key.insert(key.begin(), 1);
    key.push_back(piece);
    item.match = p.shared.matches[key];
  }
  item.bytes = bytes;
  item.account = p.account("send", p.stage_axis(), bytes);
  item.label = p.tensor_label(send.tensor, "send");
}

void add(PlayerOutline& p, const Recv& receive) {
  const DType dtype = p.program.buffer(receive.view.buffer).dtype;
  const int64_t bytes = message_bytes(receive.codec, dtype, receive.region.volume());
  Item& item = p.push(ItemKind::kReceive, PriceTag::kMessage,
                      message(p, receive.peer, p.program.rank, bytes));
  item.ahead = !p.type.device.synchronous;
  item.lane = Lane::kMessage;
  item.spent = Spent::kMessage;
  item.handle = p.handles.at(receive.handle);
  item.stream = p.channels.from.at(receive.peer);
  Key key = crossing_key(p.shared.class_of(receive.peer), p.me, receive.tensor, receive.tag,
                         p.program.smaller(p.ref));
  const Crossing& crossing = p.shared.crossings.at(key);
  const int32_t piece = p.received[key]++ % std::max(1, crossing.sends);
  key.insert(key.begin(), 1);
  key.push_back(piece);
  item.parties = 2;
  item.match = p.shared.matches[key];
  item.account = p.account("receive", p.stage_axis(), 0);
  item.label = p.tensor_label(receive.tensor, "receive");
}

// ---- copies

// Adds a copy between tiers. The caller sets the item's handle.
Item& push_copy(PlayerOutline& p, const PricedCopy& copy, const std::string& route, TensorId tensor,
                const char* what) {
  Item& item = p.push(ItemKind::kIssue, PriceTag::kCopy,
                      entry<PricedCopy>(p.shared.out.copies, p.shared.copies, copy));
  item.lane = Lane::kCopy;
  item.spent = Spent::kCopy;
  item.stream = static_cast<int32_t>(p.program.groups.size());
  item.account = p.account("copy", route, 0);
  item.label = p.tensor_label(tensor, what + route);
  return item;
}

void add(PlayerOutline& p, const Copy& copy) {
  const Buffer &from = p.program.buffer(copy.from.buffer), &to = p.program.buffer(copy.to.buffer);
  const int64_t bytes = copy.region.volume() * dtype_bytes(from.dtype);
  if (from.tier == to.tier && copy.handle < 0) {
    OpWork work;
    work.kind = WorkClass::kMove;
    work.dtype = from.dtype;
    work.bytes_read = static_cast<double>(copy.write == Write::kSet ? bytes : 2 * bytes);
    work.bytes_written = static_cast<double>(bytes);
    work.elements = static_cast<double>(copy.region.volume());
    if (p.shared.cluster.profile != nullptr) {
      work.family = {
          fmt::format("copy.{}{}", dtype_name(from.dtype), copy.write == Write::kSet ? "" : ".add"),
          {2 * static_cast<double>(bytes)}};
    }
    Item& item = p.push(ItemKind::kCompute, PriceTag::kWork, p.shared.works(p.part, work));
    item.spent = p.ref.kind == BlockKind::kUpdate ? Spent::kUpdate : Spent::kCompute;
    item.label = p.tensor_label(copy.tensor, "copy");
    return;
  }
  Item& item = push_copy(p, {p.device, bytes, to.tier == Tier::kDisk, from.tier == Tier::kDisk},
                         fmt::format("{} to {}", tier_name(from.tier), tier_name(to.tier)),
                         copy.tensor, "copy ");
  if (copy.handle >= 0) {
    item.handle = p.handles.at(copy.handle);
    return;
  }
  item.handle = static_cast<int32_t>(p.player.handles.size());
  p.player.handles.push_back({!p.ref.once() && p.when == When::kAlways});
  p.add_wait(item.handle, 0, false);
}

// Adds a copy of the rows that are expected to move to and from the device.
void add(PlayerOutline& p, const FetchRows& fetch) {
  const RowCache& cache = p.program.caches[static_cast<size_t>(fetch.cache)];
  const Tier rests = p.program.buffer(cache.rests.front()).tier;
  const int64_t bytes = (fetch.expected_in + fetch.expected_out) * row_bytes(p.program, cache);
  const bool disk = rests == Tier::kDisk;
  Item& item = push_copy(p, {p.device, bytes, fetch.expected_out > 0 && disk, disk},
                         fmt::format("rows from {}", tier_name(rests)),
                         p.program.buffer(cache.held.front()).tensor, "");
  item.handle = p.handles.at(fetch.handle);
}

void add(PlayerOutline& p, const Wait& wait) {
  for (size_t i = 0; i < p.late.size(); ++i) {
    if (std::get<Issue>(p.program.block(p.ref)[p.late[i]].body).handle != wait.handle) continue;
    add_late(p, i);
    break;
  }
  const auto issue = p.deferred.find({p.ref, static_cast<size_t>(p.instruction)});
  if (issue == p.deferred.end()) {
    const bool blocks =
        p.receives.contains(wait.handle) && !p.shared.options.style.overlap_messages;
    return p.add_wait(p.handles.at(wait.handle), wait.lag, blocks);
  }
  add_issued_at(p, issue->second);
}

void add(PlayerOutline&, const OneOf<ReleaseRows, Load, Free> auto&) {}

}  // namespace

void add_item(PlayerOutline& p, const Instruction& instruction) {
  std::visit([&](const auto& body) { add(p, body); }, instruction.body);
}

}  // namespace tessera
