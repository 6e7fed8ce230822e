// The inside of a node as NCCL writes it (NCCL_TOPO_DUMP_FILE): XML with processors, PCI switches,
// GPUs with their NVLinks, and network cards.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <pugixml.hpp>
#include <set>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/network/readers.h"

namespace tessera::network {
namespace {

// Returns the nominal bytes/s in one direction of one NVLink, by compute capability.
double nvlink_rate(int64_t capability) {
  if (capability >= 100) return 50e9;
  if (capability == 86) return 14.0625e9;
  return capability < 70 ? 20e9 : 25e9;
}

// Returns bytes/s of a PCI link from the texts "16.0 GT/s PCIe" and "16"; 0: they do not say.
double pci_rate(const pugi::xml_node& pci) {
  const std::string speed = pci.attribute("link_speed").as_string();
  const auto transfers = parse_double(speed.substr(0, speed.find(' ')));
  const int width = pci.attribute("link_width").as_int();
  if (!transfers || *transfers <= 0 || width <= 0) return 0;
  const double code = *transfers < 8 ? 0.8 : 128.0 / 130;
  return *transfers * 1e9 / 8 * width * code;
}

// Returns the smallest value above 0; 0 if there is none.
double smallest(double a, double b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

Status read_gpus(const pugi::xml_document& document, const std::string& file, NodeInside& out) {
  std::set<pugi::xml_node> sockets;
  for (const pugi::xpath_node& found : document.select_nodes("//gpu")) {
    const pugi::xml_node gpu = found.node();
    ++out.devices;
    const int64_t capability = gpu.attribute("sm").as_llong();
    if (capability < 1 || capability > 1000) {
      return invalid_input(
          fmt::format("{}: expected the compute capability 'sm' of GPU {}, found '{}'", file,
                      out.devices - 1, short_line(gpu.attribute("sm").as_string())));
    }
    if (out.compute_capability != 0 && out.compute_capability != capability) {
      return invalid_input(
          fmt::format("{}: expected equal GPUs, found compute capabilities {} and {}", file,
                      out.compute_capability, capability));
    }
    out.compute_capability = capability;
    double links = 0;
    for (const pugi::xml_node& link : gpu.children("nvlink"))
      links += std::max(0, link.attribute("count").as_int());
    out.nvlink = smallest(out.nvlink, links * nvlink_rate(capability));
    out.pcie = smallest(out.pcie, pci_rate(gpu.parent()));
    if (const pugi::xpath_node socket = gpu.select_node("ancestor::cpu"))
      sockets.insert(socket.node());
  }
  out.sockets = std::max<int64_t>(1, static_cast<int64_t>(sockets.size()));
  return {};
}

Status read_nics(const pugi::xml_document& document, const std::string& file, NodeInside& out) {
  std::set<std::string> names;
  for (const pugi::xpath_node& found : document.select_nodes("//net")) {
    const pugi::xml_node net = found.node();
    const std::string name = net.attribute("name").as_string();
    const double megabits = net.attribute("speed").as_double();
    if (name.empty() || !(megabits > 0)) {
      return invalid_input(
          fmt::format("{}: expected 'name' and 'speed' (Mb/s) of each net, found '{}' and '{}'",
                      file, short_line(name), short_line(net.attribute("speed").as_string())));
    }
    if (!names.insert(name).second) continue;
    ++out.nics;
    out.nic = smallest(out.nic, megabits * 1e6 / 8);
  }
  return {};
}

}  // namespace

Result<Network> read_nccl(std::string_view xml, const std::string& file) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(xml.data(), xml.size());
  if (!parsed) {
    const auto line = 1 + std::count(xml.begin(), xml.begin() + parsed.offset, '\n');
    return invalid_input(
        fmt::format("{}:{}: expected XML, found: {}", file, line, parsed.description()));
  }
  Network network;
  NodeInside& inside = network.inside.emplace();
  TESSERA_TRY_VOID(read_gpus(document, file, inside));
  TESSERA_TRY_VOID(read_nics(document, file, inside));
  if (inside.devices == 0 && inside.nics == 0) {
    return invalid_input(
        fmt::format("{}: expected a topology of NCCL with gpu and net, found none", file));
  }
  return network;
}

}  // namespace tessera::network
