#include "tessera/simulate/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using engine::Item;
using engine::ItemKind;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

constexpr std::string_view kAgain = "@recompute";

// Numbers for what meets: equal keys get equal numbers.
using Key = std::vector<int64_t>;
class Numbers {
 public:
  int32_t operator[](const Key& key) {
    return known_.try_emplace(key, static_cast<int32_t>(known_.size())).first->second;
  }

 private:
  std::map<Key, int32_t> known_;
};

// Pieces of one tensor that cross between two classes. A rank of the one may send more pieces than
// a rank of the other receives (meshes of different sizes): the i-th of the larger number meets the
// (i mod the smaller)-th.
struct Crossing {
  int32_t sends = 0, receives = 0;
};
Key crossing_key(int32_t from, int32_t to, TensorId tensor, int64_t tag) {
  return {from, to, tensor.value, tag};
}

struct Shared {  // by all players
  const Lowering& lowering;
  const Cluster& cluster;
  const Classes& classes;
  NodeSharing& sharing;
  const SimulateOptions& options;
  Prices& prices;
  Priced& out;
  Numbers matches;
  std::map<Key, Crossing> crossings;
  std::map<std::string, int32_t> labels;
  std::map<int64_t, int32_t> pools;  // by node

  int32_t class_of(int rank) const { return classes.of_rank[static_cast<size_t>(rank)]; }
  int32_t label(const std::string& name, const std::string& what) {
    const auto [it, fresh] =
        labels.try_emplace(what + "\n" + name, static_cast<int32_t>(labels.size()));
    if (fresh) {
      out.play.labels.push_back(name);
      out.what.push_back(what);
    }
    return it->second;
  }
};

void count_crossings(Shared& shared) {
  for (size_t c = 0; c < shared.classes.all.size(); ++c) {
    const auto me = static_cast<int32_t>(c);
    const Program& program = shared.classes.programs.at(shared.classes.all[c].representative);
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        if (const auto* send = std::get_if<Send>(&instruction.body)) {
          ++shared.crossings[crossing_key(me, shared.class_of(send->peer), send->tensor, send->tag)]
                .sends;
        } else if (const auto* receive = std::get_if<Recv>(&instruction.body)) {
          ++shared
                .crossings[crossing_key(shared.class_of(receive->peer), me, receive->tensor,
                                        receive->tag)]
                .receives;
        }
      }
    }
  }
}

class PlayerPricing {
 public:
  PlayerPricing(Shared& shared, int32_t me)
      : shared_(shared),
        me_(me),
        program_(
            shared.classes.programs.at(shared.classes.all[static_cast<size_t>(me)].representative)),
        graph_(shared.lowering.graph()),
        device_(program_.rank),
        type_(shared.cluster.type_of(device_)) {}

  void run() {
    player_.rank = program_.rank;
    for (const auto& [device, times] : shared_.options.stragglers) {
      if (device == device_) player_.slower = times;
    }
    for (const auto& [ref, block] : program_.blocks) add_handles(ref, block);
    for (size_t g = 0; g < program_.groups.size(); ++g) groups_.emplace_back();
    player_.streams = static_cast<int32_t>(program_.groups.size()) + 1;  // the last: copies
    find_pool();
    if (type_.device.synchronous) find_pairs();
    std::map<BlockRef, int32_t> index;
    for (const auto& [ref, block] : program_.blocks) {
      if (block.empty()) continue;
      runs_ = program_.runs(ref);
      ref_ = ref;
      block_ = {ref, {}};
      for (size_t i = 0; i < block.size(); ++i) {
        instruction_ = static_cast<int32_t>(i);
        when_ = block[i].when;
        std::visit([&](const auto& body) { add(block[i], body); }, block[i].body);
      }
      index[ref] = static_cast<int32_t>(player_.blocks.size());
      player_.blocks.push_back(std::move(block_));
    }
    for (const BlockRunStep& step : program_.schedule) {
      const auto found = index.find(step.block);
      if (found != index.end()) player_.schedule.push_back({found->second, step.micro_batch});
    }
    player_.accounts = static_cast<int32_t>(priced_.rows.size());
    shared_.out.play.players.push_back(std::move(player_));
    shared_.out.players.push_back(std::move(priced_));
  }

 private:
  struct GroupFacts {
    bool known = false;
    std::string axes;
    GroupPlacement where;
    std::vector<int64_t> classes;
  };

