// Training; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/runtime/data.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/ranks.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// What all ranks of this process read.
struct Job {
  const RunConfig& config;
  const TrainHooks& hooks;
  const Compiled& compiled;
  const Data& data;
  comm::Options comm;
};

LoadFunction loader(const Job& job, const int64_t& step) {
  return [&job, &step](const Tensor& tensor, const Box& region, const kernels::Array& to) {
    if (tensor.name == "lr") {
      kernels::store_element(to.data, to.dtype, learning_rate(job.config, step));
    } else if (tensor.name == "step") {
      kernels::store_element(to.data, to.dtype, static_cast<double>(step));
    } else {
      job.data.load(tensor, region, step, to);
    }
  };
}

// The value of a fetched scalar on this rank.
std::optional<double> fetched(const RankExecutor& executor, const Program& program, TensorId tensor) {
  for (const Home& home : program.fetches) {
    if (home.tensor == tensor && !home.region.empty()) return executor.read(home).values().at(0);
  }
  return std::nullopt;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// One rank's part of a run.
class RankRun {
 public:
  RankRun(const Job& job, const Program& program, comm::Communicator& world)
      : job_(job), program_(program), world_(world), sent_(sent_kinds().size(), 0) {}

  Result<TrainSummary> run() {
    ExecutorOptions options{static_cast<uint64_t>(job_.config.seed), threads_of_rank(world_.size()),
                            axis_names(job_.compiled, program_), job_.hooks.profile && world_.rank() == 0};
    TESSERA_TRY(const std::unique_ptr<RankExecutor> executor,
                RankExecutor::create(*job_.compiled.graph, program_, world_, std::move(options)));
    executor->initialise();
    find_owner(*executor);
    int64_t step = 0;
    const LoadFunction load = loader(job_, step);
    last_ = Clock::now();
    for (step = 1; step <= job_.config.steps; ++step) {
      const std::vector<double> before = bytes_sent(world_);
      executor->run_step(step, load);
      const std::vector<double> after = bytes_sent(world_);
      for (size_t k = 0; k < sent_.size(); ++k) sent_[k] += after[k] - before[k];
      if (step % job_.config.log_every == 0 || step == job_.config.steps) report(*executor, step);
    }
    return summary(*executor);
  }

 private:
  // The lowest rank that has the loss.
  void find_owner(const RankExecutor&) {
    const bool mine = std::any_of(program_.fetches.begin(), program_.fetches.end(), [&](const Home& home) {
      return home.tensor == job_.compiled.graph->loss;
    });
    const auto all = gather_all(world_, {mine ? 1.0 : 0.0});
    for (int rank = static_cast<int>(all.size()); rank-- > 0;) {
      if (all[static_cast<size_t>(rank)][0] > 0) owner_ = rank;
    }
  }

  void report(const RankExecutor& executor, int64_t step) {
    const Graph& graph = *job_.compiled.graph;
    std::vector<double> values(2, std::nan(""));
    if (world_.rank() == owner_) {
      values[0] = fetched(executor, program_, graph.loss).value_or(std::nan(""));
      const TensorId total = graph.find_tensor("clip.total");
      if (total.valid()) values[1] = fetched(executor, program_, total).value_or(std::nan(""));
    }
    transfer(world_, owner_, 0, values);
    if (world_.rank() != 0) return;
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count() / static_cast<double>(step - reported_);
    last_ = now;
    reported_ = step;
    StepReport one;
    one.step = step;
    one.loss = last_loss_ = values[0];
    one.step_time_s = seconds;
    one.tokens_per_s = static_cast<double>(job_.config.batch * std::max<int64_t>(1, job_.compiled.model.seq)) / seconds;
    one.learning_rate = learning_rate(job_.config, step);
    if (!std::isnan(values[1])) one.gradient_norm = std::sqrt(values[1]);
    rates_.push_back(one.tokens_per_s);
    if (job_.hooks.step) job_.hooks.step(one);
  }

  TrainSummary summary(const RankExecutor& executor) {
    std::vector<double> mine = sent_;
    mine.push_back(static_cast<double>(executor.peak_bytes()[0]));
    mine.push_back(static_cast<double>(program_.arena_bytes[0]));
    mine.push_back(static_cast<double>(peak_rss_bytes()));
    TrainSummary result;
    const std::vector<std::string> kinds = sent_kinds();
    for (const std::vector<double>& one : gather_all(world_, mine)) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        if (one[k] > 0) result.bytes_sent[kinds[k]] += static_cast<int64_t>(one[k]);
      }
      const auto largest = [&](int64_t& target, size_t i) { target = std::max(target, static_cast<int64_t>(one[kinds.size() + i])); };
      largest(result.peak_memory_bytes, 0);
      largest(result.predicted_memory_bytes, 1);
      largest(result.peak_rss_bytes, 2);
    }
    if (rates_.size() > 1) rates_.erase(rates_.begin());
    result.median_tokens_per_s = median(rates_);
    result.ranks = world_.size();
    result.last_loss = last_loss_;
    result.profile = executor.profile();
    return result;
  }

  const Job& job_;
  const Program& program_;
  comm::Communicator& world_;
  int owner_ = 0;
  std::vector<double> sent_, rates_;
  Clock::time_point last_;
  int64_t reported_ = 0;
  double last_loss_ = std::nan("");
};

