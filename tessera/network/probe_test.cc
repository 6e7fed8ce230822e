// Inference on measurements of networks that are invented here: the oracle is the network itself.
#include "tessera/network/probe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace tessera::network {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kCard = 25e6;  // 200 Mb/s

// A network that a test invents.
struct Invented {
  std::vector<int64_t> rack;
  std::vector<double> cards, uplinks;
  double noise = 0.03;      // of each rate
  double unfairness = 0.8;  // of the parts of a way up that is shared
  double within_s = 50e-6, across_s = 50e-6, latency_noise = 0.15;
};

Invented racks_of(const std::vector<int64_t>& sizes, const std::vector<double>& uplinks) {
  Invented out;
  for (size_t g = 0; g < sizes.size(); ++g)
    out.rack.insert(out.rack.end(), static_cast<size_t>(sizes[g]), static_cast<int64_t>(g));
  out.cards.assign(out.rack.size(), kCard);
  out.uplinks = uplinks;
  return out;
}

// Relabels the machines at random.
void shuffle(Invented& net, std::mt19937_64& random) {
  std::vector<size_t> order(net.rack.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  Invented old = net;
  for (size_t i = 0; i < order.size(); ++i) {
    net.rack[i] = old.rack[order[i]];
    net.cards[i] = old.cards[order[i]];
  }
}

// Measures the invented network: rates of max-min fairness, in which those that share a way up get
// unequal parts of the same sum, with errors.
ProbeMeasurements measure(const Invented& net, int64_t rounds, std::mt19937_64& random) {
  ProbeMeasurements out;
  const auto n = static_cast<int64_t>(net.rack.size());
  out.machines = n;
  std::normal_distribution<double> normal;
  out.latency_s.assign(static_cast<size_t>(n * n), 0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      const double typical = net.rack[static_cast<size_t>(i)] == net.rack[static_cast<size_t>(j)]
                                 ? net.within_s
                                 : net.across_s;
      const double latency = typical * std::exp(net.latency_noise * normal(random));
      out.latency_s[static_cast<size_t>(i * n + j)] =
          out.latency_s[static_cast<size_t>(j * n + i)] = latency;
    }
  }
  for (int64_t r = 0; r < rounds; ++r) {
    ProbeRound round;
    for (const auto& [a, b] : matching(n, random(), 0)) round.push_back({a, b, 0});
    const std::vector<double> fair = fair_round(round, net.rack, net.cards, net.uplinks);
    std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> shared;
    for (size_t i = 0; i < round.size(); ++i) {
      round[i].rate = fair[i];
      const int64_t a = net.rack[static_cast<size_t>(round[i].a)],
                    b = net.rack[static_cast<size_t>(round[i].b)];
      const double cap = std::min(net.cards[static_cast<size_t>(round[i].a)],
                                  net.cards[static_cast<size_t>(round[i].b)]);
      if (a != b && fair[i] < 0.999 * cap) shared[std::minmax(a, b)].push_back(i);
    }
    for (const auto& [racks, flows] : shared) {
      for (size_t i = 0; i + 1 < flows.size(); i += 2) {
        double part = net.unfairness * (2 * std::uniform_real_distribution<double>()(random) - 1) *
                      round[flows[i]].rate;
        const auto cap = [&](size_t f) {
          return std::min(net.cards[static_cast<size_t>(round[f].a)],
                          net.cards[static_cast<size_t>(round[f].b)]) -
                 round[f].rate;
        };
        part = std::clamp(part, -cap(flows[i + 1]), cap(flows[i]));
        round[flows[i]].rate += part;
        round[flows[i + 1]].rate -= part;
      }
    }
    for (ProbeFlow& flow : round) flow.rate *= std::exp(net.noise * normal(random));
    out.rounds.push_back(std::move(round));
  }
  return out;
}

// Numbers groups by their first machine, as infer() does.
std::vector<int64_t> in_order(const std::vector<int64_t>& racks) {
  std::map<int64_t, int64_t> numbers;
  std::vector<int64_t> out;
  for (const int64_t rack : racks)
    out.push_back(numbers.try_emplace(rack, static_cast<int64_t>(numbers.size())).first->second);
  return out;
}

// Measures the network `tries` times after relabelling it, and counts how often the racks are right.
int count_right(Invented net, int64_t rounds, int tries, uint64_t seed) {
  std::mt19937_64 random(seed);
  int right = 0;
  for (int i = 0; i < tries; ++i) {
    shuffle(net, random);
    const ProbeMeasurements measured = measure(net, rounds, random);
    right += infer(measured, {}).rack == in_order(net.rack) ? 1 : 0;
  }
  return right;
}

TEST(InferTest, FindsTwoToFourRacksAfterAnyRelabelling) {
  EXPECT_EQ(count_right(racks_of({4, 4}, {kCard, kCard}), 14, 20, 1), 20);
  EXPECT_EQ(count_right(racks_of({6, 2}, {kCard, kCard}), 14, 10, 2), 10);
  EXPECT_EQ(count_right(racks_of({4, 4, 4}, {kCard, kCard, kCard}), 22, 4, 3), 4);
  EXPECT_EQ(count_right(racks_of({4, 4, 4, 4}, {kCard, kCard, kCard, kCard}), 30, 2, 4), 2);
}

