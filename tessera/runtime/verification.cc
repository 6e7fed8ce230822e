// Serial against parallel; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/runtime/data.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/ranks.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

// Of tensors much smaller than the largest of their class, the error is measured on that fraction of the largest: a
// gradient that is 0 in exact arithmetic (the bias of the keys) is rounding noise on both sides.
constexpr double kFloor = 1e-3;
constexpr double kLearningRate = 1e-3;

// A tensor's regions as one rank has them after a step.
struct Held {
  std::string name;
  Box region;
  std::vector<double> values;
};

struct RankResult {
  std::vector<std::vector<Held>> steps;  // loss and gradients after each step
  std::vector<Held> parameters;          // after the last
  int64_t predicted_bytes = 0, counted_bytes = 0;
  int64_t predicted_memory = 0, counted_memory = 0;
};

struct Whole {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
using State = std::map<std::string, Whole>;

std::string display_name(const Graph& graph, TensorId id) { return id == graph.loss ? "loss" : graph.tensor(id).name; }

std::vector<Held> read_homes(const RankExecutor& executor, const Graph& graph, const std::vector<Home>& homes,
                             bool parameters_only) {
  std::vector<Held> held;
  for (const Home& home : homes) {
    if (parameters_only && graph.tensor(home.tensor).role != Role::kParameter) continue;
    if (home.region.empty()) continue;
    held.push_back({display_name(graph, home.tensor), home.region, executor.read(home).values()});
  }
  return held;
}

Status run_rank(const Compiled& compiled, const Program& program, const VerifyRunOptions& options,
                comm::Communicator& world, RankResult& result) {
  const Graph& graph = compiled.lowering->graph();
  ExecutorOptions executor_options{options.seed, threads_of_rank(world.size()), axis_names(compiled, program), false};
  TESSERA_TRY(const auto executor, RankExecutor::create(graph, program, world, std::move(executor_options)));
  executor->initialise();
  const auto data = make_synthetic(compiled.model.vocab, options.seed);
  const int64_t before = world.counters().total_bytes();
  for (int64_t step = 1; step <= options.steps; ++step) {
    executor->run_step(step, [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
      if (tensor.name == "lr" || tensor.name == "step") {
        kernels::store_element(to.data, to.dtype, tensor.name == "lr" ? kLearningRate : static_cast<double>(step));
      } else {
        data->load(tensor, region, step, to);
      }
    });
    result.steps.push_back(read_homes(*executor, graph, program.fetches, false));
  }
  result.counted_bytes = world.counters().total_bytes() - before;
  result.predicted_bytes = volume(program, graph).bytes() * options.steps;
  result.parameters = read_homes(*executor, graph, program.homes, true);
  result.counted_memory = executor->peak_bytes()[0];
  result.predicted_memory = program.arena_bytes[0];
  return {};
}

Result<std::vector<RankResult>> run_plan(const Compiled& compiled, const VerifyRunOptions& options) {
  TESSERA_TRY(const std::vector<Program> programs, lower_and_verify(compiled));
  std::vector<RankResult> results(programs.size());
  comm::Options comm_options;
  comm_options.timeout = std::chrono::milliseconds(static_cast<int64_t>(std::ceil(options.timeout_s * 1000)));
  TESSERA_TRY_VOID(comm::run_threads(compiled.ranks, comm_options, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const Status status = run_rank(compiled, programs[rank], options, world, results[rank]);
    if (!status) throw comm::CommFault{status.error().message};
  }));
  return results;
}

State whole_state(const Graph& graph, const std::vector<Held>& held) {
  State state;
  for (const Held& one : held) state[one.name] = {one.region.shape(), one.values};
  (void)graph;
  return state;
}

struct Worst {
  double error = 0;
  std::string name;
};

// Compares the regions of all ranks with the serial values; every element must be held by somebody.
class Comparison {
 public:
  explicit Comparison(const State& serial) : serial_(serial) {
    for (const auto& [name, whole] : serial) {
      covered_[name].resize(whole.values.size(), false);
      if (name == "loss") continue;
      for (const double value : whole.values) largest_ = std::max(largest_, std::abs(value));
    }
  }