  void add_handles(BlockRef ref, const std::vector<Instruction>& block) {
    for (const Instruction& instruction : block) {
      int handle = -1;
      std::visit(Overloaded{[&](const Issue& x) { handle = x.handle; },
                            [&](const Send& x) { handle = x.handle; },
                            [&](const Recv& x) { handle = x.handle; },
                            [&](const Copy& x) { handle = x.handle; }, [](const auto&) {}},
                 instruction.body);
      if (handle < 0) continue;
      if (std::holds_alternative<Recv>(instruction.body)) receives_.insert(handle);
      handles_[handle] = static_cast<int32_t>(player_.handles.size());
      player_.handles.push_back({!ref.once() && instruction.when == When::kAlways});
    }
  }

  int64_t times() const { return when_ == When::kAlways ? runs_ : std::min<int64_t>(1, runs_); }

  Item& push(ItemKind kind) {
    Item item;
    item.kind = kind;
    item.when = when_;
    item.instruction = instruction_;
    if (when_ == When::kAlways) item.host_s = std::exchange(views_host_s_, 0);
    block_.items.push_back(item);
    return block_.items.back();
  }

  void count(const OpCost& cost) {
    const double seconds = cost.kernel_s * static_cast<double>(times());
    priced_.source_s[static_cast<size_t>(cost.source)] += seconds;
    priced_.uncertain_s += seconds * cost.uncertainty;
    priced_.flops += cost.flops * static_cast<double>(times());
  }
  void count(const CollectiveCost& cost) {
    const double seconds = cost.seconds() * static_cast<double>(times());
    priced_.source_s[static_cast<size_t>(cost.source)] += seconds;
    priced_.uncertain_s += seconds * cost.uncertainty;
  }

  // The row of a kind and axes; adds to its counts.
  int32_t account(const std::string& kind, const std::string& axes, int64_t bytes, int64_t size,
                  const std::string& algorithm) {
    const auto [it, fresh] =
        accounts_.try_emplace({kind, axes}, static_cast<int32_t>(priced_.rows.size()));
    if (fresh) {
      priced_.rows.push_back({kind, axes, 0, 0, 0, 0, ""});
      largest_.push_back(-1);
    }
    const auto row = static_cast<size_t>(it->second);
    priced_.rows[row].count += times();
    priced_.rows[row].bytes += bytes * times();
    if (size > largest_[row]) {
      largest_[row] = size;
      priced_.rows[row].algorithm = algorithm;
    }
    return it->second;
  }

  // Ranks share the cores of their node, if there are more of them.
  void find_pool() {
    if (type_.cores == 0) return;
    const int64_t node = shared_.cluster.locate(device_).node;
    int64_t all = 0, mine = 0;
    for (size_t rank = 0; rank < shared_.classes.of_rank.size(); ++rank) {
      const int32_t played = shared_.classes.of_rank[rank];
      if (played < 0 || shared_.cluster.locate(static_cast<int64_t>(rank)).node != node) continue;
      ++all;
      if (played == me_) ++mine;
    }
    if (all <= type_.cores) return;
    const auto [it, fresh] =
        shared_.pools.try_emplace(node, static_cast<int32_t>(shared_.out.play.pools.size()));
    if (fresh) shared_.out.play.pools.push_back(static_cast<double>(type_.cores));
    player_.pool = it->second;
    player_.ranks = static_cast<double>(std::max<int64_t>(mine, 1));
  }

  // Synchronous devices: a collective that is issued and waited for in the same run of a block is
  // carried out at its wait.
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

  double host_collective_s() const {
    return shared_.options.style.host_collective_s * type_.host_slowness;
  }

  void set_kernel(Item& item, const OpCost& cost) {
    item.host_s += cost.host_s * type_.host_slowness;
    item.launch_s = type_.device.launch_s;
    item.work_s = cost.kernel_s;
    if (type_.device.synchronous) item.work_s += std::exchange(item.host_s, 0);
  }

  void set_transfer(Item& item, const CollectiveCost& cost) {
    item.host_s += host_collective_s();
    item.launch_s = type_.device.launch_s;
    item.latency_s = cost.latency_s;
    item.work_s = cost.transfer_s;
    item.use = {cost.inner_fraction, cost.nic_fraction};
  }

