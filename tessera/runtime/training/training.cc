// run_training; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "tessera/base/doing.h"
#include "tessera/base/statistics.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/cached_rows/cache_totals.h"
#include "tessera/runtime/cached_rows/row_exchange.h"
#include "tessera/runtime/checkpoint/checkpointing.h"
#include "tessera/runtime/data/data_store.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/data/run_data.h"
#include "tessera/runtime/evaluation/class_evaluation.h"
#include "tessera/runtime/evaluation/click_evaluation.h"
#include "tessera/runtime/evaluation/metrics.h"
#include "tessera/runtime/measure/trace.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/runtime/training/periods.h"
#include "tessera/runtime/training/run_parts.h"
#include "tessera/runtime/training/watching.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The data that all ranks of this process share.
struct Job {
  const RunConfig& config;
  const TrainingCallbacks& callbacks;
  const Periods& periods;
  PeriodAdder* adder;  // null: the run is not steered
  const RunData& data;
  MetricsWriter* metrics;  // null: the run writes no record
  MetricsWriter* watch;    // null: the ranks are not watched, or not by this process
  TrainingStart start;
  const RunParts& parts;
  Storage& storage;
  DataErrors data_errors = {};
};

// Loads an input of a step. The learning rate and the step's number come from the trainer; other
// inputs are those of batch `batch` of the source (in training the batch with the number of the
// step). If `store` is not null, samples come from the store instead of files.
void load_input(Job& job, const DataSource& source, int64_t step, int64_t batch,
                const Tensor& tensor, const Box& region, const kernels::Array& to,
                const DataStore* store = nullptr) {
  if (tensor.init.kind == Init::Kind::kLearningRate) {
    load_scalar(learning_rate(job.config.optimizer, step, job.config.steps), to);
  } else if (tensor.init.kind == Init::Kind::kStep) {
    load_scalar(static_cast<double>(step), to);
  } else {
    job.data_errors.expect(store != nullptr ? store->load(batch, tensor, region, to)
                                            : source.load(batch, tensor, region, to));
  }
}

// Runs one rank of a training run.
class RankRun {
 public:
  RankRun(Job& job, comm::Communicator& world)
      : job_(job),
        world_(world),
        executor_(job.periods, world, options_of(job, world)),
        last_step_(job.config.steps),
        sent_(sent_kinds().size(), 0) {}

  Result<TrainingSummary> run() {
    // A run that continues begins with the plan of the step after its newest checkpoint, even if
    // that checkpoint is damaged and an older one is used.
    const auto& candidates = job_.parts.front().origin.candidates;
    TESSERA_TRY_VOID(begin_step((candidates.empty() ? 0 : candidates.front().step) + 1));
    TESSERA_TRY(const int64_t done, restore());
    find_loss();  // also a barrier, so that no rank runs before all are ready
    open_store();
    last_ = Clock::now();
    for (int64_t step = done + 1; step <= last_step_; ++step) {
      TESSERA_TRY_VOID(begin_step(step));
      TESSERA_TRY_VOID(steer(step));
      if (store_) store_->begin(step, step < last_step_ && !executor_.begins_period(step + 1));
      const std::vector<int64_t> before = bytes_sent(world_);
      const bool is_recorded = step == job_.callbacks.trace_step || is_watched(step);
      const int64_t begin_ns = is_recorded ? begin_record(world_, *executor_, recorded_) : 0;
      executor_->run_step(
          step, [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
            load_input(job_, *job_.data.training, step, batch_of(step), tensor, region, to,
                       store_.get());
            if (!store_) data_read_ += job_.data.training->bytes_of(batch_of(step), tensor, region);
          });
      executor_.end_step(step);
      add_sent(before);
      TESSERA_TRY_VOID(report(step));
      if (is_recorded) TESSERA_TRY_VOID(hand_over_record(step, begin_ns));
      for (Saved& part : saved_parts_) {
        TESSERA_TRY_VOID(part.checkpoints->after_step(*part.executor, step, step == last_step_));
      }
    }
    TESSERA_TRY_VOID(end_checkpoints());
    TrainingSummary result = summary();
    if (!result.row_caches.empty() && job_.metrics != nullptr && world_.rank() == 0)
      TESSERA_TRY_VOID(job_.metrics->event(event_text(result.row_caches)));
    return result;
  }

