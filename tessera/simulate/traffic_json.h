// A rank's transfers as JSON, for `tessera simulate --json` and the report.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/simulate/simulation.h"

namespace tessera {

// Returns [{"kind", "axes", "count", "bytes", "busy_s", "exposed_s", "algorithm"}, ...].
inline nlohmann::ordered_json traffic_json(const std::vector<TrafficRow>& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const TrafficRow& row : rows) {
    out.push_back({{"kind", row.kind},
                   {"axes", row.axes},
                   {"count", row.count},
                   {"bytes", row.bytes},
                   {"busy_s", row.seconds},
                   {"exposed_s", row.exposed_s},
                   {"algorithm", row.algorithm}});
  }
  return out;
}

}  // namespace tessera
