#include "tessera/planners/device_links.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

DeviceLinks device_links(const CollectiveCosts& costs, int64_t devices) {
  constexpr int64_t kSmall = 64 << 10, kLarge = 64 << 20;
  const auto count = static_cast<size_t>(devices);
  DeviceLinks out;
  out.latency_seconds.assign(count, std::vector<double>(count, 0));
  out.bytes_per_second = out.latency_seconds;
  for (int64_t p = 0; p < devices; ++p) {
    for (int64_t q = 0; q < devices; ++q) {
      if (p == q) continue;
      const double small = costs.message(p, q, kSmall).seconds();
      const double large = costs.message(p, q, kLarge).seconds();
      const double rate = static_cast<double>(kLarge - kSmall) / std::max(large - small, 1e-12);
      const auto from = static_cast<size_t>(p), to = static_cast<size_t>(q);
      out.bytes_per_second[from][to] = rate;
      out.latency_seconds[from][to] = std::max(0.0, small - static_cast<double>(kSmall) / rate);
    }
  }
  return out;
}

tl::unexpected<Error> refuse_fixed(const PlanQuestion& question, const std::string& key,
                                   const std::string& why) {
  return invalid_input(fmt::format("plan: --fix {}={}: {}", key, question.fixed.at(key), why));
}

Status check_linked_question(const PlanQuestion& question, const std::string& planner) {
  if (!allows(question, "tp", 1))
    return refuse_fixed(question, "tp", planner + " does not cut layers");
  if (!allows(question, "chunks", 1))
    return refuse_fixed(question, "chunks", planner + " has one stage at each place");
  const std::string schedule = texts_of(question, "schedule", {"1f1b"}).front();
  if (schedule != "1f1b" && schedule != "gpipe")
    return refuse_fixed(question, "schedule", planner + " has gpipe and 1f1b");
  if (fixed_number(question, "devices") > question.cluster->devices()) {
    return refuse_fixed(question, "devices",
                        fmt::format("the cluster has {}", question.cluster->devices()));
  }
  const int64_t devices = fixed_or(question, "devices", question.cluster->devices());
  if (devices <= kMostLinkedDevices) return {};
  return invalid_input(fmt::format("plan: {}: expected at most {} devices, found {} in {}", planner,
                                   kMostLinkedDevices, devices, question.cluster->name));
}

}  // namespace tessera
