// The cost model of NCCL, the collective library of NVIDIA devices, by which it chooses an
// algorithm and a protocol (docs/theory/cost-model.md section 4.2, release 2.30). The
// model predicts
//   seconds = latency + bytes / rate
// for every legal pair (algorithm, protocol), and the library takes the pair with the least
// seconds. The model is good for choosing but coarse as a prediction of times; collective_curves.h
// has measured times.
//
// A rate "of the algorithm", in bytes/s, is the size of the full array (the larger of the input and
// output of a rank) over the time. A channel is one ring or tree.
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
// The protocols: kLl has low latency, with a flag in every 8 bytes; kLl128 has a flag in every 128
// bytes; kSimple has no flags in the data.
enum class TunerProtocol : uint8_t { kLl, kLl128, kSimple };
inline constexpr std::array kTunerProtocols = {TunerProtocol::kLl, TunerProtocol::kLl128,
                                               TunerProtocol::kSimple};
std::string_view tuner_name(TunerAlgorithm algorithm);  // "ring", "nvls_tree", ...
std::string_view tuner_name(TunerProtocol protocol);    // "ll", "ll128", "simple"

enum class HostCpu : uint8_t { kIntel, kAmd };
// Releases of the library. They differ in the constants for reductions in the switch: for kNvlsTree
// a hop between nodes takes 14 us in 2.27 and 20.9 us in 2.30; for kNvls and kNvlsTree the rate is
// 5/6 of the bus rate in 2.27, and ranks / steps of it in 2.30.
enum class TunerRelease : uint8_t { k2_27, k2_30 };

struct TunerGraph {  // rates of one channel, bytes/s
  double inner_rate = 0;
  double network_rate = 0;
};

struct TunerGroup {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t nodes = 1;
  int64_t ranks_a_node = 1;
  int64_t channels = 1;
  TunerGraph ring;  // the graph of rings and trees
  TunerGraph nvls;
  Generation generation = Generation::named("hopper");
  bool nvlink = true;        // links inside the node are NVLink; false: PCIe
  bool switch_sum = false;   // the node's switch can reduce (NVLS)
  bool network_sum = false;  // the network's switches can reduce (CollNet)
  double network_lag_s = 0;  // latency of a network message minus that in the constants
  HostCpu cpu = HostCpu::kIntel;
  TunerRelease release = TunerRelease::k2_30;
  int64_t ranks() const { return nodes * ranks_a_node; }
};

struct TunerFigure {
  double latency_s = 0;
  double rate = 0;  // rate of the algorithm, without the corrections for size
};
// Returns the latency and rate of a pair. Returns nothing if the pair is not legal for the group:
// the algorithm lacks the collective, LL128 is used without NVLink or before Volta, the switches
// cannot reduce, and so on.
std::optional<TunerFigure> tuner_figure(const TunerGroup& group, TunerAlgorithm algorithm,
                                        TunerProtocol protocol);

// Says how the corrections for size change: in steps at powers of two, as in the library, or
// linearly in the logarithm of the size, so that more bytes never take less time.
enum class SizeSteps : uint8_t { kStepped, kSmooth };
// Returns the correction for size: the factor on the rate of an all-reduce by a tree. `index` is
// log2(bytes / 64).
double tree_correction(TunerProtocol protocol, double index, SizeSteps steps);

struct TunerChoice {
  TunerAlgorithm algorithm = TunerAlgorithm::kRing;
  TunerProtocol protocol = TunerProtocol::kSimple;
  double latency_s = 0, transfer_s = 0;
  double seconds() const { return latency_s + transfer_s; }
  std::string name() const;  // "ring/simple"
};
// Returns the latency and transfer time of one pair, with the corrections for size; nothing if the
// pair is not legal.
std::optional<TunerChoice> tuner_time(const TunerGroup& group, TunerAlgorithm algorithm,
                                      TunerProtocol protocol, int64_t bytes,
                                      SizeSteps steps = SizeSteps::kStepped);
// Returns the quickest legal pair. If several are equally quick, it is the first in the order of
// the enumerations. Returns nothing for collectives that the library makes of single messages
// (all-to-all, permute, exchange).
std::optional<TunerChoice> tuner_choice(const TunerGroup& group, int64_t bytes,
                                        SizeSteps steps = SizeSteps::kStepped);

}  // namespace tessera
