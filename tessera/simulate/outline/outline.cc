#include <algorithm>
#include <utility>

#include "tessera/graph/kinds.h"
#include "tessera/simulate/outline/player.h"
#include "tessera/simulate/price.h"
#include "tessera/simulate/rounds.h"

namespace tessera {

int32_t AllPlayers::known_label(const std::string& name, const std::string& what) {
  std::string key;
  key.reserve(what.size() + name.size() + 1);
  key.append(what).append("\n").append(name);
  const auto [it, fresh] = labels.try_emplace(std::move(key), static_cast<int32_t>(labels.size()));
  if (fresh) {
    out.play.labels.push_back(name);
    out.what.push_back(what);
  }
  return it->second;
}

PlayerOutline::PlayerOutline(AllPlayers& all, int32_t number)
    : shared(all),
      me(number),
      program(all.program(static_cast<size_t>(number))),
      graph(all.lowering().graph()),
      device(all.lowered.devices.device_of(program.rank)),
      part(all.cluster.locate(device).part),
      type(all.cluster.type_of(device)) {}

Item& PlayerOutline::push(ItemKind kind, PriceTag::Type price, int32_t id) {
  Item item;
  item.kind = kind;
  item.when = when;
  item.instruction = instruction;
  block.items.push_back(item);
  tags.push_back({price, id, times()});
  return block.items.back();
}

void PlayerOutline::add_wait(int32_t handle, int32_t lag, bool blocks_host) {
  Item& item = push(ItemKind::kWait);
  item.handle = handle;
  item.lag = lag;
  item.blocks_host = blocks_host;
}

int32_t PlayerOutline::account(const std::string& kind, const std::string& axes, int64_t bytes) {
  const auto [it, fresh] = accounts.try_emplace({kind, axes}, static_cast<int32_t>(rows.size()));
  if (fresh) rows.push_back({kind, axes, 0, 0, 0, 0, ""});
  TrafficRow& row = rows[static_cast<size_t>(it->second)];
  row.count += times();
  row.bytes += bytes * times();
  return it->second;
}

namespace {

// Returns, by tensor, whether an op of WorkClass::kRouting makes or reads the tensor, or a form of
// it with another dtype or other dims.
std::vector<bool> routed_tensors(const Graph& graph) {
  std::vector<bool> routed(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    if (info_of(op).work != WorkClass::kRouting) continue;
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *ids) routed[id.index()] = true;
    }
  }
  const auto hand_on = [&](const Op& op) {
    if (op.inputs.size() != 1 || (!info_of(op).converts && !info_of(op).view)) return;
    const size_t x = op.inputs[0].index(), y = op.outputs[0].index();
    routed[x] = routed[y] = routed[x] || routed[y];
  };
  std::for_each(graph.ops().begin(), graph.ops().end(), hand_on);
  std::for_each(graph.ops().rbegin(), graph.ops().rend(), hand_on);
  return routed;
}

void count_crossings(AllPlayers& shared) {
  for (size_t c = 0; c < shared.out.classes.all.size(); ++c) {
    const auto me = static_cast<int32_t>(c);
    const Program& program = shared.program(c);
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto message = message_of(instruction);
        if (!message) continue;
        const int32_t peer = shared.class_of(message->peer);
        const int32_t from = message->sends ? me : peer, to = message->sends ? peer : me;
        auto& crossing = shared.crossings[crossing_key(from, to, message->tensor, message->tag,
                                                       program.smaller(ref))];
        ++(message->sends ? crossing.sends : crossing.receives);
      }
    }
  }
}

void find_handles(PlayerOutline& p) {
  for (const auto& [ref, block] : p.program.blocks) {
    for (const Instruction& instruction : block) {
      const int handle = handle_of(instruction);
      if (handle < 0 || p.handles.contains(handle)) continue;
      if (std::holds_alternative<Recv>(instruction.body)) p.receives.insert(handle);
      p.handles[handle] = static_cast<int32_t>(p.player.handles.size());
      p.player.handles.push_back({!ref.once() && instruction.when == When::kAlways});
    }
  }
}

