#include "tessera/cluster/topology.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rates of 1, 2, 3 ... so that a test sees which link it got.
NodeType node(int64_t devices, int64_t nics, bool switched = true, int64_t sockets = 1) {
  NodeType type;
  type.name = "box";
  type.devices = devices;
  type.device.peak["fp32"] = 1e12;
  type.inner = {LinkKind::kPcie, 100, 1, switched};
  type.sockets = sockets;
  if (sockets > 1) type.bridge = {LinkKind::kQpi, 50, 0.5, true};
  type.nic = {LinkKind::kNic, 10, 4, true};
  type.nics = nics;
  return type;
}

Cluster cluster(NodeType type, int64_t nodes, std::vector<FabricTier> tiers = {},
                bool rails = false) {
  Cluster c;
  c.name = "c";
  c.parts.push_back({std::move(type), nodes});
  c.tiers = std::move(tiers);
  c.rail_aligned = rails;
  return c;
}

std::vector<std::string> texts(const Topology& topology, int64_t from, int64_t to) {
  std::vector<std::string> out;
  for (const int64_t link : topology.path(from, to).links) out.push_back(topology.link_text(link));
  return out;
}
using Texts = std::vector<std::string>;

TEST(Topology, InsideASwitchedNode) {
  const Topology topology(cluster(node(4, 1), 1));
  EXPECT_EQ(texts(topology, 0, 3), (Texts{"device 0 out", "device 3 in"}));
  EXPECT_EQ(topology.path(0, 3).latency_s, 1);
  EXPECT_EQ(topology.path(0, 3).tier, -1);
  EXPECT_TRUE(topology.path(2, 2).links.empty());
  EXPECT_EQ(topology.path(2, 2).latency_s, 0);
}

TEST(Topology, ASharedLinkAndABridge) {
  const Topology shared(cluster(node(4, 1, false), 2));
  EXPECT_EQ(texts(shared, 1, 2), (Texts{"node 0 inner"}));
  EXPECT_EQ(texts(shared, 5, 4), (Texts{"node 1 inner"}));
  const Topology bridged(cluster(node(6, 1, true, 3), 1));
  EXPECT_EQ(texts(bridged, 0, 1), (Texts{"device 0 out", "device 1 in"}));
  EXPECT_EQ(texts(bridged, 0, 2), (Texts{"device 0 out", "node 0 socket 0 to 1", "device 2 in"}));
  EXPECT_EQ(texts(bridged, 5, 1), (Texts{"device 5 out", "node 0 socket 2 to 0", "device 1 in"}));
  EXPECT_EQ(bridged.path(5, 1).latency_s, 1.5);
}

TEST(Topology, NicsAreDividedAmongDevices) {
  const Topology shared(cluster(node(8, 4), 2));
  EXPECT_EQ(texts(shared, 3, 14), (Texts{"node 0 nic 1 out", "node 1 nic 3 in"}));
  EXPECT_EQ(shared.path(3, 14).latency_s, 4);
  EXPECT_EQ(shared.path(3, 14).tier, 0);
  const Topology several(cluster(node(2, 8), 2));
  const Path path = several.path(1, 2);
  EXPECT_EQ(texts(several, 1, 2), (Texts{"node 0 nic 1 out", "node 1 nic 0 in"}));
  EXPECT_EQ(several.capacities()[static_cast<size_t>(path.links[0])], 40);
}

TEST(Topology, TiersNarrowUpwards) {
  // 8 nodes, 2 under a leaf, 2 leaves under a spine, one core above; 2 NICs of 10 a node.
  const Topology topology(cluster(node(2, 2), 8, {{2, 2, 0.25}, {2, 4, 0.5}, {0, 1, 1}}));
  EXPECT_EQ(texts(topology, 0, 2), (Texts{"node 0 nic 0 out", "node 1 nic 0 in"}));
  EXPECT_EQ(topology.path(0, 2).latency_s, 4.25);
  EXPECT_EQ(texts(topology, 0, 5), (Texts{"node 0 nic 0 out", "tier 0 switch 0 up",
                                          "tier 0 switch 1 down", "node 2 nic 1 in"}));
  const Path far = topology.path(1, 15);
  EXPECT_EQ(texts(topology, 1, 15),
            (Texts{"node 0 nic 1 out", "tier 0 switch 0 up", "tier 1 switch 0 up",
                   "tier 1 switch 1 down", "tier 0 switch 3 down", "node 7 nic 1 in"}));
  EXPECT_EQ(far.tier, 2);
  EXPECT_EQ(far.latency_s, 4 + 2 * 0.25 + 2 * 0.5 + 1);
  const auto capacity = [&](size_t i) {
    return topology.capacities()[static_cast<size_t>(far.links[i])];
  };
  EXPECT_EQ(capacity(1), 20);  // 2 nodes x 2 NICs x 10 over 2
  EXPECT_EQ(capacity(2), 10);  // 2 leaves x 20 over 4
}

