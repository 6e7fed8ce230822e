// Says what a question wants of its answer, and defines the one order by which all parts of a search
// decide which of two plans is better.
//
//   Objective objective{.goal = Goal::kMoney, .usd_an_hour = {2.5}};
//   if (objective.merit(facts_of(a)) < objective.merit(facts_of(b))) ...   // `a` is better
//
// A plan that fits is better than one that does not. If neither fits, the one that needs less memory
// is better. If both fit, a plan whose step meets the deadline is better than one that misses it. If
// both miss it, the faster one is better. If both meet it, the one that costs less is better, and of
// equal costs the faster one. The cost is what the goal counts:
//
//   time      seconds of a step
//   money     USD of a step: its seconds, times the prices of the devices that the plan uses
//   devices   the number of these devices
//   memory    bytes of the device that needs the most
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cluster/rank_devices.h"

namespace tessera {

enum class Goal : uint8_t { kTime, kMoney, kDevices, kMemory };
// Returns the names of the goals, in their order: "time", "money", "devices", "memory".
const std::vector<std::string>& goal_names();

// The devices of a plan.
struct UsedDevices {
  int64_t count = 1;
  double usd_an_hour = 0;  // of all of them; 0: no prices are known
};

// The facts that decide between plans, as simulated or as a formula expects them.
struct PlanFacts {
  double step_s = 0;
  double memory_bytes = 0;  // of the device that needs the most
  UsedDevices used = {};
  bool fits = true;
  // Returns the facts of a plan on the same devices that takes and needs `times` as much.
  PlanFacts scaled(double times) const;
};

// The rank of a plan; less is better.
struct Merit {
  bool lacks_memory = false, is_late = false;
  double cost = 0;  // what the goal counts; seconds if the plan is late, bytes if it does not fit
  double step_s = 0;
  friend auto operator<=>(const Merit&, const Merit&) = default;
};
// Returns whether cost and time of two plans differ by at most the share.
bool ties(const Merit& a, const Merit& b, double share);

struct Objective {
  Goal goal = Goal::kTime;
  std::vector<double> usd_an_hour = {};  // of a device, by part of the cluster; empty: not known
  // A step may take so many times the time of the fastest plan that the planner finds (`within`), or
  // so many seconds (`deadline_s`). find_plan() finds the fastest plan first, and gives `within` as
  // deadline_s. 0: no limit.
  double within = 0;
  double deadline_s = 0;

  // Returns whether the cost follows from the number of devices.
  bool counts_devices() const { return goal == Goal::kMoney || goal == Goal::kDevices; }
  bool meets_deadline(double step_s) const { return deadline_s <= 0 || step_s <= deadline_s; }
  Merit merit(const PlanFacts& facts) const;
  // Returns the devices with these numbers of ranks, as a plan uses them on the cluster.
  UsedDevices used(const Cluster& cluster, int64_t ranks, const RankDevices& devices = {}) const;
};

// Returns the cost of a step in USD; 0: no prices are known.
double usd_a_step(double step_s, const UsedDevices& used);

}  // namespace tessera
