// Finds where the ranks of a plan should run: in which order the plan lays the axes of its mesh on
// devices, and which machine takes which place. Programs and ranks stay as they are; only the
// devices of the ranks change.
//
//   TESSERA_TRY(const PlanTraffic traffic, plan_traffic(lowering));
//   TESSERA_TRY(const PlanOrder found, find_plan_order(lowering.plan(), traffic, network, {}));
//   found.machines;                                // the order of machines for a launcher
//   found.device_order;                            // the plan's key device_order, with that order
//   found.devices;                                 // by rank, if machines keep their order
//
// The search tries orders of the axes (device_order.h): all permutations of up to five axes, then
// from the best ones single prime factors of axes at other positions while that helps. For the best
// layings it anneals the order of machines by exchanges, beginning with the machines of each switch
// side by side, unless no order of machines can gain a hundredth. It is exact for the order of up to
// 8 machines. Equal arguments give equal answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/network/order_search.h"
#include "tessera/network/placement_cost.h"
#include "tessera/network/plan_traffic.h"
#include "tessera/plan/plan.h"

namespace tessera {

struct PlanOrderSearch {
  uint64_t seed = 1;
  double least_gain = kLeastGain;
  int64_t effort = 3'000'000;  // members of groups that may be visited while machines are annealed
  bool machines_stay = false;  // only the laying of the axes is searched
};

struct KindTime {
  std::string what;  // "all_reduce over tp"
  double bytes = 0;  // that all ranks send in a step
  double now_s = 0, found_s = 0;
  std::string bound;  // of the order found: "uplink of rack3"
};

struct LayingTime {
  DeviceOrder order;   // empty: rank r on device r
  double seconds = 0;  // of a step's traffic, with the best order of machines that was found for it
};

struct PlanOrder {
  // By place: the machine that is there. A launcher that starts processes host by host in this
  // order gives the place's devices to it.
  Order machines;
  // For the plan, if hosts are in that order; empty: rank r on device r.
  DeviceOrder device_order;
  // By rank: its device if machines keep their order, which both together come to.
  std::vector<int64_t> devices;
  double seconds = 0;       // of a step's traffic
  double now_seconds = 0;   // as the plan lays its ranks, with machines in their present order
  double best_seconds = 0;  // of the best, even if the present order is kept
  bool kept = false;
  std::vector<LayingTime> layings;  // that were tried, by rising seconds; the plan's own is one
  int64_t orders = 0;               // of machines that were tried, over all layings
  std::vector<KindTime> kinds;
};

// Returns the best that the search finds. Errors, one line: the network has fewer devices than the
// plan has ranks.
Result<PlanOrder> find_plan_order(const ResolvedPlan& plan, const PlanTraffic& traffic,
                                  const OrderNetwork& network, const PlanOrderSearch& search);

// Returns the seconds of a step's traffic with machines in another order: what a launcher would
// give that sorts hosts in its own way.
double plan_order_seconds(const ResolvedPlan& plan, const PlanTraffic& traffic,
                          const OrderNetwork& network, const Order& machines);

}  // namespace tessera
