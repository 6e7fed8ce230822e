#include "tessera/plan/layout/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tessera/base/check.h"
#include "tessera/plan/layout/reshard_order.h"

namespace tessera {
namespace {

using reshard_order::Job;
using reshard_order::Slot;

// Returns piece `index` of the box cut into `count` pieces along its longest dim; the piece may
// be empty.
Box cut_box(Box box, int64_t count, int64_t index) {
  if (count == 1) return box;
  const auto longest =
      std::max_element(box.dims.begin(), box.dims.end(),
                       [](const Interval& a, const Interval& b) { return a.size < b.size; });
  if (longest == box.dims.end()) return index == 0 ? box : Box({Interval{}});  // a scalar
  *longest = split_interval(*longest, count, index);
  return box;
}

struct Tile {
  Box box;
  std::vector<int64_t> ranks;
};

std::vector<Tile> distinct_tiles(const ReshardSide& side) {
  std::vector<Tile> tiles;
  std::map<std::vector<int64_t>, size_t> known;
  for (const ReshardHolder& holder : side) {
    std::vector<int64_t> key;
    for (const Interval& dim : holder.box.dims) key.insert(key.end(), {dim.begin, dim.size});
    const auto [it, fresh] = known.emplace(std::move(key), tiles.size());
    if (fresh) tiles.push_back({holder.box, {}});
    tiles[it->second].ranks.push_back(holder.rank);
  }
  return tiles;
}

std::map<int64_t, int64_t> hosts_of(const ReshardSide& source, const ReshardSide& destination) {
  std::map<int64_t, int64_t> hosts;
  for (const ReshardSide* side : {&source, &destination}) {
    for (const ReshardHolder& holder : *side) {
      const auto [it, fresh] = hosts.emplace(holder.rank, holder.host);
      TESSERA_CHECK(fresh || it->second == holder.host, "rank {} is on hosts {} and {}",
                    holder.rank, it->second, holder.host);
    }
  }
  return hosts;
}

double way_seconds(ReshardWay way, double t, const std::vector<int64_t>& by_host, int64_t chunks) {
  const double hosts = static_cast<double>(by_host.size());
  double receivers = 0;
  for (int64_t n : by_host) receivers += static_cast<double>(n);
  switch (way) {
    case ReshardWay::kSendRecv: return receivers * t;
    case ReshardWay::kLocalAllGather: return hosts * t;
    case ReshardWay::kGlobalAllGather: return hosts > 1 ? t * (2 - 1 / receivers) : t;
    case ReshardWay::kBroadcast: return t * (1 + (hosts - 1) / static_cast<double>(chunks));
  }
  return 0;
}

// A `Piece` is a task, or a piece of a task, that has no sender and no position in the order of
// issue yet.
struct Piece {
  size_t task = 0;
  Box region;
  ReshardWay way = ReshardWay::kBroadcast;
  std::vector<int64_t> receivers;
};

// A `Candidate` is a set of pieces with a schedule for them.
struct Candidate {
  ReshardOrder order = ReshardOrder::kBest;
  std::vector<Piece> pieces;
  std::vector<Job> jobs;
  reshard_order::Schedule schedule;
  // By piece: the sending rank; empty: the least loaded rank of the host.
  std::vector<int64_t> devices;
  double seconds = 0;
};

class Resharding {
 public:
  Resharding(const ReshardSide& source, const ReshardSide& destination,
             const ReshardOptions& options, std::vector<UnitTask> tasks)
      : source_(source),
        destination_(destination),
        options_(options),
        host_of_(hosts_of(source, destination)) {
    plan_.tasks = std::move(tasks);
    for (const auto& [rank, host] : host_of_) numbers_.emplace(host, 0);
    for (auto& [host, number] : numbers_) {
      number = static_cast<int>(hosts_.size());
      hosts_.push_back(host);
    }
    set_bounds();
  }

