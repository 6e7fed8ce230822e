#include "tessera/simulate/price.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

using engine::Item;
using engine::ItemKind;

struct Costs {  // costs by index into the outline's tables of the same names
  std::vector<OpCost> works;
  std::vector<CollectiveCost> collectives, messages, copies;
};

// Returns the load of an all-to-all of tokens in which a token crosses the network only once for
// each node that has one of its experts. With experts chosen evenly, k choices reach N (1 - (1 -
// 1/N)^k) of N nodes, including the token's own. The other copies of a token are made inside the
// node where the token arrives.
ExchangeLoad once_a_node(const PricedCollective& one) {
  const auto nodes = static_cast<double>(one.where.nodes);
  const auto members = static_cast<double>(one.where.members);
  const auto here = static_cast<double>(one.where.members_a_node);
  const auto choices = static_cast<double>(one.choices);
  const auto bytes = static_cast<double>(one.bytes);
  const double share = nodes * (1 - std::pow(1 - 1 / nodes, choices)) / choices;
  const double copies = bytes * (nodes - 1) / nodes, leaving = copies * share;
  ExchangeLoad load;
  load.inside = static_cast<int64_t>(bytes * (here - 1) / members + copies - leaving);
  load.leaving = static_cast<int64_t>(leaving);
  load.leaving_a_node = static_cast<int64_t>(leaving * here);
  load.nodes_reached = one.where.nodes - 1;
  load.peers = one.where.members - one.where.members_a_node;
  return load;
}

Costs costs_of(const Outline& outline, const Cluster& cluster, const Style& style) {
  Costs out;
  const auto ranks = static_cast<int64_t>(outline.classes.of_rank.size());
  std::vector<OpCosts> ops;  // by part; all devices of a machine are taken to work at the same time
  for (const ClusterPart& part : cluster.parts) {
    const int64_t side_by_side =
        std::min(ranks, cluster.one_machine ? cluster.devices() : part.type.devices);
    ops.emplace_back(part.type.device, style, cluster.profile.get(), side_by_side,
                     part.type.host_memory_rate / static_cast<double>(side_by_side));
  }
  for (const PricedWork& work : outline.works) {
    out.works.push_back(ops[static_cast<size_t>(work.part)].cost(work.work));
  }
  const CollectiveCosts transfers(cluster, style);
  for (const PricedCollective& one : outline.collectives) {
    const bool once = style.tokens_once_a_node && one.moves == Moves::kTokens &&
                      one.where.nodes > 1 && one.choices > 1;
    out.collectives.push_back(
        transfers.collective(one.kind, one.where, one.bytes, once ? once_a_node(one) : one.load));
  }
  for (const PricedMessage& one : outline.messages) {
    out.messages.push_back(transfers.message(one.from, one.to, one.where, one.bytes));
  }
  for (const PricedCopy& one : outline.copies) {
    out.copies.push_back(transfers.copy(one.device, one.to_disk, one.from_disk, one.bytes));
  }
  return out;
}

class PlayerPricing {
 public:
  PlayerPricing(const Outline& outline, const Costs& costs, const NodeType& type,
                const Style& style, const std::vector<TrafficRow>& rows)
      : outline_(outline), costs_(costs), type_(type), style_(style), largest_(rows.size(), -1) {
    out_.rows = rows;
  }

  void fill(Item& item, const PriceTag& tag) {
    const auto id = static_cast<size_t>(tag.id);
    switch (tag.type) {
      case PriceTag::kNone: break;
      case PriceTag::kWork: fill(item, tag, costs_.works[id]); break;
      case PriceTag::kCollective:
        fill(item, tag, costs_.collectives[id], outline_.collectives[id].bytes);
        show(item, 1 - hidden(outline_.collectives[id].moves));
        item.host_s += style_.host_crowd_s * crowd(outline_.collectives[id].where);
        break;
      case PriceTag::kMessage:
        fill(item, tag, costs_.messages[id], outline_.messages[id].bytes);
        break;
      case PriceTag::kCopy:
        fill(item, tag, costs_.copies[id], outline_.copies[id].bytes);
        item.use = {};
        break;
    }
    if (tag.type == PriceTag::kNone) return;
    if (in_graph()) item.host_s = item.launch_s = 0;
    const auto times = static_cast<double>(tag.times);
    out_.host_s += item.host_s * times;
    out_.launches += (tag.type == PriceTag::kWork ? costs_.works[id].launches : 1) * times;
  }
  PricedPlayer take() { return std::move(out_); }

 private:
  bool in_graph() const { return style_.host == Style::Host::kGraph && !type_.device.synchronous; }

  void fill(Item& item, const PriceTag& tag, const OpCost& cost) {
    count(cost.kernel_s, cost.source, cost.uncertainty, tag.times);
    out_.flops += cost.flops * static_cast<double>(tag.times);
    item.host_s = cost.host_s * type_.host_slowness;
    item.launch_s = type_.device.launch_s;
    item.work_s = cost.kernel_s;
    item.kind = ItemKind::kCompute;
    if (type_.device.synchronous) {
      item.work_s += std::exchange(item.host_s, 0);
    } else if (cost.kernels == 0) {
      item.kind = ItemKind::kHost;  // a view
    }
  }