 private:
  static ExecutorOptions options_of(Job& job, const comm::Communicator& world) {
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
    if (job_.config.data.store_bytes == 0) return;
    auto opened = DataStore::create(*job_.data.training, compiled().graph(), executor_.program(),
                                    world_, job_.config.data.store_bytes);
    if (!opened) {
      return job_.data_errors.expect(invalid_input(
          opened.error().message + place_of_key(job_.config, "data", job_.config.data_line)));
    }
    store_ = std::move(*opened);
    data_read_ = store_->bytes_kept();
  }

  // Returns the number of the batch with which this rank's island makes the step. Each island takes
  // its share of the step's samples, so that all islands together see the same samples as a run
  // without outer steps.
  int64_t batch_of(int64_t step) const {
    return (step - 1) * compiled().islands() + executor_.island() + 1;
  }

  const Compiled& compiled() const { return executor_.period().compiled; }
  TensorId loss_tensor() const { return compiled().graph().loss; }

  // Returns the text of the current plan, for the manifests of checkpoints.
  Result<std::string> plan_text() const {
    const Period& period = executor_.period();
    TESSERA_TRY(const DType compute, parse_dtype(job_.config.precision));
    TESSERA_TRY(const PlanText plan,
                load_plan_text(period.plan, compiled().model->graph, job_.config.file, compute));
    return plan.text;
  }

  void add_sent(const std::vector<int64_t>& before) {
    const std::vector<int64_t> after = bytes_sent(world_);
    for (size_t k = 0; k < sent_.size(); ++k) sent_[k] += after[k] - before[k];
  }

  // Begins a step. If it is the first step under another plan, changes the plan.
  Status begin_step(int64_t step) {
    if (executor_.begins_period(step)) TESSERA_TRY_VOID(end_checkpoints());
    const bool runs = !saved_parts_.empty();
    const int64_t peak = runs ? executor_->peak_bytes()[0] : 0;
    if (runs && executor_.begins_period(step)) caches_.add(*executor_, compiled());
    const std::vector<int64_t> before = bytes_sent(world_);
    TESSERA_TRY(const auto change, executor_.begin_step(step));
    if (!runs || change) TESSERA_TRY_VOID(open_checkpoints());
    if (!change) return {};
    add_sent(before);
    peak_bytes_ = std::max(peak_bytes_, peak);
    find_loss();
    if (store_) store_->follow(compiled().graph(), executor_.program());
    ChangeReport report;
    report.after = step - 1;
    report.plan = compiled().plan().plan.file;
    report.ranks = compiled().ranks();
    report.seconds = change->seconds;
    report.begun_anew = executor_.period().moves.front().move.begun_anew;
    const std::array<int64_t, 2> mine{change->bytes_predicted, change->bytes_counted};
    for (const auto& [predicted, counted] : comm::gather_values(world_, mine)) {
      report.bytes_predicted += predicted;
      report.bytes_counted += counted;
    }
    report.total_s = change->total_s;
    if (world_.rank() == 0) TESSERA_TRY_VOID(hand_over(report, job_.callbacks.change));
    last_ = Clock::now();
    return {};
  }

