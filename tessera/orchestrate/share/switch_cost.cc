#include "tessera/orchestrate/share/switch_cost.h"

#include <algorithm>
#include <functional>

namespace tessera::share {
namespace {

// Bytes that a node sends or gets, over its network cards and over the links inside.
struct Load {
  double in = 0, inside = 0;
};

bool stays_somewhere(const Switch& change) {
  return std::any_of(change.nodes.begin(), change.nodes.end(), [](const Switch::NodeGpus& node) {
    return node.before > 0 && node.after > 0;
  });
}

// Returns the pause of a live change without its constant.
Pause move_live(const Switch& change, const LinkRates& links) {
  const bool has_same_shards =
      change.before.of_gpu == change.after.of_gpu && change.before.whole == change.after.whole;
  const double state = change.after.of_gpu;
  // The share of the whole state that a GPU held.
  const double held = std::min(1.0, change.before.of_gpu / change.before.whole);
  int senders = 0;
  for (const Switch::NodeGpus& node : change.nodes) senders += node.before > 0 ? 1 : 0;
  Pause out;
  double all_over_cards = 0;
  for (const Switch::NodeGpus& node : change.nodes) {
    const int receivers = has_same_shards ? std::max(0, node.after - node.before) : node.after;
    if (receivers == 0) continue;
    const double here = std::min(1.0, held * node.before);
    const double in = receivers * state * (1 - here), inside = receivers * state * here;
    out.moved_bytes += in + inside;
    all_over_cards += in;
    // The GPUs that hold it send together; each receiver gets its own.
    const int ends = std::max(1, std::min(node.before, receivers));
    out.seconds = std::max({out.seconds, in / links.node, inside / ends / links.gpu});
  }
  out.seconds = std::max(out.seconds, all_over_cards / senders / links.node);
  return out;
}

// Returns the pause of a checkpoint that is written and read again, without its constant.
Pause reload(const Switch& change, const LinkRates& links) {
  int writers = 0, most = 0, all = 0;
  for (const Switch::NodeGpus& node : change.nodes) {
    writers += node.before > 0 ? 1 : 0;
    most = std::max(most, node.after);
    all += node.after;
  }
  // A job that had no GPUs just before has written its checkpoint when it was stopped.
  const double written = writers > 0 ? change.before.whole : 0;
  return {written / std::max(1, writers) / links.node + most * change.after.of_gpu / links.node,
          written + all * change.after.of_gpu};
}

}  // namespace

Pause SwitchCost::of(const Switch& change) const {
  const bool is_live = change.is_live && change.was_running && stays_somewhere(change);
  const bool is_by_bytes = links.is_known() && change.after.is_known() &&
                           (change.before.is_known() || !change.was_running);
  if (!is_by_bytes) return {is_live && live_seconds >= 0 ? live_seconds : seconds, 0};
  if (is_live) return move_live(change, links);
  Pause out = change.has_state ? reload(change, links) : Pause();
  out.seconds += seconds;
  return out;
}

std::vector<Switch::NodeGpus> nodes_of_change(const Allocation& before, const Allocation& after) {
  std::vector<Switch::NodeGpus> out;
  for (const Allocation::Part& part : before.parts) out.push_back({part.gpus, 0});
  for (const Allocation::Part& part : after.parts) {
    const auto had =
        std::find_if(before.parts.begin(), before.parts.end(),
                     [&](const Allocation::Part& other) { return other.node == part.node; });
    if (had == before.parts.end()) {
      out.push_back({0, part.gpus});
    } else {
      out[static_cast<size_t>(had - before.parts.begin())].after = part.gpus;
    }
  }
  return out;
}

std::vector<Switch::NodeGpus> nodes_of_change(const Shape& before, const Shape& after) {
  std::vector<int> had = before.gpus, gets = after.gpus;
  std::sort(had.begin(), had.end(), std::greater<>());
  std::sort(gets.begin(), gets.end(), std::greater<>());
  std::vector<Switch::NodeGpus> out(std::max(had.size(), gets.size()));
  for (size_t i = 0; i < had.size(); ++i) out[i].before = had[i];
  for (size_t i = 0; i < gets.size(); ++i) out[i].after = gets[i];
  return out;
}

}  // namespace tessera::share
