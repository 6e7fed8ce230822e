// Prices the traffic of a plan (plan_traffic.h) when its ranks are laid on the machines of a network
// in some way, and prices it again after machines have changed places.
//
// Ranks are laid on *slots*: slot s stands for a machine, and has as many devices. The laying says
// which rank is on which device of which slot; an order says which machine each slot is. A machine
// can take a slot if it has as many devices.
//
// The time of a kind of traffic is the largest of
//   - the bytes of a device to others of its machine / the rate of its link (all devices together
//     if they share a link),
//   - the bytes on a network card, out or in, / its rate, and
//   - the bytes on an uplink or path, in one direction, / its rate,
// plus the latency of the farthest messages times the rounds. Messages between stages are priced
// phase by phase, as messages of other stages are sent at other times, and their time is that of the
// stage whose phases take the longest together. The time of a step's traffic is the sum over the
// kinds (docs/theory/cloud-collectives.md section 8).
//
//   const PlacementCosts costs(traffic, network, routes, devices);   // devices[rank]
//   PlacementState state(costs, order);
//   state.swap(3, 17);                                        // cost() is that of the new order
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/network/order_cost.h"
#include "tessera/network/order_network.h"
#include "tessera/network/plan_traffic.h"

namespace tessera {

// The devices of a network, numbered machine by machine in the order of the machines.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(const OrderNetwork& network);
  int64_t count() const { return static_cast<int64_t>(machine_of_.size()); }
  int64_t machine_of(int64_t device) const { return machine_of_[static_cast<size_t>(device)]; }
  int64_t first_of(int64_t machine) const { return first_[static_cast<size_t>(machine)]; }

 private:
  std::vector<int64_t> machine_of_, first_;
};

// Holds all that does not depend on the order of machines. Keeps references to `network` and `routes`, which
// must outlive the object. `devices`: by rank, the device of its slot, as the network numbers
// devices while each slot is the machine of its own number.
class PlacementCosts {
 public:
  PlacementCosts(const PlanTraffic& traffic, const OrderNetwork& network, const OrderRoutes& routes,
                 const std::vector<int64_t>& devices);

  // Returns the seconds of a step's traffic. `order`: by slot, the machine. This is the slow and
  // obvious computation, against which PlacementState is tested.
  double cost(const Order& order) const;
  enum class Bound : uint8_t { kInside, kCards, kLink, kLatency };
  struct KindCost {
    double seconds = 0;
    Bound bound = Bound::kInside;  // what takes the longest
    size_t link = 0;               // only kLink
  };
  // Returns what takes the longest as a text: "network cards", "uplink of rack3".
  std::string bound_text(const KindCost& cost) const;
  std::vector<KindCost> cost_by_kind(const Order& order) const;
  // Returns seconds that no order of machines can undercut: what devices and cards take if each slot
  // has the fastest machine, and the latency of the nearest machines.
  double bound() const;
  const OrderNetwork& network() const { return *network_; }

 private:
  friend class PlacementState;
  struct Part {  // members of a group on a slot
    int32_t slot = 0, members = 0;
  };
  struct Group {  // over several slots
    std::vector<Part> parts;
    int32_t members = 0;
    double bytes = 0;
  };
  struct Flow {  // between two slots
    int32_t from = 0, to = 0;
    double bytes = 0;
  };
  struct Kind {  // of traffic, or one phase of its messages
    FlowShape shape = FlowShape::kRing;
    double rounds = 0;
    bool inside = false;  // some groups or messages stay on a slot
    std::vector<Group> groups;
    std::vector<Flow> flows;
    std::vector<int32_t> slots;  // whose devices send or take something, ascending
    // By type of machine and such slot: the time of its devices and cards on such a machine.
    std::vector<std::vector<double>> slot_s;
    size_t items() const { return shape == FlowShape::kMessages ? flows.size() : groups.size(); }
  };
  // Bytes by link, with what is needed to count them.
  struct Loads {
    std::vector<double> bytes;      // by link
    std::vector<int32_t> changed;   // links whose bytes were changed, perhaps repeatedly
    std::vector<int32_t> members;   // by switch: 0 between calls
    std::vector<int64_t> switches;  // those whose `members` are not 0
  };
  struct DeviceBytes;
  static double seconds_of(std::span<const DeviceBytes> bytes, const OrderMachine& machine);
  // Adds what a group or messages send to `out`, and to the bytes of devices.
  static void add_group(const GroupFlow& given, const std::vector<int32_t>& slots,
                        const std::vector<int64_t>& devices, Kind& out,
                        std::vector<DeviceBytes>& bytes, std::vector<int32_t>& members);
  static void add_message(const RankFlow& message, const std::vector<int32_t>& slots,
                          const std::vector<int64_t>& devices, Kind& out,
                          std::vector<DeviceBytes>& bytes);
  void add_item(const Kind& kind, size_t item, const Order& order, double sign, Loads& out) const;
  void add_group_loads(const Kind& kind, const Group& group, const Order& order, double sign,
                       Loads& out) const;
  KindCost kind_cost(const Kind& kind, const Order& order) const;
  double latency_of(const Kind& kind, size_t item, const Order& order) const;
  Loads no_loads() const;
  // `at`: index into Kind::slots.
  double slot_seconds(const Kind& kind, const Order& order, size_t at) const;

  // Sets the times of the slots of the ranks `touched`, and the bytes of their devices back to 0.
  void add_slots(const std::vector<int32_t>& touched, const std::vector<int32_t>& slots,
                 const DeviceNumbers& numbers, std::vector<DeviceBytes>& bytes, Kind& out) const;
  // Returns the seconds of a kind of traffic. `seconds`: of each of kinds_.
  template <class Seconds>
  double kind_seconds(size_t what, const Seconds& seconds) const {
    double most = 0;
    for (const std::vector<size_t>& together : together_[what]) {
      double sum = 0;
      for (const size_t kind : together) sum += seconds(kind);
      most = std::max(most, sum);
    }
    return most;
  }

  const OrderNetwork* network_;
  const OrderRoutes* routes_;
  std::vector<Kind> kinds_;
  // By kind of traffic: lists of indices into kinds_, whose seconds add up; the longest list counts.
  std::vector<std::vector<std::vector<size_t>>> together_;
};

// An order of machines whose cost is known while slots exchange their machines.
class PlacementState {
 public:
  PlacementState(const PlacementCosts& costs, Order order);
  // Exchanges the machines of two slots, which must have equally many devices.
  void swap(int64_t a, int64_t b);
  double cost() const { return cost_; }
  const Order& order() const { return order_; }

 private:
  struct Kind {
    PlacementCosts::Loads loads;
    MaxTree links, slots, latencies;
    std::vector<int64_t> seen;  // by group or flow: the swap that has seen it
    double inside_s = 0;        // latency of what stays on a slot
    double seconds = 0;
  };
  void start();
  void finish(size_t kind);
  void add_up();

  const PlacementCosts* costs_;
  Order order_;
  // By kind and slot: the groups with members there, or the flows that begin or end there.
  std::vector<std::vector<std::vector<uint32_t>>> at_slot_;
  std::vector<Kind> kinds_;
  double cost_ = 0;
  int64_t swaps_ = 0;
  std::vector<uint32_t> affected_;
};

}  // namespace tessera
