// Curves of measured times of collectives (docs/theory/cost-model.md section 4.3). If a collective
// was measured on a kind of machine, its curve is used in place of the tuner's constants
// (nccl_tuner.h). Rates are in bytes/s. A "bus rate" is the bytes that one member sends (section
// 4.1; 2(n-1)/n S for an all-reduce of S bytes) over the time.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/redistribution.h"
#include "tessera/cluster/cluster.h"

namespace tessera {

// Returns the bytes that one member sends with the best known algorithm (section 4.1). `bytes` is
// the size of the array as in CollectiveCosts::collective. For permute, broadcast and reduce the
// result is `bytes` itself.
double collective_volume(CollectiveKind kind, int64_t members, double bytes);

struct CurvePoint {
  double latency_s = 0, transfer_s = 0;
  double uncertainty = 0;  // relative, one standard deviation
};
// Returns the time of a collective inside one node over NVLink, t = alpha + volume / bus rate;
// nothing for links and devices without a curve. Alpha and the bus rate depend on the number of
// members: they are linear between the measured numbers and constant outside them. The bus rate
// is multiplied by the rate of the link over that of the measured machine's link. Sources of
// the curves:
//  - all-reduce: V100 hybrid cube mesh and A100 n = 2..8 (vTrain), H100 (2, 4, 8; 5 to 7 from
//    H200), B200;
//  - all-gather, reduce-scatter: H100 and B200 measured; V100 and A100 at the bus rate of
//    their all-reduce, with its latency times the steps of a ring's all-gather over those of
//    its all-reduce;
//  - all-to-all: H100 and B200 measured; V100 and A100 at .7 of the bus rate of their all-reduce,
//    because kernels drive the exchange;
//  - from Hopper on, medium sizes are slower than t by a factor that depends on the size. It was
//    measured for the all-reduce of 8 H200 (32 KiB to 16 GiB) and is assumed to hold for all-gather
//    and reduce-scatter, too.
std::optional<CurvePoint> inner_curve(CollectiveKind kind, Generation generation, const Link& inner,
                                      int64_t members, int64_t bytes);

// Returns the share of the bus rate that a ring over nodes reaches. It depends on the bytes of one
// member (bytes / n) and goes from .10 at 128 KiB to 1 at 32 MiB, log-linear between the points. It
// was measured at 48 GB/s a member. The loss is a time at the start, so at another rate the sizes
// are scaled in proportion to the rate. Up to 64 KiB the share is 1, because the low-latency
// protocols run there and their latency contains the loss.
double ring_ramp(double bytes_a_member, double rate_a_member);
// Seconds by which each node increases the latency of a ring over nodes.
inline constexpr double kRingNodeSeconds = 4.7e-6;

// Returns the share of the link's net rate that a ring over PCIe reaches. It is .5 with 8 devices
// (A100 PCIe) and larger with fewer devices, because these compete less for the host's bridges.
double pcie_share(int64_t members);

// Returns the latency (s) of an all-to-all over nodes.
double all_to_all_latency(int64_t nodes);
// Returns the share of the NIC rate that an all-to-all over nodes reaches.
double all_to_all_nic_share(int64_t nodes);

// Returns the share of the link's rate that one message reaches (H200: 396 of 450 GB/s; on the V100
// cube mesh two devices use one of the six links of a device).
double message_share(Generation generation, LinkKind kind);
// The share of the NIC's nominal rate that large transfers reach (H100 with 400 Gb/s: 48 of
// 50 GB/s).
inline constexpr double kNicShare = .96;

}  // namespace tessera
