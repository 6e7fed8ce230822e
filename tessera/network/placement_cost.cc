#include "tessera/network/placement_cost.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/network/order_index.h"

namespace tessera {
namespace {

// Swaps after which a PlacementState counts everything again, so that rounding errors do not grow.
constexpr int64_t kSwapsBetweenCounts = 20'000;

// Returns whether the machines are equal apart from the switch that they are below.
bool alike_inside(OrderMachine a, const OrderMachine& b) {
  a.above = b.above;
  return a.equivalent(b);
}

// The bytes of the devices of a slot, by their number in the slot.
struct DeviceBytes {
  // To and from others of the slot, and to and from other slots through the device's card.
  std::vector<double> sent_inside, taken_inside, sent_outside, taken_outside;
  explicit DeviceBytes(size_t devices)
      : sent_inside(devices),
        taken_inside(devices),
        sent_outside(devices),
        taken_outside(devices) {}
};

// Returns how long the devices and cards of a machine take for the bytes.
double seconds_of(const DeviceBytes& bytes, const OrderMachine& machine) {
  double seconds = 0, all = 0;
  const size_t devices = bytes.sent_inside.size();
  // Several cards of a device work together; several devices may share a card.
  const auto cards = static_cast<size_t>(
      std::min(machine.cards, static_cast<int64_t>(std::max<size_t>(1, devices))));
  const double card_rate = machine.rate() / static_cast<double>(cards);
  std::vector<double> sent(cards), taken(cards);
  for (size_t d = 0; d < devices; ++d) {
    const size_t card = d * cards / devices;
    sent[card] += bytes.sent_outside[d];
    taken[card] += bytes.taken_outside[d];
    all += bytes.sent_inside[d];
    if (machine.device_rate > 0 && machine.switched) {
      seconds = std::max(
          seconds, std::max(bytes.sent_inside[d], bytes.taken_inside[d]) / machine.device_rate);
    }
  }
  if (machine.device_rate > 0 && !machine.switched) seconds = all / machine.device_rate;
  for (size_t c = 0; c < cards; ++c) {
    if (card_rate > 0) seconds = std::max(seconds, std::max(sent[c], taken[c]) / card_rate);
  }
  return seconds;
}

// Adds what a group sends to the bytes of the devices of a slot that are members.
void add_group_bytes(FlowShape shape, double bytes, int32_t members,
                     const std::vector<size_t>& here, DeviceBytes& out) {
  const auto n = static_cast<double>(members), c = static_cast<double>(here.size());
  for (const size_t d : here) {
    double inside = 0, outside = 0;
    if (shape == FlowShape::kRing) {
      // The ring enters and leaves a machine once; the members' cards share that.
      inside = c > 1 ? bytes : 0;
      outside = c < n ? bytes / c : 0;
    } else {
      inside = (c - 1) * bytes;
      outside = (n - c) * bytes;
    }
    out.sent_inside[d] += inside;
    out.taken_inside[d] += inside;
    out.sent_outside[d] += outside;
    out.taken_outside[d] += outside;
  }
}

}  // namespace

DeviceNumbers::DeviceNumbers(const OrderNetwork& network) {
  for (size_t m = 0; m < network.machines.size(); ++m) {
    first_.push_back(count());
    machine_of_.insert(machine_of_.end(), index_of(network.machines[m].devices),
                       static_cast<int64_t>(m));
  }
}

PlacementCosts::PlacementCosts(const PlanTraffic& traffic, const OrderNetwork& network,
                               const OrderRoutes& routes, const std::vector<int64_t>& devices)
    : network_(&network), routes_(&routes) {
  std::vector<OrderMachine> types;
  for (const OrderMachine& machine : network.machines) {
    const auto known = std::ranges::find_if(
        types, [&](const OrderMachine& type) { return alike_inside(machine, type); });
    type_of_.push_back(static_cast<int32_t>(known - types.begin()));
    if (known == types.end()) types.push_back(machine);
    std::vector<int64_t>& above = above_.emplace_back();
    for (int64_t s = machine.above; s >= 0; s = network.switches[index_of(s)].above)
      above.push_back(s);
  }
  const DeviceNumbers numbers(network);
  const auto slots = network.machines.size();
  const auto slot_of = [&](int32_t rank) { return numbers.machine_of(devices[index_of(rank)]); };
  const auto device_in_slot = [&](int32_t rank) {
    return index_of(devices[index_of(rank)] - numbers.first_of(slot_of(rank)));
  };
  for (const TrafficKind& given : traffic.kinds) {
    Kind& kind = kinds_.emplace_back();
    kind.shape = given.shape;
    kind.rounds = given.rounds;
    kind.at_slot.resize(slots);
    std::vector<DeviceBytes> bytes;
    for (const OrderMachine& machine : network.machines)
      bytes.emplace_back(index_of(machine.devices));
    for (const GroupFlow& one : given.groups) {
      std::map<int64_t, std::vector<size_t>> here;  // by slot: the devices of members
      for (const int32_t rank : one.members) here[slot_of(rank)].push_back(device_in_slot(rank));
      Group group{{}, static_cast<int32_t>(one.members.size()), one.bytes};
      for (const auto& [slot, members] : here) {
        group.parts.push_back({static_cast<int32_t>(slot), static_cast<int32_t>(members.size())});
        kind.at_slot[index_of(slot)].push_back(static_cast<uint32_t>(kind.groups.size()));
        add_group_bytes(given.shape, one.bytes, group.members, members, bytes[index_of(slot)]);
      }
      kind.groups.push_back(std::move(group));
    }
    for (const RankFlow& one : given.messages) {
      const Flow flow{static_cast<int32_t>(slot_of(one.from)),
                      static_cast<int32_t>(slot_of(one.to)), one.bytes};
      DeviceBytes &sender = bytes[index_of(flow.from)], &taker = bytes[index_of(flow.to)];
      const bool inside = flow.from == flow.to;
      (inside ? sender.sent_inside : sender.sent_outside)[device_in_slot(one.from)] += one.bytes;
      (inside ? taker.taken_inside : taker.taken_outside)[device_in_slot(one.to)] += one.bytes;
      const auto number = static_cast<uint32_t>(kind.flows.size());
      kind.at_slot[index_of(flow.from)].push_back(number);
      if (!inside) kind.at_slot[index_of(flow.to)].push_back(number);
      kind.flows.push_back(flow);
    }
    for (const OrderMachine& type : types) {
      std::vector<double>& seconds = kind.slot_s.emplace_back();
      for (size_t slot = 0; slot < slots; ++slot) {
        const bool fits = network.machines[slot].devices == type.devices;
        seconds.push_back(fits ? seconds_of(bytes[slot], type) : 0);
      }
    }
  }
}

PlacementCosts::Loads PlacementCosts::no_loads() const {
  Loads out;
  out.bytes.assign(network_->links(), 0);
  out.members.assign(network_->switches.size(), 0);
  return out;
}

void PlacementCosts::add_group(const Kind& kind, const Group& group, const Order& order,
                               double sign, Loads& out) const {
  out.switches.clear();
  for (const Part& part : group.parts) {
    for (const int64_t s : above_[index_of(order[index_of(part.slot)])]) {
      if (out.members[index_of(s)] == 0) out.switches.push_back(s);
      out.members[index_of(s)] += part.members;
    }
  }
  const auto add = [&](int64_t link, double bytes) {
    out.bytes[index_of(link)] += sign * bytes;
    out.changed.push_back(static_cast<int32_t>(link));
  };
  const bool ring = kind.shape == FlowShape::kRing;
  for (const int64_t s : out.switches) {
    const int64_t below = out.members[index_of(s)], beyond = group.members - below;
    if (beyond == 0) continue;
    const double bytes = ring ? group.bytes : static_cast<double>(below * beyond) * group.bytes;
    add(2 * s, bytes);
    add(2 * s + 1, bytes);
  }
  for (size_t p = 0; p < network_->paths.size(); ++p) {
    const OrderPath& path = network_->paths[p];
    const int64_t a = out.members[index_of(path.from)], b = out.members[index_of(path.to)];
    if (a == 0 || b == 0) continue;
    const auto link = static_cast<int64_t>(2 * network_->switches.size() + 2 * p);
    if (!ring) {
      add(link, static_cast<double>(a * b) * group.bytes);
      add(link + 1, static_cast<double>(a * b) * group.bytes);
      continue;
    }
    // The ring goes from switch to switch in the order of their numbers, and back from the last to
    // the first if no member is elsewhere.
    const int64_t above = network_->switches[index_of(path.from)].above;
    std::vector<int64_t> round;
    int64_t below = 0;
    for (const int64_t s : out.switches) {
      if (network_->switches[index_of(s)].above != above) continue;
      round.push_back(s);
      below += out.members[index_of(s)];
    }
    std::ranges::sort(round);
    for (size_t i = 0; i < round.size(); ++i) {
      const bool last = i + 1 == round.size();
      if (last && below < group.members) continue;
      const int64_t from = round[i], to = round[last ? 0 : i + 1];
      if (from == path.from && to == path.to) add(link, group.bytes);
      if (from == path.to && to == path.from) add(link + 1, group.bytes);
    }
  }
  for (const int64_t s : out.switches) out.members[index_of(s)] = 0;
}

void PlacementCosts::add_item(const Kind& kind, size_t item, const Order& order, double sign,
                              Loads& out) const {
  if (kind.shape != FlowShape::kMessages) {
    if (kind.groups[item].parts.size() > 1) add_group(kind, kind.groups[item], order, sign, out);
    return;
  }
  const Flow& flow = kind.flows[item];
  if (flow.from == flow.to) return;
  for (const int32_t link : routes_->links(order[index_of(flow.from)], order[index_of(flow.to)])) {
    out.bytes[index_of(link)] += sign * flow.bytes;
    out.changed.push_back(link);
  }
}

double PlacementCosts::latency_of(const Kind& kind, size_t item, const Order& order) const {
  const auto between = [&](int32_t a, int32_t b) {
    const int64_t from = order[index_of(a)], to = order[index_of(b)];
    return from == to ? network_->machines[index_of(from)].device_latency_s
                      : routes_->latency_s(from, to);
  };
  if (kind.shape == FlowShape::kMessages)
    return between(kind.flows[item].from, kind.flows[item].to);
  double latency = 0;
  for (const Part& part : kind.groups[item].parts)
    latency = std::max(latency, between(kind.groups[item].parts[0].slot, part.slot));
  return latency;
}

double PlacementCosts::slot_seconds(const Kind& kind, const Order& order, size_t slot) const {
  return kind.slot_s[index_of(type_of_[index_of(order[slot])])][slot];
}

std::vector<double> PlacementCosts::cost_by_kind(const Order& order) const {
  std::vector<double> out;
  for (const Kind& kind : kinds_) {
    Loads loads = no_loads();
    double latency = 0, seconds = 0;
    for (size_t i = 0; i < kind.items(); ++i) {
      add_item(kind, i, order, 1, loads);
      latency = std::max(latency, latency_of(kind, i, order));
    }
    for (size_t slot = 0; slot < order.size(); ++slot)
      seconds = std::max(seconds, slot_seconds(kind, order, slot));
    for (size_t link = 0; link < loads.bytes.size(); ++link) {
      if (network_->link_rate(link) > 0)
        seconds = std::max(seconds, loads.bytes[link] / network_->link_rate(link));
    }
    out.push_back(seconds + kind.rounds * latency);
  }
  return out;
}

double PlacementCosts::cost(const Order& order) const {
  double out = 0;
  for (const double seconds : cost_by_kind(order)) out += seconds;
  return out;
}

std::string PlacementCosts::bound_by(size_t number, const Order& order) const {
  const Kind& kind = kinds_[number];
  Loads loads = no_loads();
  double seconds = 0, latency = 0;
  for (size_t i = 0; i < kind.items(); ++i) {
    add_item(kind, i, order, 1, loads);
    latency = std::max(latency, latency_of(kind, i, order));
  }
  for (size_t slot = 0; slot < order.size(); ++slot)
    seconds = std::max(seconds, slot_seconds(kind, order, slot));
  std::string out;
  for (size_t link = 0; link < loads.bytes.size(); ++link) {
    const double rate = network_->link_rate(link);
    if (rate > 0 && loads.bytes[link] / rate > seconds) {
      seconds = loads.bytes[link] / rate;
      out = network_->link_name(link);
    }
  }
  if (kind.rounds * latency > seconds) return "latency";
  if (!out.empty()) return out;
  const bool leaves =
      std::ranges::any_of(kind.groups, [](const Group& group) { return group.parts.size() > 1; }) ||
      std::ranges::any_of(kind.flows, [](const Flow& flow) { return flow.from != flow.to; });
  return leaves ? "network cards" : "links inside machines";
}

PlacementState::PlacementState(const PlacementCosts& costs, Order order)
    : costs_(&costs), order_(std::move(order)) {
  start();
}

void PlacementState::start() {
  swaps_ = 0;
  kinds_.clear();
  for (size_t k = 0; k < costs_->kinds_.size(); ++k) {
    const PlacementCosts::Kind& kind = costs_->kinds_[k];
    Kind& state = kinds_.emplace_back();
    state.loads = costs_->no_loads();
    state.links = MaxTree(state.loads.bytes.size());
    state.slots = MaxTree(order_.size());
    state.latencies = MaxTree(kind.items());
    state.seen.assign(kind.items(), 0);
    for (size_t i = 0; i < kind.items(); ++i) {
      costs_->add_item(kind, i, order_, 1, state.loads);
      state.latencies.set(i, costs_->latency_of(kind, i, order_));
    }
    for (size_t slot = 0; slot < order_.size(); ++slot)
      state.slots.set(slot, costs_->slot_seconds(kind, order_, slot));
    finish(k);
  }
  cost_ = 0;
  for (const Kind& state : kinds_) cost_ += state.seconds;
}

void PlacementState::finish(size_t kind) {
  Kind& state = kinds_[kind];
  for (const int32_t link : state.loads.changed) {
    const double rate = costs_->network().link_rate(index_of(link));
    if (rate > 0) state.links.set(index_of(link), state.loads.bytes[index_of(link)] / rate);
  }
  state.loads.changed.clear();
  state.seconds = std::max(state.links.max(), state.slots.max()) +
                  costs_->kinds_[kind].rounds * state.latencies.max();
}

void PlacementState::swap(int64_t a, int64_t b) {
  if (++swaps_ > kSwapsBetweenCounts) {
    std::swap(order_[index_of(a)], order_[index_of(b)]);
    return start();
  }
  cost_ = 0;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const PlacementCosts::Kind& kind = costs_->kinds_[k];
    Kind& state = kinds_[k];
    affected_.clear();
    for (const int64_t slot : {a, b}) {
      for (const uint32_t item : kind.at_slot[index_of(slot)]) {
        if (std::exchange(state.seen[item], swaps_) != swaps_) affected_.push_back(item);
      }
    }
    for (const uint32_t item : affected_) costs_->add_item(kind, item, order_, -1, state.loads);
    std::swap(order_[index_of(a)], order_[index_of(b)]);
    for (const uint32_t item : affected_) {
      costs_->add_item(kind, item, order_, 1, state.loads);
      state.latencies.set(item, costs_->latency_of(kind, item, order_));
    }
    for (const int64_t slot : {a, b})
      state.slots.set(index_of(slot), costs_->slot_seconds(kind, order_, index_of(slot)));
    std::swap(order_[index_of(a)], order_[index_of(b)]);
    finish(k);
    cost_ += state.seconds;
  }
  std::swap(order_[index_of(a)], order_[index_of(b)]);
}

}  // namespace tessera