  Result<ReshardPlan> run() {
    Candidate chosen;
    if (options_.order == ReshardOrder::kBest) {
      chosen = best();
    } else if (options_.order == ReshardOrder::kGenerated) {
      chosen = generated(options_.way);
    } else {
      chosen = unscheduled(1);
      if (options_.order == ReshardOrder::kExact && chosen.jobs.size() > kExactTasks) {
        return invalid_input(
            fmt::format("reshard: expected at most {} tasks for the exact order, "
                        "found {}",
                        kExactTasks, chosen.jobs.size()));
      }
      schedule(chosen, options_.order);
    }
    finish(chosen);
    return std::move(plan_);
  }

 private:
  int hosts() const { return static_cast<int>(hosts_.size()); }
  int number(int64_t host) const { return numbers_.at(host); }
  double seconds_of(const Box& region) const {
    return static_cast<double>(region.volume() * options_.bytes_per_element) /
           options_.bytes_per_second;
  }

  // Sets the lower bounds of the plan. A receiving host must receive the bytes of all its tasks. A
  // set of hosts that are the only possible senders of some tasks must send the bytes of these,
  // shared evenly at best; the same holds for all sending hosts together.
  void set_bounds() {
    std::map<int64_t, int64_t> in;
    std::set<std::vector<int64_t>> sets;
    std::set<int64_t> all;
    for (const UnitTask& task : plan_.tasks) {
      if (task.receiver_hosts.empty()) continue;
      for (int64_t host : task.receiver_hosts) in[host] += task.bytes;
      sets.insert(task.sender_hosts);
      all.insert(task.sender_hosts.begin(), task.sender_hosts.end());
    }
    if (!all.empty()) sets.emplace(all.begin(), all.end());
    for (const auto& [host, bytes] : in) {
      plan_.busiest_bound = std::max(plan_.busiest_bound, bytes);
    }
    for (const std::vector<int64_t>& set : sets) {
      int64_t bytes = 0;
      for (const UnitTask& task : plan_.tasks) {
        const bool inside = std::includes(set.begin(), set.end(), task.sender_hosts.begin(),
                                          task.sender_hosts.end());
        if (inside && !task.receiver_hosts.empty()) bytes += task.bytes;
      }
      const int64_t n = static_cast<int64_t>(set.size());
      plan_.busiest_bound = std::max(plan_.busiest_bound, (bytes + n - 1) / n);
      plan_.bound_seconds =
          std::max(plan_.bound_seconds, static_cast<double>(bytes) / static_cast<double>(n));
    }
    for (const auto& [host, bytes] : in) {
      plan_.bound_seconds = std::max(plan_.bound_seconds, static_cast<double>(bytes));
    }
    plan_.bound_seconds /= options_.bytes_per_second;
  }

  std::vector<int64_t> network_receivers(const UnitTask& task) const {
    std::vector<int64_t> out;
    for (int64_t rank : task.receivers) {
      if (std::binary_search(task.receiver_hosts.begin(), task.receiver_hosts.end(),
                             host_of_.at(rank))) {
        out.push_back(rank);
      }
    }
    return out;
  }

  void add(Candidate& to, Piece piece, std::optional<ReshardWay> wanted) const {
    const UnitTask& task = plan_.tasks[piece.task];
    std::map<int64_t, int64_t> by_host;
    for (int64_t rank : piece.receivers) ++by_host[host_of_.at(rank)];
    std::vector<int64_t> counts;
    Job job;
    for (const auto& [host, n] : by_host) {
      counts.push_back(n);
      job.receivers.push_back(number(host));
    }
    for (int64_t host : task.sender_hosts) job.senders.push_back(number(host));
    const double t = seconds_of(piece.region);
    using enum ReshardWay;
    piece.way = wanted.value_or(kSendRecv);
    if (!wanted) {
      for (ReshardWay way : {kLocalAllGather, kBroadcast, kGlobalAllGather}) {
        if (way_seconds(way, t, counts, options_.chunks) <
            way_seconds(piece.way, t, counts, options_.chunks)) {
          piece.way = way;
        }
      }
    }
    job.seconds = way_seconds(piece.way, t, counts, options_.chunks);
    if (counts.size() > 1) {
      if (piece.way == kBroadcast)
        job.relays.assign(job.receivers.begin(), job.receivers.end() - 1);
      if (piece.way == kGlobalAllGather) job.relays = job.receivers;
    }
    to.pieces.push_back(std::move(piece));
    to.jobs.push_back(std::move(job));
  }

