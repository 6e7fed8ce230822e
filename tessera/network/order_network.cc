#include "tessera/network/order_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "tessera/base/json_text.h"
#include "tessera/network/order_index.h"

namespace tessera {
namespace {

// Adds a switch for each switch of the cluster's tiers but the last one, which joins all.
void add_tiers(const Cluster& cluster, OrderNetwork& out) {
  out.switches.reserve(2 * out.machines.size() + 64);  // `below` points into it
  std::vector<int64_t*> below;  // the members `above` of what the next tier joins
  for (OrderMachine& machine : out.machines) below.push_back(&machine.above);
  double rate_below = out.machines.empty() ? 0 : out.machines[0].rate();
  std::vector<std::pair<size_t, size_t>> made;  // first switch and end of each tier
  for (const FabricTier& tier : cluster.tiers) {
    if (tier.radix == 0) break;
    const size_t first = out.switches.size();
    const size_t count = (below.size() + index_of(tier.radix) - 1) / index_of(tier.radix);
    for (size_t i = 0; i < below.size(); ++i) {
      *below[i] = static_cast<int64_t>(first + i / index_of(tier.radix));
    }
    const double uplink = rate_below * static_cast<double>(tier.radix) / tier.oversubscription;
    for (size_t i = 0; i < count; ++i) {
      out.switches.push_back(
          {fmt::format("tier{}.{}", made.size(), i), -1, uplink, tier.latency_s});
    }
    made.emplace_back(first, first + count);
    below.clear();
    for (size_t s = first; s < first + count; ++s) below.push_back(&out.switches[s].above);
    rate_below = uplink;
  }
  if (cluster.tiers.empty()) return;
  // The last tier is one switch over all, whose latency counts once.
  const auto top = static_cast<int64_t>(out.switches.size());
  for (int64_t* above : below) *above = top;
  out.switches.push_back({"top", -1, 0, cluster.tiers.back().latency_s});
}

// Reads a matrix, with 0 on the diagonal. `positive`: whether entries must be above 0.
Result<std::vector<double>> parse_matrix(const nlohmann::json& rows, std::string_view key,
                                         std::string_view file, size_t size, bool positive) {
  if (!rows.is_array() || rows.size() != size) {
    return invalid_input(fmt::format("{}: {}: expected {} rows, one for each machine, found {}",
                                     file, key, size,
                                     rows.is_array() ? std::to_string(rows.size()) : shown(rows)));
  }
  std::vector<double> out(size * size);
  for (size_t i = 0; i < size; ++i) {
    if (!rows[i].is_array() || rows[i].size() != size) {
      return invalid_input(
          fmt::format("{}: {}: row {}: expected {} numbers, found {}", file, key, i, size,
                      rows[i].is_array() ? std::to_string(rows[i].size()) : shown(rows[i])));
    }
    for (size_t j = 0; j < size; ++j) {
      if (i == j) continue;
      const nlohmann::json& entry = rows[i][j];
      const double value = entry.is_number() ? entry.get<double>() : std::nan("");
      if (!std::isfinite(value) || value < 0 || (positive && value == 0)) {
        return invalid_input(
            fmt::format("{}: {}: row {}, column {}: expected a number {}, found {}", file, key, i,
                        j, positive ? "above 0" : "of at least 0", shown(entry)));
      }
      out[i * size + j] = value;
    }
  }
  return out;
}

}  // namespace

bool OrderMachine::equivalent(const OrderMachine& other) const {
  return above == other.above && card_rate == other.card_rate && cards == other.cards &&
         latency_s == other.latency_s && devices == other.devices &&
         device_rate == other.device_rate && switched == other.switched &&
         device_latency_s == other.device_latency_s;
}

double OrderNetwork::link_rate(size_t link) const {
  if (link < 2 * switches.size()) return switches[link / 2].uplink_rate;
  return paths[(link - 2 * switches.size()) / 2].rate;
}

std::string OrderNetwork::link_name(size_t link) const {
  if (link < 2 * switches.size()) {
    return fmt::format("{} of {}", link % 2 == 0 ? "uplink" : "downlink", switches[link / 2].name);
  }
  const size_t path = link - 2 * switches.size();
  const OrderPath& one = paths[path / 2];
  const std::string &from = switches[index_of(one.from)].name,
                    &to = switches[index_of(one.to)].name;
  return fmt::format("path {} to {}", path % 2 == 0 ? from : to, path % 2 == 0 ? to : from);
}

std::vector<int64_t> OrderNetwork::above(int64_t machine) const {
  std::vector<int64_t> out;
  for (int64_t s = machines[index_of(machine)].above; s >= 0; s = switches[index_of(s)].above)
    out.push_back(s);
  return out;
}

OrderNetwork::Route OrderNetwork::route(int64_t from, int64_t to) const {
  const OrderMachine &sender = machines[index_of(from)], &receiver = machines[index_of(to)];
  Route out;
  if (from == to) {
    out.latency_s = sender.device_latency_s;
    return out;
  }
  std::vector<int64_t> up = above(from), down = above(to);
  int64_t common = -1;
  while (!up.empty() && !down.empty() && up.back() == down.back()) {
    common = up.back();
    up.pop_back();
    down.pop_back();
  }
  out.latency_s = std::max(sender.latency_s, receiver.latency_s);
  double joins = common < 0 ? 0 : switches[index_of(common)].latency_s;
  std::vector<int32_t> between;
  if (!up.empty() && !down.empty()) {
    for (size_t p = 0; p < paths.size(); ++p) {
      const bool forward = paths[p].from == up.back() && paths[p].to == down.back();
      const bool backward = paths[p].to == up.back() && paths[p].from == down.back();
      if (!forward && !backward) continue;
      between.push_back(static_cast<int32_t>(2 * switches.size() + 2 * p + (backward ? 1 : 0)));
      joins = paths[p].latency_s;
      break;
    }
  }
  for (const int64_t s : up) {
    out.links.push_back(static_cast<int32_t>(2 * s));
    out.latency_s += switches[index_of(s)].latency_s;
  }
  out.links.insert(out.links.end(), between.begin(), between.end());
  out.latency_s += joins;
  for (auto s = down.rbegin(); s != down.rend(); ++s) {
    out.links.push_back(static_cast<int32_t>(2 * *s + 1));
    out.latency_s += switches[index_of(*s)].latency_s;
  }
  return out;
}

std::vector<int64_t> OrderNetwork::by_switch() const {
  std::vector<std::vector<int64_t>> key(machines.size());  // switches from the top downwards
  for (size_t m = 0; m < machines.size(); ++m) {
    key[m] = above(static_cast<int64_t>(m));
    std::reverse(key[m].begin(), key[m].end());
  }
  // Switches come in the order of their first machines, so that an order that is good already stays.
  std::vector<int64_t> first(switches.size(), static_cast<int64_t>(machines.size()));
  for (size_t m = machines.size(); m-- > 0;) {
    for (const int64_t s : key[m]) first[index_of(s)] = static_cast<int64_t>(m);
  }
  for (auto& one : key) {
    for (int64_t& s : one) s = first[index_of(s)];
  }
  std::vector<int64_t> out(machines.size());
  std::iota(out.begin(), out.end(), 0);
  std::ranges::stable_sort(
      out, [&](int64_t a, int64_t b) { return key[index_of(a)] < key[index_of(b)]; });
  return out;
}

OrderNetwork OrderNetwork::with_machines(const std::vector<int64_t>& some) const {
  OrderNetwork out{{}, switches, paths};
  for (const int64_t m : some) out.machines.push_back(machines[index_of(m)]);
  return out;
}

OrderRoutes::OrderRoutes(const OrderNetwork& network) {
  // By what the ways of a machine to others depend on.
  std::map<std::tuple<int64_t, double, double>, int32_t> numbers;
  std::vector<std::pair<int64_t, int64_t>> ends;  // by place: its first and its last machine
  for (size_t m = 0; m < network.machines.size(); ++m) {
    const OrderMachine& one = network.machines[m];
    const auto [it, fresh] = numbers.try_emplace({one.above, one.latency_s, one.device_latency_s},
                                                 static_cast<int32_t>(ends.size()));
    const auto number = static_cast<int64_t>(m);
    if (fresh) ends.emplace_back(number, number);
    ends[index_of(it->second)].second = number;
    place_of_.push_back(it->second);
  }
  for (const OrderMachine& machine : network.machines) {
    const auto known = std::ranges::find_if(types_, [&](OrderMachine type) {
      type.above = machine.above;
      return machine.equivalent(type);
    });
    type_of_.push_back(static_cast<int32_t>(known - types_.begin()));
    if (known == types_.end()) types_.push_back(machine);
    std::vector<int64_t>& above = above_.emplace_back();
    for (int64_t s = machine.above; s >= 0; s = network.switches[index_of(s)].above)
      above.push_back(s);
    latency_inside_s_ = std::max(latency_inside_s_, machine.device_latency_s);
  }
  count_ = ends.size();
  for (const auto& [first, last] : ends) several_.push_back(first != last);
  for (size_t a = 0; a < count_; ++a) {
    for (size_t b = 0; b < count_; ++b) {
      Way& way = ways_.emplace_back();
      way.first = static_cast<uint32_t>(links_.size());
      const OrderNetwork::Route route = network.route(ends[a].first, ends[b].second);
      links_.insert(links_.end(), route.links.begin(), route.links.end());
      way.count = static_cast<uint32_t>(route.links.size());
      way.latency_s = route.latency_s;
    }
  }
}

OrderNetwork order_network(const Cluster& cluster) {
  OrderNetwork out;
  for (const ClusterPart& part : cluster.parts) {
    const NodeType& type = part.type;
    OrderMachine machine;
    machine.card_rate = type.nic.rate;
    machine.cards = std::max<int64_t>(1, type.nics);
    machine.latency_s = type.nic.latency_s;
    machine.devices = type.devices;
    machine.device_rate = type.inner.rate;
    machine.switched = type.inner.switched;
    machine.device_latency_s = type.inner.latency_s;
    out.machines.insert(out.machines.end(), index_of(part.nodes), machine);
  }
  for (size_t h = 0; h < cluster.hosts.size(); ++h) out.machines[h].host = cluster.hosts[h];
  if (cluster.switches.empty()) {
    add_tiers(cluster, out);
    return out;
  }
  for (size_t s = 0; s < cluster.switches.size(); ++s) {
    const FabricSwitch& one = cluster.switches[s];
    out.switches.push_back({one.name, one.above, one.uplink_rate, one.latency_s});
    for (const int64_t node : one.nodes)
      out.machines[index_of(node)].above = static_cast<int64_t>(s);
  }
  for (const FabricPath& path : cluster.paths)
    out.paths.push_back({path.from, path.to, path.rate, path.latency_s});
  return out;
}

PairCosts PairCosts::with_machines(const std::vector<int64_t>& some) const {
  PairCosts out{static_cast<int64_t>(some.size()), {}, {}, {}};
  for (const int64_t i : some) {
    for (const int64_t j : some) {
      out.latency_s.push_back(latency_s[index_of(i * machines + j)]);
      out.seconds_a_byte.push_back(seconds_a_byte[index_of(i * machines + j)]);
    }
    if (!hosts.empty()) out.hosts.push_back(hosts[index_of(i)]);
  }
  return out;
}

bool PairCosts::symmetric() const {
  for (int64_t i = 0; i < machines; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      const size_t a = index_of(i * machines + j), b = index_of(j * machines + i);
      if (latency_s[a] != latency_s[b] || seconds_a_byte[a] != seconds_a_byte[b]) return false;
    }
  }
  return true;
}