  // Makes the checkpoints of all parts of the run that concern this rank.
  Status open_checkpoints() {
    saved_parts_.clear();
    TESSERA_TRY(const std::string plan, plan_text());
    for (const RunPart& part : job_.parts) {
      if (!part.concerns(executor_.island())) continue;
      Saved& saved = saved_parts_.emplace_back();
      // The first part's events are those of the run.
      const bool is_first = &part == &job_.parts.front();
      saved.job.emplace(
          CheckpointJob{part.config, part.fragment || part.island ? part.compiled : compiled(),
                        part.origin, plan, job_.storage, is_first ? job_.callbacks.note : nullptr,
                        [this, is_first](const SaveReport& one) {
                          return is_first ? hand_over(one, job_.callbacks.saved) : Status{};
                        },
                        [this, is_first](const LoadReport& one) {
                          return is_first ? hand_over(one, job_.callbacks.loaded) : Status{};
                        }});
      saved.executor = part.fragment ? &executor_.outer()->executor(*part.fragment) : &*executor_;
      saved.checkpoints = std::make_unique<Checkpointing>(
          *saved.job,
          part.fragment ? executor_.outer()->program(*part.fragment) : executor_.program(),
          part.fragment ? world_ : executor_.own_world());
      TESSERA_TRY_VOID(saved.checkpoints->prepare(*saved.executor));
    }
    return {};
  }

  // Restores the state of all parts. Returns how many steps are done.
  Result<int64_t> restore() {
    Status moved;
    if (world_.rank() == 0) {
      const auto lines = set_aside_left_out(job_.parts, job_.storage);
      if (!lines) moved = tl::unexpected(lines.error());
      for (const std::string& line : lines.value_or(std::vector<std::string>{})) {
        if (job_.callbacks.note) job_.callbacks.note(line);
      }
    }
    if (compiled().outer) TESSERA_TRY_VOID(agree(world_, moved));
    std::optional<int64_t> done;
    for (Saved& part : saved_parts_) {
      TESSERA_TRY(const int64_t of_part, part.checkpoints->restore(*part.executor));
      if (done && *done != of_part) {
        return fault(fmt::format(
            "{}: expected all parts of the run's state after the same step, found steps {} and {}",
            job_.config.checkpoint.dir, *done, of_part));
      }
      done = of_part;
    }
    executor_.resume_outer_steps(*done);
    return *done;
  }

  // Asks what should follow this step. All ranks learn it before the step begins, because the data
  // of the next step may be fetched during this one.
  Status steer(int64_t step) {
    if (job_.adder == nullptr || step >= last_step_) return {};
    std::string said;
    if (world_.rank() == 0) {
      const Steering wish = job_.callbacks.steer(step);
      said = (wish.stop ? '!' : ':') + wish.plan;
    }
    const std::string wish = comm::gather_bytes(world_, said).front();
    if (wish.front() == '!') {
      last_step_ = step;
      return {};
    }
    const std::string plan = wish.substr(1);
    if (plan.empty() || plan == executor_.period().plan) return {};
    const Status added = agree(world_, job_.adder->add(step + 1, plan));
    if (added) return {};
    job_.adder->remove(step + 1);
    if (world_.rank() == 0 && job_.callbacks.note) {
      job_.callbacks.note(fmt::format("step {}: the run goes on under {}: {}", step,
                                      plan_label(executor_.period().plan), added.error().message));
    }
    return {};
  }

  // Writes the report of an event between two steps to the run's record and passes it to the
  // caller's callback.
  template <typename Report>
  Status hand_over(const Report& report, const std::function<void(const Report&)>& callback) {
    if (job_.metrics != nullptr) TESSERA_TRY_VOID(job_.metrics->event(event_text(report)));
    if (callback) callback(report);
    return {};
  }

  // Waits for the checkpoints that are being written, and adds the counts of this period's
  // checkpoints to `saved_`.
  Status end_checkpoints() {
    for (Saved& part : saved_parts_) {
      TESSERA_TRY_VOID(part.checkpoints->finish());
      const CheckpointSummary ended = part.checkpoints->summary();
      saved_.resumed_from = std::max(saved_.resumed_from, ended.resumed_from);
      if (&part == &saved_parts_.front()) saved_.saved += ended.saved;
      saved_.bytes_written += ended.bytes_written;
      saved_.bytes_read += ended.bytes_read;
      saved_.memory_bytes = std::max(saved_.memory_bytes, ended.memory_bytes);
      saved_.seconds += ended.seconds;
    }
    return {};
  }

