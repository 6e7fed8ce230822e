// run_training; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "tessera/base/statistics.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/ranks.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/trace.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// What all ranks of this process read.
struct Job {
  const RunConfig& config;
  const TrainingCallbacks& callbacks;
  const Compiled& compiled;
  const std::optional<TextData>& data;  // none: random inputs
  TrainingStart start;
};

void load_input(const Job& job, int64_t step, const Tensor& tensor, const Box& region,
                const kernels::Array& to) {
  if (tensor.init.kind == Init::Kind::kLearningRate) {
    load_scalar(learning_rate(job.config.optimizer, step, job.config.steps), to);
  } else if (tensor.init.kind == Init::Kind::kStep) {
    load_scalar(static_cast<double>(step), to);
  } else if (job.data) {
    load_text(*job.compiled.model, *job.data, job.config.seed, step, tensor, region, to);
  } else {
    load_random(*job.compiled.model, job.config.seed, step, tensor, region, to);
  }
}

// The loss on this rank, if it has it.
std::optional<double> read_loss(const RankExecutor& executor, const Program& program,
                                TensorId loss) {
  for (const Home& home : program.fetches) {
    if (home.tensor == loss && !home.region.empty()) return executor.read(home).values().at(0);
  }
  return std::nullopt;
}

// One rank's part of a run.
class RankRun {
 public:
  RankRun(const Job& job, const Program& program, comm::Communicator& world)
      : job_(job), program_(program), world_(world), sent_(sent_kinds().size(), 0) {}

  Result<TrainingSummary> run() {
    const int ranks_here = job_.start.transport == "mpi" ? 1 : world_.size();
    const int threads = job_.config.threads > 0 ? static_cast<int>(job_.config.threads)
                                                : threads_of_rank(ranks_here);
    ExecutorOptions options{static_cast<uint64_t>(job_.config.seed), threads, false};
    TESSERA_TRY(const std::unique_ptr<RankExecutor> executor,
                RankExecutor::create(job_.compiled.graph(), program_, world_, options));
    executor->initialise();
    find_loss();  // also: nobody runs before all are ready
    last_ = Clock::now();
    for (int64_t step = 1; step <= job_.config.steps; ++step) {
      const std::vector<double> before = bytes_sent(world_);
      const bool traced = step == job_.callbacks.trace_step;
      if (traced) {
        world_.barrier();
        executor->record(&recorded_);
      }
      executor->run_step(step,
                         [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                           load_input(job_, step, tensor, region, to);
                         });
      const std::vector<double> after = bytes_sent(world_);
      for (size_t k = 0; k < sent_.size(); ++k) sent_[k] += after[k] - before[k];
      report(*executor, step);
      if (traced) TESSERA_TRY_VOID(hand_over_trace());
    }
    return summary(*executor);
  }

 private:
  // The lowest rank that has the loss.
  void find_loss() {
    const TensorId loss = job_.compiled.graph().loss;
    const bool mine =
        std::any_of(program_.fetches.begin(), program_.fetches.end(),
                    [&](const Home& home) { return home.tensor == loss && !home.region.empty(); });
    const auto all = gather_all(world_, {mine ? 1.0 : 0.0});
    const auto first =
        std::find_if(all.begin(), all.end(), [](const auto& one) { return one[0] > 0; });
    if (first != all.end()) owner_ = static_cast<int>(first - all.begin());
  }

  void report(const RankExecutor& executor, int64_t step) {
    std::vector<double> loss{kNone};
    if (world_.rank() == owner_)
      loss[0] = read_loss(executor, program_, job_.compiled.graph().loss).value_or(kNone);
    transfer(world_, owner_, 0, loss);
    if (world_.rank() != 0) return;
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(last_, now)).count();
    const double rate = static_cast<double>(job_.start.tokens_per_step) / seconds;
    if (step == 1) first_loss_ = loss[0];
    last_loss_ = loss[0];
    rates_.push_back(rate);
    if (!job_.callbacks.step) return;
    job_.callbacks.step({step, loss[0],
                         learning_rate(job_.config.optimizer, step, job_.config.steps), seconds,
                         rate});
  }

  // What all ranks recorded goes to rank 0, as numbers.
  Status hand_over_trace() {
    constexpr size_t kNumbers = 6;
    std::vector<double> mine;
    for (const Executed& one : recorded_) {
      mine.insert(mine.end(),
                  {static_cast<double>(one.block.kind), static_cast<double>(one.block.chunk),
                   static_cast<double>(one.instruction), static_cast<double>(one.micro_batch),
                   static_cast<double>(one.start_ns), static_cast<double>(one.end_ns)});
    }
    const auto sizes = gather_all(world_, {static_cast<double>(mine.size())});
    std::vector<std::vector<Executed>> all;
    std::vector<Program> programs;
    for (int rank = 0; rank < world_.size(); ++rank) {
      std::vector<double> numbers = rank == world_.rank() ? mine : std::vector<double>{};
      numbers.resize(static_cast<size_t>(sizes[static_cast<size_t>(rank)][0]));
      if (!numbers.empty()) transfer(world_, rank, 0, numbers);
      if (world_.rank() != 0) continue;
      TESSERA_TRY(Program program, job_.compiled.lowering->lower(rank));
      programs.push_back(std::move(program));
      std::vector<Executed>& list = all.emplace_back();
      for (size_t i = 0; i < numbers.size(); i += kNumbers) {
        const double* at = &numbers[i];
        list.push_back({{static_cast<BlockKind>(at[0]), static_cast<int32_t>(at[1])},
                        static_cast<int32_t>(at[2]),
                        static_cast<int64_t>(at[3]),
                        static_cast<int64_t>(at[4]),
                        static_cast<int64_t>(at[5])});
      }
    }
    if (world_.rank() == 0 && job_.callbacks.trace)
      job_.callbacks.trace(trace_of(*job_.compiled.lowering, programs, all));
    last_ = Clock::now();
    return {};
  }

  TrainingSummary summary(const RankExecutor& executor) {
    std::vector<double> mine = sent_;
    mine.push_back(static_cast<double>(executor.peak_bytes()[0]));
    TrainingSummary result;
    const std::vector<std::string> kinds = sent_kinds();
    for (const std::vector<double>& one : gather_all(world_, mine)) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        if (one[k] > 0) result.bytes_sent[kinds[k]] += static_cast<int64_t>(one[k]);
      }
      result.peak_memory_bytes =
          std::max(result.peak_memory_bytes, static_cast<int64_t>(one.back()));
    }
    if (rates_.size() > 2) rates_.erase(rates_.begin());
    result.steps = job_.config.steps;
    result.ranks = world_.size();
    result.transport = job_.start.transport;
    result.first_loss = first_loss_;
    result.last_loss = last_loss_;
    result.tokens_per_s = median(rates_);
    result.parameters = job_.start.parameters;
    result.process_peak_bytes = peak_rss_bytes();
    return result;
  }

  const Job& job_;
  const Program& program_;
  comm::Communicator& world_;
  int owner_ = 0;
  std::vector<double> sent_, rates_;
  std::vector<Executed> recorded_;
  Clock::time_point last_;
  double first_loss_ = kNone, last_loss_ = kNone;
};

