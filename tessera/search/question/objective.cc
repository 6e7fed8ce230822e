#include "tessera/search/question/objective.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kSecondsAnHour = 3600;

bool are_near(double a, double b, double share) {
  return std::abs(a - b) <= share * std::min(a, b);
}

}  // namespace

const std::vector<std::string>& goal_names() {
  static const std::vector<std::string> names = {"time", "money", "devices", "memory"};
  return names;
}

PlanFacts PlanFacts::scaled(double times) const {
  return {step_s * times, memory_bytes * times, used, fits};
}

bool ties(const Merit& a, const Merit& b, double share) {
  return a.lacks_memory == b.lacks_memory && a.is_late == b.is_late &&
         are_near(a.cost, b.cost, share) && are_near(a.step_s, b.step_s, share);
}

double usd_a_step(double step_s, const UsedDevices& used) {
  return step_s * used.usd_an_hour / kSecondsAnHour;
}

Merit Objective::merit(const PlanFacts& facts) const {
  Merit out{!facts.fits, facts.fits && !meets_deadline(facts.step_s), facts.step_s, facts.step_s};
  if (out.lacks_memory) {
    out.cost = facts.memory_bytes;
  } else if (!out.is_late) {
    switch (goal) {
      case Goal::kTime: break;
      case Goal::kMoney: out.cost = usd_a_step(facts.step_s, facts.used); break;
      case Goal::kDevices: out.cost = static_cast<double>(facts.used.count); break;
      case Goal::kMemory: out.cost = facts.memory_bytes; break;
    }
  }
  return out;
}

UsedDevices Objective::used(const Cluster& cluster, int64_t ranks,
                            const RankDevices& devices) const {
  UsedDevices out{ranks};
  if (usd_an_hour.empty()) return out;
  if (!devices.in_order()) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      out.usd_an_hour +=
          usd_an_hour[static_cast<size_t>(cluster.locate(devices.device_of(rank)).part)];
    }
    return out;
  }
  int64_t left = ranks;
  for (size_t part = 0; part < cluster.parts.size(); ++part) {
    const int64_t here =
        std::min(left, cluster.parts[part].nodes * cluster.parts[part].type.devices);
    out.usd_an_hour += static_cast<double>(here) * usd_an_hour[part];
    left -= here;
  }
  return out;
}

}  // namespace tessera