  // Finds the lowest rank that has the loss, which then sends it to rank 0.
  void find_loss() {
    const std::vector<Home>& fetches = executor_.program().fetches;
    const bool mine = std::any_of(fetches.begin(), fetches.end(), [&](const Home& home) {
      return home.tensor == loss_tensor() && !home.region.empty();
    });
    const auto all = comm::gather_values(world_, char{mine});
    const auto first = std::find(all.begin(), all.end(), char{true});
    if (first != all.end()) owner_ = static_cast<int>(first - all.begin());
  }

  // Returns, on rank 0, the loss of the step or evaluation that was executed last: the mean over the
  // islands.
  double loss_at_rank_0() {
    double sum = 0;
    for (int island = 0; island < compiled().islands(); ++island) {
      const int owner = owner_ + island * executor_.ranks_of_an_island();
      std::vector<double> loss{kNone};
      if (world_.rank() == owner)
        loss[0] = read_loss(*executor_, executor_.program(), loss_tensor()).value_or(kNone);
      transfer(world_, owner, 0, loss);
      sum += loss[0];
    }
    return sum / compiled().islands();
  }

  // The results of an evaluation on rank 0: the mean loss over its batches, and the quality of
  // its predictions.
  struct Evaluated {
    double loss = 0;
    std::optional<ClickQuality> clicks;
    std::optional<double> accuracy;
  };
  Evaluated evaluate(int64_t step) {
    Evaluated result;
    std::optional<ClickEvaluation> clicks;
    std::optional<ClassEvaluation> classes;
    // Runs as many batches as the run file asks for, but no more than are needed to visit each
    // sample once.
    int64_t batches = job_.config.eval.batches;
    const SamplePasses* passes = job_.data.evaluation->passes();
    if (passes != nullptr && batches <= passes->whole_steps()) passes = nullptr;
    if (passes != nullptr) batches = passes->steps();
    std::vector<double> losses;
    if (ClickEvaluation::applies(*compiled().model)) {
      clicks.emplace(compiled().graph(), passes);
    } else if (const OpId op = ClassEvaluation::op_of(*compiled().model, compiled().graph());
               op.valid()) {
      classes.emplace(compiled().graph(), op);
    }
    for (int64_t batch = 1; batch <= batches; ++batch) {
      executor_->evaluate(
          batch,
          [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
            load_input(job_, *job_.data.evaluation, step, batch, tensor, region, to);
          },
          clicks    ? clicks->observation(batch)
          : classes ? classes->observation()
                    : nullptr);
      losses.push_back(loss_at_rank_0());
      if (classes) classes->gather(world_, passes, batch - 1);
    }
    for (const double loss : losses) result.loss += loss / static_cast<double>(batches);
    if (passes != nullptr) result.loss = passes->mean(losses);
    if (clicks) result.clicks = clicks->gather(world_);
    if (classes) result.accuracy = classes->accuracy();
    return result;
  }

  Status report(int64_t step) {
    const double loss = loss_at_rank_0();
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    std::optional<Evaluated> evaluated;
    if (evaluates_after(job_.config, step)) evaluated = evaluate(step);
    last_ = Clock::now();
    if (world_.rank() != 0) return {};
    const double rate = static_cast<double>(job_.start.tokens_per_step) / seconds;
    if (rates_.empty()) first_loss_ = loss;
    last_loss_ = loss;
    rates_.push_back(rate);
    StepReport report{step,
                      loss,
                      learning_rate(job_.config.optimizer, step, job_.config.steps),
                      seconds,
                      rate,
                      {},
                      job_.start.arena_bytes,
                      rss_bytes(),
                      {},
                      {}};
    if (evaluated) {
      report.eval_loss = eval_loss_ = evaluated->loss;
      report.eval_clicks = eval_clicks_ = evaluated->clicks;
      report.eval_accuracy = eval_accuracy_ = evaluated->accuracy;
    }
    if (job_.metrics != nullptr) TESSERA_TRY_VOID(job_.metrics->step(report));
    if (job_.callbacks.step) job_.callbacks.step(report);
    return {};
  }

