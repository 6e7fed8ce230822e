#include "tessera/cost/collective_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

namespace tessera {
namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9, kKibi = 1024, kMebi = kKibi * kKibi;

struct ByMembers {
  double members, micros, bus;  // latency us, bus rate GB/s
};

// V100 in a hybrid cube mesh. The rate is not monotonic in the number of members, because it
// depends on how many rings the links between them allow.
constexpr std::array<ByMembers, 7> kVoltaAllReduce = {{{2, 24, 22.6},
                                                       {3, 32, 45.2},
                                                       {4, 45, 85.8},
                                                       {5, 42, 37.1},
                                                       {6, 50, 45.9},
                                                       {7, 64, 87.6},
                                                       {8, 76, 136.1}}};
constexpr std::array<ByMembers, 7> kAmpereAllReduce = {{{2, 46, 193},
                                                        {3, 56, 210},
                                                        {4, 54, 218},
                                                        {5, 59, 222},
                                                        {6, 67, 225},
                                                        {7, 71, 226},
                                                        {8, 79, 227}}};
// The bus rates for 2, 4 and 8 members are the algorithm bandwidths of docs/theory/cost-model.md
// section 4.3 (324, 236, 267 for all-reduce and 537, 434, 394 for all-gather) times the bus volume
// over the size.
constexpr std::array<ByMembers, 6> kHopperAllReduce = {{{2, 10, 324},
                                                        {4, 15, 236 * 1.5},
                                                        {5, 19, 414},
                                                        {6, 23, 436},
                                                        {7, 27, 460},
                                                        {8, 31, 267 * 1.75}}};
constexpr std::array<ByMembers, 3> kHopperGather = {
    {{2, 8, 537. / 2}, {4, 17, 434 * .75}, {8, 30, 394 * .875}}};
// Only 8 devices were measured (all-reduce: 838 with switch reduction, 680 with a ring; all-gather:
// .674 of 900). The rows for fewer devices are derived from Hopper's.
constexpr std::array<ByMembers, 4> kBlackwellAllReduce = {
    {{2, 10, 640}, {4, 15, 680}, {5, 17, 740}, {8, 24, 838}}};
constexpr std::array<ByMembers, 3> kBlackwellGather = {{{2, 8, 472}, {4, 17, 572}, {8, 24, 606.6}}};
constexpr std::array<ByMembers, 1> kHopperAllToAll = {{{8, 50, 380}}};
constexpr std::array<ByMembers, 1> kBlackwellAllToAll = {{{8, 50, .597 * 900}}};
constexpr double kKernelAllToAll = .7;

ByMembers at(std::span<const ByMembers> table, double members) {
  if (members <= table.front().members) return table.front();
  if (members >= table.back().members) return table.back();
  size_t i = 1;
  while (table[i].members < members) ++i;
  const ByMembers &a = table[i - 1], &b = table[i];
  const double part = (members - a.members) / (b.members - a.members);
  return {members, a.micros + part * (b.micros - a.micros), a.bus + part * (b.bus - a.bus)};
}

struct BySize {
  double bytes, value;
};
// Returns the value of the table at `bytes`, by linear interpolation in the logarithms. Outside the
// table it is the first or the last value.
double at(std::span<const BySize> table, double bytes) {
  if (bytes <= table.front().bytes) return table.front().value;
  if (bytes >= table.back().bytes) return table.back().value;
  size_t i = 1;
  while (table[i].bytes < bytes) ++i;
  const BySize &a = table[i - 1], &b = table[i];
  const double part = std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes);
  return a.value * std::pow(b.value / a.value, part);
}

// Bus rates (GB/s) of the all-reduce of 8 H200 by size.
constexpr std::array<BySize, 7> kH200AllReduce = {{{32 * kKibi, 1.4},
                                                   {kMebi, 40},
                                                   {16 * kMebi, 220},
                                                   {64 * kMebi, 347},
                                                   {256 * kMebi, 436},
                                                   {1024 * kMebi, 464},
                                                   {16384 * kMebi, 482}}};

double line(const ByMembers& point, double volume) {
  return point.micros * kMicro + volume / (point.bus * kGiga);
}

// Returns the predicted time alpha + volume / bus rate over the measured time, by size. It is taken
// from the all-reduce of 8 Hopper devices and used for every number of members.
double size_share(double bytes) {
  static const auto shares = [] {
    std::array<BySize, kH200AllReduce.size()> out{};
    for (size_t i = 0; i < out.size(); ++i) {
      const auto& [size, bus] = kH200AllReduce[i];
      const double volume = collective_volume(CollectiveKind::kAllReduce, 8, size);
      out[i] = {size, line(kHopperAllReduce.back(), volume) / (volume / (bus * kGiga))};
    }
    return out;
  }();
  return at(shares, bytes);
}

// Returns the latency of the all-gather of a ring over that of its all-reduce. The latency is 8.4 +
// steps * 3.4 us, with the tuner's constants.
double gather_latency_share(double members) {
  return (8.4 + (members - 1) * 3.4) / (8.4 + 2 * (members - 1) * 3.4);
}

struct Curve {
  ByMembers point;
  double reference = 1;  // rate of the link of the measured machine, GB/s
  double uncertainty = .1;
};

