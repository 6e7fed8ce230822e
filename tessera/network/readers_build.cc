#include "tessera/network/readers_build.h"

#include <fmt/format.h>

#include "tessera/base/limits.h"
#include "tessera/base/one_line.h"

namespace tessera::network {
namespace {

constexpr size_t kMostNameBytes = 256;
constexpr size_t kMostMessage = 1200;  // bytes

}  // namespace

tl::unexpected<Error> NetworkBuilder::error(int line, const std::string& message) const {
  const std::string shown = short_line(message, kMostMessage);
  return invalid_input(line > 0 ? fmt::format("{}:{}: {}", file_, line, shown)
                                : fmt::format("{}: {}", file_, shown));
}

Status NetworkBuilder::check_name(const std::string& name, std::string_view what, int line) const {
  if (name.empty() || name.size() > kMostNameBytes || one_line(name) != name) {
    return error(line, fmt::format("expected the name of a {}, of 1 to {} bytes without control "
                                   "characters, found '{}'",
                                   what, kMostNameBytes, name));
  }
  return {};
}

NetworkSwitch* NetworkBuilder::find(const std::string& name) {
  const auto found = switches_.find(name);
  return found == switches_.end() ? nullptr : &network_.switches[found->second];
}

Status NetworkBuilder::add_switch(const std::string& name, const std::string& above, int line) {
  TESSERA_TRY_VOID(check_name(name, "switch", line));
  if (!above.empty() && find(above) == nullptr) TESSERA_TRY_VOID(add_switch(above, "", line));
  const auto [place, is_new] = switches_.try_emplace(name, network_.switches.size());
  if (is_new) {
    if (network_.switches.size() >= static_cast<size_t>(kMostRanks))
      return error(line, fmt::format("expected at most {} switches, found more", kMostRanks));
    network_.switches.emplace_back().name = name;
  }
  NetworkSwitch& one = network_.switches[place->second];
  if (!above.empty() && !one.above.empty() && one.above != above) {
    return error(line, fmt::format("expected one switch above '{}', found '{}' and '{}'", name,
                                   one.above, above));
  }
  if (!above.empty()) one.above = above;
  return {};
}

Status NetworkBuilder::add_node(const std::string& name, const std::string& below, int line) {
  TESSERA_TRY_VOID(check_name(name, "node", line));
  if (!below.empty()) TESSERA_TRY_VOID(add_switch(below, "", line));
  const auto [place, is_new] = nodes_.try_emplace(name, network_.nodes.size());
  if (is_new) {
    if (network_.nodes.size() >= static_cast<size_t>(kMostRanks))
      return error(line, fmt::format("expected at most {} nodes, found more", kMostRanks));
    network_.nodes.emplace_back().name = name;
  }
  NetworkNode& node = network_.nodes[place->second];
  if (!node.below.empty() && node.below != below) {
    return error(line, fmt::format("expected node '{}' below one switch, found '{}' and '{}'", name,
                                   node.below, below));
  }
  node.below = below;
  return {};
}

Status NetworkBuilder::set_domain(const std::string& node, const std::string& domain, int line) {
  NetworkNode& one = network_.nodes[nodes_.at(node)];
  if (!one.domain.empty() && one.domain != domain) {
    return error(
        line, fmt::format("expected node '{}' in one accelerator domain, found '{}' and '{}'", node,
                          one.domain, domain));
  }
  one.domain = domain;
  return {};
}

Status NetworkBuilder::add_chain(const std::string& node, const std::vector<std::string>& switches,
                                 int line) {
  std::string above;
  for (const std::string& name : switches) {
    if (name.empty()) continue;
    TESSERA_TRY_VOID(add_switch(name, above, line));
    above = name;
  }
  return add_node(node, above, line);
}

Result<Network> NetworkBuilder::finish() {
  if (network_.nodes.empty()) return error(0, "expected nodes, found none");
  TESSERA_TRY_VOID(check(network_, file_));
  return std::move(network_);
}

}  // namespace tessera::network
