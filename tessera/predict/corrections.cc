#include "tessera/predict/corrections.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// Returns the name of the preset's device; "" if there is no such preset.
const std::string& device_of_preset(const std::string& name) {
  static const std::map<std::string, std::string> known = [] {
    std::map<std::string, std::string> out;
    for (const Preset& preset : presets()) {
      if (preset.text.empty()) continue;
      if (const auto cluster = load_cluster(preset.name))
        out[preset.name] = cluster->parts.front().type.device.name;
    }
    return out;
  }();
  static const std::string none;
  const auto found = known.find(name);
  return found == known.end() ? none : found->second;
}

bool is_of(const Cluster& cluster, const std::string& preset) {
  const std::string& device = device_of_preset(preset);
  return !device.empty() && cluster.profile == nullptr &&
         std::all_of(cluster.parts.begin(), cluster.parts.end(),
                     [&](const ClusterPart& part) { return part.type.device.name == device; });
}

}  // namespace

Corrections corrections_of(const PredictSettings& settings, std::string_view framework,
                           const Cluster& cluster) {
  std::vector<std::pair<std::string, std::string>> options;  // of the style, by key
  Corrections out;
  for (const Setting& setting : settings) {
    const bool concerns =
        setting.scope.empty() || setting.scope == framework || is_of(cluster, setting.scope);
    if (!concerns || setting.key.starts_with("plan.")) continue;
    if (setting.key == "cluster") {
      out.cluster += (out.cluster.empty() ? "" : ",") + setting.value;
      continue;
    }
    const auto known = std::find_if(options.begin(), options.end(), [&](const auto& option) {
      return option.first == setting.key;
    });
    if (known == options.end()) {
      options.emplace_back(setting.key, setting.value);
    } else {
      known->second = setting.value;
    }
  }
  for (const auto& [key, value] : options) out.style += fmt::format(",{}={}", key, value);
  return out;
}

}  // namespace tessera