  void add_wait(int32_t handle, int32_t lag, bool blocks_host) {
    Item& item = push(ItemKind::kWait);
    item.handle = handle;
    item.lag = lag;
    item.blocks_host = blocks_host;
  }

  // ---- compute

  void add(const Instruction&, const Compute& compute) {
    const Op& op = graph_.op(compute.op);
    const OpCost cost = shared_.prices.compute(device_, program_, compute);
    count(cost);
    if (cost.kernels == 0 && when_ == When::kAlways) {  // a view: only the host knows of it
      views_host_s_ += cost.host_s * type_.host_slowness;
      return;
    }
    Item& item = push(ItemKind::kCompute);
    set_kernel(item, cost);
    item.label = shared_.label(op.path, op.kind);
    const bool again = op.phase == Phase::kBackward && op.path.ends_with(kAgain);
    item.spent = op.phase == Phase::kUpdate ? Spent::kUpdate
                 : again                    ? Spent::kRecompute
                                            : Spent::kCompute;
  }

  // ---- collectives

  const GroupFacts& facts(int index) {
    GroupFacts& facts = groups_[static_cast<size_t>(index)];
    if (facts.known) return facts;
    facts.known = true;
    const Group& group = program_.groups[static_cast<size_t>(index)];
    const ResolvedPlan& plan = shared_.lowering.plan();
    std::vector<std::string> names;
    for (const PlaceId place : plan.places_of(program_.rank)) {
      const Mesh& mesh = plan.places[place.index()].mesh;
      if (!mesh.contains(group.members[0])) continue;
      if (mesh.group(mesh.coordinates(program_.rank), group.axes) != group.members) continue;
      for (const AxisId axis : group.axes) names.push_back(mesh.axis(axis).name);
      break;
    }
    facts.axes = join(names, " ");
    facts.where = place_group(shared_.cluster, {group.members.begin(), group.members.end()},
                              shared_.sharing.groups_a_node(names, group.members));
    for (const int member : group.members) facts.classes.push_back(shared_.class_of(member));
    std::sort(facts.classes.begin(), facts.classes.end());
    facts.classes.erase(std::unique(facts.classes.begin(), facts.classes.end()),
                        facts.classes.end());
    return facts;
  }

  // Bytes of the whole array on one member (collective_cost.h).
  static int64_t whole_bytes(const Issue& issue) {
    int64_t elements = 0;
    for (const Transfer& transfer : issue.transfers) {
      const auto most = [](const std::vector<Box>& boxes) {
        int64_t out = 0;
        for (const Box& box : boxes) out = std::max(out, box.volume());
        return out;
      };
      switch (issue.kind) {
        case CollectiveKind::kAllGather:
        case CollectiveKind::kBroadcast: elements += most(transfer.need); break;
        default: elements += most(transfer.hold); break;
      }
    }
    return message_bytes(issue.codec, issue.dtype, elements);
  }

  int64_t sent_bytes(const Issue& issue, const Group& group) const {
    std::vector<Redistribution> arrays;
    for (const Transfer& transfer : issue.transfers) {
      arrays.push_back({issue.kind, issue.combiner, issue.dtype, transfer.hold, transfer.need});
    }
    std::vector<const Redistribution*> items;
    for (const Redistribution& array : arrays) items.push_back(&array);
    const auto me = static_cast<size_t>(group.index);
    return (issue.codec ? coded_traffic(items, *issue.codec, me) : bucket_traffic(items, me)).bytes;
  }

  // Does the host wait at once for what moves this tensor?
  bool blocks(const Issue& issue) const {
    const Tensor& tensor = graph_.tensor(issue.transfers[0].tensor);
    const Style& style = shared_.options.style;
    const bool of_parameter =
        tensor.of.valid() && graph_.tensor(tensor.of).role == Role::kParameter;
    if (tensor.role == Role::kGradient && of_parameter) return !style.overlap_gradients;
    if (tensor.role == Role::kParameter || tensor.role == Role::kOptimizerState) {
      return !style.overlap_parameters;
    }
    return false;
  }

  void add(const Instruction&, const Issue& issue) {
    const std::pair<BlockRef, size_t> place{ref_, static_cast<size_t>(instruction_)};
    if (!postponed_.contains(place)) add_collective(issue);
  }