Result<PairCosts> parse_pair_costs(std::string_view json, std::string_view file) {
  const auto read = parse_json(json);
  if (!read || !read->is_object()) {
    return invalid_input(
        fmt::format("{}: expected a JSON object with latency_us or rate_Mbps, found {}", file,
                    read ? shown(*read) : "no JSON"));
  }
  for (const auto& [key, value] : read->items()) {
    if (key != "latency_us" && key != "rate_Mbps" && key != "hosts") {
      return invalid_input(
          fmt::format("{}: expected the keys latency_us, rate_Mbps, hosts, found '{}'", file, key));
    }
  }
  const auto latency = read->find("latency_us"), rate = read->find("rate_Mbps");
  if (latency == read->end() && rate == read->end()) {
    return invalid_input(fmt::format("{}: expected latency_us or rate_Mbps, found neither", file));
  }
  const nlohmann::json& first = latency != read->end() ? *latency : *rate;
  const size_t size = first.is_array() ? first.size() : 0;
  if (size == 0) {
    return invalid_input(fmt::format("{}: {}: expected a row for each machine, found {}", file,
                                     latency != read->end() ? "latency_us" : "rate_Mbps",
                                     first.is_array() ? "none" : shown(first)));
  }
  PairCosts out;
  out.machines = static_cast<int64_t>(size);
  out.latency_s.assign(size * size, 0);
  out.seconds_a_byte.assign(size * size, 0);
  if (latency != read->end()) {
    TESSERA_TRY(out.latency_s, parse_matrix(*latency, "latency_us", file, size, false));
    for (double& value : out.latency_s) value *= 1e-6;
  }
  if (rate != read->end()) {
    TESSERA_TRY(out.seconds_a_byte, parse_matrix(*rate, "rate_Mbps", file, size, true));
    for (double& value : out.seconds_a_byte) value = value == 0 ? 0 : 8 / (value * 1e6);
  }
  if (const auto hosts = read->find("hosts"); hosts != read->end()) {
    if (!hosts->is_array() || hosts->size() != size) {
      return invalid_input(
          fmt::format("{}: hosts: expected {} names, found {}", file, size,
                      hosts->is_array() ? std::to_string(hosts->size()) : shown(*hosts)));
    }
    std::set<std::string> seen;
    for (const nlohmann::json& host : *hosts) {
      if (!host.is_string() || host.get<std::string>().empty()) {
        return invalid_input(fmt::format("{}: hosts: expected names, found {}", file, shown(host)));
      }
      out.hosts.push_back(host.get<std::string>());
      if (!seen.insert(out.hosts.back()).second) {
        return invalid_input(fmt::format("{}: hosts: expected different names, found '{}' twice",
                                         file, out.hosts.back()));
      }
    }
  }
  return out;
}

