// The policies by name. A new policy is a row here and a file beside (docs/guides/add-a-policy.md).
#include <fmt/format.h>

#include "tessera/base/text.h"
#include "tessera/orchestrate/policies/makers.h"

namespace tessera::share {

const std::vector<PolicyInfo>& policies() {
  static const std::vector<PolicyInfo> kPolicies = {
      {"fifo", "in order of submission; the first that does not fit holds the others up",
       make_fifo},
      {"sjf", "shortest job first, without pre-emption; durations are known", make_sjf},
      {"srtf", "shortest remaining time first, with pre-emption; durations are known", make_srtf},
      {"tiresias", "least attained service, in two queues", make_tiresias},
      {"tiresias-gittins", "greatest Gittins index of the attained service", make_gittins},
      {"default", "ours: rules of sharing compared by sampled futures, at known goodput",
       make_default, true},
      {"pollux", "genetic search for the greatest mean speed-up, at fitted goodput", make_pollux},
      {"sia", "an integer program over configurations, at fitted goodput", make_sia},
      {"gavel", "max-min fairness over types of GPUs, by a linear program", make_gavel},
      {"elasticflow", "deadlines are kept by minimum shares", make_elasticflow},
      {"ones", "evolutionary search, with batches that follow the GPUs", make_ones},
      {"optimus", "GPUs one by one to the job that they help most; steps are known", make_optimus},
  };
  return kPolicies;
}

Result<std::unique_ptr<Policy>> make_policy(const std::string& name, const PolicyOptions& options) {
  std::vector<std::string> names;
  for (const PolicyInfo& info : policies()) {
    if (info.name == name && options.objective == Objective::kCost && !info.has_cost) {
      return invalid_input(
          fmt::format("--objective cost: expected the policy default, found '{}'", name));
    }
    if (info.name == name) return info.make(options);
    names.push_back(info.name);
  }
  return invalid_input(fmt::format("--policy: expected one of {}, found '{}', did you mean '{}'?",
                                   join(names, ", "), name, nearest(name, names)));
}

}  // namespace tessera::share
