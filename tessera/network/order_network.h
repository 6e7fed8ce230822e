// A network as the search for an order sees it: machines with the rate of their network cards, and
// switches that form a tree and whose uplinks the machines below share. A message from machine i to
// machine j goes up from switch to switch to the first one that is above both, and down again. If
// two switches on this way are joined by a path, the message takes the path instead of the switch
// above them.
//
//   OrderNetwork network = order_network(cluster);
//   network.latency_s(0, 5);                       // of a message from machine 0 to machine 5
//
// Networks that were only measured between pairs are a `PairCosts`: the time of m bytes from i to j
// is latency_ij + m * seconds_a_byte_ij. Costs may differ by direction. Rates are bytes a second in
// one direction, times are seconds. docs/theory/cloud-collectives.md section 3 has the cost models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/cluster.h"

namespace tessera {

struct OrderMachine {
  std::string host;      // name; empty: not known
  int64_t above = -1;    // index of the switch; -1: the ideal switch at the top
  double card_rate = 0;  // of one network card
  int64_t cards = 1;     // network cards; device i of d uses card i * cards / d
  double latency_s = 0;  // of a message through a card
  int64_t devices = 1;
  double device_rate = 0;  // of a device to others of the machine; 0: without limit
  bool switched = true;    // false: all devices share one link of this rate
  double device_latency_s = 0;
  double rate() const { return card_rate * static_cast<double>(cards); }
  // Returns whether an exchange of the two machines changes no cost.
  bool equivalent(const OrderMachine& other) const;
};

struct OrderSwitch {
  std::string name;
  int64_t above = -1;      // index; -1: the ideal switch at the top
  double uplink_rate = 0;  // 0: without limit
  double latency_s = 0;    // that a hop through this switch adds
};

// A line between two switches that have the same switch above.
struct OrderPath {
  int64_t from = 0, to = 0;
  double rate = 0;  // in each direction; 0: without limit
  double latency_s = 0;
};

struct OrderNetwork {
  std::vector<OrderMachine> machines;
  std::vector<OrderSwitch> switches;
  std::vector<OrderPath> paths;

  // Returns the number of links between machines. Link 2 s is the way up from switch s, 2 s + 1 its
  // way down, and the links of the paths follow, two each.
  size_t links() const { return 2 * switches.size() + 2 * paths.size(); }
  double link_rate(size_t link) const;  // 0: without limit
  std::string link_name(size_t link) const;
  // Returns the links that a message passes, and its latency. Inside a machine there are none.
  struct Route {
    std::vector<int32_t> links;
    double latency_s = 0;
  };
  Route route(int64_t from, int64_t to) const;
  // Returns the machines so that those below a switch are neighbours, at every level of the tree.
  std::vector<int64_t> by_switch() const;
  // Returns the network with only these machines, in this order.
  OrderNetwork with_machines(const std::vector<int64_t>& machines) const;

 private:
  std::vector<int64_t> above(int64_t machine) const;  // switches, from the machine upwards
};

// Answers what is often asked of a network, found once: the routes between all pairs of machines, the
// switches above a machine, and which machines are equal inside. Machines with equal ways to all
// others have one place.
class OrderRoutes {
 public:
  explicit OrderRoutes(const OrderNetwork& network);
  size_t places() const { return count_; }
  const std::vector<int32_t>& place_of() const { return place_of_; }  // by machine
  // Returns whether the place has several machines, so that there are messages inside it.
  bool has_several(size_t place) const { return several_[place]; }
  std::span<const int32_t> links(int64_t from, int64_t to) const {
    const Way& way = between_machines(from, to);
    return std::span(links_).subspan(way.first, way.count);
  }
  double latency_s(int64_t from, int64_t to) const { return between_machines(from, to).latency_s; }
  double latency_between_places_s(size_t from, size_t to) const {
    return ways_[from * count_ + to].latency_s;
  }
  // Returns the switches above a machine, the nearest first.
  const std::vector<int64_t>& above(int64_t machine) const {
    return above_[static_cast<size_t>(machine)];
  }
  // Returns one machine of each type. Machines of one type are equal apart from what is above them.
  const std::vector<OrderMachine>& types() const { return types_; }
  int32_t type_of(int64_t machine) const { return type_of_[static_cast<size_t>(machine)]; }
  double latency_inside_s() const { return latency_inside_s_; }  // the largest of a machine

 private:
  struct Way {
    uint32_t first = 0, count = 0;
    double latency_s = 0;
  };
  const Way& between_machines(int64_t from, int64_t to) const {
    return ways_[static_cast<size_t>(place_of_[static_cast<size_t>(from)]) * count_ +
                 static_cast<size_t>(place_of_[static_cast<size_t>(to)])];
  }

  std::vector<int32_t> place_of_;
  std::vector<bool> several_;
  size_t count_ = 0;
  std::vector<Way> ways_;  // by pair of places
  std::vector<int32_t> links_;
  std::vector<std::vector<int64_t>> above_;
  std::vector<OrderMachine> types_;
  std::vector<int32_t> type_of_;
  double latency_inside_s_ = 0;
};

// Returns the network of a cluster file: one machine for each node.
OrderNetwork order_network(const Cluster& cluster);

// Costs of messages between pairs of machines, row-major.
struct PairCosts {
  int64_t machines = 0;
  std::vector<double> latency_s, seconds_a_byte;
  std::vector<std::string> hosts;  // names; empty: not known
  double at(int64_t from, int64_t to, double bytes) const {
    const auto i = static_cast<size_t>(from * machines + to);
    return latency_s[i] + bytes * seconds_a_byte[i];
  }
  PairCosts with_machines(const std::vector<int64_t>& some) const;
  bool symmetric() const;
};

// Reads a table of pairs. It is JSON: {"latency_us": [[0, 12], [12, 0]], "rate_Mbps": [[0, 940],
// [935, 0]], "hosts": ["a", "b"]}, of which `hosts` and one of the two matrices may be missing.
// Row i, column j is about messages from i to j; the diagonal is not read. Errors, one line that
// begins with `file`: a matrix that is not square or of another size than the others; an entry
// that is no number, not finite or negative; a rate of 0; a name that occurs twice.
Result<PairCosts> parse_pair_costs(std::string_view json, std::string_view file);

// Returns the machines in clusters that the costs of m bytes suggest: the costs of all pairs are
// sorted and cut at their largest relative gap, and pairs below it are in one cluster. If no cost
// is 1.25 times as large as the next smaller one, all machines are one cluster.
std::vector<std::vector<int64_t>> clusters_of(const PairCosts& costs, double bytes);

}  // namespace tessera