std::vector<std::vector<int64_t>> clusters_of(const PairCosts& costs, double bytes) {
  const auto cost = [&](int64_t i, int64_t j) {
    return (costs.at(i, j, bytes) + costs.at(j, i, bytes)) / 2;
  };
  std::vector<double> sorted;
  for (int64_t i = 0; i < costs.machines; ++i) {
    for (int64_t j = 0; j < i; ++j) sorted.push_back(cost(i, j));
  }
  std::ranges::sort(sorted);
  double limit = sorted.empty() ? 0 : sorted.back(), widest = 1.25;
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1] > 0 && sorted[i] / sorted[i - 1] > widest) {
      widest = sorted[i] / sorted[i - 1];
      limit = sorted[i - 1];
    }
  }
  std::vector<int64_t> root(index_of(costs.machines));
  std::iota(root.begin(), root.end(), 0);
  const std::function<int64_t(int64_t)> find = [&](int64_t i) {
    while (root[index_of(i)] != i) i = root[index_of(i)] = root[index_of(root[index_of(i)])];
    return i;
  };
  for (int64_t i = 0; i < costs.machines; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (cost(i, j) > limit) continue;
      const int64_t a = find(i), b = find(j);
      root[index_of(std::max(a, b))] = std::min(a, b);
    }
  }
  std::vector<std::vector<int64_t>> out;
  std::vector<int64_t> number(index_of(costs.machines), -1);
  for (int64_t i = 0; i < costs.machines; ++i) {
    int64_t& n = number[index_of(find(i))];
    if (n < 0) {
      n = static_cast<int64_t>(out.size());
      out.emplace_back();
    }
    out[index_of(n)].push_back(i);
  }
  return out;
}

}  // namespace tessera
