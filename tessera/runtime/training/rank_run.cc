#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "tessera/base/doing.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/cached_rows/cache_totals.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/runtime/training/saved_parts.h"
#include "tessera/runtime/training/step_records.h"
#include "tessera/runtime/training/step_reports.h"

namespace tessera {

Result<std::string> RankOfRun::plan_text() const {
  const Period& period = executor.period();
  TESSERA_TRY(const DType compute, parse_dtype(job.config.precision));
  TESSERA_TRY(const PlanText plan,
              load_plan_text(period.plan, compiled().model->graph, job.config.file, compute));
  return plan.text;
}

void load_input(TrainingJob& job, const DataSource& source, int64_t step, int64_t batch,
                const Tensor& tensor, const Box& region, const kernels::Array& to,
                const DataStore* store) {
  if (tensor.init.kind == Init::Kind::kLearningRate) {
    load_scalar(learning_rate(job.config.optimizer, step, job.config.steps), to);
  } else if (tensor.init.kind == Init::Kind::kStep) {
    load_scalar(static_cast<double>(step), to);
  } else {
    job.data_errors.expect(store != nullptr ? store->load(batch, tensor, region, to)
                                            : source.load(batch, tensor, region, to));
  }
}

namespace {

class RankRun {
 public:
  RankRun(TrainingJob& job, comm::Communicator& world)
      : executor_(job.periods, world, options_of(job, world)),
        r_{job, world, executor_},
        last_step_(job.config.steps),
        sent_(sent_kinds().size(), 0) {}

  Result<TrainingSummary> run() {
    // A run that continues begins with the plan of the step after its newest checkpoint, even if
    // that checkpoint is damaged and an older one is used.
    const auto& candidates = r_.job.parts.front().origin.candidates;
    TESSERA_TRY_VOID(begin_step((candidates.empty() ? 0 : candidates.front().step) + 1));
    TESSERA_TRY(const int64_t done, saved_.restore());
    reports_.find_loss();  // also a barrier, so that no rank runs before all are ready
    open_store();
    reports_.begin_time();
    for (int64_t step = done + 1; step <= last_step_; ++step) {
      TESSERA_TRY_VOID(begin_step(step));
      TESSERA_TRY_VOID(steer(step));
      if (store_) store_->begin(step, step < last_step_ && !executor_.begins_period(step + 1));
      const std::vector<int64_t> before = bytes_sent(r_.world);
      const bool is_recorded = records_.wants(step);
      if (is_recorded) records_.begin();
      executor_->run_step(
          step, [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
            load_input(r_.job, *r_.job.data.training, step, batch_of(step), tensor, region, to,
                       store_.get());
            if (!store_)
              data_read_ += r_.job.data.training->bytes_of(batch_of(step), tensor, region);
          });
      executor_.end_step(step);
      add_sent(before);
      TESSERA_TRY_VOID(reports_.report(step));
      if (is_recorded) {
        TESSERA_TRY_VOID(records_.hand_over(step, store_.get()));
        reports_.begin_time();
      }
      TESSERA_TRY_VOID(saved_.after_step(step, step == last_step_));
    }
    TESSERA_TRY_VOID(saved_.end_period());
    TrainingSummary result = summary();
    if (!result.row_caches.empty() && r_.job.metrics != nullptr && r_.world.rank() == 0)
      TESSERA_TRY_VOID(r_.job.metrics->event(event_text(result.row_caches)));
    return result;
  }

 private:
  static ExecutorOptions options_of(TrainingJob& job, const comm::Communicator& world) {
    const int ranks_here = job.start.transport == "mpi" ? 1 : world.size();
    const int threads =
        job.config.threads > 0 ? static_cast<int>(job.config.threads) : threads_of_rank(ranks_here);
    return {
        static_cast<uint64_t>(job.config.seed),
        threads,
        false,
        [&job](int64_t step, const Tensor& tensor, const Box& region, const kernels::Array& to) {
          load_input(job, *job.data.training, step, step, tensor, region, to);
        },
        0,
        job.config.device};
  }

  // Opens the data store, which reads the samples that this rank keeps, if the run file asks for
  // a store.
  void open_store() {
    if (r_.job.config.data.store_bytes == 0) return;
    auto opened = DataStore::create(*r_.job.data.training, r_.compiled().graph(),
                                    executor_.program(), r_.world, r_.job.config.data.store_bytes);
    if (!opened) {
      return r_.job.data_errors.expect(invalid_input(
          opened.error().message + place_of_key(r_.job.config, "data", r_.job.config.data_line)));
    }
    store_ = std::move(*opened);
    data_read_ = store_->bytes_kept();
  }

  // Returns the number of the batch with which this rank's island makes the step. Each island takes
  // its share of the step's samples, so that all islands together see the same samples as a run
  // without outer steps.
  int64_t batch_of(int64_t step) const {
    return (step - 1) * r_.compiled().islands() + executor_.island() + 1;
  }

  void add_sent(const std::vector<int64_t>& before) {
    const std::vector<int64_t> after = bytes_sent(r_.world);
    for (size_t k = 0; k < sent_.size(); ++k) sent_[k] += after[k] - before[k];
  }

