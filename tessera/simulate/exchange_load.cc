#include "tessera/simulate/exchange_load.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/program/communication.h"

namespace tessera {
namespace {

struct Moved {  // numbers of elements that go out and come in
  int64_t out = 0, in = 0;
  int64_t most() const { return std::max(out, in); }
};

int64_t most_of(const std::vector<Moved>& all) {
  int64_t out = 0;
  for (const Moved& one : all) out = std::max(out, one.most());
  return out;
}

}  // namespace

ExchangeLoad exchange_load(const Issue& issue, const std::vector<int64_t>& nodes) {
  std::vector<Moved> inside(nodes.size()), leaving(nodes.size());
  std::map<int64_t, Moved> of_node;
  std::map<int64_t, std::set<int64_t>> reached;       // by node: the nodes that it sends to
  std::vector<std::set<size_t>> peers(nodes.size());  // by member: its peers on other nodes
  const auto count = [&](size_t source, size_t taker, int64_t elements) {
    if (source == taker || elements == 0) return;
    const int64_t from = nodes[source], to = nodes[taker];
    std::vector<Moved>& side = from == to ? inside : leaving;
    side[source].out += elements;
    side[taker].in += elements;
    if (from == to) return;
    of_node[from].out += elements;
    of_node[to].in += elements;
    reached[from].insert(to);
    peers[source].insert(taker);
  };
  for (size_t m = 0; issue.named && m < nodes.size(); ++m) {
    for (size_t source = 0; source < nodes.size(); ++source)
      count(source, m, named_bytes(issue, source, m) / dtype_bytes(issue.dtype));
  }
  for (const Transfer& transfer : issue.transfers) {
    if (issue.named) break;
    const Redistribution what{issue.kind, issue.combiner, issue.dtype, transfer.hold,
                              transfer.need};
    for (size_t m = 0; m < nodes.size(); ++m) {
      for (const Take& take : takes(what, m)) count(take.source, m, take.box.volume());
    }
  }
  const auto bytes = [&](int64_t elements) {
    return elements > 0 ? message_bytes(issue.codec, issue.dtype, elements) : 0;
  };
  ExchangeLoad load;
  load.inside = bytes(most_of(inside));
  load.leaving = bytes(most_of(leaving));
  int64_t most = 0;
  for (const auto& [node, moved] : of_node) most = std::max(most, moved.most());
  load.leaving_a_node = bytes(most);
  for (const auto& [node, others] : reached)
    load.nodes_reached = std::max(load.nodes_reached, static_cast<int64_t>(others.size()));
  for (const std::set<size_t>& others : peers)
    load.peers = std::max(load.peers, static_cast<int64_t>(others.size()));
  return load;
}

}  // namespace tessera