// Makes a pool of the machine's cores, which its ranks share, if it has more ranks than cores.
void find_pool(PlayerOutline& p) {
  if (p.type.cores == 0) return;
  const auto machine_of = [&](int64_t node) { return p.shared.cluster.one_machine ? 0 : node; };
  const int64_t machine = machine_of(p.shared.cluster.locate(p.device).node);
  int64_t all = 0, mine = 0;
  for (size_t rank = 0; rank < p.shared.out.classes.of_rank.size(); ++rank) {
    const int32_t played = p.shared.out.classes.of_rank[rank];
    if (played < 0 || machine_of(p.node_of(static_cast<int64_t>(rank))) != machine) continue;
    ++all;
    if (played == p.me) ++mine;
  }
  if (all <= p.type.cores) return;
  const auto [it, fresh] =
      p.shared.pools.try_emplace(machine, static_cast<int32_t>(p.shared.out.play.pools.size()));
  if (fresh) p.shared.out.play.pools.push_back(static_cast<double>(p.type.cores));
  p.player.pool = it->second;
  p.player.ranks = static_cast<double>(std::max<int64_t>(mine, 1));
}

void outline_player(AllPlayers& shared, int32_t me) {
  PlayerOutline p(shared, me);
  p.player.rank = p.program.rank;
  find_handles(p);
  p.groups.resize(p.program.groups.size());
  p.channels = message_channels(p.program);
  // There is a stream for each communicator, one for copies, and one for messages to each peer.
  p.player.streams = static_cast<int32_t>(p.program.groups.size() + 1 + p.channels.to.size());
  find_pool(p);
  if (p.type.device.synchronous) find_pairs(p);
  const auto other = shared.lowered.made_of.find(p.program.rank);
  if (other != shared.lowered.made_of.end()) {
    const auto known = shared.works_of.find(other->second);
    if (known != shared.works_of.end() && known->second.part == p.part)
      p.known_works = &known->second.works;
  }
  std::map<BlockRef, int32_t> index;
  for (const auto& [ref, block] : p.program.blocks) {
    if (block.empty()) continue;
    p.runs = p.program.runs(ref);
    p.ref = ref;
    const auto family = index.find(p.program.family(ref));
    p.block = {ref, {}, family == index.end() ? -1 : family->second, p.program.smaller(ref)};
    p.tags.clear();
    for (size_t i = 0; i < block.size(); ++i) {
      p.instruction = static_cast<int32_t>(i);
      p.when = block[i].when;
      add_item(p, block[i]);
    }
    while (!p.late.empty()) add_late(p, 0);
    index[ref] = static_cast<int32_t>(p.player.blocks.size());
    p.player.blocks.push_back(std::move(p.block));
    p.all_tags.push_back(std::move(p.tags));
  }
  p.player.schedule.reserve(p.program.schedule.size());
  for (const BlockRunStep& step : p.program.schedule) {
    const auto found = index.find(step.block);
    if (found != index.end()) p.player.schedule.push_back({found->second, step.micro_batch});
  }
  p.player.accounts = static_cast<int32_t>(p.rows.size());
  shared.out.play.players.push_back(std::move(p.player));
  shared.out.rows.push_back(std::move(p.rows));
  shared.out.tags.push_back(std::move(p.all_tags));
  if (p.known_works == nullptr) shared.works_of[p.program.rank] = {p.part, std::move(p.works)};
}

RankFold fold_of(const SimulateOptions& options, bool noisy) {
  if (!options.fold || noisy || options.counts) return RankFold::kNone;
  return options.fold_places && options.stragglers.empty() ? RankFold::kPlaces : RankFold::kExact;
}

}  // namespace

Result<Outline> make_outline(Lowered& lowered, const Cluster& cluster,
                             const SimulateOptions& options) {
  Outline out;
  const Lowering& lowering = *lowered.lowering;
  out.devices = lowered.devices;
  std::vector<int64_t> alone;
  for (const auto& [device, times] : options.stragglers) alone.push_back(device);
  const bool noisy = options.jitter > 0 || options.style.jitter > 0;
  NodeSharing sharing(lowering.plan(), lowered.devices, cluster);
  TESSERA_TRY(out.classes, make_classes(lowered, cluster, fold_of(options, noisy), alone, sharing,
                                        options.may_play));
  out.play.micro_batches = lowering.plan().plan.micro_batches;
  AllPlayers shared{lowered,
                    cluster,
                    sharing,
                    options,
                    out,
                    Works(out.works),
                    routed_tensors(lowering.graph()),
                    most_choices(lowering.graph())};
  shared.known_label("", "");
  count_crossings(shared);
  for (size_t c = 0; c < out.classes.all.size(); ++c) {
    outline_player(shared, static_cast<int32_t>(c));
  }
  out.play.rounds = engine::find_rounds(out.play);
  return out;
}

}  // namespace tessera
