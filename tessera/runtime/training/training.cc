// run_training; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/base/doing.h"
#include "tessera/compile/compile.h"
#include "tessera/compile/optimizer_text.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/runtime/training/training_job.h"
#include "tessera/simulate/rank_times.h"

namespace tessera {
namespace {

// Reports the start of the run. The arena that is shown is the largest one of rank `rank` in
// all periods.
Status call_start(TrainingJob& job, size_t rank, bool printer) {
  for (const Period& period : job.periods) {
    job.start.arena_bytes = std::max(job.start.arena_bytes, period.programs[rank].arena_bytes[0]);
  }
  job.start.printer = printer;
  if (job.metrics != nullptr && printer) TESSERA_TRY_VOID(job.metrics->start(job.start));
  if (job.callbacks.start) job.callbacks.start(job.start);
  return {};
}

Result<TrainingSummary> train_on_threads(TrainingJob& job, const comm::Options& options) {
  const std::vector<Program>& programs = job.periods.front().programs;
  const auto largest = std::max_element(
      programs.begin(), programs.end(),
      [](const Program& a, const Program& b) { return a.arena_bytes[0] < b.arena_bytes[0]; });
  TESSERA_TRY_VOID(call_start(job, static_cast<size_t>(largest - programs.begin()), true));
  std::vector<Result<TrainingSummary>> results(programs.size());
  const int ranks = static_cast<int>(results.size());
  TESSERA_TRY_VOID(comm::run_threads(ranks, options, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    results[rank] = run_rank(job, world);
    if (results[rank]) return;
    throw comm::CommFault{results[rank].error().message, results[rank].error().code};
  }));
  return std::move(results[0]);
}

Result<TrainingSummary> train_on_mpi(TrainingJob& job, comm::Communicator& world) {
  try {
    const auto rank = static_cast<size_t>(world.rank());
    TESSERA_TRY_VOID(agree(world, call_start(job, rank, rank == 0)));
    auto result = run_rank(job, world);
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
  TrainingJob job{config,
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