  void add_collective(const Issue& issue) {
    const Group& group = program_.groups[static_cast<size_t>(issue.group)];
    const GroupFacts& where = facts(issue.group);
    const int64_t bytes = whole_bytes(issue);
    const CollectiveCost cost = shared_.prices.collective(issue.kind, where.where, bytes);
    count(cost);
    const std::string kind(collective_name(issue.kind));
    Item& item = push(ItemKind::kIssue);
    set_transfer(item, cost);
    const int64_t crowd = std::max<int64_t>(0, where.where.members_a_node - 4);
    item.host_s += shared_.options.style.host_crowd_s * static_cast<double>(crowd);
    item.lane = Lane::kCollective;
    item.spent = Spent::kCollective;
    item.handle = handles_.at(issue.handle);
    item.stream = issue.group;
    item.parties = static_cast<int32_t>(where.classes.size());
    item.bytes = sent_bytes(issue, group);
    item.account = account(kind, where.axes, item.bytes, bytes, cost.algorithm);
    item.label = shared_.label(names_of(issue), kind + " " + where.axes);
    if (item.parties > 1) {
      Key key{0, static_cast<int64_t>(ref_.kind), ref_.chunk, static_cast<int64_t>(issue.kind),
              issue.transfers[0].tensor.value};
      for (const AxisId axis : group.axes) key.push_back(axis.value);
      key.insert(key.end(), where.classes.begin(), where.classes.end());
      key.push_back(seen_[key]++);
      item.match = shared_.matches[key];
    }
    if (type_.device.synchronous) {
      item.members = static_cast<int32_t>(group.members.size());
      // Another wait may stand elsewhere; the engine keeps the outcome only if the host waits.
      return add_wait(item.handle, 0, !postponed_.contains({ref_, static_cast<size_t>(instruction_)}));
    }
    if (blocks(issue)) add_wait(item.handle, 0, true);
  }

  std::string names_of(const Issue& issue) const {
    const std::string& first = graph_.tensor(issue.transfers[0].tensor).name;
    return issue.transfers.size() == 1
               ? first
               : fmt::format("{} and {} more", first, issue.transfers.size() - 1);
  }

  // ---- messages

  int32_t stream_to(int peer) {
    const auto [it, fresh] = message_streams_.try_emplace(peer, player_.streams);
    if (fresh) ++player_.streams;
    return it->second;
  }

  const std::string& stage_axis() const { return shared_.lowering.plan().plan.stage_axis; }

  // The share of messages that leave the node together.
  int64_t share(int from) const {
    const PlaceId place = shared_.lowering.plan().places_of(from)[0];
    return shared_.sharing.ranks_on_node(place, from);
  }

  void add(const Instruction&, const Send& send) {
    const DType dtype = program_.buffer(send.view.buffer).dtype;
    const int64_t elements = send.region.volume();
    const int64_t bytes = elements > 0 ? message_bytes(send.codec, dtype, elements) : 0;
    const CollectiveCost cost =
        shared_.prices.message(device_, send.peer, bytes, share(program_.rank));
    count(cost);
    Item& item = push(ItemKind::kSend);
    set_transfer(item, cost);
    item.lane = Lane::kMessage;
    item.spent = Spent::kMessage;
    // A synchronous receiver takes it itself, from where it is.
    item.rendezvous = bytes > engine::kEagerBytes || type_.device.synchronous;
    item.handle = handles_.at(send.handle);
    item.stream = stream_to(send.peer);
    Key key = crossing_key(me_, shared_.class_of(send.peer), send.tensor, send.tag);
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
    item.account = account("send", stage_axis(), bytes, bytes, cost.algorithm);
    item.label = shared_.label(graph_.tensor(send.tensor).name, "send");
  }

  void add(const Instruction&, const Recv& receive) {
    const DType dtype = program_.buffer(receive.view.buffer).dtype;
    const int64_t bytes = message_bytes(receive.codec, dtype, receive.region.volume());
    const CollectiveCost cost =
        shared_.prices.message(receive.peer, device_, bytes, share(receive.peer));
    Item& item = push(ItemKind::kReceive);
    set_transfer(item, cost);
    item.latency_s = item.work_s = 0;  // the sender's count
    item.ahead = !type_.device.synchronous;
    item.lane = Lane::kMessage;
    item.spent = Spent::kMessage;
    item.handle = handles_.at(receive.handle);
    Key key = crossing_key(shared_.class_of(receive.peer), me_, receive.tensor, receive.tag);
    const Crossing& crossing = shared_.crossings.at(key);
    const int32_t piece = received_[key]++ % std::max(1, crossing.sends);
    key.insert(key.begin(), 1);
    key.push_back(piece);
    item.parties = 2;
    item.match = shared_.matches[key];
    item.account = account("receive", stage_axis(), 0, bytes, cost.algorithm);
    item.label = shared_.label(graph_.tensor(receive.tensor).name, "receive");
  }