  bool is_watched(int64_t step) const {
    return job_.config.watch > 0 && step % job_.config.watch == 0;
  }

  // Gathers the records of all ranks on rank 0, which writes the times of the ranks if the step is
  // watched and passes the trace to the caller if it is traced.
  Status hand_over_record(int64_t step, int64_t begin_ns) {
    const auto recorded = gather_records(world_, recorded_, begin_ns);
    if (is_watched(step) && world_.rank() == 0) TESSERA_TRY_VOID(write_times(step, recorded));
    if (step == job_.callbacks.trace_step) TESSERA_TRY_VOID(hand_over_trace(recorded));
    last_ = Clock::now();
    return {};
  }

  Status write_times(int64_t step, const std::vector<std::vector<Executed>>& recorded) {
    const Period& period = executor_.period();
    if (&period != watched_) {
      WatchStart start{job_.config.model,
                       "",
                       job_.config.batch,
                       job_.config.precision,
                       optimizer_text(specification(job_.config.optimizer)),
                       job_.start.transport,
                       compiled().ranks()};
      TESSERA_TRY(start.plan, plan_text());
      TESSERA_TRY_VOID(job_.watch->event(to_text(start)));
      watched_ = &period;
    }
    const auto of_an_island = static_cast<size_t>(compiled().plan().ranks);
    for (int island = 0; island < compiled().islands(); ++island) {
      const size_t first = static_cast<size_t>(island) * of_an_island;
      for (const RankTimes& times :
           rank_times(*compiled().lowering, std::span(period.programs).subspan(first, of_an_island),
                      std::span(recorded).subspan(first, of_an_island), step,
                      static_cast<int32_t>(first))) {
        TESSERA_TRY_VOID(job_.watch->event(to_text(times)));
      }
    }
    return {};
  }

