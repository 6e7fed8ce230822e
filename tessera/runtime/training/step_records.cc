#include "tessera/runtime/training/step_records.h"

#include <span>
#include <utility>

#include "tessera/compile/optimizer_text.h"
#include "tessera/runtime/cached_rows/row_exchange.h"
#include "tessera/runtime/measure/trace.h"
#include "tessera/runtime/training/watching.h"

namespace tessera {

void StepRecords::begin() { begin_ns_ = begin_record(r_.world, *r_.executor, recorded_); }

Status StepRecords::hand_over(int64_t step, const DataStore* store) {
  const OfRanks recorded = gather_records(r_.world, recorded_, begin_ns_);
  if (is_watched(step) && r_.world.rank() == 0) TESSERA_TRY_VOID(write_times(step, recorded));
  if (step == r_.job.callbacks.trace_step) TESSERA_TRY_VOID(hand_over_trace(recorded, store));
  return {};
}

Status StepRecords::write_times(int64_t step, const OfRanks& recorded) {
  const Period& period = r_.executor.period();
  if (&period != watched_) {
    WatchStart start{r_.job.config.model,
                     "",
                     r_.job.config.batch,
                     r_.job.config.precision,
                     optimizer_text(specification(r_.job.config.optimizer)),
                     r_.job.start.transport,
                     r_.compiled().ranks()};
    TESSERA_TRY(start.plan, r_.plan_text());
    TESSERA_TRY_VOID(r_.job.watch->event(to_text(start)));
    watched_ = &period;
  }
  const auto of_an_island = static_cast<size_t>(r_.compiled().plan().ranks);
  for (int island = 0; island < r_.compiled().islands(); ++island) {
    const size_t first = static_cast<size_t>(island) * of_an_island;
    for (const RankTimes& times : rank_times(
             *r_.compiled().lowering, std::span(period.programs).subspan(first, of_an_island),
             std::span(recorded).subspan(first, of_an_island), step, static_cast<int32_t>(first))) {
      TESSERA_TRY_VOID(r_.job.watch->event(to_text(times)));
    }
  }
  return {};
}

Status StepRecords::hand_over_trace(const OfRanks& recorded, const DataStore* store) const {
  std::vector<std::vector<Executed>> all;
  std::vector<Program> programs;
  for (int rank = 0; rank < std::ssize(recorded) && rank < r_.compiled().ranks(); ++rank) {
    TESSERA_TRY(Program program, r_.compiled().lowering->lower(rank));
    const int64_t step = r_.job.callbacks.trace_step;
    auto counted = with_counted_rows(
        program, r_.compiled().graph(), step,
        [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
          load_input(r_.job, *r_.job.data.training, step, step, tensor, region, to, store);
        });
    programs.push_back(counted ? std::move(*counted) : std::move(program));
    all.push_back(recorded[static_cast<size_t>(rank)]);
  }
  if (r_.world.rank() == 0 && r_.job.callbacks.trace)
    r_.job.callbacks.trace(trace_of(*r_.compiled().lowering, programs, all));
  return {};
}

}  // namespace tessera