  Status add(const Held& held, Worst& loss, Worst& others) {
    const auto found = serial_.find(held.name);
    if (found == serial_.end()) return check_failed(fmt::format("tensor {}: the serial run has none", held.name));
    const Whole& whole = found->second;
    double scale = held.name == "loss" ? 0.0 : kFloor * largest_;
    for (const double value : whole.values) scale = std::max(scale, std::abs(value));
    double difference = 0;
    const std::vector<int64_t> strides = row_major_strides(whole.shape);
    std::vector<int64_t> at(held.region.rank(), 0);
    for (const double value : held.values) {
      int64_t index = 0;
      for (size_t d = 0; d < at.size(); ++d) index += (held.region.dims[d].begin + at[d]) * strides[d];
      const double delta = std::abs(value - whole.values[static_cast<size_t>(index)]);
      difference = std::isnan(delta) ? std::numeric_limits<double>::infinity() : std::max(difference, delta);
      covered_[held.name][static_cast<size_t>(index)] = true;
      for (size_t d = at.size(); d-- > 0 && ++at[d] == held.region.dims[d].size;) at[d] = 0;
    }
    const double error = scale > 0 ? difference / scale : difference;
    Worst& worst = held.name == "loss" ? loss : others;
    if (error > worst.error || worst.name.empty()) worst = {std::max(error, worst.error), held.name};
    return {};
  }

  Status finish() const {
    for (const auto& [name, elements] : covered_) {
      if (std::find(elements.begin(), elements.end(), false) != elements.end()) {
        return check_failed(fmt::format("tensor {}: no rank holds all of its elements", name));
      }
    }
    return {};
  }

 private:
  const State& serial_;
  std::map<std::string, std::vector<bool>> covered_;
  double largest_ = 0;
};

Status compare(const Graph& graph, const RankResult& serial, const std::vector<RankResult>& parallel, VerifyReport& report) {
  Worst loss, gradients, parameters;
  for (size_t step = 0; step < serial.steps.size(); ++step) {
    const State state = whole_state(graph, serial.steps[step]);
    Comparison comparison(state);
    for (const RankResult& rank : parallel) {
      for (const Held& held : rank.steps[step]) TESSERA_TRY_VOID(comparison.add(held, loss, gradients));
    }
    TESSERA_TRY_VOID(comparison.finish());
  }
  const State state = whole_state(graph, serial.parameters);
  Comparison comparison(state);
  for (const RankResult& rank : parallel) {
    for (const Held& held : rank.parameters) TESSERA_TRY_VOID(comparison.add(held, loss, parameters));
  }
  TESSERA_TRY_VOID(comparison.finish());
  report.max_rel_error = {loss.error, gradients.error, parameters.error, gradients.name, parameters.name};
  return {};
}

}  // namespace

Result<VerifyReport> verify_run(const VerifyRunOptions& options) {
  CompileOptions compile_options;
  compile_options.model = options.model;
  compile_options.batch = options.batch;
  compile_options.precision = DType::kFloat64;
  compile_options.fetch_gradients = true;
  compile_options.plan = options.plan;
  TESSERA_TRY(const Compiled parallel, compile(compile_options));
  if (options.ranks && *options.ranks != parallel.ranks) {
    return invalid_input(fmt::format("plan {}: its mesh has {} ranks, found --ranks {}", parallel.plan.file, parallel.ranks, *options.ranks));
  }
  compile_options.plan = "serial";
  TESSERA_TRY(const Compiled serial, compile(compile_options));
  TESSERA_TRY(const std::vector<RankResult> expected, run_plan(serial, options));
  TESSERA_TRY(const std::vector<RankResult> found, run_plan(parallel, options));
  VerifyReport report;
  report.ranks = parallel.ranks;
  TESSERA_TRY_VOID(compare(*serial.graph, expected.front(), found, report));
  for (const RankResult& rank : found) {
    report.bytes.predicted += rank.predicted_bytes;
    report.bytes.counted += rank.counted_bytes;
    report.bytes_equal = report.bytes_equal && rank.predicted_bytes == rank.counted_bytes;
    report.memory_equal = report.memory_equal && rank.predicted_memory == rank.counted_memory;
    report.peak_memory_bytes.predicted = std::max(report.peak_memory_bytes.predicted, rank.predicted_memory);
    report.peak_memory_bytes.counted = std::max(report.peak_memory_bytes.counted, rank.counted_memory);
  }
  const auto& errors = report.max_rel_error;
  report.ok = errors.loss <= options.tolerance && errors.gradients <= options.tolerance &&
              errors.parameters <= options.tolerance && report.bytes_equal && report.memory_equal;
  return report;
}

std::string to_json(const VerifyReport& report) {
  const nlohmann::ordered_json json = {
      {"max_rel_error",
       {{"loss", report.max_rel_error.loss},
        {"gradients", report.max_rel_error.gradients},
        {"parameters", report.max_rel_error.parameters}}},
      {"bytes", {{"predicted", report.bytes.predicted}, {"counted", report.bytes.counted}}},
      {"peak_memory_bytes",
       {{"predicted", report.peak_memory_bytes.predicted}, {"counted", report.peak_memory_bytes.counted}}},
      {"ranks", report.ranks},
      {"ok", report.ok}};
  return json.dump();
}

}  // namespace tessera
