#include "tessera/runtime/periods.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
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

Status check_ranks_suffice(const Period& period, int64_t ranks) {
  if (period.compiled.ranks() <= ranks) return {};
  return check_ranks(period.compiled.plan().plan, ranks);
}

// Makes and verifies the programs of a period, and finds what moves into it from the period before.
Status lower_period(Period& period, const Period* before, int64_t ranks,
                    int64_t memory_limit_bytes) {
  TESSERA_TRY_VOID(check_ranks_suffice(period, ranks));
  TESSERA_TRY(period.programs, lower_and_verify(*period.compiled.lowering, memory_limit_bytes));
  if (period.compiled.outer) {
    const std::vector<Program> island = period.programs;
    TESSERA_TRY(period.outer, make_outer_programs(period.compiled, island));
    for (int other = 1; other < period.compiled.islands(); ++other)
      period.programs.insert(period.programs.end(), island.begin(), island.end());
  }
  for (auto rank = period.programs.size(); rank < static_cast<size_t>(ranks); ++rank)
    period.programs.push_back(idle_program(static_cast<int>(rank), ranks));
  if (before == nullptr) return {};
  TESSERA_TRY(const auto old_state, resting_state(before->compiled.graph(), before->programs));
  TESSERA_TRY(const auto new_state, resting_state(period.compiled.graph(), period.programs));
  TESSERA_TRY(period.move, plan_move(old_state, new_state));
  return {};
}

}  // namespace

Result<Periods> compile_periods(const CompilePlan& compile_plan, const std::string& plan,
                                const std::vector<PlanChange>& changes) {
  Periods periods;
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
  const bool has_outer = std::any_of(periods.begin(), periods.end(), [](const Period& period) {
    return period.compiled.outer != nullptr;
  });
  if (has_outer && periods.size() > 1) {
    return invalid_input(
        "change: expected one plan for the whole run, because it has outer steps, found a change");
  }
  return periods;
}

int64_t largest_ranks(const Periods& periods) {
  int64_t ranks = 0;
  for (const Period& period : periods) ranks = std::max(ranks, int64_t{period.compiled.ranks()});
  return ranks;
}

Status lower_periods(Periods& periods, int64_t ranks, int64_t memory_limit_bytes,
                     std::optional<int> only) {
  if (only && periods.size() == 1 && !periods.front().compiled.outer) {
    Period& period = periods.front();
    TESSERA_TRY_VOID(check_ranks_suffice(period, ranks));
    for (int rank = 0; rank < static_cast<int>(ranks); ++rank)
      period.programs.push_back(idle_program(rank, ranks));
    TESSERA_TRY(period.programs[static_cast<size_t>(*only)],
                period.compiled.lowering->lower(*only));
    return {};
  }
  const Period* before = nullptr;
  for (Period& period : periods) {
    TESSERA_TRY_VOID(lower_period(period, before, ranks, memory_limit_bytes));
    before = &period;
  }
  return {};
}

PeriodAdder::PeriodAdder(Periods& periods, CompilePlan compile_plan, int64_t ranks,
                         int64_t memory_limit_bytes)
    : periods_(periods),
      compile_plan_(std::move(compile_plan)),
      ranks_(ranks),
      memory_limit_bytes_(memory_limit_bytes) {}

Status PeriodAdder::add(int64_t first_step, const std::string& plan) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(asked_, first_step) != first_step) answer_ = append(first_step, plan);
  return answer_;
}

Status PeriodAdder::append(int64_t first_step, const std::string& plan) {
  Periods next(1);
  Period& period = next.front();
  period.first_step = first_step;
  period.plan = plan;
  TESSERA_TRY(period.compiled, compile_plan_(plan));
  if (period.compiled.outer || periods_.back().compiled.outer) {
    return invalid_input("expected plans without outer steps for a change during the run");
  }
  TESSERA_TRY_VOID(lower_period(period, &periods_.back(), ranks_, memory_limit_bytes_));
  TESSERA_TRY_VOID(check_memory(next));
  periods_.push_back(std::move(period));
  return {};
}

void PeriodAdder::remove(int64_t first_step) {
  const std::lock_guard lock(mutex_);
  if (periods_.back().first_step == first_step) periods_.pop_back();
}

Status check_memory(const Periods& periods, std::optional<int> only) {
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  for (const Period& period : periods) {
    double bytes = 0;
    for (size_t rank = 0; rank < period.programs.size(); ++rank) {
      const Program& program = period.programs[rank];
      if (only && static_cast<int>(rank) != *only) continue;
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
  if (period.compiled.outer && !island_) {
    std::vector<int> members(static_cast<size_t>(ranks_of_an_island()));
    std::iota(members.begin(), members.end(), island() * ranks_of_an_island());
    island_ = std::make_unique<comm::Subworld>(world_, std::move(members));
  }
  TESSERA_TRY(auto executor, RankExecutor::create(period.compiled.graph(), period.programs[rank],
                                                  own_world(), options_));
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
  if (period.outer) {
    TESSERA_TRY(outer_, OuterRun::create(*period.outer, period.compiled.graph(), world_, *island_,
                                         options_));
    outer_->resume(0, *executor_);
  }
  if (change) change->total_s = std::chrono::duration<double>(Steady::now() - begin).count();
  return change;
}

}  // namespace tessera