  void fill(Item& item, const PriceTag& tag, const CollectiveCost& cost, int64_t bytes) {
    item.host_s = style_.host_collective_s * type_.host_slowness;
    if (style_.host == Style::Host::kLaunches && !type_.device.synchronous)
      item.host_s += type_.device.host_issue_s * type_.host_slowness;
    item.launch_s = type_.device.launch_s;
    item.use = {cost.inner_fraction, cost.nic_fraction};
    const auto row = static_cast<size_t>(item.account);
    if (bytes > largest_[row]) {
      largest_[row] = bytes;
      out_.rows[row].algorithm = cost.algorithm;
    }
    if (item.kind == ItemKind::kReceive) return;  // the sender's time counts
    count(cost.seconds(), cost.source, cost.uncertainty, tag.times);
    item.latency_s = cost.latency_s;
    item.work_s = cost.transfer_s;
  }

  double hidden(Moves moves) const {
    switch (moves) {
      case Moves::kActivations: return style_.activation_overlap;
      case Moves::kTokens: return style_.routing_overlap;
      case Moves::kOther: break;
    }
    return 0;
  }
  // Shortens the item to `share` of the transfer. The rest of the transfer is taken to run in
  // pieces, while the kernels run that make or read these pieces.
  static void show(Item& item, double share) {
    item.latency_s *= share;
    item.work_s *= share;
  }

  // Returns how many members more than four a node has.
  static double crowd(const GroupPlacement& where) {
    return static_cast<double>(std::max<int64_t>(0, where.members_a_node - 4));
  }

  void count(double seconds, CostSource source, double uncertainty, int64_t times) {
    const double total = seconds * static_cast<double>(times);
    out_.source_s[static_cast<size_t>(source)] += total;
    out_.uncertain_s += total * uncertainty;
  }

  const Outline& outline_;
  const Costs& costs_;
  const NodeType& type_;
  const Style& style_;
  PricedPlayer out_;
  std::vector<int64_t> largest_;  // by account
};

}  // namespace

int64_t most_choices(const Graph& graph) {
  int64_t most = 1;
  for (const Op& op : graph.ops()) {
    if (info_of(op).work != WorkClass::kRouting) continue;
    for (const TensorId id : op.outputs) {
      for (const Dim& dim : graph.tensor(id).dims) {
        if (dim.name == "choice") most = std::max(most, dim.size);
      }
    }
  }
  return most;
}

Priced unpriced(Outline& outline) { return {std::move(outline.play), {}}; }

void price(const Outline& outline, const Cluster& cluster, const SimulateOptions& options,
           Priced& out) {
  const Style& style = options.style;
  const Costs costs = costs_of(outline, cluster, style);
  out.players.clear();
  for (size_t p = 0; p < out.play.players.size(); ++p) {
    engine::Player& player = out.play.players[p];
    player.slower = 1;
    const int64_t here = outline.devices.device_of(player.rank);
    for (const auto& [device, times] : options.stragglers) {
      if (device == here) player.slower = times;
    }
    PlayerPricing pricing(outline, costs, cluster.type_of(here), style, outline.rows[p]);
    for (size_t b = 0; b < player.blocks.size(); ++b) {
      const std::vector<PriceTag>& tags = outline.tags[p][b];
      for (size_t i = 0; i < tags.size(); ++i) pricing.fill(player.blocks[b].items[i], tags[i]);
    }
    out.players.push_back(pricing.take());
  }
  engine::Rules& rules = out.play.rules;
  rules.inner_slowdown = style.compute_slowdown;
  rules.nic_slowdown = style.network_slowdown;
  rules.collective_slowdown = style.collective_slowdown;
  rules.messages_block = !style.overlap_messages;
  rules.jitter = options.jitter > 0 ? options.jitter : style.jitter;
  rules.seed = options.seed;
  rules.events = options.events;
  rules.compact = options.compact;
  rules.path = options.critical_path;
}

double least_step_s(const Outline& outline, const Priced& priced) {
  double out = 0;
  if (priced.play.rules.jitter > 0) return out;
  for (size_t p = 0; p < priced.play.players.size(); ++p) {
    const engine::Player& player = priced.play.players[p];
    double busy_s = 0;
    for (size_t b = 0; b < player.blocks.size(); ++b) {
      const std::vector<Item>& items = player.blocks[b].items;
      for (size_t i = 0; i < items.size(); ++i) {
        const auto times = static_cast<double>(outline.tags[p][b][i].times);
        if (items[i].kind == ItemKind::kCompute) {
          busy_s += items[i].work_s * player.slower * times;
        } else if (engine::is_waited_for_at_once(items, i)) {
          busy_s += (items[i].latency_s + items[i].work_s) * times;
        }
      }
    }
    out = std::max(out, busy_s);
  }
  return out;
}

}  // namespace tessera
