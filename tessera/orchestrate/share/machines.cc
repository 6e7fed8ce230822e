#include "tessera/orchestrate/share/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"

namespace tessera::share {
namespace {

constexpr int64_t kMostNodes = 100'000;

tl::unexpected<Error> not_machines(const std::string& text) {
  return invalid_input(
      fmt::format("--cluster: expected nodes x GPUs, as 16x4, or types with them, as "
                  "k80:4x4,v100:8x4, found '{}'",
                  text));
}

}  // namespace

int Machines::gpus() const {
  int out = 0;
  for (const Node& node : nodes) out += node.gpus;
  return out;
}

int Machines::gpus(int type) const {
  int out = 0;
  for (const Node& node : nodes) out += node.type == type ? node.gpus : 0;
  return out;
}

int Machines::largest_node() const {
  int out = 0;
  for (const Node& node : nodes) out = std::max(out, node.gpus);
  return out;
}

Shape Machines::shape(const Allocation& allocation) const {
  Shape out;
  for (const Allocation::Part& part : allocation.parts) {
    out.gpus.push_back(part.gpus);
    out.type = nodes[static_cast<size_t>(part.node)].type;
  }
  return out;
}

Shape Machines::packed(int gpus, int type) const {
  Shape out{{}, type};
  for (const Node& node : nodes) {
    if (gpus == 0) break;
    if (node.type != type) continue;
    out.gpus.push_back(std::min(gpus, node.gpus));
    gpus -= out.gpus.back();
  }
  if (gpus > 0) out.gpus.clear();
  return out;
}

Result<Machines> parse_machines(const std::string& text) {
  Machines out;
  for (const std::string& part : split_text(text, ',')) {
    const size_t colon = part.find(':');
    const std::string type = colon == std::string::npos ? "gpu" : part.substr(0, colon);
    const std::string sizes = colon == std::string::npos ? part : part.substr(colon + 1);
    const size_t cross = sizes.find('x');
    if (cross == std::string::npos || type.empty()) return not_machines(text);
    const auto nodes = parse_int(sizes.substr(0, cross)), gpus = parse_int(sizes.substr(cross + 1));
    if (!nodes || !gpus || *nodes < 1 || *gpus < 1 || *gpus > 1024) return not_machines(text);
    if (*nodes + static_cast<int64_t>(out.nodes.size()) > kMostNodes) {
      return invalid_input(
          fmt::format("--cluster: expected at most {} nodes, found '{}'", kMostNodes, text));
    }
    if (std::find(out.types.begin(), out.types.end(), type) != out.types.end()) {
      return invalid_input(
          fmt::format("--cluster: expected each type once, found '{}' twice in '{}'", type, text));
    }
    out.nodes.insert(out.nodes.end(), static_cast<size_t>(*nodes),
                     {static_cast<int>(*gpus), static_cast<int>(out.types.size())});
    out.types.push_back(type);
  }
  return out;
}

Occupancy::Occupancy(const Machines& machines) {
  for (const Machines::Node& node : machines.nodes) free_.push_back(node.gpus);
  free_gpus_ = machines.gpus();
}

int Occupancy::nodes_with_free() const {
  return static_cast<int>(
      std::count_if(free_.begin(), free_.end(), [](int gpus) { return gpus > 0; }));
}

const Allocation& Occupancy::of(int job) const {
  static const Allocation kNone;
  return static_cast<size_t>(job) < held_.size() ? held_[static_cast<size_t>(job)] : kNone;
}

void Occupancy::give(int job, const Allocation& allocation) {
  take_back(job);
  if (static_cast<size_t>(job) >= held_.size()) held_.resize(static_cast<size_t>(job) + 1);
  for (const Allocation::Part& part : allocation.parts) {
    int& free = free_[static_cast<size_t>(part.node)];
    TESSERA_CHECK(part.gpus > 0 && part.gpus <= free,
                  "job {} gets {} GPUs of node {}, of which {} are free", job, part.gpus, part.node,
                  free);
    free -= part.gpus;
    free_gpus_ -= part.gpus;
  }
  held_[static_cast<size_t>(job)] = allocation;
}

void Occupancy::close(int node) {
  free_gpus_ -= std::exchange(free_[static_cast<size_t>(node)], 0);
}

void Occupancy::open(int node, int gpus) {
  free_[static_cast<size_t>(node)] += gpus;
  free_gpus_ += gpus;
}

void Occupancy::take_back(int job) {
  if (static_cast<size_t>(job) >= held_.size()) return;
  for (const Allocation::Part& part : held_[static_cast<size_t>(job)].parts) {
    free_[static_cast<size_t>(part.node)] += part.gpus;
    free_gpus_ += part.gpus;
  }
  held_[static_cast<size_t>(job)] = {};
}

}  // namespace tessera::share