  Status hand_over_trace(const std::vector<std::vector<Executed>>& recorded) {
    std::vector<std::vector<Executed>> all;
    std::vector<Program> programs;
    for (int rank = 0; rank < std::ssize(recorded) && rank < compiled().ranks(); ++rank) {
      TESSERA_TRY(Program program, compiled().lowering->lower(rank));
      const int64_t step = job_.callbacks.trace_step;
      auto counted = with_counted_rows(
          program, compiled().graph(), step,
          [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
            load_input(job_, *job_.data.training, step, step, tensor, region, to, store_.get());
          });
      programs.push_back(counted ? std::move(*counted) : std::move(program));
      all.push_back(recorded[static_cast<size_t>(rank)]);
    }
    if (world_.rank() == 0 && job_.callbacks.trace)
      job_.callbacks.trace(trace_of(*compiled().lowering, programs, all));
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
    for (const std::vector<int64_t>& one : comm::gather_lists(world_, mine)) {
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
    if (rates_.size() > 2) rates_.erase(rates_.begin());
    result.steps = job_.config.steps;
    if (last_step_ < result.steps) result.stopped_after = last_step_;
    result.ranks = world_.size();
    result.transport = job_.start.transport;
    result.first_loss = first_loss_;
    result.last_loss = last_loss_;
    result.eval_loss = eval_loss_;
    result.eval_clicks = eval_clicks_;
    result.eval_accuracy = eval_accuracy_;
    result.tokens_per_s = rates_.empty() ? 0 : median(rates_);
    result.parameters = job_.start.parameters;
    result.process_peak_bytes = peak_rss_bytes();
    result.checkpoints = saved_;
    caches_.add(*executor_, compiled());
    result.row_caches = caches_.gather(world_, job_.periods);
    return result;
  }

  Job& job_;
  comm::Communicator& world_;
  PeriodExecutor executor_;
  int64_t last_step_;  // of this process
  // The checkpoints of a part of the run in the current period.
  struct Saved {
    std::optional<CheckpointJob> job;
    RankExecutor* executor = nullptr;
    std::unique_ptr<Checkpointing> checkpoints;
  };
  std::list<Saved> saved_parts_;  // a list, because a Checkpointing keeps a reference to its job
  CheckpointSummary saved_;       // counts of the periods before
  int64_t peak_bytes_ = 0;        // largest peak of the periods before
  int64_t data_read_ = 0;         // bytes that this rank has read from files
  std::unique_ptr<DataStore> store_;  // null: files are read at each step
  CacheTotals caches_;
  int owner_ = 0;
  std::vector<int64_t> sent_;
  std::vector<double> rates_;
  std::vector<Executed> recorded_;
  const Period* watched_ = nullptr;  // the period whose steps were watched last
  Clock::time_point last_;
  double first_loss_ = kNone, last_loss_ = kNone;
  std::optional<double> eval_loss_, eval_accuracy_;
  std::optional<ClickQuality> eval_clicks_;
};

// Reports the start of the run. The arena that is shown is the largest one of rank `rank` in
// all periods.
Status call_start(Job& job, size_t rank, bool printer) {
  for (const Period& period : job.periods) {
    job.start.arena_bytes = std::max(job.start.arena_bytes, period.programs[rank].arena_bytes[0]);
  }
  job.start.printer = printer;
  if (job.metrics != nullptr && printer) TESSERA_TRY_VOID(job.metrics->start(job.start));
  if (job.callbacks.start) job.callbacks.start(job.start);
  return {};
}

Result<TrainingSummary> train_on_threads(Job& job, const comm::Options& options) {
  const std::vector<Program>& programs = job.periods.front().programs;
  const auto largest = std::max_element(
      programs.begin(), programs.end(),
      [](const Program& a, const Program& b) { return a.arena_bytes[0] < b.arena_bytes[0]; });
  TESSERA_TRY_VOID(call_start(job, static_cast<size_t>(largest - programs.begin()), true));
  std::vector<Result<TrainingSummary>> results(programs.size());
  const int ranks = static_cast<int>(results.size());
  TESSERA_TRY_VOID(comm::run_threads(ranks, options, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    results[rank] = RankRun(job, world).run();
    if (results[rank]) return;
    throw comm::CommFault{results[rank].error().message, results[rank].error().code};
  }));
  return std::move(results[0]);
}

Result<TrainingSummary> train_on_mpi(Job& job, comm::Communicator& world) {
  try {
    const auto rank = static_cast<size_t>(world.rank());
    TESSERA_TRY_VOID(agree(world, call_start(job, rank, rank == 0)));
    auto result = RankRun(job, world).run();
    if (!result) world.abort(result.error().message);
    return result;
  } catch (const std::exception& error) {
    if (!is_memory_exhausted(error)) throw;
    Error memory = memory_exhausted();
    memory.message = fmt::format("rank {}: {}", world.rank(), memory.message);
    world.abort(memory.message);
    return tl::unexpected(std::move(memory));
  } catch (const comm::CommFault& lost) {
    world.abort(lost.message);
    return tl::unexpected(Error{lost.code, lost.message});
  }
}

