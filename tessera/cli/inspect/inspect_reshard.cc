// tessera inspect 'S0RR@2x4 -> S0RR@3x4' --shape 3072,1024,170: shows how a tensor is moved from
// one mesh to another.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/json_text.h"
#include "tessera/base/text.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/inspect/inspect.h"
#include "tessera/cli/output.h"
#include "tessera/plan/layout/reshard_spec.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Resharding {
  ReshardSide from, to;
  ReshardPlan plan;
  double seconds_of_all = 0;  // to send the whole tensor through one network card
};

Result<Resharding> plan_of(const InspectOptions& options) {
  const std::string_view text = options.subject;
  const size_t arrow = text.find("->");
  if (options.shape.empty()) {
    return invalid_input(fmt::format(
        "inspect: expected --shape for '{}', the sizes of the tensor's dims, as 1024,1024,512",
        options.subject));
  }
  for (int64_t size : options.shape) {
    if (size >= 1) continue;
    return invalid_input(fmt::format("inspect: --shape: expected sizes >= 1, found {}", size));
  }
  const size_t rank = options.shape.size();
  TESSERA_TRY(const ReshardSpec from, parse_reshard_spec(trim(text.substr(0, arrow)), rank));
  TESSERA_TRY(const ReshardSpec to, parse_reshard_spec(trim(text.substr(arrow + 2)), rank));
  Resharding out;
  out.from = side_of(from, options.shape, 0, 0);
  out.to = side_of(to, options.shape, from.mesh.size(), from.mesh.axes[0].size);
  TESSERA_TRY(out.plan, reshard(out.from, out.to));
  out.seconds_of_all = 4;  // 4 bytes for each element, at one byte a second
  for (int64_t size : options.shape) out.seconds_of_all *= static_cast<double>(size);
  return out;
}

std::string spaced_ranks(const std::vector<int64_t>& ranks) {
  return fmt::format("{}", fmt::join(ranks, " "));
}

std::string resharding_text(const InspectOptions& options, const Resharding& found) {
  const double all = found.seconds_of_all;
  Table table({"step", "region", "bytes", "way", "sender", "receivers", "start", "end"});
  for (size_t i = 0; i < found.plan.steps.size(); ++i) {
    const ReshardStep& step = found.plan.steps[i];
    table.add({std::to_string(i), step.region.to_string(), short_bytes(step.region.volume() * 4),
               std::string(way_name(step.way)), std::to_string(step.sender),
               spaced_ranks(step.receivers), fmt::format("{:.4g}", step.start_seconds / all),
               fmt::format("{:.4g}", step.end_seconds / all)});
  }
  Table hosts({"host", "out", "in"});
  for (const HostTraffic& host : found.plan.hosts) {
    hosts.add({std::to_string(host.host), short_bytes(host.bytes_out), short_bytes(host.bytes_in)});
  }
  return fmt::format(
      "{}, {} unit tasks in {} steps, 4 bytes an element. Time: 1 = the whole tensor through one "
      "network card.\n\n{}\nThrough the network card of each host:\n{}\n"
      "time {:.4g}, bound {:.4g}; busiest card {}, bound {}\n",
      options.subject, found.plan.tasks.size(), found.plan.steps.size(), table.to_string(),
      hosts.to_string(), found.plan.makespan_seconds / all, found.plan.bound_seconds / all,
      short_bytes(found.plan.busiest_bytes), short_bytes(found.plan.busiest_bound));
}

Json resharding_json(const InspectOptions& options, const Resharding& found) {
  Json steps = Json::array();
  for (const ReshardStep& step : found.plan.steps) {
    steps.push_back({{"region", step.region.to_string()},
                     {"way", way_name(step.way)},
                     {"sender", step.sender},
                     {"receivers", step.receivers},
                     {"start", step.start_seconds / found.seconds_of_all},
                     {"end", step.end_seconds / found.seconds_of_all}});
  }
  return {{"resharding", options.subject},
          {"shape", options.shape},
          {"unit_tasks", found.plan.tasks.size()},
          {"steps", std::move(steps)},
          {"time", found.plan.makespan_seconds / found.seconds_of_all},
          {"time_bound", found.plan.bound_seconds / found.seconds_of_all},
          {"busiest_card_bytes", found.plan.busiest_bytes},
          {"busiest_card_bound_bytes", found.plan.busiest_bound}};
}

}  // namespace

Result<int> inspect_resharding(const InspectOptions& options) {
  TESSERA_TRY(const Resharding found, plan_of(options));
  return print(options.json ? dumped(resharding_json(options, found)) + "\n"
                            : resharding_text(options, found));
}

}  // namespace tessera::cli
