#include "tessera/report/headline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// Returns the part of a device's name that people say: "A100" of "a100-sxm-80", "RTX 3090" of
// "rtx-3090". The first part that has a digit ends it.
std::string short_device(const std::string& name) {
  std::string out;
  for (const std::string& part : split_text(name, '-')) {
    out += (out.empty() ? "" : " ") + part;
    if (std::any_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      break;
  }
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

}  // namespace

std::string machine_headline(const Cluster& cluster) {
  std::vector<std::pair<std::string, int64_t>> kinds;
  for (const ClusterPart& part : cluster.parts) {
    const std::string name = short_device(part.type.device.name);
    const int64_t devices = part.nodes * part.type.devices;
    const auto found = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == name; });
    if (found == kinds.end()) {
      kinds.emplace_back(name, devices);
    } else {
      found->second += devices;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [name, devices] : kinds) parts.push_back(fmt::format("{} {}", devices, name));
  return join(parts, ", ");
}

}  // namespace tessera
