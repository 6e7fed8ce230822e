// Curves of measured times of collectives (docs/theory/cost-model.md section 4.3). Where somebody
// has measured, they replace the tuner's constants (nccl_tuner.h). Rates are bytes/s; a "bus rate"
// is the bytes that one member sends (section 4.1: 2(n-1)/n S of an all-reduce, ...) over the time.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/cluster.h"

namespace tessera {

// Returns the bytes that one of n members sends by the best known algorithm (section 4.1), with
// `bytes` as in CollectiveCosts::collective; all of them for permute, broadcast and reduce.
double collective_volume(CollectiveKind kind, int64_t members, double bytes);

struct CurvePoint {
  double latency_s = 0, transfer_s = 0;
  double uncertainty = 0;  // relative, one standard deviation
};
// Returns the time of a collective inside one node over NVLink, t = alpha + volume / bus rate.
// Alpha and rate depend on the number of members (linear between the measured numbers, constant
// beyond them); the rate is scaled by the link's rate over the measured machine's. Nothing for
// links and devices without a curve.
//  - all-reduce: V100 hybrid cube mesh and A100 n = 2..8 (vTrain), H100 (2, 4, 8; 5 to 7 from
//    H200), B200;
//  - all-gather, reduce-scatter: H100 and B200 measured; V100 and A100 at the bus rate of their
//    all-reduce, with the latency scaled by a ring's share of its steps;
//  - all-to-all: H100, B200 measured; earlier ones at .7 of the bus rate (driven by kernels);
//  - from Hopper on, medium sizes are slower than the line: by the factor of the H200's table of
//    8 devices (32 KiB to 16 GiB), assumed to hold for all-gather and reduce-scatter, too.
std::optional<CurvePoint> inner_curve(CollectiveKind kind, Generation generation, const Link& inner,
                                      int64_t members, int64_t bytes);

// Returns the share of the bus rate that a ring over nodes reaches, by the bytes of one member
// (bytes / n): .10 at 128 KiB to 1 at 32 MiB, log-linear between the points. It was measured at 48
// GB/s a member; since the loss is time at the start, at another rate the size counts in
// proportion. Below 64 KiB it is 1: there the low-latency protocols run, and their latency covers
// the loss.
double ring_ramp(double bytes_a_member, double rate_a_member);
// Seconds that every node adds to a ring over nodes.
inline constexpr double kRingNodeSeconds = 4.7e-6;

// Returns the share of the bus rate that a ring over PCIe reaches: .5 of the net rate with 8
// devices (A100 PCIe), more with fewer devices, which meet less at the host's bridges.
double pcie_share(int64_t members);

// Returns the latency (s) of an all-to-all over nodes.
double all_to_all_latency(int64_t nodes);
double all_to_all_nic_share(int64_t nodes);

// Returns the share of the link's rate that one message reaches (H200: 396 of 450 GB/s; a pair of
// the V100 cube mesh has one of six links).
double message_share(Generation generation, LinkKind kind);
// Share of the NIC's nominal rate that large transfers reach (H100, 400 Gb/s: 48 of 50 GB/s).
inline constexpr double kNicShare = .96;

}  // namespace tessera
