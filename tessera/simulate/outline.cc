#include "tessera/simulate/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"
#include "tessera/simulate/outline_tables.h"
#include "tessera/simulate/rounds.h"
#include "tessera/simulate/transfer_bytes.h"

namespace tessera {
namespace {

using engine::Item;
using engine::ItemKind;

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

struct AllPlayers {  // what the outlines of all players share
  const Lowered& lowered;
  const Cluster& cluster;
  NodeSharing& sharing;
  const SimulateOptions& options;
  Outline& out;
  Works works;
  Numbers matches = {};
  std::map<Key, Crossing> crossings = {};
  std::unordered_map<std::string, int32_t> labels = {};  // for look-up only
  std::map<PricedCollective, int32_t> collectives = {};
  std::map<PricedMessage, int32_t> messages = {};
  std::map<PricedCopy, int32_t> copies = {};
  std::map<int64_t, int32_t> pools = {};  // by machine
  // Indices into Outline::works for the ops of a program, in the order of the program. A program
  // that is made from another (alike_programs.h) has ops of the same sizes, and so the same works.
  struct WorksOfProgram {
    int64_t part = 0;
    std::vector<int32_t> works;
  };
  std::map<int, WorksOfProgram> works_of = {};  // by rank
  TransferBytes bytes = {};
  // By tensor: whether it has tokens on their way to or from their experts (routed_tensors).
  std::vector<bool> routed = routed_tensors(lowered.lowering->graph());
  int64_t choices = most_choices(lowered.lowering->graph());

  const Lowering& lowering() const { return *lowered.lowering; }
  const Program& program(size_t player) const {
    return lowered.programs.at(out.classes.all[player].representative);
  }
  int32_t class_of(int rank) const { return out.classes.of_rank[static_cast<size_t>(rank)]; }
  // Returns the label for the texts name() and what(); 0 unless SimulateOptions::has_labels.
  template <class Name, class What>
  int32_t label(const Name& name, const What& what) {
    return options.has_labels() ? known_label(name(), what()) : 0;
  }
  int32_t known_label(const std::string& name, const std::string& what) {
    std::string key;
    key.reserve(what.size() + name.size() + 1);
    key.append(what).append("\n").append(name);
    const auto [it, fresh] =
        labels.try_emplace(std::move(key), static_cast<int32_t>(labels.size()));
    if (fresh) {
      out.play.labels.push_back(name);
      out.what.push_back(what);
    }
    return it->second;
  }
};

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

class PlayerOutline {
 public:
  PlayerOutline(AllPlayers& shared, int32_t me)
      : shared_(shared),
        me_(me),
        program_(shared.program(static_cast<size_t>(me))),
        graph_(shared.lowering().graph()),
        device_(shared.lowered.devices.device_of(program_.rank)),
        part_(shared.cluster.locate(device_).part),
        type_(shared.cluster.type_of(device_)) {}

  void run() {
    player_.rank = program_.rank;
    find_known_works();
    for (const auto& [ref, block] : program_.blocks) add_handles(ref, block);
    for (size_t g = 0; g < program_.groups.size(); ++g) groups_.emplace_back();
    channels_ = message_channels(program_);
    // There is a stream for each communicator, one for copies, and one for messages to each peer.
    player_.streams = static_cast<int32_t>(program_.groups.size() + 1 + channels_.to.size());
    find_pool();
    if (type_.device.synchronous) find_pairs();
    std::map<BlockRef, int32_t> index;
    for (const auto& [ref, block] : program_.blocks) {
      if (block.empty()) continue;
      runs_ = program_.runs(ref);
      ref_ = ref;
      const auto family = index.find(program_.family(ref));
      block_ = {ref, {}, family == index.end() ? -1 : family->second, program_.smaller(ref)};
      tags_.clear();
      for (size_t i = 0; i < block.size(); ++i) {
        instruction_ = static_cast<int32_t>(i);
        when_ = block[i].when;
        std::visit([&](const auto& body) { add(block[i], body); }, block[i].body);
      }
      while (!late_.empty()) add_late(0);
      index[ref] = static_cast<int32_t>(player_.blocks.size());
      player_.blocks.push_back(std::move(block_));
      all_tags_.push_back(std::move(tags_));
    }
    player_.schedule.reserve(program_.schedule.size());
    for (const BlockRunStep& step : program_.schedule) {
      const auto found = index.find(step.block);
      if (found != index.end()) player_.schedule.push_back({found->second, step.micro_batch});
    }
    player_.accounts = static_cast<int32_t>(rows_.size());
    shared_.out.play.players.push_back(std::move(player_));
    shared_.out.rows.push_back(std::move(rows_));
    shared_.out.tags.push_back(std::move(all_tags_));
    if (known_works_ == nullptr) shared_.works_of[program_.rank] = {part_, std::move(works_)};
  }

