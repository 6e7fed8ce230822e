// Measured times of collectives (docs/theory/cost-model.md section 4.3), as curves: what the
// tuner's constants (nccl_tuner.h) are replaced by where somebody has measured. Rates are bytes/s;
// a "bus rate" is the bytes that one member sends (section 4.1: 2(n-1)/n S of an all-reduce, ...)
// over the time.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/cluster.h"

namespace tessera {

// Bytes that one of n members sends, by the best known algorithm (section 4.1); `bytes` as in
// CollectiveCosts::collective. Permute: all of it.
double collective_volume(CollectiveKind kind, int64_t members, double bytes);

struct CurvePoint {
  double latency_s = 0, transfer_s = 0;
  double uncertainty = 0;  // relative, one standard deviation
};
// Time inside one node over NVLink, t = alpha + volume / bus rate with alpha and rate by number of
// members (between the measured numbers linear, beyond them constant), the rate scaled by the
// link's over the measured machine's. Nothing for links and devices without a curve.
//  - all-reduce: V100 hybrid cube mesh and A100 n = 2..8 (vTrain), H100 (2, 4, 8; 5 to 7 from
//    H200), B200;
//  - all-gather, reduce-scatter: H100 and B200 measured; V100 and A100 at the bus rate of their
//    all-reduce with a ring's share of its steps;
//  - all-to-all: H100, B200 measured; before, .7 of the bus rate (driven by kernels);
//  - from Hopper on, medium sizes fall behind the line: the factor is that of the H200's table of
//    8 devices (32 KiB to 16 GiB), taken to hold for all-gather and reduce-scatter, too.
std::optional<CurvePoint> inner_curve(CollectiveKind kind, Generation generation, const Link& inner,
                                      int64_t members, int64_t bytes);

// Share of the bus rate that a ring over nodes reaches, by the bytes of one member (bytes / n):
// 128 KiB .10 to 32 MiB 1. Measured at 48 GB/s a member; since it is time lost at the start, at
// other rates the size counts in proportion. Between the points log-linear; below 64 KiB 1: there
// the low-latency protocols run, whose latency says it all.
double ring_ramp(double bytes_a_member, double rate_a_member);
// Every node adds to a ring over nodes.
inline constexpr double kRingNodeSeconds = 4.7e-6;

// Share of the bus rate that a ring over PCIe reaches: .5 of the net rate with 8 devices (A100
// PCIe), more with fewer, who meet less at the host's bridges.
double pcie_share(int64_t members);

// All-to-all over nodes: latency by nodes, and share of the NIC rate that is reached.
double all_to_all_latency(int64_t nodes);
double all_to_all_nic_share(int64_t nodes);

// Share of the link's rate that one message reaches (H200: 396 of 450 GB/s; a pair of the V100 cube
// mesh has one of six links).
double message_share(Generation generation, LinkKind kind);
// Share of the NIC's nominal rate that large transfers reach (H100, 400 Gb/s: 48 of 50 GB/s).
inline constexpr double kNicShare = .96;

}  // namespace tessera
