#include "tessera/runtime/training/periods.h"

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

Traffic counted(comm::Communicator& world) {
  const comm::Counters& counters = world.counters();
  Traffic all{counters.total_bytes(), counters.point_to_point.messages};
  for (const Traffic& one : counters.collectives) all.messages += one.messages;
  return all;
}

void add(const Traffic& sent, PeriodExecutor::Change& change) {
  change.bytes_predicted += sent.bytes;
  change.messages_predicted += sent.messages;
}

Status check_ranks_suffice(const Period& period, int64_t ranks) {
  if (period.compiled.ranks() <= ranks) return {};
  return check_ranks(period.compiled.plan().plan, ranks);
}

// Returns the state of an island as that of a world of `ranks` ranks, of which the island's begin at
// `first`.
std::vector<RestingTensor> in_world(std::vector<RestingTensor> state, size_t first, size_t ranks) {
  for (RestingTensor& tensor : state) {
    Box empty = tensor.regions.front();
    for (Interval& dim : empty.dims) dim.size = 0;
    std::vector<Box> regions(ranks, empty);
    std::ranges::move(tensor.regions, regions.begin() + static_cast<std::ptrdiff_t>(first));
    tensor.regions = std::move(regions);
  }
  return state;
}

// Returns the state that each island of the period keeps, by rank of the island.
Result<std::vector<RestingTensor>> state_of_an_island(const Period& period) {
  const auto count = static_cast<std::ptrdiff_t>(period.compiled.plan().ranks);
  return resting_state(period.compiled.graph(),
                       {period.programs.begin(), period.programs.begin() + count});
}

Status find_moves(Period& period, const Period& before) {
  TESSERA_TRY(const auto old_state, state_of_an_island(before));
  TESSERA_TRY(const auto new_state, state_of_an_island(period));
  const auto old_ranks = static_cast<size_t>(before.compiled.plan().ranks),
             new_ranks = static_cast<size_t>(period.compiled.plan().ranks),
             world = period.programs.size();
  for (int island = 0; island < period.compiled.islands(); ++island) {
    Period::IslandMove& made = period.moves.emplace_back();
    made.from = island < before.compiled.islands() ? island : 0;
    TESSERA_TRY(made.move,
                plan_move(in_world(old_state, static_cast<size_t>(made.from) * old_ranks, world),
                          in_world(new_state, static_cast<size_t>(island) * new_ranks, world)));
  }
  if (!period.outer || !before.outer) return {};
  const auto& fragments = period.compiled.outer->fragments;
  const auto& old_fragments = before.compiled.outer->fragments;
  const auto parameters = [](const OuterFragment& fragment) { return fragment.parameters; };
  const OuterSteps &rule = *period.compiled.outer->plan.outer,
                   &old_rule = *before.compiled.outer->plan.outer;
  if (!std::ranges::equal(fragments, old_fragments, {}, parameters, parameters)) {
    return invalid_input(fmt::format(
        "change: expected outer steps of the same fragments before and after step {}, found {} and "
        "{}",
        period.first_step - 1, old_rule.fragments, rule.fragments));
  }
  if (old_rule.delay > 0 && (period.first_step - 1) % old_rule.interval() != 0) {
    return invalid_input(fmt::format(
        "change: expected a change after a multiple of {} steps, because with a delay differences "
        "are under way between two outer steps, found one after step {}",
        old_rule.interval(), period.first_step - 1));
  }
  for (size_t f = 0; f < fragments.size(); ++f) {
    TESSERA_TRY(const auto from, resting_state(old_fragments[f].lowering->graph(),
                                               before.outer->fragments[f].programs));
    TESSERA_TRY(const auto to,
                resting_state(fragments[f].lowering->graph(), period.outer->fragments[f].programs));
    TESSERA_TRY(StateMove move, plan_move(from, to));
    period.outer_moves.push_back(std::move(move));
  }
  return {};
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
    for (OuterPrograms::Fragment& fragment : period.outer->fragments) {
      for (auto rank = fragment.programs.size(); rank < static_cast<size_t>(ranks); ++rank)
        fragment.programs.push_back(idle_program(static_cast<int>(rank), ranks));
    }
  }
  for (auto rank = period.programs.size(); rank < static_cast<size_t>(ranks); ++rank)
    period.programs.push_back(idle_program(static_cast<int>(rank), ranks));
  return before == nullptr ? Status() : find_moves(period, *before);
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
  for (size_t i = 1; i < periods.size(); ++i) {
    if (!periods[i - 1].compiled.outer || periods[i].compiled.outer) continue;
    return invalid_input(fmt::format(
        "change: expected a plan with outer steps after step {}, because the islands of the plan "
        "before have parameters of their own, found one without",
        periods[i].first_step - 1));
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
  const int a_island = ranks_of_an_island(period), island = world_.rank() / a_island;
  std::unique_ptr<comm::Subworld> members;
  if (period.compiled.outer && island < period.compiled.islands()) {
    std::vector<int> ranks(static_cast<size_t>(a_island));
    std::iota(ranks.begin(), ranks.end(), island * a_island);
    members = std::make_unique<comm::Subworld>(world_, std::move(ranks));
  }
  comm::Communicator& own = members ? static_cast<comm::Communicator&>(*members) : world_;
  TESSERA_TRY(auto executor,
              RankExecutor::create(period.compiled.graph(), period.programs[rank], own, options_));
  std::set<TensorId> moved;
  if (executor_) {
    for (const MovedTensor& tensor : period.moves.front().move.tensors) moved.insert(tensor.to);
  }
  executor->initialise(moved);
  std::optional<Change> change;
  if (executor_) {
    executor->take_memory();
    world_.barrier();
    const Steady::time_point start = Steady::now();
    const Traffic before = counted(world_);
    change.emplace();
    const Program idle = idle_program(world_.rank(), world_.size());
    for (size_t to = 0; to < period.moves.size(); ++to) {
      const auto& [from, move] = period.moves[to];
      const bool gives = from == this->island(), takes = static_cast<int>(to) == island;
      move_state(world_, move, *executor_, gives ? program() : idle, *executor,
                 takes ? period.programs[rank] : idle);
      if (rank < move.sent.size()) add(move.sent[rank], *change);
    }
    change->seconds = std::chrono::duration<double>(Steady::now() - start).count();
    const Traffic after = counted(world_);
    world_.barrier();
    change->bytes_counted = after.bytes - before.bytes;
    change->messages_counted = after.messages - before.messages;
  }
  if (period.outer) {
    std::unique_ptr<OuterRun> outer;
    TESSERA_TRY(outer, OuterRun::create(*period.outer, period.compiled.graph(), world_,
                                        members.get(), period.programs[rank], options_));
    const Traffic before = counted(world_);
    for (size_t f = 0; f < period.outer_moves.size(); ++f) {
      const StateMove& move = period.outer_moves[f];
      move_state(world_, move, outer_->executor(f), outer_->program(f), outer->executor(f),
                 outer->program(f));
      if (rank < move.sent.size()) add(move.sent[rank], *change);
    }
    if (!period.outer_moves.empty()) {
      const Traffic after = counted(world_);
      change->bytes_counted += after.bytes - before.bytes;
      change->messages_counted += after.messages - before.messages;
    }
    outer->resume(period.outer_moves.empty() ? 0 : period.first_step - 1, *executor);
    outer_ = std::move(outer);
  }
  executor_ = std::move(executor);
  island_ = std::move(members);
  current_ = next;
  if (change) change->total_s = std::chrono::duration<double>(Steady::now() - begin).count();
  return change;
}

}  // namespace tessera