void call_start(Job& job, const Program& program, bool printer) {
  job.start.arena_bytes = program.arena_bytes[0];
  job.start.printer = printer;
  if (job.callbacks.start) job.callbacks.start(job.start);
}

Result<TrainingSummary> train_on_threads(Job& job, const comm::Options& options) {
  TESSERA_TRY(const std::vector<Program> programs,
              lower_and_verify(*job.compiled.lowering, job.config.memory_limit_bytes));
  const auto largest = std::max_element(
      programs.begin(), programs.end(),
      [](const Program& a, const Program& b) { return a.arena_bytes[0] < b.arena_bytes[0]; });
  call_start(job, *largest, true);
  std::vector<Result<TrainingSummary>> results(programs.size());
  TESSERA_TRY_VOID(comm::run_threads(job.compiled.ranks(), options, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    results[rank] = RankRun(job, programs[rank], world).run();
    if (!results[rank]) throw comm::CommFault{results[rank].error().message};
  }));
  return std::move(results[0]);
}

// Rank 0 proves the programs of all ranks; the others make their own only.
Result<Program> program_of_process(const Job& job, int rank) {
  if (rank != 0) return job.compiled.lowering->lower(rank);
  TESSERA_TRY(std::vector<Program> programs,
              lower_and_verify(*job.compiled.lowering, job.config.memory_limit_bytes));
  return std::move(programs.front());
}

Result<TrainingSummary> train_on_mpi(Job& job, comm::Communicator& world) {
  auto program = program_of_process(job, world.rank());
  if (!program) {
    world.abort(program.error().message);
    return tl::unexpected(program.error());
  }
  call_start(job, *program, world.rank() == 0);
  try {
    auto result = RankRun(job, *program, world).run();
    if (!result) world.abort(result.error().message);
    return result;
  } catch (const comm::CommFault& lost) {
    world.abort(lost.message);
    return fault(lost.message);
  }
}

}  // namespace

Result<TrainingSummary> run_training(const RunConfig& given, const TrainingCallbacks& callbacks) {
  constexpr int64_t kDefaultBatch = 8;
  TESSERA_TRY_VOID(check_run_config(given));
  RunConfig config = given;
  TESSERA_TRY(config.batch, batch_of(given.model, given.batch, kDefaultBatch));
  TESSERA_TRY(const Compiled compiled,
              compile({config.model, config.plan, config.batch, config.precision, config.file,
                       specification(config.optimizer)}));
  const bool mpi = comm::mpi_launched();
  comm::Options options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  std::unique_ptr<comm::Communicator> world;
  if (mpi) {
    // The launcher numbers processes as the machine's devices are numbered, node by node.
    options.rank_of_process = compiled.plan().devices.ranks_by_device(compiled.plan().ranks);
    TESSERA_TRY(world, comm::mpi_world(options));
    comm::mpi_install_fault_handler();
    TESSERA_TRY_VOID(check_ranks(compiled.plan().plan, world->size(), "mpirun"));
  }
  if (config.ranks > 0) TESSERA_TRY_VOID(check_ranks(compiled.plan().plan, config.ranks));
  std::optional<TextData> data;
  if (!has_random_data(config)) {
    if (compiled.model->text == 0) {
      return invalid_input(
          fmt::format("data: expected a model that reads tokens, or data = \"random\", found '{}'",
                      config.model));
    }
    TESSERA_TRY(data, open_run_data(config, compiled.model->text - 1, compiled.model->vocab));
  }
  TrainingStart start;
  start.model = compiled.model->spec;
  start.plan = compiled.plan().plan.file;
  start.parameters = parameter_count(compiled.model->graph);
  start.ranks = compiled.ranks();
  start.tokens_per_step = config.batch * compiled.model->seq;
  start.data_bytes = data ? data->bytes() : 0;
  start.data_files = data ? data->files() : 0;
  start.transport = mpi ? "mpi" : "threads";
  Job job{config, callbacks, compiled, data, start};
  return mpi ? train_on_mpi(job, *world) : train_on_threads(job, options);
}

}  // namespace tessera