TEST(InferTest, FindsUnequalWaysUp) {
  Invented net = racks_of({4, 4, 4}, {kCard, 2 * kCard, kCard / 2});
  EXPECT_EQ(count_right(net, 22, 4, 5), 4);
  std::mt19937_64 random(6);
  const Inference found = infer(measure(net, 30, random), {});
  ASSERT_THAT(found.uplinks, SizeIs(3));
  EXPECT_NEAR(found.uplinks[0].rate / kCard, 1, 0.1);
  EXPECT_NEAR(found.uplinks[2].rate / kCard, 0.5, 0.05);
  EXPECT_THAT(found.slow_racks, ElementsAre(2));
}

TEST(InferTest, OversubscriptionOfTwoIsSeenToo) {
  // Two pairs that cross get all they can take; only rounds in which four do are slow. 28 rounds show the
  // racks of about three in four such networks, 60 those of about nine in ten.
  EXPECT_GE(count_right(racks_of({4, 4}, {2 * kCard, 2 * kCard}), 60, 30, 7), 24);
}

// Other work on the hosts slows all pairs of some rounds, each by another factor.
TEST(InferTest, DisturbedRoundsDoNotChangeRacks) {
  std::mt19937_64 random(17);
  Invented net = racks_of({4, 4}, {kCard, kCard});
  for (int i = 0; i < 8; ++i) {
    shuffle(net, random);
    ProbeMeasurements measured = measure(net, 16, random);
    for (const size_t round : {1, 9, 12}) {
      for (ProbeFlow& flow : measured.rounds[round])
        flow.rate *= std::uniform_real_distribution<double>(0.45, 0.75)(random);
    }
    EXPECT_EQ(infer(measured, {}).rack, in_order(net.rack));
  }
}

TEST(InferTest, FlatNetworkIsOneSwitch) {
  for (const double noise : {0.01, 0.03, 0.08}) {
    Invented net = racks_of({8}, {kInfinite});
    net.noise = noise;
    EXPECT_EQ(count_right(net, 14, 10, 8), 10) << noise;
  }
}

TEST(InferTest, RatesAreWithinTheirErrors) {
  std::mt19937_64 random(9);
  int inside = 0;
  for (int i = 0; i < 10; ++i) {
    Invented net = racks_of({4, 4}, {kCard, kCard});
    shuffle(net, random);
    const Inference found = infer(measure(net, 14, random), {});
    ASSERT_THAT(found.uplinks, SizeIs(2));
    for (const Estimate& uplink : found.uplinks) EXPECT_NEAR(uplink.rate / kCard, 1, 0.05);
    for (const Estimate& card : found.cards) EXPECT_NEAR(card.rate / kCard, 1, 0.06);
    inside += std::abs(found.uplinks[0].rate / kCard - 1) < 3 * found.uplinks[0].error ? 1 : 0;
  }
  EXPECT_GE(inside, 8);
}

TEST(InferTest, OneSlowMachineIsNamedAndNoRack) {
  std::mt19937_64 random(10);
  for (const bool flat : {true, false}) {
    Invented net = flat ? racks_of({8}, {kInfinite}) : racks_of({4, 4}, {kCard, kCard});
    net.cards[5] = kCard / 4;
    const Inference found = infer(measure(net, 14, random), {});
    EXPECT_EQ(found.rack, net.rack);
    EXPECT_THAT(found.slow_machines, ElementsAre(5));
    EXPECT_NEAR(found.cards[5].rate / kCard, 0.25, 0.02);
    EXPECT_THAT(found.late_machines, IsEmpty());
  }
}

TEST(InferTest, LatenciesAloneShowSites) {
  Invented net = racks_of({3, 3}, {kInfinite, kInfinite});
  net.across_s = 30e-3;
  std::mt19937_64 random(11);
  const Inference found = infer(measure(net, 10, random), {});
  EXPECT_EQ(found.rack, net.rack);
  EXPECT_FALSE(found.uplinks[0].reached);
  EXPECT_NEAR(found.cross_latency_s[1] / 30e-3, 1, 0.2);
  const Network network = network_of(found, {"a", "b", "c", "d", "e", "f"});
  EXPECT_NEAR(network.find_switch("core")->latency_s / 30e-3, 1, 0.2);
  EXPECT_EQ(network.find_switch("rack0")->uplink, 0);
}

TEST(InferTest, ALateMachineIsNamedAndNoSite) {
  Invented net = racks_of({8}, {kInfinite});
  std::mt19937_64 random(12);
  ProbeMeasurements measured = measure(net, 14, random);
  for (int64_t j = 0; j < 8; ++j) {
    measured.latency_s[static_cast<size_t>(2 * 8 + j)] *= 5;
    measured.latency_s[static_cast<size_t>(j * 8 + 2)] *= 5;
  }
  const Inference found = infer(measured, {});
  EXPECT_EQ(found.rack, net.rack);
  EXPECT_THAT(found.late_machines, ElementsAre(2));
}

