#include "tessera/runtime/training/watching.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/comm/gather_bytes.h"
#include "tessera/cost/family.h"
#include "tessera/program/instructions.h"
#include "tessera/runtime/measure/trace.h"

namespace tessera {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns a number that is equal for processes that read the same steady clock, which begins when
// the machine does.
uint64_t clock_number() {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  return boot ? std::hash<std::string>()(*boot) : 0;
}

// Adds up counts and seconds of what has equal keys.
template <class Key>
struct Sums {
  struct Sum {
    int64_t count = 0;
    double seconds = 0;
  };
  std::map<Key, Sum> all;
  void add(Key key, double seconds, int64_t count = 1) {
    Sum& sum = all[std::move(key)];
    sum.count += count;
    sum.seconds += seconds;
  }
};

std::string size_text(const FamilyKey& key) {
  std::string text = key.name;
  for (const double size : key.size) text += fmt::format(" {:.0f}", size);
  return text;
}

// Divides the time of one rank's step.
class RankDivision {
 public:
  RankDivision(const Graph& graph, const Program& program, const Simulation& trace,
               const std::vector<RecordedWait>& waits, int32_t first_rank)
      : graph_(graph), program_(program), trace_(trace), waits_(waits), first_rank_(first_rank) {}

  RankTimes times(const std::vector<Executed>& recorded, int64_t origin_ns) {
    RankTimes out;
    for (const Executed& one : recorded) {
      const Instruction& instruction =
          program_.block(one.block)[static_cast<size_t>(one.instruction)];
      add(instruction, static_cast<double>(one.end_ns - one.start_ns) * 1e-9);
    }
    if (!recorded.empty())
      out.seconds = static_cast<double>(recorded.back().end_ns - origin_ns) * 1e-9;
    // The rest passes between instructions.
    const auto instructions = std::ssize(recorded);
    work_.add({"host", fmt::format("{} instructions", instructions)},
              std::max(0.0, out.seconds - busy_s_));
    for (const auto& [key, sum] : work_.all)
      out.work.push_back({key.first, key.second, sum.count, sum.seconds});
    for (const auto& [key, sum] : transfers_.all) {
      const auto& [what, ranks, bytes] = key;
      out.transfers.push_back({what, ranks, bytes, sum.count, sum.seconds});
    }
    for (const auto& [key, sum] : waits_for_.all) {
      const auto& [what, tensor, rank] = key;
      out.waits.push_back({what, tensor, rank, sum.count, sum.seconds});
    }
    return out;
  }

 private:
  void add(const Instruction& instruction, double seconds) {
    busy_s_ += seconds;
    match(
        instruction,
        [&](const Compute& compute) {
          work_.add({compute.kind, size_text(family_of(graph_, program_, compute))}, seconds);
        },
        [&](const Copy& copy) {
          work_.add({"copy", size_text(family_of(program_, copy))}, seconds);
        },
        [&](const Load& load) {
          work_.add({"input", fmt::format("{} elements", load.region.volume())}, seconds);
        },
        [&](const Wait&) { add_wait(waits_[next_wait_++], seconds); },
        // These last as long as a rank hands something over. Their time counts as that between
        // instructions.
        [&](const OneOf<Issue, Send, Recv, Free, FetchRows, ReleaseRows> auto&) {
          busy_s_ -= seconds;
        });
  }
  void add_wait(const RecordedWait& wait, double seconds) {
    if (wait.what < 0) {
      busy_s_ -= seconds;
      return;
    }
    const std::string& what = trace_.labels[static_cast<size_t>(wait.what)];
    const std::string& tensor = trace_.labels[static_cast<size_t>(wait.label)];
    const double waited = wait.ready_s - wait.start_s;
    if (waited > 0) waits_for_.add({what, tensor, wait.last + first_rank_}, waited);
    std::vector<int32_t> ranks = wait.members;
    for (int32_t& rank : ranks) rank += first_rank_;
    transfers_.add({what, std::move(ranks), wait.bytes}, wait.end_s - wait.ready_s);
  }

  const Graph& graph_;
  const Program& program_;
  const Simulation& trace_;
  const std::vector<RecordedWait>& waits_;
  const int32_t first_rank_;
  size_t next_wait_ = 0;
  double busy_s_ = 0;
  Sums<std::pair<std::string, std::string>> work_;
  Sums<std::tuple<std::string, std::vector<int32_t>, int64_t>> transfers_;
  Sums<std::tuple<std::string, std::string, int32_t>> waits_for_;
};

}  // namespace

int64_t begin_record(comm::Communicator& world, RankExecutor& executor,
                     std::vector<Executed>& mine) {
  executor.record(&mine);
  world.barrier();
  return now_ns();
}

std::vector<std::vector<Executed>> gather_records(comm::Communicator& world,
                                                  const std::vector<Executed>& mine,
                                                  int64_t begin_ns) {
  struct Begin {
    int64_t ns = 0;
    uint64_t clock = 0;
  };
  const std::vector<Begin> begins = comm::gather_values(world, Begin{begin_ns, clock_number()});
  auto records = comm::gather_lists_at(world, 0, mine);
  std::map<uint64_t, int64_t> first;  // by clock: when its first rank began
  for (const Begin& begin : begins) {
    const auto [it, fresh] = first.try_emplace(begin.clock, begin.ns);
    if (!fresh) it->second = std::min(it->second, begin.ns);
  }
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const int64_t shift = first[begins.front().clock] - first[begins[rank].clock];
    for (Executed& one : records[rank]) {
      one.start_ns += shift;
      one.end_ns += shift;
    }
  }
  return records;
}

std::vector<RankTimes> rank_times(const Lowering& lowering, std::span<const Program> programs,
                                  std::span<const std::vector<Executed>> recorded, int64_t step,
                                  int32_t first_rank) {
  const RecordedStep found = recorded_step(lowering, {programs.begin(), programs.end()},
                                           {recorded.begin(), recorded.end()});
  int64_t origin = INT64_MAX;
  for (const std::vector<Executed>& rank : recorded) {
    if (!rank.empty()) origin = std::min(origin, rank.front().start_ns);
  }
  std::vector<RankTimes> out;
  for (size_t r = 0; r < programs.size(); ++r) {
    if (recorded[r].empty()) continue;  // a rank that the plan does not use
    RankDivision division(lowering.graph(), programs[r], found.trace, found.waits[r], first_rank);
    out.push_back(division.times(recorded[r], origin));
    out.back().step = step;
    out.back().rank = first_rank + programs[r].rank;
  }
  return out;
}

}  // namespace tessera