TEST(Topology, RailsForwardThroughThePeerDevice) {
  const Topology topology(cluster(node(4, 4), 8, {{4, 1, 0.25}, {0, 1, 1}}, true));
  EXPECT_EQ(texts(topology, 1, 5), (Texts{"node 0 nic 1 out", "node 1 nic 1 in"}));
  EXPECT_EQ(texts(topology, 1, 7),
            (Texts{"device 1 out", "device 3 in", "node 0 nic 3 out", "node 1 nic 3 in"}));
  EXPECT_EQ(topology.path(1, 7).latency_s, 1 + 4 + 0.25);
  // Node 5 is under the second group of leaves: rail 3 of group 0, rail 3 of group 1.
  EXPECT_EQ(texts(topology, 3, 23), (Texts{"node 0 nic 3 out", "tier 0 switch 3 up",
                                           "tier 0 switch 7 down", "node 5 nic 3 in"}));
  const Path far = topology.path(3, 23);
  EXPECT_EQ(topology.capacities()[static_cast<size_t>(far.links[1])], 40);  // 4 nodes x 10
}

TEST(Topology, UnequalParts) {
  Cluster c = cluster(node(4, 2), 2);
  NodeType other = node(2, 1);
  other.nic.rate = 5;
  other.nic.latency_s = 7;
  c.parts.push_back({other, 1});
  const Topology topology(c);
  EXPECT_EQ(texts(topology, 6, 9), (Texts{"node 1 nic 1 out", "node 2 nic 0 in"}));
  EXPECT_EQ(topology.path(6, 9).latency_s, 7);
}

RC_GTEST_PROP(Topology, PathsUseEachLinkOnceAndReturnOverOthers, ()) {
  const auto nics = *rc::gen::inRange<int64_t>(1, 5);
  const auto devices = nics * *rc::gen::inRange<int64_t>(1, 3);
  const auto nodes = *rc::gen::inRange<int64_t>(1, 9);
  const bool rails = *rc::gen::arbitrary<bool>();
  std::vector<FabricTier> tiers;
  for (int64_t t = *rc::gen::inRange<int64_t>(0, 3); t > 0; --t) {
    tiers.push_back({*rc::gen::inRange<int64_t>(1, 4), 2, 1});
  }
  tiers.push_back({0, 1, 1});
  const Cluster c = cluster(node(devices, nics), nodes, tiers, rails);
  const Topology topology(c);
  const auto from = *rc::gen::inRange<int64_t>(0, c.devices());
  const auto to = *rc::gen::inRange<int64_t>(0, c.devices());
  std::vector<int64_t> links = topology.path(from, to).links;
  const int64_t tier = topology.path(from, to).tier;
  RC_ASSERT(tier == c.highest_tier(std::vector<int64_t>{from, to}));
  RC_ASSERT(links.empty() == (from == to));
  const auto back = topology.path(to, from).links;
  if (!rails) RC_ASSERT(back.size() == links.size());
  for (const int64_t link : back) RC_ASSERT(std::count(links.begin(), links.end(), link) == 0);
  std::sort(links.begin(), links.end());
  RC_ASSERT(std::adjacent_find(links.begin(), links.end()) == links.end());
  for (const int64_t link : links) {
    RC_ASSERT(topology.capacities()[static_cast<size_t>(link)] > 0);
  }
}

// docs/theory/cost-model.md section 4.4: X cap 10, Y cap 4; A on X, B on X and Y, C on Y.
TEST(FairShares, WorkedExample) {
  const std::vector<double> capacities{10, 4};
  EXPECT_EQ(fair_shares(capacities, std::vector<Flow>{{{{0}}}, {{{0}, {1}}}, {{{1}}}}),
            (std::vector<double>{8, 2, 2}));
}