  // Returns the tasks, each cut into `cuts` pieces, without a schedule.
  Candidate unscheduled(int64_t cuts) const {
    Candidate out;
    for (size_t i = 0; i < plan_.tasks.size(); ++i) {
      if (plan_.tasks[i].receiver_hosts.empty()) continue;
      for (int64_t c = 0; c < cuts; ++c) {
        Box region = cut_box(plan_.tasks[i].region, cuts, c);
        if (region.empty()) continue;
        add(out, {i, std::move(region), {}, network_receivers(plan_.tasks[i])}, options_.way);
      }
    }
    return out;
  }

  void schedule(Candidate& c, ReshardOrder order) const {
    const int n = hosts();
    const double bound = plan_.bound_seconds;
    c.order = order;
    c.devices.clear();
    switch (order) {
      case ReshardOrder::kFirstReplica: c.schedule = reshard_order::first_replica(c.jobs); break;
      case ReshardOrder::kSizeBalanced: c.schedule = reshard_order::size_balanced(c.jobs, n); break;
      case ReshardOrder::kLongestFirst: c.schedule = reshard_order::longest_first(c.jobs, n); break;
      case ReshardOrder::kWaves: c.schedule = reshard_order::waves(c.jobs, n, options_.seed); break;
      case ReshardOrder::kLocalSearch:
        c.schedule = reshard_order::improve(c.jobs, reshard_order::waves(c.jobs, n, options_.seed),
                                            n, bound);
        break;
      case ReshardOrder::kExact: {
        reshard_order::Schedule start =
            reshard_order::improve(c.jobs, reshard_order::longest_first(c.jobs, n), n, bound);
        c.schedule = reshard_order::exact(c.jobs, std::move(start), n, bound);
        break;
      }
      case ReshardOrder::kGenerated:
      case ReshardOrder::kBest: TESSERA_CHECK(false, "not an order of whole tasks");
    }
    c.seconds = reshard_order::makespan(c.jobs, c.schedule, n);
  }

  // Returns the schedule for ReshardOrder::kGenerated, in which the device with the least bytes so
  // far sends. Steps with a single receiver are ordered by (tile, receiver, source slice).
  Candidate generated(std::optional<ReshardWay> way) const {
    Candidate out;
    out.order = ReshardOrder::kGenerated;
    const bool each = way == ReshardWay::kSendRecv || way == ReshardWay::kLocalAllGather;
    if (!each) {
      out = unscheduled(1);
      out.order = ReshardOrder::kGenerated;
    }
    for (size_t first = 0; each && first < plan_.tasks.size();) {
      size_t end = first;
      while (end < plan_.tasks.size() && plan_.tasks[end].tile == plan_.tasks[first].tile) ++end;
      add_by_receiver(out, first, end, *way);
      first = end;
    }
    std::map<int64_t, double> load;  // by device: what it sends so far
    for (size_t j = 0; j < out.jobs.size(); ++j) {
      const std::vector<int64_t>& devices = plan_.tasks[out.pieces[j].task].senders;
      const int64_t device = *std::min_element(
          devices.begin(), devices.end(), [&](int64_t a, int64_t b) { return load[a] < load[b]; });
      load[device] += seconds_of(out.pieces[j].region);
      out.devices.push_back(device);
      out.schedule.push_back({static_cast<int>(j), number(host_of_.at(device))});
    }
    out.seconds = reshard_order::makespan(out.jobs, out.schedule, hosts());
    return out;
  }

  // Adds the tasks [first, end), which belong to one destination tile, as steps with one
  // receiver each.
  void add_by_receiver(Candidate& out, size_t first, size_t end, ReshardWay way) const {
    for (int64_t receiver : plan_.tasks[first].receivers) {
      for (size_t i = first; i < end; ++i) {
        const std::vector<int64_t> receivers = network_receivers(plan_.tasks[i]);
        int64_t on_host = 0, before = 0;
        bool takes = false;
        for (int64_t rank : receivers) {
          if (host_of_.at(rank) != host_of_.at(receiver)) continue;
          takes = takes || rank == receiver;
          if (!takes) ++before;
          ++on_host;
        }
        if (!takes) continue;
        Box region = plan_.tasks[i].region;
        if (way == ReshardWay::kLocalAllGather) region = cut_box(region, on_host, before);
        if (!region.empty()) add(out, {i, region, {}, {receiver}}, ReshardWay::kSendRecv);
      }
    }
  }