  // Begins a step. If it is the first step under another plan, changes the plan.
  Status begin_step(int64_t step) {
    if (executor_.begins_period(step)) TESSERA_TRY_VOID(saved_.end_period());
    const bool runs = saved_.begun();
    const int64_t peak = runs ? executor_->peak_bytes()[0] : 0;
    if (runs && executor_.begins_period(step)) caches_.add(*executor_, r_.compiled());
    const std::vector<int64_t> before = bytes_sent(r_.world);
    TESSERA_TRY(const auto change, executor_.begin_step(step));
    if (!runs || change) TESSERA_TRY_VOID(saved_.begin_period());
    if (!change) return {};
    add_sent(before);
    peak_bytes_ = std::max(peak_bytes_, peak);
    reports_.find_loss();
    if (store_) store_->follow(r_.compiled().graph(), executor_.program());
    ChangeReport report;
    report.after = step - 1;
    report.plan = r_.compiled().plan().plan.file;
    report.ranks = r_.compiled().ranks();
    report.seconds = change->seconds;
    report.begun_anew = executor_.period().moves.front().move.begun_anew;
    const std::array<int64_t, 2> mine{change->bytes_predicted, change->bytes_counted};
    for (const auto& [predicted, counted] : comm::gather_values(r_.world, mine)) {
      report.bytes_predicted += predicted;
      report.bytes_counted += counted;
    }
    report.total_s = change->total_s;
    if (r_.world.rank() == 0) TESSERA_TRY_VOID(r_.hand_over(report, r_.job.callbacks.change));
    reports_.begin_time();
    return {};
  }

  // Asks what should follow this step. All ranks learn it before the step begins, because the data
  // of the next step may be fetched during this one.
  Status steer(int64_t step) {
    if (r_.job.adder == nullptr || step >= last_step_) return {};
    std::string said;
    if (r_.world.rank() == 0) {
      const Steering wish = r_.job.callbacks.steer(step);
      said = (wish.stop ? '!' : ':') + wish.plan;
    }
    const std::string wish = comm::gather_bytes(r_.world, said).front();
    if (wish.front() == '!') {
      last_step_ = step;
      return {};
    }
    const std::string plan = wish.substr(1);
    if (plan.empty() || plan == executor_.period().plan) return {};
    const Status added = agree(r_.world, r_.job.adder->add(step + 1, plan));
    if (added) return {};
    r_.job.adder->remove(step + 1);
    if (r_.world.rank() == 0 && r_.job.callbacks.note) {
      r_.job.callbacks.note(fmt::format("step {}: the run goes on under {}: {}", step,
                                        plan_label(executor_.period().plan),
                                        added.error().message));
    }
    return {};
  }

  TrainingSummary summary() {
    std::vector<int64_t> mine = sent_;
    mine.push_back(data_read_);
    mine.push_back(store_ ? store_->bytes_kept() : 0);
    mine.push_back(store_ ? store_->bytes_moved() : 0);
    const int64_t outer_bytes = executor_.outer() ? executor_.outer()->arena_bytes()[0] : 0;
    mine.push_back(std::max(peak_bytes_, executor_->peak_bytes()[0]) + outer_bytes);
    TrainingSummary result;
    const std::vector<std::string> kinds = sent_kinds();
    for (const std::vector<int64_t>& one : comm::gather_lists(r_.world, mine)) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        if (one[k] > 0) result.bytes_sent[kinds[k]] += one[k];
      }
      const int64_t read = one[kinds.size()];
      result.data_bytes_read += read;
      result.data_bytes_read_of_a_rank = std::max(result.data_bytes_read_of_a_rank, read);
      result.data_bytes_kept_of_a_rank =
          std::max(result.data_bytes_kept_of_a_rank, one[kinds.size() + 1]);
      result.data_bytes_moved += one[kinds.size() + 2];
      result.peak_memory_bytes = std::max(result.peak_memory_bytes, one.back());
    }
    result.steps = r_.job.config.steps;
    if (last_step_ < result.steps) result.stopped_after = last_step_;
    result.ranks = r_.world.size();
    result.transport = r_.job.start.transport;
    reports_.add_to(result);
    result.parameters = r_.job.start.parameters;
    result.process_peak_bytes = peak_rss_bytes();
    result.checkpoints = saved_.counts();
    caches_.add(*executor_, r_.compiled());
    result.row_caches = caches_.gather(r_.world, r_.job.periods);
    return result;
  }

  PeriodExecutor executor_;
  const RankOfRun r_;
  SavedParts saved_{r_};
  StepReports reports_{r_};
  StepRecords records_{r_};
  int64_t last_step_;                 // of this process
  int64_t peak_bytes_ = 0;            // largest peak of the periods before
  int64_t data_read_ = 0;             // bytes that this rank has read from files
  std::unique_ptr<DataStore> store_;  // null: files are read at each step
  CacheTotals caches_;
  std::vector<int64_t> sent_;
};

}  // namespace

Result<TrainingSummary> run_rank(TrainingJob& job, comm::Communicator& world) {
  return RankRun(job, world).run();
}

}  // namespace tessera