// A `CurveSet` has the collectives that were measured on one kind of machine. A table is empty if
// its collective was not measured.
struct CurveSet {
  std::string_view name;
  double reference;  // rate of the links of the machine, GB/s
  std::span<const ByMembers> all_reduce, gather, exchange;
  bool by_size = false;  // whether size_share applies
  // If only one number of members was measured, that number; else 0.
  double measured_members = 0;
};
constexpr std::array<CurveSet, 4> kCurveSets = {
    {{"volta", 150, kVoltaAllReduce, {}, {}},
     {"ampere", 300, kAmpereAllReduce, {}, {}},
     {"hopper", 450, kHopperAllReduce, kHopperGather, kHopperAllToAll, true},
     {"blackwell", 900, kBlackwellAllReduce, kBlackwellGather, kBlackwellAllToAll, true, 8}}};

const CurveSet* curve_set(Generation generation) {
  const auto* found = std::find_if(kCurveSets.begin(), kCurveSets.end(), [&](const CurveSet& set) {
    return set.name == generation->curves;
  });
  return found == kCurveSets.end() ? nullptr : found;
}

// Returns the curve of another collective for machines on which only all-reduces were measured. It
// has their bus rate, and their latency times gather_latency_share.
Curve from_all_reduce(const CurveSet& set, bool exchange, double members) {
  Curve curve;
  curve.point = at(set.all_reduce, members);
  curve.reference = set.reference;
  curve.uncertainty = .2;
  curve.point.micros *= gather_latency_share(members);
  if (exchange) curve.point.bus *= kKernelAllToAll;
  return curve;
}

Curve curve_of(const CurveSet& set, CollectiveKind kind, double members) {
  const bool exchange = kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kExchange;
  const bool reduces_all = kind == CollectiveKind::kAllReduce;
  const auto table = reduces_all ? set.all_reduce : exchange ? set.exchange : set.gather;
  if (table.empty()) return from_all_reduce(set, exchange, members);
  Curve curve;
  curve.point = at(table, members);
  curve.reference = set.reference;
  if (set.measured_members > 0 && members != set.measured_members) curve.uncertainty = .2;
  return curve;
}

bool has_size_share(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter;
}

constexpr std::array<BySize, 10> kRingRamp = {{{64 * kKibi, 1},
                                               {128 * kKibi, .10},
                                               {256 * kKibi, .18},
                                               {512 * kKibi, .30},
                                               {kMebi, .43},
                                               {2 * kMebi, .63},
                                               {4 * kMebi, .55},
                                               {8 * kMebi, .78},
                                               {16 * kMebi, .93},
                                               {32 * kMebi, 1}}};
constexpr double kRampRate = 48 * kGiga;

}  // namespace

double collective_volume(CollectiveKind kind, int64_t members, double bytes) {
  const auto n = static_cast<double>(members);
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * (n - 1) / n * bytes;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kExchange: return (n - 1) / n * bytes;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kPermute: return bytes;
  }
  return bytes;
}

std::optional<CurvePoint> inner_curve(CollectiveKind kind, Generation generation, const Link& inner,
                                      int64_t members, int64_t bytes) {
  if (inner.kind != LinkKind::kNvlink || kind == CollectiveKind::kPermute) return std::nullopt;
  const auto n = static_cast<double>(members);
  const CurveSet* set = curve_set(generation);
  if (set == nullptr) return std::nullopt;
  const Curve curve = curve_of(*set, kind, n);
  const auto size = static_cast<double>(bytes);
  ByMembers point = curve.point;
  point.bus *= inner.rate / (curve.reference * kGiga);
  double seconds = line(point, collective_volume(kind, members, size));
  if (set->by_size && has_size_share(kind)) seconds /= size_share(size);
  // The latency is capped at the whole time, because size_share may reduce the time.
  const double latency = std::min(point.micros * kMicro, seconds);
  return CurvePoint{latency, seconds - latency, curve.uncertainty};
}

double ring_ramp(double bytes_a_member, double rate_a_member) {
  return at(kRingRamp, bytes_a_member * kRampRate / rate_a_member);
}

double pcie_share(int64_t members) {
  constexpr std::array<BySize, 3> kShare = {{{2, .85}, {4, .65}, {8, .5}}};
  return at(kShare, static_cast<double>(members));
}

double all_to_all_latency(int64_t nodes) {
  constexpr std::array<BySize, 5> kMicros = {{{2, 37}, {4, 42}, {8, 60}, {16, 98}, {32, 290}}};
  const auto n = static_cast<double>(nodes);
  // For more nodes than in the table, the latency grows in proportion to the number of nodes.
  return at(kMicros, n) * std::max(1., n / kMicros.back().bytes) * kMicro;
}

double all_to_all_nic_share(int64_t nodes) { return 1 - .44 / static_cast<double>(nodes); }

double message_share(Generation generation, LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvlink: return generation->message_share;
    case LinkKind::kDirect: return .88;
    case LinkKind::kPcie: return .85;
    case LinkKind::kNic: return kNicShare;
    case LinkKind::kQpi:
    case LinkKind::kHost: return .8;
    case LinkKind::kMemory: return 1;
  }
  return 1;
}

}  // namespace tessera