TEST(FairShares, CapsWeightsAndFreeFlows) {
  const std::vector<double> capacities{10, 0};
  EXPECT_EQ(fair_shares(capacities, std::vector<Flow>{{{{0}}, 1}, {{{0}}}, {{{0}}}}),
            (std::vector<double>{1, 4.5, 4.5}));
  EXPECT_EQ(fair_shares(capacities, std::vector<Flow>{{{{0, 4}}}, {{{0, 1}}}}),
            (std::vector<double>{2, 2}));
  EXPECT_EQ(fair_shares(capacities, std::vector<Flow>{{{{1}}}, {{}}, {{}, 3}}),
            (std::vector<double>{0, kInfinity, 3}));
  EXPECT_TRUE(fair_shares(capacities, std::vector<Flow>{}).empty());
}

struct Case {
  std::vector<double> capacities;
  std::vector<Flow> flows;
};
Case draw() {
  Case out;
  const auto links = *rc::gen::inRange<int64_t>(1, 4);
  for (int64_t i = 0; i < links; ++i) {
    out.capacities.push_back(static_cast<double>(*rc::gen::inRange(1, 13)));
  }
  for (int64_t flows = *rc::gen::inRange<int64_t>(1, 6); flows > 0; --flows) {
    Flow flow;
    for (int64_t link = 0; link < links; ++link) {
      if (*rc::gen::arbitrary<bool>()) {
        flow.uses.push_back({link, static_cast<double>(*rc::gen::inRange(1, 4))});
      }
    }
    if (flow.uses.empty() || *rc::gen::arbitrary<bool>()) {
      flow.cap = static_cast<double>(*rc::gen::inRange(1, 9));
    }
    out.flows.push_back(flow);
  }
  return out;
}
std::vector<double> loads(const Case& c, const std::vector<double>& rates) {
  std::vector<double> out(c.capacities.size(), 0);
  for (size_t f = 0; f < c.flows.size(); ++f) {
    for (const LinkUse& use : c.flows[f].uses) {
      out[static_cast<size_t>(use.link)] += use.weight * rates[f];
    }
  }
  return out;
}

// The definition of max-min: no flow can gain without a loss of one that is not larger.
RC_GTEST_PROP(FairShares, FeasibleAndNoFlowGainsAtTheCostOfALargerOneOnly, ()) {
  const Case c = draw();
  const auto rates = fair_shares(c.capacities, c.flows);
  const auto load = loads(c, rates);
  for (size_t i = 0; i < load.size(); ++i) RC_ASSERT(load[i] <= c.capacities[i] + 1e-9);
  for (size_t f = 0; f < rates.size(); ++f) {
    RC_ASSERT(rates[f] <= c.flows[f].cap);
    bool bound = rates[f] == c.flows[f].cap;
    for (const LinkUse& use : c.flows[f].uses) {
      const auto link = static_cast<size_t>(use.link);
      if (load[link] < c.capacities[link] - 1e-9) continue;
      bool largest = true;
      for (size_t g = 0; g < rates.size(); ++g) {
        for (const LinkUse& other : c.flows[g].uses) {
          if (other.link == use.link && rates[g] > rates[f] + 1e-9) largest = false;
        }
      }
      bound = bound || largest;
    }
    RC_ASSERT(bound);
  }
}

// Brute force: pour in drops, a drop to every flow that can still take one.
RC_GTEST_PROP(FairShares, EqualsFillingDropByDrop, ()) {
  const Case c = draw();
  constexpr double kDrop = 1e-3;
  std::vector<double> poured(c.flows.size(), 0);
  std::vector<bool> stopped(c.flows.size(), false);
  while (std::count(stopped.begin(), stopped.end(), false) > 0) {
    for (size_t f = 0; f < poured.size(); ++f) {
      if (stopped[f]) continue;
      poured[f] += kDrop;
      const auto load = loads(c, poured);
      bool fits = poured[f] <= c.flows[f].cap;
      for (const LinkUse& use : c.flows[f].uses) {
        const auto link = static_cast<size_t>(use.link);
        fits = fits && load[link] <= c.capacities[link];
      }
      if (fits) continue;
      poured[f] -= kDrop;
      stopped[f] = true;
    }
  }
  const auto rates = fair_shares(c.capacities, c.flows);
  for (size_t f = 0; f < rates.size(); ++f) RC_ASSERT(std::abs(rates[f] - poured[f]) < 0.05);
}

}  // namespace
}  // namespace tessera