// Makes the programs. Rank 0 makes and verifies the programs of all ranks. Another rank makes only
// its own program, unless the plan changes during the run, or may (`changes`).
Status lower(Periods& periods, int64_t ranks, bool changes, const RunConfig& config,
             comm::Communicator* world) {
  if (world == nullptr) {
    TESSERA_TRY_VOID(lower_periods(periods, ranks, config.memory_limit_bytes));
    return check_memory(periods);
  }
  const bool alone = world->rank() != 0 && !changes;
  TESSERA_TRY_VOID(lower_periods(periods, ranks, config.memory_limit_bytes,
                                 alone ? std::optional(world->rank()) : std::nullopt));
  return check_memory(periods, world->rank());
}

// Checks that the run asks for nothing that a run with outer steps cannot do yet.
Status check_islands(const RunConfig& config, const Periods& periods) {
  const Compiled& compiled = periods.back().compiled;  // has outer steps if any has
  if (!compiled.outer) return {};
  if (periods.size() > 1 && !config.checkpoint.dir.empty()) {
    return invalid_input(fmt::format(
        "{}: checkpoint.dir: expected none in a run that changes to a plan with outer steps, found "
        "'{}'",
        config.file, config.checkpoint.dir));
  }
  if (config.data.store_bytes > 0) {
    return invalid_input(fmt::format(
        "data: expected no data store in a run whose plan has outer steps, found one of {} bytes{}",
        config.data.store_bytes, place_of_key(config, "data", config.data_line)));
  }
  const OuterSteps& outer = *compiled.outer->plan.outer;
  for (const CheckpointLevel* level :
       {static_cast<const CheckpointLevel*>(&config.checkpoint), &config.checkpoint.fast}) {
    if (level->dir.empty() || outer.delay == 0) continue;
    if (level->every % outer.interval() == 0 && config.steps % outer.interval() == 0) continue;
    return invalid_input(
        fmt::format("checkpoint: expected 'every' and 'steps' to be multiples of {} steps, because "
                    "with a delay "
                    "differences are under way between two outer steps, found {} and {}",
                    outer.interval(), level->every, config.steps));
  }
  return {};
}

// Checks that the number of ranks is the one that the run's plans need; a steered run may have more.
// `found` says where `ranks` comes from, for the error.
Status check_world(const Periods& periods, int64_t ranks, bool is_steered, std::string_view found) {
  if (is_steered && largest_ranks(periods) <= ranks) return {};
  if (periods.size() == 1) {
    const Compiled& compiled = periods.front().compiled;
    return check_ranks(compiled.outer ? compiled.outer->plan : compiled.plan().plan, ranks, found);
  }
  const int64_t needed = largest_ranks(periods);
  if (needed == ranks) return {};
  return invalid_input(
      fmt::format("change: the largest of the run's plans needs {} ranks, found {} ({})", needed,
                  ranks, found));
}

// Returns the shares of tables of those ranks whose programs this process has. The process that
// writes the record has the programs of all ranks.
std::vector<TableShare> shares_of_tables(const Period& period) {
  const Graph& graph = period.compiled.graph();
  std::vector<TableShare> all;
  for (const std::string& table : tables_of(period.compiled.model->graph)) {
    for (const Program& program : period.programs) {
      for (TableShare& share : table_shares(program, {table}, graph))
        all.push_back(std::move(share));
    }
  }
  return all;
}

// The files that a process opens before the run: data, checkpoints or weights, and the record.
struct Sources {
  std::optional<RunData> data;
  RunParts parts;
  std::optional<MetricsWriter> metrics, watch;
};

// Opens the sources and makes the programs. These steps may fail on one process only, so they are
// done before ranks wait for each other.
Status open_sources(const RunConfig& config, Periods& periods, int64_t ranks, bool is_steered,
                    Storage& storage, comm::Communicator* world, Sources& out) {
  const Compiled& compiled = periods.front().compiled;
  TESSERA_TRY(out.data, open_run_data(config, *compiled.model));
  TESSERA_TRY(out.parts, open_parts(config, compiled, storage));
  TESSERA_TRY_VOID(lower(periods, ranks, is_steered, config, world));
  if (!config.folder.empty() && (world == nullptr || world->rank() == 0)) {
    TESSERA_TRY(out.metrics, MetricsWriter::open(config.folder));
    if (config.watch > 0) {
      TESSERA_TRY(out.watch, MetricsWriter::open(config.folder, kRankTimesFile));
    }
  }
  return {};
}

}  // namespace

