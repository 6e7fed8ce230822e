#include "tessera/search/price/simulate_islands.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/cost/collective_cost.h"

namespace tessera {
namespace {

// Returns the parts of the cluster on which the ranks of an island are, in their order.
std::vector<int64_t> parts_of(const Cluster& cluster, const RankDevices& devices, int64_t first,
                              int64_t ranks) {
  std::vector<int64_t> parts;
  for (int64_t rank = first; rank < first + ranks; ++rank)
    parts.push_back(cluster.locate(devices.device_of(rank)).part);
  return parts;
}

// Simulates each island that lies on other devices than the islands before it, and returns the
// slowest.
Result<Simulation> slowest_island(const Compiled& planned, const Cluster& cluster,
                                  const SimulateOptions& options) {
  TESSERA_TRY(Simulation slowest, simulate(*planned.lowering, cluster, options));
  TESSERA_TRY(const RankDevices devices, rank_devices(planned.outer->plan));
  const int64_t ranks = planned.plan().ranks;
  std::vector<std::vector<int64_t>> known{parts_of(cluster, devices, 0, ranks)};
  for (int64_t island = 1; island < planned.islands(); ++island) {
    std::vector<int64_t> parts = parts_of(cluster, devices, island * ranks, ranks);
    if (std::find(known.begin(), known.end(), parts) != known.end()) continue;
    known.push_back(std::move(parts));
    SimulateOptions elsewhere = options;
    std::vector<int64_t> of_rank;
    for (int64_t rank = 0; rank < ranks; ++rank)
      of_rank.push_back(devices.device_of(island * ranks + rank));
    elsewhere.devices = RankDevices(std::move(of_rank));
    TESSERA_TRY(Simulation other, simulate(*planned.lowering, cluster, elsewhere));
    if (other.step_time_s > slowest.step_time_s) slowest = std::move(other);
  }
  return slowest;
}

// Returns the bytes of the parameters that a rank keeps, of those with these names.
int64_t kept_bytes(const Lowering& lowering, const Program& program,
                   const std::vector<std::string>& names) {
  int64_t bytes = 0;
  for (const Home& home : program.homes) {
    const std::string& name = lowering.graph().tensor(home.tensor).name;
    if (std::find(names.begin(), names.end(), name) != names.end())
      bytes += program.buffer(home.buffer).bytes();
  }
  return bytes;
}

// Returns the most bytes that a rank receives, and sends, when the parameters go back from an outer
// step into the island: it keeps more of them there than the share of which it has made new values.
Result<int64_t> gathered_bytes(const Compiled& planned, const OuterFragment& fragment) {
  std::vector<int32_t> role;
  planned.lowering->roles(&role);
  int64_t most = 0;
  std::vector<int32_t> seen;
  for (int rank = 0; rank < static_cast<int>(role.size()); ++rank) {
    const int32_t own = role[static_cast<size_t>(rank)];
    if (own < 0 || std::find(seen.begin(), seen.end(), own) != seen.end()) continue;
    seen.push_back(own);
    TESSERA_TRY(const Program inner, planned.lowering->lower(rank, false));
    const int64_t keeps = kept_bytes(*planned.lowering, inner, fragment.parameters);
    if (keeps == 0) continue;
    TESSERA_TRY(const Program outer, fragment.lowering->lower(rank, false));
    most = std::max(most, keeps - kept_bytes(*fragment.lowering, outer, fragment.parameters));
  }
  return most;
}

}  // namespace

Result<Simulation> simulate_islands(const Compiled& planned, const Cluster& cluster,
                                    const SimulateOptions& options, OuterTimes* times) {
  if (!planned.outer) return simulate(*planned.lowering, cluster, options);
  // Checks that all islands have devices before an island is looked for on one.
  const auto ranks = static_cast<int64_t>(planned.ranks());
  TESSERA_TRY(const RankDevices devices, rank_devices(planned.outer->plan));
  if (devices.end(ranks) > cluster.devices()) {
    return simulate(*planned.outer->fragments.front().lowering, cluster, options);
  }
  TESSERA_TRY(Simulation out, slowest_island(planned, cluster, options));
  OuterTimes found;
  found.inner_step_s = out.step_time_s;
  SimulateOptions plain = options;
  plain.events = false;
  plain.critical_path = false;
  plain.counts = nullptr;
  double cycle_s = 0;
  int64_t held = 0;
  const CollectiveCosts costs(cluster, options.style);
  const int64_t members = std::max<int64_t>(planned.plan().ranks, 2);
  std::vector<int> of_island(static_cast<size_t>(planned.plan().ranks));
  std::iota(of_island.begin(), of_island.end(), 0);
  const GroupPlacement island = place_group(cluster, devices.devices_of(of_island), 1);
  for (const OuterFragment& fragment : planned.outer->fragments) {
    TESSERA_TRY(const Simulation outer, simulate(*fragment.lowering, cluster, plain));
    int64_t sent = 0, arena = 0;
    for (const RankResult& role : outer.roles) {
      int64_t of_role = 0;
      for (const TrafficRow& row : role.traffic) of_role += row.bytes;
      sent = std::max(sent, of_role);
      arena = std::max(arena, role.memory.peak_bytes);
    }
    TESSERA_TRY(const int64_t gathered, gathered_bytes(planned, fragment));
    const double back_s =
        costs.collective(CollectiveKind::kAllGather, island, gathered * members / (members - 1))
            .seconds();
    found.fragment_s.push_back(outer.step_time_s + back_s);
    found.bytes.push_back(sent + gathered);
    cycle_s += found.fragment_s.back();
    held += arena;
  }
  found.a_step_s = cycle_s / static_cast<double>(planned.outer->plan.outer->every);
  const auto islands = static_cast<int64_t>(planned.islands());
  out.step_time_s += found.a_step_s;
  out.ranks *= islands;
  out.tokens *= islands;
  out.model_flops *= static_cast<double>(islands);
  out.hardware_flops *= static_cast<double>(islands);
  for (RankResult& role : out.roles) {
    role.ranks *= islands;
    role.spent_s[static_cast<size_t>(Spent::kCollective)] += found.a_step_s;
    role.memory.peak_bytes += held;
    role.memory.live_bytes += held;
    role.memory.reserved_bytes += held;
    role.memory.low += static_cast<double>(held);
    role.memory.high += static_cast<double>(held);
  }
  if (times != nullptr) *times = std::move(found);
  return out;
}

}  // namespace tessera
