// The cost model by which the collective library of NVIDIA devices chooses an algorithm and a
// protocol, as data and rules (docs/theory/cost-model.md section 4.2, release 2.30). It predicts
//   seconds = latency + bytes / rate
// for every legal (algorithm, protocol) and takes the least. It is made for choosing and is coarse
// as a prediction of times; collective_curves.h holds measured times.
//
// Rates are bytes/s "of the algorithm": bytes of the full array (the larger of a rank's input and
// output) over time. A channel is one ring or tree; a graph's rates are of one channel.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/cluster.h"

namespace tessera {

enum class TunerAlgorithm : uint8_t {
  kRing,
  kTree,  // double binary tree over nodes, chains inside them
  kCollnetDirect,
  kCollnetChain,  // reduction in the network's switches
  kNvls,
  kNvlsTree,  // reduction in the node's switch; a tree over nodes
  kPat        // logarithmic all-gather and reduce-scatter, one rank a node
};
inline constexpr std::array kTunerAlgorithms = {
    TunerAlgorithm::kRing,         TunerAlgorithm::kTree, TunerAlgorithm::kCollnetDirect,
    TunerAlgorithm::kCollnetChain, TunerAlgorithm::kNvls, TunerAlgorithm::kNvlsTree,
    TunerAlgorithm::kPat};
// Low latency (a flag in every 8 bytes), low latency with a flag in every 128 bytes, and plain.
enum class TunerProtocol : uint8_t { kLl, kLl128, kSimple };
inline constexpr std::array kTunerProtocols = {TunerProtocol::kLl, TunerProtocol::kLl128,
                                               TunerProtocol::kSimple};
std::string_view tuner_name(TunerAlgorithm algorithm);  // "ring", "nvls_tree", ...
std::string_view tuner_name(TunerProtocol protocol);    // "ll", "ll128", "simple"

enum class HostCpu : uint8_t { kIntel, kAmd };
// Releases differ in the tree of switch reductions: 2.27 gives it 14 us a hop and 5/6 of the bus,
// 2.30 20.9 us and ranks / steps of the bus.
enum class TunerRelease : uint8_t { k2_27, k2_30 };

struct TunerGraph {  // of one channel, bytes/s
  double inner_rate = 0;
  double network_rate = 0;
};

struct TunerGroup {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t nodes = 1;
  int64_t ranks_a_node = 1;
  int64_t channels = 1;
  TunerGraph ring;  // and tree
  TunerGraph nvls;
  Generation generation = Generation::named("hopper");
  bool nvlink = true;        // inside the node; false: PCIe
  bool switch_sum = false;   // the node's switch reduces (NVLS)
  bool network_sum = false;  // the network's switches reduce (CollNet)
  double network_lag_s = 0;  // a message in the network, over the one of the constants; may be < 0
  HostCpu cpu = HostCpu::kIntel;
  TunerRelease release = TunerRelease::k2_30;
  int64_t ranks() const { return nodes * ranks_a_node; }
};

struct TunerFigure {
  double latency_s = 0;
  double rate = 0;  // of the algorithm, before the corrections for size
};
// Returns the latency and rate of a pair; nothing if the pair is not legal for the group (wrong
// collective, LL128 off NVLink or before Volta, switch reduction without such a switch, ...).
std::optional<TunerFigure> tuner_figure(const TunerGroup& group, TunerAlgorithm algorithm,
                                        TunerProtocol protocol);

// Says whether corrections for size change in steps at powers of two, as in the library, or
// linearly in the logarithm of the size (then more bytes are never faster).
enum class SizeSteps : uint8_t { kStepped, kSmooth };
// Returns the factor on the rate of a tree's all-reduce; `index` = log2(bytes / 64).
double tree_correction(TunerProtocol protocol, double index, SizeSteps steps);

struct TunerChoice {
  TunerAlgorithm algorithm = TunerAlgorithm::kRing;
  TunerProtocol protocol = TunerProtocol::kSimple;
  double latency_s = 0, transfer_s = 0;
  double seconds() const { return latency_s + transfer_s; }
  std::string name() const;  // "ring/simple"
};
// Returns the latency and transfer time of one pair, with the corrections for size.
std::optional<TunerChoice> tuner_time(const TunerGroup& group, TunerAlgorithm algorithm,
                                      TunerProtocol protocol, int64_t bytes,
                                      SizeSteps steps = SizeSteps::kStepped);
// Returns the quickest legal pair, the first in the order of the enumerations if several are equal;
// nothing for collectives that the library composes of messages (all-to-all, permute, exchange).
std::optional<TunerChoice> tuner_choice(const TunerGroup& group, int64_t bytes,
                                        SizeSteps steps = SizeSteps::kStepped);

}  // namespace tessera
