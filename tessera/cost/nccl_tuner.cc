#include "tessera/cost/nccl_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr double kMicrosecond = 1e-6, kGigabyte = 1e9;
using ByProtocol = std::array<double, 3>;     // LL, LL128, Simple
using ByNodes = std::array<double, 3>;        // for 1, 2 and more nodes
using ByGeneration = std::array<ByNodes, 4>;  // Volta, Ampere, Hopper, Blackwell

// Latencies in microseconds by algorithm, in the order of the enumeration: ring, tree, CollNet
// direct, chain, NVLS, its tree, PAT.
constexpr std::array<ByProtocol, 7> kBaseLatency = {
    {{6.6, 14, 8.4}, {6.8, 14, 8.4}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {8, 8, 8}}};
constexpr std::array<ByProtocol, 7> kNvlinkLatency = {
    {{.6, 1.9, 3.4}, {.6, 1.25, 4.0}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4}}};
constexpr std::array<ByProtocol, 7> kPcieLatency = {
    {{1.0, 2.5, 5.7}, {1.0, 1.9, 4.0}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4}}};
constexpr std::array<ByProtocol, 7> kNetworkLatency = {
    {{2.7, 4.0, 14}, {5.0, 8.5, 14}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};
constexpr double kNvlsTreeLatency227 = 14;

// Upper limits of rates, GB/s.
constexpr ByGeneration kLlMost = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr ByGeneration kRingLl128Channel = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
constexpr ByGeneration kTreeLl128Channel = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr ByGeneration kTreeChannel = {
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr ByGeneration kNvlsTreeChannel = {{{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 80}}};
constexpr std::array<double, 4> kNvlsEfficiency = {0, 0, .85, .74};

// Factors on the rate of an all-reduce by a tree: one row for each protocol, one column for each
// value of floor(log2(bytes / 64)).
constexpr size_t kCorrections = 23;
constexpr std::array<std::array<double, kCorrections>, 3> kTreeCorrection = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

size_t row_of(Generation generation) { return static_cast<size_t>(generation->tuner_row); }
size_t column_of(int64_t nodes) { return nodes <= 1 ? 0 : nodes == 2 ? 1 : 2; }

bool gathers(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

int64_t steps_of(CollectiveKind kind, int64_t members) {
  if (kind == CollectiveKind::kAllReduce) return 2 * (members - 1);
  return gathers(kind) ? members - 1 : members;
}

bool legal(const TunerGroup& group, TunerAlgorithm algorithm, TunerProtocol protocol) {
  const bool reduces_all = group.kind == CollectiveKind::kAllReduce;
  const bool known = reduces_all || gathers(group.kind) ||
                     group.kind == CollectiveKind::kBroadcast ||
                     group.kind == CollectiveKind::kReduce;
  if (!known || group.ranks() < 2) return false;
  if (protocol == TunerProtocol::kLl128 && (!group.nvlink || !group.generation->low_latency_128)) {
    return false;
  }
  const bool plain = protocol == TunerProtocol::kSimple;
  const bool hopper = row_of(group.generation) >= 2;
  switch (algorithm) {
    case TunerAlgorithm::kRing: return true;
    case TunerAlgorithm::kTree: return reduces_all;
    case TunerAlgorithm::kCollnetDirect:
      return plain && group.network_sum && group.nodes > 1 && (reduces_all || gathers(group.kind));
    case TunerAlgorithm::kCollnetChain:
      return plain && group.network_sum && group.nodes > 1 && reduces_all;
    case TunerAlgorithm::kNvls:
      return plain && hopper && group.switch_sum && group.ranks_a_node > 1 &&
             (group.nodes == 1 || group.network_sum) && (reduces_all || gathers(group.kind));
    case TunerAlgorithm::kNvlsTree:
      return plain && hopper && group.switch_sum && group.ranks_a_node > 1 && group.nodes > 1 &&
             reduces_all;
    case TunerAlgorithm::kPat:
      return plain && group.nodes > 1 && group.ranks_a_node == 1 && gathers(group.kind);
  }
  return false;
}

// Returns the rate of a channel if the node's switch reduces. For an all-reduce it is doubled,
// because an all-reduce uses both directions of the channel at once.
double nvls_channel(const TunerGroup& group, bool tree) {
  const double channels = static_cast<double>(group.channels);
  const double members = static_cast<double>(group.ranks_a_node);
  const size_t row = row_of(group.generation);
  double rate = group.nvls.inner_rate * kNvlsEfficiency[row] * (channels - 1) / channels;
  rate *= group.kind == CollectiveKind::kAllReduce ? 2 : (members - 1) / members;
  if (group.nodes == 1) return rate;
  if (!tree) return std::min(rate, group.nvls.network_rate);
  rate = std::min(rate, group.nvls.network_rate * (group.nodes == 2 ? 2 : 1));
  return std::min(rate, kNvlsTreeChannel[row][column_of(group.nodes)] * kGigabyte);
}

double tree_bus(const TunerGroup& group, TunerProtocol protocol, double bus, double ll_most) {
  const double channels = static_cast<double>(group.channels);
  const size_t row = row_of(group.generation), column = column_of(group.nodes);
  bus = std::min(.92 * bus, channels * kTreeChannel[row][column] * kGigabyte);
  if (protocol == TunerProtocol::kLl) bus = std::min(bus / 3.8, ll_most);
  if (protocol == TunerProtocol::kLl128) {
    bus = std::min(bus * (group.nodes == 1 ? 7. / 9 : 120. / 128),
                   channels * kTreeLl128Channel[row][column] * kGigabyte);
  }
  return .85 * bus;
}

double bus_rate(const TunerGroup& group, TunerAlgorithm algorithm, TunerProtocol protocol) {
  const double channels = static_cast<double>(group.channels);
  const size_t row = row_of(group.generation), column = column_of(group.nodes);
  const double bus =
      channels * (group.nodes <= 2 ? group.ring.inner_rate : group.ring.network_rate);
  // Over several nodes the host processor limits the low-latency protocol, not the device, so the
  // row depends on the processor.
  const size_t ll_row = group.nodes == 1 ? row : group.cpu == HostCpu::kIntel ? 0 : 1;
  const double ll_most = kLlMost[ll_row][column] * kGigabyte;
  switch (algorithm) {
    case TunerAlgorithm::kRing:
      if (protocol == TunerProtocol::kLl) return std::min(ll_most, bus / 2);
      if (protocol == TunerProtocol::kSimple) return bus;
      return std::min(.92 * bus, channels * kRingLl128Channel[row][column] * kGigabyte);
    case TunerAlgorithm::kTree: return tree_bus(group, protocol, bus, ll_most);
    case TunerAlgorithm::kNvls: return channels * nvls_channel(group, false);
    case TunerAlgorithm::kNvlsTree: return channels * nvls_channel(group, true);
    case TunerAlgorithm::kPat: return .75 * bus;
    case TunerAlgorithm::kCollnetDirect:
    case TunerAlgorithm::kCollnetChain: return bus;
  }
  return bus;
}

// Returns the rate of the algorithm over the bus rate.
double bus_ratio(const TunerGroup& group, TunerAlgorithm algorithm) {
  const double share =
      static_cast<double>(group.ranks()) / static_cast<double>(steps_of(group.kind, group.ranks()));
  if (algorithm == TunerAlgorithm::kRing) return share;
  if (gathers(group.kind)) return 1;
  switch (algorithm) {
    case TunerAlgorithm::kNvls:
    case TunerAlgorithm::kNvlsTree: return group.release == TunerRelease::k2_27 ? 5. / 6 : share;
    case TunerAlgorithm::kRing:
    case TunerAlgorithm::kTree:
    case TunerAlgorithm::kCollnetDirect:
    case TunerAlgorithm::kCollnetChain:
    case TunerAlgorithm::kPat: return .5;
  }
  return .5;
}

// Returns the latency of a ring without the base latency, in microseconds.
double ring_latency(const TunerGroup& group, TunerProtocol protocol, double inner, double network) {
  const int64_t steps = steps_of(group.kind, group.ranks());
  int64_t across = 0;
  double overhead = 0;
  if (group.nodes > 1) {
    across = steps_of(group.kind, group.nodes);
    overhead = group.cpu == HostCpu::kIntel ? 1 : 2;
    if (protocol == TunerProtocol::kSimple) overhead *= 3;
  }
  return static_cast<double>(steps - across) * std::max(inner, overhead) +
         static_cast<double>(across) * network;
}

double latency_micros(const TunerGroup& group, TunerAlgorithm algorithm, TunerProtocol protocol) {
  const auto a = static_cast<size_t>(algorithm), p = static_cast<size_t>(protocol);
  const double inner = (group.nvlink ? kNvlinkLatency : kPcieLatency)[a][p];
  const size_t network_row =
      group.ranks_a_node == 1 ? static_cast<size_t>(TunerAlgorithm::kTree) : a;
  double network = kNetworkLatency[network_row][p];
  if (algorithm == TunerAlgorithm::kNvlsTree && group.release == TunerRelease::k2_27) {
    network = kNvlsTreeLatency227;
  }
  // With kSimple, data and flag are two messages, so the network's latency counts twice.
  network += group.network_lag_s / kMicrosecond * (protocol == TunerProtocol::kSimple ? 2 : 1);
  network = std::max(network, 0.);
  const double depth = std::floor(std::log2(static_cast<double>(group.nodes)));
  const auto others = static_cast<double>(group.ranks_a_node - 1);
  const double base = kBaseLatency[a][p];
  switch (algorithm) {
    case TunerAlgorithm::kRing: return base + ring_latency(group, protocol, inner, network);
    case TunerAlgorithm::kTree: return base + 2 * (others * inner + depth * network);
    case TunerAlgorithm::kCollnetDirect:
      return base + 2 * (std::min(1., others) * inner + others * .4) + network;
    case TunerAlgorithm::kCollnetChain: return base + 2 * others * inner + network;
    case TunerAlgorithm::kNvls: return inner + (group.nodes > 1 ? network : 0);
    case TunerAlgorithm::kNvlsTree: return base + inner + 2 * depth * network;
    case TunerAlgorithm::kPat:
      return base + depth * network / 3.5 + 2.8 * static_cast<double>(group.ranks());
  }
  return base;
}

}  // namespace

std::string_view tuner_name(TunerAlgorithm algorithm) {
  switch (algorithm) {
    case TunerAlgorithm::kRing: return "ring";
    case TunerAlgorithm::kTree: return "tree";
    case TunerAlgorithm::kCollnetDirect: return "collnet_direct";
    case TunerAlgorithm::kCollnetChain: return "collnet_chain";
    case TunerAlgorithm::kNvls: return "nvls";
    case TunerAlgorithm::kNvlsTree: return "nvls_tree";
    case TunerAlgorithm::kPat: return "pat";
  }
  return "";
}

std::string_view tuner_name(TunerProtocol protocol) {
  switch (protocol) {
    case TunerProtocol::kLl: return "ll";
    case TunerProtocol::kLl128: return "ll128";
    case TunerProtocol::kSimple: return "simple";
  }
  return "";
}

std::string TunerChoice::name() const {
  return fmt::format("{}/{}", tuner_name(algorithm), tuner_name(protocol));
}

std::optional<TunerFigure> tuner_figure(const TunerGroup& group, TunerAlgorithm algorithm,
                                        TunerProtocol protocol) {
  if (!legal(group, algorithm, protocol)) return std::nullopt;
  const double rate = bus_rate(group, algorithm, protocol) * bus_ratio(group, algorithm);
  if (rate <= 0) return std::nullopt;
  return TunerFigure{latency_micros(group, algorithm, protocol) * kMicrosecond, rate};
}

double tree_correction(TunerProtocol protocol, double index, SizeSteps steps) {
  const auto& table = kTreeCorrection[static_cast<size_t>(protocol)];
  if (index < 0) return table.front();
  const double below = std::floor(index);
  if (below >= static_cast<double>(kCorrections)) return 1;
  const auto i = static_cast<size_t>(below);
  if (steps == SizeSteps::kStepped) return table[i];
  const double next = i + 1 < kCorrections ? table[i + 1] : 1;
  return table[i] + (index - below) * (next - table[i]);
}

std::optional<TunerChoice> tuner_time(const TunerGroup& group, TunerAlgorithm algorithm,
                                      TunerProtocol protocol, int64_t bytes, SizeSteps steps) {
  const auto figure = tuner_figure(group, algorithm, protocol);
  if (!figure) return std::nullopt;
  TunerChoice out{algorithm, protocol, figure->latency_s, 0};
  double rate = figure->rate;
  const auto size = static_cast<double>(bytes);
  if (algorithm == TunerAlgorithm::kTree && bytes > 0) {
    rate *= tree_correction(protocol, std::log2(size / 64), steps);
  }
  if (algorithm == TunerAlgorithm::kRing && protocol == TunerProtocol::kSimple && group.nodes > 1 &&
      group.kind == CollectiveKind::kAllReduce &&
      size / static_cast<double>(group.channels * group.ranks()) >= 64) {
    out.latency_s *= row_of(group.generation) == 0 ? 1.9 : 1.4;
  }
  out.transfer_s = size / rate;
  return out;
}

std::optional<TunerChoice> tuner_choice(const TunerGroup& group, int64_t bytes, SizeSteps steps) {
  std::optional<TunerChoice> best;
  for (const TunerAlgorithm algorithm : kTunerAlgorithms) {
    for (const TunerProtocol protocol : kTunerProtocols) {
      const auto found = tuner_time(group, algorithm, protocol, bytes, steps);
      if (found && (!best || found->seconds() < best->seconds())) best = found;
    }
  }
  return best;
}

}  // namespace tessera