  Candidate best() const {
    constexpr size_t kMostPieces = 512;
    // More pieces are taken only if they save 1 % of the time.
    constexpr double kWorthCutting = 0.99;
    using enum ReshardOrder;
    std::vector<Candidate> candidates;
    std::vector<ReshardWay> ways = {ReshardWay::kSendRecv, ReshardWay::kLocalAllGather};
    if (options_.way) ways = {*options_.way};
    for (ReshardWay way : ways) candidates.push_back(generated(way));
    Candidate best = candidates[0];
    for (Candidate& c : candidates) {
      if (c.seconds < best.seconds) best = std::move(c);
    }
    for (int64_t cuts : {1, 2, 3, 4, 6, 8}) {
      const bool good = best.seconds <= plan_.bound_seconds * 1.001;
      if (cuts > 1 && (good || !options_.cut_tasks)) break;
      const Candidate pieces = unscheduled(cuts);
      if (cuts > 1 && pieces.jobs.size() > kMostPieces) break;
      for (ReshardOrder order :
           {kFirstReplica, kSizeBalanced, kLongestFirst, kWaves, kLocalSearch, kExact}) {
        if (order == kExact && pieces.jobs.size() > kExactTasks) continue;
        Candidate c = pieces;
        schedule(c, order);
        const double factor =
            cuts == 1 ? (best.order == kGenerated ? 1 + 1e-12 : 1 - 1e-12) : kWorthCutting;
        if (c.seconds < best.seconds * factor) best = std::move(c);
      }
    }
    return best;
  }

  void finish(const Candidate& chosen) {
    plan_.order = chosen.order;
    plan_.makespan_seconds = chosen.seconds;
    std::vector<double> starts;
    reshard_order::makespan(chosen.jobs, chosen.schedule, hosts(), &starts);
    std::map<int64_t, double> load;  // by device: what it sends so far
    for (size_t i = 0; i < chosen.schedule.size(); ++i) {
      const size_t j = static_cast<size_t>(chosen.schedule[i].job);
      const Piece& piece = chosen.pieces[j];
      ReshardStep step{piece.task,
                       piece.region,
                       piece.way,
                       -1,
                       piece.receivers,
                       starts[i],
                       starts[i] + chosen.jobs[j].seconds};
      if (!chosen.devices.empty()) {
        step.sender = chosen.devices[j];
      } else {
        const int64_t host = hosts_[static_cast<size_t>(chosen.schedule[i].sender)];
        for (int64_t rank : plan_.tasks[piece.task].senders) {
          if (host_of_.at(rank) != host) continue;
          if (step.sender < 0 || load[rank] < load[step.sender]) step.sender = rank;
        }
        load[step.sender] += chosen.jobs[j].seconds;
      }
      plan_.steps.push_back(std::move(step));
    }
    std::map<int64_t, HostTraffic> traffic;
    for (int64_t host : hosts_) traffic[host].host = host;
    for (const ReshardMessage& message : reshard_messages(plan_, source_, destination_)) {
      if (message.local) continue;
      const int64_t bytes = message.region.volume() * options_.bytes_per_element;
      traffic[host_of_.at(message.from)].bytes_out += bytes;
      traffic[host_of_.at(message.to)].bytes_in += bytes;
    }
    for (const auto& [host, t] : traffic) {
      plan_.hosts.push_back(t);
      plan_.busiest_bytes = std::max({plan_.busiest_bytes, t.bytes_out, t.bytes_in});
    }
  }

