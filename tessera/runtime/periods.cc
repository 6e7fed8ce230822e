#include "tessera/runtime/periods.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "tessera/plan/load.h"

namespace tessera {
namespace {

Traffic counted(const comm::Communicator& world) {
  const comm::Counters& counters = world.counters();
  Traffic all{counters.total_bytes(), counters.point_to_point.messages};
  for (const Traffic& one : counters.collectives) all.messages += one.messages;
  return all;
}

}  // namespace

Result<std::vector<Period>> compile_periods(const CompilePlan& compile_plan,
                                            const std::string& plan,
                                            const std::vector<PlanChange>& changes) {
  std::vector<Period> periods;
  int64_t first = 1;
  const auto add = [&](const std::string& text) -> Status {
    Period& period = periods.emplace_back();
    period.first_step = first;
    period.plan = text;
    TESSERA_TRY(period.compiled, compile_plan(text));
    return {};
  };
  TESSERA_TRY_VOID(add(plan));
  for (const PlanChange& change : changes) {
    if (change.after < first) {
      return invalid_input(fmt::format(
          "change: expected changes of the plan in the order of their steps, each after at least "
          "one step, found one after step {} behind one after step {}",
          change.after, first - 1));
    }
    first = change.after + 1;
    TESSERA_TRY_VOID(add(change.plan));
  }
  return periods;
}

int64_t largest_ranks(const std::vector<Period>& periods) {
  int64_t ranks = 0;
  for (const Period& period : periods) ranks = std::max(ranks, int64_t{period.compiled.ranks()});
  return ranks;
}

Status lower_periods(std::vector<Period>& periods, int64_t ranks, int64_t memory_limit_bytes,
                     std::optional<int> only) {
  for (size_t i = 0; i < periods.size(); ++i) {
    Period& period = periods[i];
    const Lowering& lowering = *period.compiled.lowering;
    if (period.compiled.ranks() > ranks)
      TESSERA_TRY_VOID(check_ranks(period.compiled.plan().plan, ranks));
    if (only && periods.size() == 1) {
      for (int rank = 0; rank < static_cast<int>(ranks); ++rank)
        period.programs.push_back(idle_program(rank, ranks));
      TESSERA_TRY(period.programs[static_cast<size_t>(*only)], lowering.lower(*only));
      return {};
    }
    TESSERA_TRY(period.programs, lower_and_verify(lowering, memory_limit_bytes));
    for (auto rank = period.programs.size(); rank < static_cast<size_t>(ranks); ++rank)
      period.programs.push_back(idle_program(static_cast<int>(rank), ranks));
    if (i == 0) continue;
    TESSERA_TRY(const auto before,
                resting_state(periods[i - 1].compiled.graph(), periods[i - 1].programs));
    TESSERA_TRY(const auto after, resting_state(period.compiled.graph(), period.programs));
    TESSERA_TRY(period.move, plan_move(before, after));
  }
  return {};
}

Status check_memory(const std::vector<Period>& periods, std::optional<int> only) {
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  for (const Period& period : periods) {
    double bytes = 0;
    for (const Program& program : period.programs) {
      if (only && program.rank != *only) continue;
      for (const Tier tier : {Tier::kDevice, Tier::kHost})
        bytes += static_cast<double>(program.arena_bytes[static_cast<size_t>(tier)]);
    }
    if (bytes <= machine || machine <= 0) continue;
    constexpr double kGib = 1 << 30;
    return invalid_input(fmt::format(
        "plan {}: expected arenas of at most {:.1f} GiB, the memory of this machine, found {:.1f} "
        "GiB {}; tessera simulate tells what a step on a larger machine takes",
        plan_label(period.plan), machine / kGib, bytes / kGib,
        only ? fmt::format("of rank {}", *only)
             : fmt::format("of {} rank{}", period.compiled.ranks(),
                           period.compiled.ranks() == 1 ? "" : "s")));
  }
  return {};
}

Result<std::optional<PeriodExecutor::Change>> PeriodExecutor::begin_step(int64_t step) {
  if (!executor_) {
    size_t first = 0;
    while (first + 1 < periods_.size() && periods_[first + 1].first_step <= step) ++first;
    return enter(first);
  }
  if (begins_period(step)) return enter(current_ + 1);
  return std::nullopt;
}

Result<std::optional<PeriodExecutor::Change>> PeriodExecutor::enter(size_t next) {
  using Steady = std::chrono::steady_clock;
  const Steady::time_point begin = Steady::now();
  const Period& period = periods_[next];
  const auto rank = static_cast<size_t>(world_.rank());
  TESSERA_TRY(auto executor, RankExecutor::create(period.compiled.graph(), period.programs[rank],
                                                  world_, options_));
  std::set<TensorId> moved;
  if (executor_) {
    for (const MovedTensor& tensor : period.move.tensors) moved.insert(tensor.to);
  }
  executor->initialise(moved);
  std::optional<Change> change;
  if (executor_) {
    executor->take_memory();
    world_.barrier();
    const Steady::time_point start = Steady::now();
    const Traffic before = counted(world_);
    move_state(world_, period.move, *executor_, program(), *executor, period.programs[rank]);
    const Traffic after = counted(world_);
    world_.barrier();
    change.emplace();
    change->seconds = std::chrono::duration<double>(Steady::now() - start).count();
    change->bytes_counted = after.bytes - before.bytes;
    change->messages_counted = after.messages - before.messages;
    if (rank < period.move.sent.size()) {
      change->bytes_predicted = period.move.sent[rank].bytes;
      change->messages_predicted = period.move.sent[rank].messages;
    }
  }
  executor_ = std::move(executor);
  current_ = next;
  if (change) change->total_s = std::chrono::duration<double>(Steady::now() - begin).count();
  return change;
}

}  // namespace tessera