 private:
  struct GroupFacts {
    bool known = false;
    std::string axes;
    GroupPlacement where;
    std::vector<int64_t> classes;
    std::vector<int64_t> nodes;  // of nodes()
  };

  void add_handles(BlockRef ref, const std::vector<Instruction>& block) {
    for (const Instruction& instruction : block) {
      const int handle = handle_of(instruction);
      if (handle < 0 || handles_.contains(handle)) continue;
      if (std::holds_alternative<Recv>(instruction.body)) receives_.insert(handle);
      handles_[handle] = static_cast<int32_t>(player_.handles.size());
      player_.handles.push_back({!ref.once() && instruction.when == When::kAlways});
    }
  }

  void find_known_works() {
    const auto& made_of = shared_.lowered.made_of;
    const auto other = made_of.find(program_.rank);
    if (other == made_of.end()) return;
    const auto known = shared_.works_of.find(other->second);
    if (known != shared_.works_of.end() && known->second.part == part_)
      known_works_ = &known->second.works;
  }

  int64_t times() const { return when_ == When::kAlways ? runs_ : std::min<int64_t>(1, runs_); }

  Item& push(ItemKind kind, PriceTag::Type type = PriceTag::kNone, int32_t id = 0) {
    Item item;
    item.kind = kind;
    item.when = when_;
    item.instruction = instruction_;
    block_.items.push_back(item);
    tags_.push_back({type, id, times()});
    return block_.items.back();
  }

  // Returns the index of the row for this kind and axes, and adds a transfer of these bytes to it.
  int32_t account(const std::string& kind, const std::string& axes, int64_t bytes) {
    const auto [it, fresh] =
        accounts_.try_emplace({kind, axes}, static_cast<int32_t>(rows_.size()));
    if (fresh) {
      rows_.push_back({kind, axes, 0, 0, 0, 0, ""});
    }
    const auto row = static_cast<size_t>(it->second);
    rows_[row].count += times();
    rows_[row].bytes += bytes * times();
    return it->second;
  }

  int64_t node_of(int64_t rank) const {
    return shared_.cluster.locate(shared_.lowered.devices.device_of(rank)).node;
  }

  // If the machine of the node has more ranks than cores, makes a pool of its cores, which its ranks
  // share.
  void find_pool() {
    if (type_.cores == 0) return;
    const auto machine_of = [&](int64_t node) { return shared_.cluster.one_machine ? 0 : node; };
    const int64_t machine = machine_of(shared_.cluster.locate(device_).node);
    int64_t all = 0, mine = 0;
    for (size_t rank = 0; rank < shared_.out.classes.of_rank.size(); ++rank) {
      const int32_t played = shared_.out.classes.of_rank[rank];
      if (played < 0 || machine_of(node_of(static_cast<int64_t>(rank))) != machine) continue;
      ++all;
      if (played == me_) ++mine;
    }
    if (all <= type_.cores) return;
    const auto [it, fresh] =
        shared_.pools.try_emplace(machine, static_cast<int32_t>(shared_.out.play.pools.size()));
    if (fresh) shared_.out.play.pools.push_back(static_cast<double>(type_.cores));
    player_.pool = it->second;
    player_.ranks = static_cast<double>(std::max<int64_t>(mine, 1));
  }

  // Finds collectives that are carried out at their wait: it is in the block that issues them.
  void find_pairs() {
    for (const auto& [ref, block] : program_.blocks) {
      std::map<int, size_t> issued;
      for (size_t i = 0; i < block.size(); ++i) {
        if (const auto* issue = std::get_if<Issue>(&block[i].body)) issued[issue->handle] = i;
        const auto* wait = std::get_if<Wait>(&block[i].body);
        if (wait == nullptr || wait->lag != 0) continue;
        const auto found = issued.find(wait->handle);
        if (found == issued.end() || block[found->second].when != block[i].when) continue;
        deferred_[{ref, i}] = found->second;
        postponed_.insert({ref, found->second});
      }
    }
  }