  const ReshardSide& source_;
  const ReshardSide& destination_;
  const ReshardOptions& options_;
  std::map<int64_t, int64_t> host_of_;
  std::map<int64_t, int> numbers_;  // host -> 0..hosts-1
  std::vector<int64_t> hosts_;      // number -> host
  ReshardPlan plan_;
};

// `Messages` makes the messages between ranks of all steps of a plan, in the order of the rings
// and chains.
class Messages {
 public:
  Messages(const ReshardPlan& plan, const ReshardSide& source, const ReshardSide& destination)
      : plan_(plan), host_of_(hosts_of(source, destination)) {}

  std::vector<ReshardMessage> run() {
    arrived_.resize(plan_.tasks.size());
    for (step_ = 0; step_ < plan_.steps.size(); ++step_) add(plan_.steps[step_]);
    for (size_t i = 0; i < plan_.tasks.size(); ++i) complete(i);
    return std::move(out_);
  }

 private:
  void send(int64_t from, int64_t to, const Box& region) {
    if (region.empty()) return;
    const bool local = host_of_.at(from) == host_of_.at(to);
    out_.push_back({from, to, region, local, step_});
    if (step_ < plan_.steps.size()) arrived_[plan_.steps[step_].task][to].push_back(region);
  }

  void add(const ReshardStep& step) {
    std::map<int64_t, std::vector<int64_t>> by_host;
    for (int64_t rank : step.receivers) by_host[host_of_.at(rank)].push_back(rank);
    switch (step.way) {
      case ReshardWay::kSendRecv:
        for (int64_t rank : step.receivers) send(step.sender, rank, step.region);
        return;
      case ReshardWay::kLocalAllGather:
        for (const auto& [host, ranks] : by_host) {
          const int64_t n = static_cast<int64_t>(ranks.size());
          for (int64_t i = 0; i < n; ++i) {
            send(step.sender, ranks[static_cast<size_t>(i)], cut_box(step.region, n, i));
          }
        }
        return;
      case ReshardWay::kGlobalAllGather: {
        std::vector<int64_t> ring;
        for (const auto& [host, ranks] : by_host)
          ring.insert(ring.end(), ranks.begin(), ranks.end());
        const size_t n = ring.size();
        const auto chunk = [&](size_t i) {
          return cut_box(step.region, static_cast<int64_t>(n), static_cast<int64_t>(i));
        };
        for (size_t i = 0; i < n; ++i) send(step.sender, ring[i], chunk(i));
        for (size_t round = 0; round + 1 < n; ++round) {
          for (size_t i = 0; i < n; ++i)
            send(ring[i], ring[(i + 1) % n], chunk((i + n - round) % n));
        }
        return;
      }
      case ReshardWay::kBroadcast: {
        int64_t from = step.sender;
        for (const auto& [host, ranks] : by_host) {
          send(from, ranks[0], step.region);
          from = ranks[0];
        }
        return;
      }
    }
  }

  // Adds the messages inside the hosts for one task. A receiver gets the elements that it still
  // lacks from a rank of its host, which has the source tile or has received the elements over
  // the network.
  void complete(size_t index) {
    const UnitTask& task = plan_.tasks[index];
    for (int64_t rank : task.receivers) {
      std::vector<Box> missing = {task.region};
      const auto take = [&](int64_t from, const Box& have) {
        std::vector<Box> still;
        for (const Box& box : missing) {
          const Box piece = intersect(box, have);
          if (from != rank || !arrived_[index].contains(rank)) send(from, rank, piece);
          for (Box& rest : subtract(box, have)) still.push_back(std::move(rest));
        }
        missing = std::move(still);
      };
      if (const auto it = arrived_[index].find(rank); it != arrived_[index].end()) {
        for (const Box& box : it->second) take(rank, box);
      }
      for (int64_t sender : task.senders) {
        if (host_of_.at(sender) == host_of_.at(rank)) take(sender, task.region);
      }
      for (const auto& [mate, boxes] : arrived_[index]) {
        if (mate == rank || host_of_.at(mate) != host_of_.at(rank)) continue;
        for (const Box& box : boxes) take(mate, box);
      }
      TESSERA_CHECK(missing.empty(), "{} of task {} does not reach rank {}", missing[0].to_string(),
                    index, rank);
    }
  }