TEST(InferTest, KnownRacksAreNotSearched) {
  Invented net = racks_of({4, 4}, {kCard, kCard});
  std::mt19937_64 random(13);
  const Inference found = infer(measure(net, 4, random), net.rack);
  EXPECT_EQ(found.rack, net.rack);
  EXPECT_EQ(found.probability, 1);
  EXPECT_NEAR(found.uplinks[0].rate / kCard, 1, 0.1);
}

TEST(InferTest, FewRoundsMakeItLessSure) {
  std::mt19937_64 random(14);
  Invented net = racks_of({4, 4}, {kCard, kCard});
  double few = 0, many = 0;
  for (int i = 0; i < 10; ++i) {
    few += infer(measure(net, 2, random), {}).probability / 10;
    many += infer(measure(net, 14, random), {}).probability / 10;
  }
  EXPECT_LT(few, 0.7);
  EXPECT_GT(many, 0.95);
}

TEST(InferTest, SameMeasurementsGiveTheSameAnswer) {
  std::mt19937_64 random(15);
  const ProbeMeasurements measured =
      measure(racks_of({5, 4, 3}, {kCard, kCard, kCard}), 20, random);
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f",
                                          "g", "h", "i", "j", "k", "l"};
  EXPECT_EQ(to_json(infer(measured, {}), measured, names),
            to_json(infer(measured, {}), measured, names));
}

TEST(FairRoundTest, CardsAndWaysUpAreShared) {
  const ProbeRound round = {{0, 4, 0}, {1, 5, 0}, {2, 3, 0}};
  const std::vector<int64_t> racks = {0, 0, 0, 0, 1, 1};
  const std::vector<double> cards = {10, 3, 10, 10, 10, 10};
  EXPECT_THAT(fair_round(round, racks, cards, {10, kInfinite}), ElementsAre(7, 3, 10));
  EXPECT_THAT(fair_round(round, racks, cards, {10, 4}), ElementsAre(2, 2, 10));
  EXPECT_THAT(fair_round(round, {-1, -1, -1, -1, -1, -1}, cards, {}), ElementsAre(10, 3, 10));
}

TEST(MatchingTest, EachPairMeetsOnceInALap) {
  for (const int64_t n : {2, 3, 8, 9}) {
    std::map<std::pair<int64_t, int64_t>, int> met;
    const int64_t rounds = n + n % 2 - 1;
    for (int64_t r = 0; r < rounds; ++r) {
      std::set<int64_t> busy;
      for (const auto& [a, b] : matching(n, 7, r)) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
        ++met[{a, b}];
      }
    }
    EXPECT_THAT(met, SizeIs(static_cast<size_t>(n * (n - 1) / 2)));
    for (const auto& [pair, times] : met) EXPECT_EQ(times, 1);
  }
  EXPECT_NE(matching(8, 7, 0), matching(8, 8, 0));
  EXPECT_THAT(matching(1, 7, 0), IsEmpty());
}

TEST(MatchingTest, CrossingMatchingsCrossWhereTheyCan) {
  const std::vector<int64_t> rack = {0, 1, 0, 1, 0, 1, 0, 1};
  for (int64_t r = 0; r < 5; ++r) {
    for (const auto& [a, b] : crossing_matching(rack, 1, r))
      EXPECT_NE(rack[static_cast<size_t>(a)], rack[static_cast<size_t>(b)]);
  }
}

TEST(ReportTest, NamesWhatWasFound) {
  Invented net = racks_of({4, 4}, {kCard, kCard});
  net.cards[5] = kCard / 4;
  std::mt19937_64 random(16);
  const ProbeMeasurements measured = measure(net, 14, random);
  const std::vector<std::string> names = {"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"};
  const Inference found = infer(measured, {});
  const std::string text = to_text(found, names);
  EXPECT_THAT(text, ::testing::HasSubstr("8 machines in 2 racks, probability 1"));
  EXPECT_THAT(text, ::testing::HasSubstr("rack0: h0 h1 h2 h3, way up 198 Mb/s"));
  EXPECT_THAT(text, ::testing::HasSubstr("slow machine: h5, whose card carries"));
  const Network network = network_of(found, names);
  EXPECT_TRUE(check(network, "probe"));
  EXPECT_EQ(network.nodes[0].rate, network.nodes[7].rate);  // one class of cards
  EXPECT_LT(network.nodes[5].rate, network.nodes[0].rate / 3);
  EXPECT_NEAR(network.find_switch("rack1")->uplink / kCard, 1, 0.1);
  EXPECT_TRUE(to_cluster(network, "probed", {local_cluster(1, nullptr).parts.front().type}));
}

}  // namespace
}  // namespace tessera::network