  void add_wait(int32_t handle, int32_t lag, bool blocks_host) {
    Item& item = push(ItemKind::kWait);
    item.handle = handle;
    item.lag = lag;
    item.blocks_host = blocks_host;
  }

  int32_t tensor_label(TensorId tensor, const std::string& what) {
    return shared_.label([&] { return graph_.tensor(tensor).name; }, [&] { return what; });
  }

  // ---- compute

  void add(const Instruction&, const Compute& compute) {
    const Op& op = graph_.op(compute.op);
    const bool families = shared_.cluster.profile != nullptr;
    const int32_t work = known_works_ != nullptr
                             ? (*known_works_)[computes_]
                             : works_.emplace_back(shared_.works(
                                   part_, work_of(graph_, program_, compute, families)));
    ++computes_;
    Item& item = push(ItemKind::kCompute, PriceTag::kWork, work);
    item.label = shared_.label([&] { return op.path; }, [&] { return op.kind; });
    item.spent = op.phase == Phase::kUpdate ? Spent::kUpdate
                 : graph_.runs_again(op)    ? Spent::kRecompute
                                            : Spent::kCompute;
  }

  // ---- collectives

  const GroupFacts& facts(int index) {
    GroupFacts& facts = groups_[static_cast<size_t>(index)];
    if (facts.known) return facts;
    facts.known = true;
    const Group& group = program_.groups[static_cast<size_t>(index)];
    facts.axes = join(group.axes, " ");
    const RankSlice& slice = shared_.out.classes.slice;
    facts.where = shared_.sharing.placement(group.place, group.axes, program_.rank, slice);
    const Mesh& mesh = shared_.lowering().plan().places[group.place.index()].mesh;
    Axes axes;
    for (const std::string& axis : group.axes) axes.push_back(mesh.find(axis));
    for (const int member : slice.members(mesh, mesh.coordinates(program_.rank), axes))
      facts.classes.push_back(shared_.class_of(member));
    std::sort(facts.classes.begin(), facts.classes.end());
    facts.classes.erase(std::unique(facts.classes.begin(), facts.classes.end()),
                        facts.classes.end());
    return facts;
  }

  // Returns the node of each member of a group, numbered in the order of first members.
  const std::vector<int64_t>& nodes(int group) {
    std::vector<int64_t>& out = groups_[static_cast<size_t>(group)].nodes;
    if (!out.empty()) return out;
    std::map<int64_t, int64_t> numbers;
    for (const int member : program_.groups[static_cast<size_t>(group)].members) {
      out.push_back(
          numbers.try_emplace(node_of(member), static_cast<int64_t>(numbers.size())).first->second);
    }
    return out;
  }

  // Returns the counted load of an exchange over several nodes, else an empty load. With more than
  // kMostCounted members it is empty too, because counting would take long.
  ExchangeLoad load(const Issue& issue, const GroupFacts& facts) {
    constexpr int64_t kMostCounted = 256;
    const bool sums = issue.combiner && !issue.named;
    if (issue.kind != CollectiveKind::kExchange || sums || facts.where.nodes == 1 ||
        facts.where.members > kMostCounted) {
      return {};
    }
    return shared_.bytes.load(issue, nodes(issue.group));
  }

  // Returns whether the tensor is the gradient of a parameter or of a form of it.
  bool is_gradient(TensorId tensor) const {
    return graph_.tensor(tensor).role == Role::kGradient && graph_.is_parameter_gradient(tensor);
  }
  bool is_parameter(TensorId tensor) const {
    const Role role = graph_.tensor(tensor).role;
    return role == Role::kOptimizerState || role == Role::kParameter ||
           (role == Role::kActivation && graph_.parameter_of(tensor).valid());
  }

  Moves moves(const Issue& issue) const {
    const TensorId tensor = issue.transfers[0].tensor;
    const Role role = graph_.tensor(tensor).role;
    const bool between_ops = (role == Role::kActivation && !is_parameter(tensor)) ||
                             (role == Role::kGradient && !is_gradient(tensor));
    if (ref_.once() || !between_ops) return Moves::kOther;
    const bool tokens = issue.kind == CollectiveKind::kAllToAll && shared_.routed[tensor.index()];
    return tokens ? Moves::kTokens : Moves::kActivations;
  }

  // Returns the number of experts that each token goes to if the issue moves tokens, else 1.
  int64_t choices(const Issue& issue) const {
    return moves(issue) == Moves::kTokens ? shared_.choices : 1;
  }