  const ReshardPlan& plan_;
  std::map<int64_t, int64_t> host_of_;
  // By task and rank: the boxes that have arrived over the network.
  std::vector<std::map<int64_t, std::vector<Box>>> arrived_;
  std::vector<ReshardMessage> out_;
  size_t step_ = 0;
};

}  // namespace

std::string_view way_name(ReshardWay way) {
  constexpr std::array<std::string_view, 4> kNames = {"send_recv", "local_all_gather",
                                                      "global_all_gather", "broadcast"};
  return kNames[static_cast<size_t>(way)];
}

std::string_view order_name(ReshardOrder order) {
  constexpr std::array<std::string_view, 8> kNames = {
      "generated", "first_replica", "size_balanced", "longest_first",
      "waves",     "local_search",  "exact",         "best"};
  return kNames[static_cast<size_t>(order)];
}

ReshardSide reshard_side(const Mesh& mesh, const Layout& layout, const std::vector<int64_t>& shape,
                         int64_t devices_per_host) {
  TESSERA_CHECK(layout.complete(), "parts cannot be resharded");
  std::vector<int64_t> coordinates(mesh.axes.size(), 0);
  ReshardSide side;
  for (int64_t i = 0; i < mesh.size(); ++i) {
    const int64_t rank = mesh.rank_at(coordinates);
    side.push_back({rank, rank / devices_per_host, region_of(layout, mesh, shape, coordinates)});
    for (size_t a = mesh.axes.size(); a-- > 0;) {
      if (++coordinates[a] < mesh.axes[a].size) break;
      coordinates[a] = 0;
    }
  }
  return side;
}

Result<std::vector<UnitTask>> unit_tasks(const ReshardSide& source, const ReshardSide& destination,
                                         int64_t bytes_per_element) {
  const std::map<int64_t, int64_t> host_of = hosts_of(source, destination);
  const std::vector<Tile> from = distinct_tiles(source), to = distinct_tiles(destination);
  std::vector<UnitTask> tasks;
  for (size_t tile = 0; tile < to.size(); ++tile) {
    std::vector<Box> missing;
    if (!to[tile].box.empty()) missing.push_back(to[tile].box);
    for (const Tile& piece : from) {
      std::vector<Box> still;
      for (const Box& box : missing) {
        UnitTask task;
        task.region = intersect(box, piece.box);
        for (Box& rest : subtract(box, piece.box)) still.push_back(std::move(rest));
        if (task.region.empty()) continue;
        task.tile = tile;
        task.bytes = task.region.volume() * bytes_per_element;
        task.receivers = to[tile].ranks;
        std::set<int64_t> senders, receivers;
        for (const Tile& other : from) {
          if (!other.box.contains(task.region)) continue;
          task.senders.insert(task.senders.end(), other.ranks.begin(), other.ranks.end());
        }
        std::sort(task.senders.begin(), task.senders.end());
        for (int64_t rank : task.senders) senders.insert(host_of.at(rank));
        for (int64_t rank : task.receivers) {
          if (!senders.contains(host_of.at(rank))) receivers.insert(host_of.at(rank));
        }
        task.sender_hosts.assign(senders.begin(), senders.end());
        task.receiver_hosts.assign(receivers.begin(), receivers.end());
        tasks.push_back(std::move(task));
      }
      missing = std::move(still);
    }
    if (!missing.empty()) {
      return invalid_input(
          fmt::format("reshard: expected a source holder of {}, which rank {} "
                      "needs, found none",
                      missing[0].to_string(), to[tile].ranks[0]));
    }
  }
  return tasks;
}

Result<ReshardPlan> reshard(const ReshardSide& source, const ReshardSide& destination,
                            const ReshardOptions& options) {
  TESSERA_TRY(std::vector<UnitTask> tasks,
              unit_tasks(source, destination, options.bytes_per_element));
  return Resharding(source, destination, options, std::move(tasks)).run();
}

std::vector<ReshardMessage> reshard_messages(const ReshardPlan& plan, const ReshardSide& source,
                                             const ReshardSide& destination) {
  return Messages(plan, source, destination).run();
}

}  // namespace tessera