Result<TrainSummary> train_on_threads(const Job& job) {
  TESSERA_TRY(const std::vector<Program> programs, lower_and_verify(job.compiled));
  std::vector<Result<TrainSummary>> results(programs.size());
  const Status status = comm::run_threads(job.compiled.ranks, job.comm, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    results[rank] = RankRun(job, programs[rank], world).run();
    if (!results[rank]) throw comm::CommFault{results[rank].error().message};
  });
  if (!status) return tl::unexpected(status.error());
  return std::move(results[0]);
}

Result<TrainSummary> train_on_mpi(const Job& job, comm::Communicator& world) {
  // Rank 0 proves all programs; the others make their own only.
  Program program;
  if (world.rank() == 0) {
    auto programs = lower_and_verify(job.compiled);
    if (!programs) {
      world.abort(programs.error().message);
      return tl::unexpected(programs.error());
    }
    program = std::move(programs->front());
  } else {
    TESSERA_TRY(program, job.compiled.lowering->lower(world.rank()));
  }
  try {
    gather_all(world, {0.0});  // nobody runs before the verifier has accepted
    auto result = RankRun(job, program, world).run();
    if (!result) world.abort(result.error().message);
    return result;
  } catch (const comm::CommFault& lost) {
    world.abort(lost.message);
    return fault(lost.message);
  }
}

Result<std::unique_ptr<Data>> open_data(const RunConfig& config, const Model& model) {
  const bool tokens = model.graph.find_tensor("tokens").valid();
  if (!tokens && config.data.empty()) return make_synthetic(model.vocab, static_cast<uint64_t>(config.seed));
  if (!tokens) {
    return invalid_input(fmt::format("data: expected a model that reads tokens, found '{}'", config.model));
  }
  if (config.data.empty()) return invalid_input(fmt::format("{}: expected the key 'data', found none", config.file));
  return open_text({config.data, model.seq, model.vocab, static_cast<uint64_t>(config.seed)});
}

}  // namespace

bool is_reporting_process() {
  if (!comm::mpi_launched()) return true;
  const auto world = comm::mpi_world({});
  return !world || (*world)->rank() == 0;
}

Result<TrainSummary> run_training(const RunConfig& config, const TrainHooks& hooks) {
  CompileOptions options;
  options.model = config.model;
  options.plan = config.plan;
  options.batch = config.batch;
  options.precision = config.precision;
  options.optimizer = config.optimizer;
  options.fetch_gradient_norm = config.optimizer.clip_norm > 0;
  TESSERA_TRY(const Compiled compiled, compile(options));
  const bool mpi = comm::mpi_launched();
  comm::Options comm_options;
  comm_options.timeout = std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  std::unique_ptr<comm::Communicator> world;
  if (mpi) {
    TESSERA_TRY(world, comm::mpi_world(comm_options));
  }
  const int64_t available = mpi ? world->size() : config.ranks.value_or(compiled.ranks);
  if (available != compiled.ranks || config.ranks.value_or(available) != available) {
    const std::string found = mpi ? fmt::format("{} processes", world->size()) : fmt::format("ranks = {}", *config.ranks);
    return invalid_input(fmt::format("plan {}: its mesh has {} {}, found {}", compiled.plan.file, compiled.ranks,
                                     compiled.ranks == 1 ? "rank" : "ranks", found));
  }
  TESSERA_TRY(const std::unique_ptr<Data> data, open_data(config, compiled.model));
  const Job job{config, hooks, compiled, *data, comm_options};
  if (hooks.started && (!mpi || world->rank() == 0)) {
    hooks.started(fmt::format("{}: {} parameters, plan {} on {} {}, data: {}", compiled.model.family,
                              parameter_count(compiled.model.graph), compiled.plan.file, compiled.ranks,
                              mpi ? "processes" : compiled.ranks == 1 ? "thread" : "threads", data->description()));
  }
  return mpi ? train_on_mpi(job, *world) : train_on_threads(job);
}

std::string to_json(const StepReport& report) {
  nlohmann::ordered_json json = {{"step", report.step},
                                 {"loss", report.loss},
                                 {"step_time_s", report.step_time_s},
                                 {"tokens_per_s", report.tokens_per_s},
                                 {"learning_rate", report.learning_rate}};
  if (report.gradient_norm) json["gradient_norm"] = *report.gradient_norm;
  return json.dump();
}

std::string to_json(const TrainSummary& summary) {
  nlohmann::ordered_json inner = {{"tokens_per_s", summary.median_tokens_per_s},
                                  {"peak_memory_bytes", summary.peak_memory_bytes},
                                  {"predicted_memory_bytes", summary.predicted_memory_bytes},
                                  {"bytes_sent", summary.bytes_sent},
                                  {"peak_rss_bytes", summary.peak_rss_bytes},
                                  {"ranks", summary.ranks},
                                  {"loss", summary.last_loss}};
  if (!summary.profile.empty()) inner["profile"] = summary.profile;
  return nlohmann::ordered_json{{"summary", inner}}.dump();
}

}  // namespace tessera