  // Returns whether the host waits right after the issue, because the style does not overlap
  // collectives of gradients (or parameters) with compute.
  bool blocks(const Issue& issue) const {
    const TensorId tensor = issue.transfers[0].tensor;
    const Style& style = shared_.options.style;
    if (is_gradient(tensor)) return !style.overlap_gradients;
    return is_parameter(tensor) && !style.overlap_parameters;
  }

  // Adds a postponed reduction of gradients, for which the host waits. Such a reduction is added at
  // the end of the block, after its work and messages, or where its result is first needed.
  void add_late(size_t which) {
    const size_t place = late_[which];
    late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(which));
    const Instruction& instruction = program_.block(ref_)[place];
    const int32_t at = std::exchange(instruction_, static_cast<int32_t>(place));
    const When when = std::exchange(when_, instruction.when);
    add_collective(std::get<Issue>(instruction.body));
    instruction_ = at;
    when_ = when;
  }

  void add(const Instruction&, const Issue& issue) {
    if (!type_.device.synchronous && !ref_.once() && is_gradient(issue.transfers[0].tensor) &&
        blocks(issue)) {
      late_.push_back(static_cast<size_t>(instruction_));
      return;
    }
    const std::pair<BlockRef, size_t> place{ref_, static_cast<size_t>(instruction_)};
    if (!postponed_.contains(place)) add_collective(issue);
  }

  void add_collective(const Issue& issue) {
    const Group& group = program_.groups[static_cast<size_t>(issue.group)];
    const GroupFacts& where = facts(issue.group);
    const std::string kind(collective_name(issue.kind));
    Item& item = push(ItemKind::kIssue, PriceTag::kCollective,
                      entry<PricedCollective>(shared_.out.collectives, shared_.collectives,
                                              {issue.kind, where.where, shared_.bytes.whole(issue),
                                               moves(issue), load(issue, where), choices(issue)}));
    item.lane = Lane::kCollective;
    item.spent = Spent::kCollective;
    item.handle = handles_.at(issue.handle);
    item.stream = issue.group;
    item.parties = static_cast<int32_t>(where.classes.size());
    item.bytes = shared_.bytes.sent(issue, static_cast<size_t>(group.index));
    item.account = account(kind, where.axes, item.bytes);
    item.label = shared_.label([&] { return moved_tensors(issue, graph_); },
                               [&] { return kind + " " + where.axes; });
    if (item.parties > 1) {
      // The key has the number of the stage in the plan and not its index on the rank, because the
      // index may differ between members of the group.
      const bool is_once = ref_.kind == BlockKind::kPrologue || ref_.kind == BlockKind::kUpdate;
      const auto chunk = static_cast<size_t>(program_.family(ref_).chunk);
      Key key{0,
              static_cast<int64_t>(ref_.kind),
              is_once ? 0 : program_.stages[chunk].value,
              program_.smaller(ref_) ? 1 : 0,
              static_cast<int64_t>(issue.kind),
              issue.transfers[0].tensor.value};
      key.push_back(group.place.value);
      const Mesh& mesh = shared_.lowering().plan().places[group.place.index()].mesh;
      for (const std::string& axis : group.axes) key.push_back(mesh.find(axis).value);
      key.insert(key.end(), where.classes.begin(), where.classes.end());
      key.push_back(seen_[key]++);
      item.match = shared_.matches[key];
    }
    // Ranks in one node carry a collective out themselves. One between nodes that is awaited in
    // another block proceeds in the network, whatever the ranks wait for meanwhile.
    const bool at_its_wait = postponed_.contains({ref_, static_cast<size_t>(instruction_)});
    const bool inside = where.where.nodes == 1;
    if (type_.device.synchronous && (inside || at_its_wait)) {
      if (inside) item.members = static_cast<int32_t>(group.members.size());
      // The program's own wait may come later. For it the engine keeps the outcome only if the host
      // waits here.
      return add_wait(item.handle, 0, !at_its_wait);
    }
    if (blocks(issue)) add_wait(item.handle, 0, true);
  }

  // ---- messages

  const std::string& stage_axis() const { return shared_.lowering().plan().plan.stage_axis; }