Result<TrainingSummary> run_training(const RunConfig& given, const TrainingCallbacks& callbacks) {
  TESSERA_TRY_VOID(check_run_config(given));
  RunConfig config = given;
  TESSERA_TRY(const DType compute, parse_dtype(given.precision));
  Compiler compiler;
  TESSERA_TRY(config.batch,
              compiler.batch_of(given.model, given.batch, kDefaultBatch, storage_dtype(compute)));
  const auto compile_plan = [&](const std::string& plan) {
    return compiler.compile({config.model,
                             plan,
                             config.batch,
                             config.precision,
                             config.file,
                             specification(config.optimizer),
                             false,
                             {},
                             true});
  };
  if (!config.changes.empty() && config.changes.back().after >= config.steps) {
    return invalid_input(fmt::format(
        "change: expected a change of the plan before the last of {} steps, found one after step "
        "{}",
        config.steps, config.changes.back().after));
  }
  TESSERA_TRY(Periods periods, compile_periods(compile_plan, config.plan, config.changes));
  const Compiled& compiled = periods.front().compiled;
  TESSERA_TRY_VOID(check_islands(config, periods));
  const bool mpi = comm::mpi_launched(), is_steered = callbacks.steer != nullptr;
  comm::Options options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  std::unique_ptr<comm::Communicator> world;
  if (mpi) {
    // The launcher numbers processes node by node, as devices are numbered. So the process number
    // is the device number, and the plan's order of devices says which rank runs there.
    TESSERA_TRY(const RankDevices devices,
                compiled.outer ? rank_devices(compiled.outer->plan) : compiled.plan().devices);
    options.rank_of_process = devices.ranks_by_device(compiled.ranks());
    TESSERA_TRY(world, comm::mpi_world(options));
    comm::mpi_install_fault_handler();
    TESSERA_TRY_VOID(check_world(periods, world->size(), is_steered, "mpirun"));
  }
  if (config.ranks > 0) TESSERA_TRY_VOID(check_world(periods, config.ranks, is_steered, "--ranks"));
  const int64_t ranks = world        ? world->size()
                        : is_steered ? std::max(config.ranks, largest_ranks(periods))
                                     : largest_ranks(periods);
  FileSystem disk;
  Storage& storage = callbacks.storage == nullptr ? disk : *callbacks.storage;
  Sources sources;
  Status ready = open_sources(config, periods, ranks, is_steered, storage, world.get(), sources);
  if (world) ready = agree(*world, ready);
  TESSERA_TRY_VOID(ready);
  const RunData& data = *sources.data;
  TrainingStart start;
  start.model = compiled.model->spec;
  start.plan = compiled.plan().plan.file;
  start.parameters = parameter_count(compiled.model->graph);
  start.ranks = ranks;
  start.tokens_per_step = config.batch * compiled.model->seq;
  start.data_bytes = data.training->bytes();
  start.data_files = data.training->files();
  start.transport = mpi ? "mpi" : "threads";
  start.tables = shares_of_tables(periods.front());
  PeriodAdder adder(periods, compile_plan, ranks, config.memory_limit_bytes);
  Job job{config,
          callbacks,
          periods,
          is_steered ? &adder : nullptr,
          data,
          sources.metrics ? &*sources.metrics : nullptr,
          sources.watch ? &*sources.watch : nullptr,
          start,
          sources.parts,
          storage};
  auto summary = mpi ? train_on_mpi(job, *world) : train_on_threads(job, options);
  if (!summary) return tl::unexpected(job.data_errors.instead_of(summary.error()));
  return summary;
}

}  // namespace tessera
