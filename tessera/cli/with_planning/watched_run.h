// The ranks of a run that was watched, beside the prediction of its plan, for `tessera report`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tessera/cli/with_planning/pricing.h"
#include "tessera/report/slow_rank.h"

namespace tessera::cli {

struct WatchedRun {
  WatchReport report;
  std::string predicted_for;  // the machine and the style of the prediction; "": there is none
};
// Reads the times of the ranks in the run's folder, if it has any. Predicts the step of the plan on
// `cluster`; "" means this machine. If the step cannot be predicted on this machine, says so first
// (output.h) and returns the times alone. Errors: those of watch_report; the prediction fails on a
// cluster that the user named.
Result<std::optional<WatchedRun>> read_watched_run(const std::string& folder,
                                                   const std::string& cluster,
                                                   const PricingOptions& pricing);
nlohmann::ordered_json watched_json(const WatchedRun& run);

}  // namespace tessera::cli