  // Returns the message's number. The sender's place sends from all its ranks at the same time.
  int32_t message(int from, int to, int64_t bytes) {  // ranks
    const PlaceId place = shared_.lowering().plan().places_of(from)[0];
    const int64_t sender = shared_.lowered.devices.device_of(from);
    const int64_t receiver = shared_.lowered.devices.device_of(to);
    const GroupPlacement where =
        place_group(shared_.cluster, {sender, receiver}, shared_.sharing.ranks_on_node(place, from),
                    shared_.sharing.nodes_of(place));
    return entry<PricedMessage>(shared_.out.messages, shared_.messages,
                                {sender, receiver, bytes, where});
  }

  void add(const Instruction&, const Send& send) {
    const DType dtype = program_.buffer(send.view.buffer).dtype;
    const int64_t elements = send.region.volume();
    const int64_t bytes = elements > 0 ? message_bytes(send.codec, dtype, elements) : 0;
    Item& item =
        push(ItemKind::kSend, PriceTag::kMessage, message(program_.rank, send.peer, bytes));
    item.lane = Lane::kMessage;
    item.spent = Spent::kMessage;
    // A synchronous device itself receives the message, so the sender waits for it.
    item.rendezvous = bytes > engine::kEagerBytes || type_.device.synchronous;
    item.handle = handles_.at(send.handle);
    item.stream = channels_.to.at(send.peer);
    Key key = crossing_key(me_, shared_.class_of(send.peer), send.tensor, send.tag,
                           program_.smaller(ref_));
    const Crossing& crossing = shared_.crossings.at(key);
    const int32_t piece = sent_[key]++;
    const bool met = piece < crossing.receives;
    item.parties = met ? 2 : 1;
    if (met) {
      key.insert(key.begin(), 1);
      key.push_back(piece);
      item.match = shared_.matches[key];
    }
    item.bytes = bytes;
    item.account = account("send", stage_axis(), bytes);
    item.label = tensor_label(send.tensor, "send");
  }

  void add(const Instruction&, const Recv& receive) {
    const DType dtype = program_.buffer(receive.view.buffer).dtype;
    const int64_t bytes = message_bytes(receive.codec, dtype, receive.region.volume());
    Item& item =
        push(ItemKind::kReceive, PriceTag::kMessage, message(receive.peer, program_.rank, bytes));
    item.ahead = !type_.device.synchronous;
    item.lane = Lane::kMessage;
    item.spent = Spent::kMessage;
    item.handle = handles_.at(receive.handle);
    item.stream = channels_.from.at(receive.peer);
    Key key = crossing_key(shared_.class_of(receive.peer), me_, receive.tensor, receive.tag,
                           program_.smaller(ref_));
    const Crossing& crossing = shared_.crossings.at(key);
    const int32_t piece = received_[key]++ % std::max(1, crossing.sends);
    key.insert(key.begin(), 1);
    key.push_back(piece);
    item.parties = 2;
    item.match = shared_.matches[key];
    item.account = account("receive", stage_axis(), 0);
    item.label = tensor_label(receive.tensor, "receive");
  }

  // ---- the rest

  void add(const Instruction&, const Wait& wait) {
    for (size_t i = 0; i < late_.size(); ++i) {
      if (std::get<Issue>(program_.block(ref_)[late_[i]].body).handle != wait.handle) continue;
      add_late(i);
      break;
    }
    const auto issue = deferred_.find({ref_, static_cast<size_t>(instruction_)});
    if (issue == deferred_.end()) {
      const bool blocks =
          receives_.contains(wait.handle) && !shared_.options.style.overlap_messages;
      return add_wait(handles_.at(wait.handle), wait.lag, blocks);
    }
    const int32_t at = std::exchange(instruction_, static_cast<int32_t>(issue->second));
    add_collective(std::get<Issue>(program_.block(ref_)[issue->second].body));
    instruction_ = at;
  }

