#include "tessera/runtime/training/step_reports.h"

#include <algorithm>

#include "tessera/base/statistics.h"
#include "tessera/runtime/evaluation/class_evaluation.h"
#include "tessera/runtime/evaluation/click_evaluation.h"
#include "tessera/runtime/step/ranks.h"

namespace tessera {

void StepReports::find_loss() {
  const std::vector<Home>& fetches = r_.executor.program().fetches;
  const bool mine = std::any_of(fetches.begin(), fetches.end(), [&](const Home& home) {
    return home.tensor == r_.compiled().graph().loss && !home.region.empty();
  });
  const auto all = comm::gather_values(r_.world, char{mine});
  const auto first = std::find(all.begin(), all.end(), char{true});
  if (first != all.end()) owner_ = static_cast<int>(first - all.begin());
}

// Returns, on rank 0, the loss of the step or evaluation that was executed last: the mean over the
// islands.
double StepReports::loss_at_rank_0() const {
  double sum = 0;
  for (int island = 0; island < r_.compiled().islands(); ++island) {
    const int owner = owner_ + island * r_.executor.ranks_of_an_island();
    std::vector<double> loss{kNone};
    if (r_.world.rank() == owner) {
      loss[0] = read_loss(*r_.executor, r_.executor.program(), r_.compiled().graph().loss)
                    .value_or(kNone);
    }
    transfer(r_.world, owner, 0, loss);
    sum += loss[0];
  }
  return sum / r_.compiled().islands();
}

StepReports::Evaluated StepReports::evaluate(int64_t step) const {
  Evaluated result;
  std::optional<ClickEvaluation> clicks;
  std::optional<ClassEvaluation> classes;
  // Runs as many batches as the run file asks for, but no more than are needed to visit each
  // sample once.
  int64_t batches = r_.job.config.eval.batches;
  const SamplePasses* passes = r_.job.data.evaluation->passes();
  if (passes != nullptr && batches <= passes->whole_steps()) passes = nullptr;
  if (passes != nullptr) batches = passes->steps();
  std::vector<double> losses;
  if (ClickEvaluation::applies(*r_.compiled().model)) {
    clicks.emplace(r_.compiled().graph(), passes);
  } else if (const OpId op = ClassEvaluation::op_of(*r_.compiled().model, r_.compiled().graph());
             op.valid()) {
    classes.emplace(r_.compiled().graph(), op);
  }
  for (int64_t batch = 1; batch <= batches; ++batch) {
    r_.executor->evaluate(
        batch,
        [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
          load_input(r_.job, *r_.job.data.evaluation, step, batch, tensor, region, to);
        },
        clicks    ? clicks->observation(batch)
        : classes ? classes->observation()
                  : nullptr);
    losses.push_back(loss_at_rank_0());
    if (classes) classes->gather(r_.world, passes, batch - 1);
  }
  double mean = 0;
  for (const double loss : losses) mean += loss / static_cast<double>(batches);
  result.loss = passes != nullptr ? passes->mean(losses) : mean;
  if (clicks) result.clicks = clicks->gather(r_.world);
  if (classes) result.accuracy = classes->accuracy();
  return result;
}

Status StepReports::report(int64_t step) {
  const double loss = loss_at_rank_0();
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  const bool evaluates = evaluates_after(r_.job.config, step);
  const Evaluated evaluated = evaluates ? evaluate(step) : Evaluated();
  begin_time();
  if (r_.world.rank() != 0) return {};
  const double rate = static_cast<double>(r_.job.start.tokens_per_step) / seconds;
  if (rates_.empty()) first_loss_ = loss;
  last_loss_ = loss;
  rates_.push_back(rate);
  StepReport report{step,
                    loss,
                    learning_rate(r_.job.config.optimizer, step, r_.job.config.steps),
                    seconds,
                    rate,
                    {},
                    r_.job.start.arena_bytes,
                    rss_bytes(),
                    {},
                    {}};
  if (evaluates) evaluated_ = evaluated;
  report.eval_loss = evaluated.loss;
  report.eval_clicks = evaluated.clicks;
  report.eval_accuracy = evaluated.accuracy;
  if (r_.job.metrics != nullptr) TESSERA_TRY_VOID(r_.job.metrics->step(report));
  if (r_.job.callbacks.step) r_.job.callbacks.step(report);
  return {};
}

void StepReports::add_to(TrainingSummary& summary) const {
  summary.first_loss = first_loss_;
  summary.last_loss = last_loss_;
  summary.eval_loss = evaluated_.loss;
  summary.eval_clicks = evaluated_.clicks;
  summary.eval_accuracy = evaluated_.accuracy;
  // The first step is slower than the others.
  const std::ptrdiff_t left_out = rates_.size() > 2 ? 1 : 0;
  summary.tokens_per_s =
      rates_.empty() ? 0 : median(std::vector<double>(rates_.begin() + left_out, rates_.end()));
}

}  // namespace tessera