  // ---- the rest

  void add(const Instruction&, const Wait& wait) {
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
    const std::string& name = graph_.tensor(copy.tensor).name;
    if (from.tier == to.tier && copy.handle < 0) {
      const OpCost cost = shared_.prices.local_copy(device_, from.dtype, static_cast<double>(bytes),
                                                    copy.write != Write::kSet);
      count(cost);
      Item& item = push(ItemKind::kCompute);
      set_kernel(item, cost);
      item.spent = ref_.kind == BlockKind::kUpdate ? Spent::kUpdate : Spent::kCompute;
      item.label = shared_.label(name, "copy");
      return;
    }
    const CollectiveCost cost =
        shared_.prices.copy(device_, to.tier == Tier::kDisk, from.tier == Tier::kDisk, bytes);
    count(cost);
    Item& item = push(ItemKind::kIssue);
    set_transfer(item, cost);
    item.use = {};
    item.lane = Lane::kCopy;
    item.spent = Spent::kCopy;
    item.stream = static_cast<int32_t>(program_.groups.size());
    const std::string route = fmt::format("{} to {}", tier_name(from.tier), tier_name(to.tier));
    item.account = account("copy", route, 0, bytes, cost.algorithm);
    item.label = shared_.label(name, "copy " + route);
    if (copy.handle >= 0) {
      item.handle = handles_.at(copy.handle);
      return;
    }
    item.handle = static_cast<int32_t>(player_.handles.size());
    player_.handles.push_back({!ref_.once() && when_ == When::kAlways});
    add_wait(item.handle, 0, false);
  }

  void add(const Instruction&, const Load&) {}
  void add(const Instruction&, const Free&) {}

  Shared& shared_;
  int32_t me_;
  const Program& program_;
  const Graph& graph_;
  int64_t device_;
  const NodeType& type_;
  engine::Player player_;
  PricedPlayer priced_;
  std::map<int, int32_t> handles_;  // of the program -> of the player
  std::set<int> receives_;          // of the program's handles
  std::vector<GroupFacts> groups_;
  std::map<TrafficKey, int32_t> accounts_;
  std::vector<int64_t> largest_;  // by account
  std::map<int, int32_t> message_streams_;
  std::map<Key, int64_t> seen_;
  std::map<Key, int32_t> sent_, received_;
  std::map<std::pair<BlockRef, size_t>, size_t> deferred_;  // wait -> issue
  std::set<std::pair<BlockRef, size_t>> postponed_;         // issues
  // of what is being priced
  BlockRef ref_;
  engine::Block block_;
  int64_t runs_ = 0;
  double views_host_s_ = 0;  // of views since the last item
  int32_t instruction_ = 0;
  When when_ = When::kAlways;
};

}  // namespace

Result<Priced> price(const Lowering& lowering, const Cluster& cluster, const Classes& classes,
                     NodeSharing& sharing, const SimulateOptions& options, Prices& prices) {
  Priced out;
  out.play.micro_batches = lowering.plan().plan.micro_batches;
  Shared shared{lowering, cluster, classes, sharing, options, prices, out, {}, {}, {}, {}};
  shared.label("", "");
  count_crossings(shared);
  for (size_t c = 0; c < classes.all.size(); ++c) {
    PlayerPricing(shared, static_cast<int32_t>(c)).run();
  }
  engine::Rules& rules = out.play.rules;
  rules.inner_slowdown = options.style.compute_slowdown;
  rules.nic_slowdown = options.style.network_slowdown;
  rules.collective_slowdown = options.style.collective_slowdown;
  rules.messages_block = !options.style.overlap_messages;
  rules.jitter = options.jitter > 0 ? options.jitter : options.style.jitter;
  rules.seed = options.seed;
  rules.events = options.events;
  rules.compact = options.compact;
  return out;
}

}  // namespace tessera