  void add(const Instruction&, const Copy& copy) {
    const Buffer &from = program_.buffer(copy.from.buffer), &to = program_.buffer(copy.to.buffer);
    const int64_t bytes = copy.region.volume() * dtype_bytes(from.dtype);
    if (from.tier == to.tier && copy.handle < 0) {
      OpWork work;
      work.kind = WorkClass::kMove;
      work.dtype = from.dtype;
      work.bytes_read = static_cast<double>(copy.write == Write::kSet ? bytes : 2 * bytes);
      work.bytes_written = static_cast<double>(bytes);
      work.elements = static_cast<double>(copy.region.volume());
      if (shared_.cluster.profile != nullptr) {
        work.family = {fmt::format("copy.{}{}", dtype_name(from.dtype),
                                   copy.write == Write::kSet ? "" : ".add"),
                       {2 * static_cast<double>(bytes)}};
      }
      Item& item = push(ItemKind::kCompute, PriceTag::kWork, shared_.works(part_, work));
      item.spent = ref_.kind == BlockKind::kUpdate ? Spent::kUpdate : Spent::kCompute;
      item.label = tensor_label(copy.tensor, "copy");
      return;
    }
    Item& item =
        push(ItemKind::kIssue, PriceTag::kCopy,
             entry<PricedCopy>(shared_.out.copies, shared_.copies,
                               {device_, bytes, to.tier == Tier::kDisk, from.tier == Tier::kDisk}));
    item.lane = Lane::kCopy;
    item.spent = Spent::kCopy;
    item.stream = static_cast<int32_t>(program_.groups.size());
    const std::string route = fmt::format("{} to {}", tier_name(from.tier), tier_name(to.tier));
    item.account = account("copy", route, 0);
    item.label = tensor_label(copy.tensor, "copy " + route);
    if (copy.handle >= 0) {
      item.handle = handles_.at(copy.handle);
      return;
    }
    item.handle = static_cast<int32_t>(player_.handles.size());
    player_.handles.push_back({!ref_.once() && when_ == When::kAlways});
    add_wait(item.handle, 0, false);
  }

  // Adds a copy of the rows that are expected to move to and from the device.
  void add(const Instruction&, const FetchRows& fetch) {
    const RowCache& cache = program_.caches[static_cast<size_t>(fetch.cache)];
    const Tier rests = program_.buffer(cache.rests.front()).tier;
    const int64_t bytes = (fetch.expected_in + fetch.expected_out) * row_bytes(program_, cache);
    Item& item =
        push(ItemKind::kIssue, PriceTag::kCopy,
             entry<PricedCopy>(shared_.out.copies, shared_.copies,
                               {device_, bytes, fetch.expected_out > 0 && rests == Tier::kDisk,
                                rests == Tier::kDisk}));
    item.lane = Lane::kCopy;
    item.spent = Spent::kCopy;
    item.stream = static_cast<int32_t>(program_.groups.size());
    const std::string route = fmt::format("rows from {}", tier_name(rests));
    item.account = account("copy", route, 0);
    item.label = tensor_label(program_.buffer(cache.held.front()).tensor, route);
    item.handle = handles_.at(fetch.handle);
  }
  void add(const Instruction&, const ReleaseRows&) {}
  void add(const Instruction&, const Load&) {}
  void add(const Instruction&, const Free&) {}

  AllPlayers& shared_;
  int32_t me_;
  const Program& program_;
  const Graph& graph_;
  int64_t device_;
  int64_t part_;
  const NodeType& type_;
  engine::Player player_;
  std::vector<TrafficRow> rows_;
  std::vector<std::vector<PriceTag>> all_tags_;  // by block
  std::vector<PriceTag> tags_;
  std::vector<int32_t> works_;                         // of the ops that were added so far
  const std::vector<int32_t>* known_works_ = nullptr;  // works of the program this one is made from
  size_t computes_ = 0;                                // number of computes that were added so far
  std::map<int, int32_t> handles_;                     // handle of the program -> of the player
  std::set<int> receives_;                             // handles of the program's receives
  std::vector<GroupFacts> groups_;
  std::map<std::pair<std::string, std::string>, int32_t> accounts_;
  MessageChannels channels_;
  std::map<Key, int64_t> seen_;
  std::map<Key, int32_t> sent_, received_;
  // From find_pairs: position of a wait -> of the issue that is played there; all such issues.
  std::map<std::pair<BlockRef, size_t>, size_t> deferred_;
  std::set<std::pair<BlockRef, size_t>> postponed_;
  std::vector<size_t> late_;  // positions of the block's issues that add_late() will add
  // State of the block that is being outlined:
  BlockRef ref_;
  engine::Block block_;
  int64_t runs_ = 0;
  int32_t instruction_ = 0;
  When when_ = When::kAlways;
};

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
  AllPlayers shared{lowered, cluster, sharing, options, out, Works(out.works)};
  shared.known_label("", "");
  count_crossings(shared);
  for (size_t c = 0; c < out.classes.all.size(); ++c) {
    PlayerOutline(shared, static_cast<int32_t>(c)).run();
  }
  out.play.rounds = engine::find_rounds(out.play);
  return out;
}

}  // namespace tessera
