// verify_plan; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/runtime/inputs.h"
#include "tessera/runtime/interpreter.h"
#include "tessera/runtime/ranks.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/tolerance.h"
#include "tessera/runtime/verification.h"

namespace tessera {
namespace {

// A tensor's regions as one rank has them after a step.
struct Held {
  std::string name;
  Box region;
  std::vector<double> values;
};

struct RankResult {
  std::vector<std::vector<Held>> steps;  // loss and gradients after each step
  std::vector<Held> parameters;          // after the last
  Volume predicted;                      // of one step
  comm::Counters counted;                // of all steps
  std::array<int64_t, 3> predicted_memory{}, counted_memory{};  // by tier
  bool lossy = false;
};

struct Whole {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
using State = std::map<std::string, Whole>;

std::string display_name(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  if (id == graph.loss) return "loss";
  if (tensor.role == Role::kGradient && tensor.of.valid())  // unscaled or never scaled
    return "grad." + graph.tensor(tensor.of).name;
  return tensor.name;
}

std::vector<Held> read_homes(const RankExecutor& executor, const Graph& graph,
                             const std::vector<Home>& homes, bool parameters_only) {
  std::vector<Held> held;
  for (const Home& home : homes) {
    if (parameters_only && graph.tensor(home.tensor).role != Role::kParameter) continue;
    if (home.region.empty()) continue;
    held.push_back({display_name(graph, home.tensor), home.region, executor.read(home).values()});
  }
  return held;
}

Status run_rank(const Compiled& compiled, const Program& program, const VerifyConfig& config,
                comm::Communicator& world, RankResult& result) {
  const Graph& graph = compiled.graph();
  ExecutorOptions options{static_cast<uint64_t>(config.seed), 1, false};
  TESSERA_TRY(const auto executor, RankExecutor::create(graph, program, world, options));
  executor->initialise();
  world.reset_counters();
  for (int64_t step = 1; step <= config.steps; ++step) {
    executor->run_step(step,
                       [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                         if (tensor.init.kind == Init::Kind::kLearningRate) {
                           load_scalar(learning_rate(config.optimizer, step, config.steps), to);
                         } else if (tensor.init.kind == Init::Kind::kStep) {
                           load_scalar(static_cast<double>(step), to);
                         } else {
                           load_random(*compiled.model, config.seed, step, tensor, region, to);
                         }
                       });
    result.steps.push_back(read_homes(*executor, graph, program.fetches, false));
  }
  result.parameters = read_homes(*executor, graph, program.homes, true);
  result.counted = world.counters();
  result.predicted = volume(program, graph);
  result.lossy = is_lossy(program);
  result.counted_memory = executor->peak_bytes();
  result.predicted_memory = program.arena_bytes;
  return {};
}

Result<std::vector<RankResult>> run_plan(const Compiled& compiled, const VerifyConfig& config,
                                         const Alter& alter = {}) {
  TESSERA_TRY(std::vector<Program> programs, lower_and_verify(*compiled.lowering));
  if (alter) alter(compiled.graph(), programs);
  std::vector<RankResult> results(programs.size());
  comm::Options options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  TESSERA_TRY_VOID(comm::run_threads(compiled.ranks(), options, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const Status status = run_rank(compiled, programs[rank], config, world, results[rank]);
    if (!status) throw comm::CommFault{status.error().message};
  }));
  return results;
}

// Of the serial run, where every region is the whole tensor.
State whole_state(const std::vector<Held>& held) {
  State state;
  for (const Held& one : held) state[one.name] = {one.region.shape(), one.values};
  return state;
}

struct Worst {
  double error = 0;
  std::string name;
};

// Compares the regions of all ranks with the serial values; every element must be held by somebody.
class Comparison {
 public:
  Comparison(const State& serial, double floor) : serial_(serial), floor_(floor) {
    for (const auto& [name, whole] : serial) {
      covered_[name].resize(whole.values.size(), false);
      if (name == "loss") continue;
      for (const double value : whole.values) largest_ = std::max(largest_, std::abs(value));
    }
  }

  Status add(const Held& held, Worst& loss, Worst& others) {
    const auto found = serial_.find(held.name);
    if (found == serial_.end())
      return check_failed(fmt::format("tensor {}: the serial run has none", held.name));
    const Whole& whole = found->second;
    double scale = held.name == "loss" ? 0.0 : floor_ * largest_;
    for (const double value : whole.values) scale = std::max(scale, std::abs(value));
    double difference = 0;
    const std::vector<int64_t> strides = row_major_strides(whole.shape);
    std::vector<int64_t> at(held.region.rank(), 0);
    for (const double value : held.values) {
      int64_t index = 0;
      for (size_t d = 0; d < at.size(); ++d)
        index += (held.region.dims[d].begin + at[d]) * strides[d];
      const double delta = std::abs(value - whole.values[static_cast<size_t>(index)]);
      difference =
          std::isnan(delta) ? std::numeric_limits<double>::infinity() : std::max(difference, delta);
      covered_[held.name][static_cast<size_t>(index)] = true;
      for (size_t d = at.size(); d-- > 0 && ++at[d] == held.region.dims[d].size;) at[d] = 0;
    }
    const double error = scale > 0 ? difference / scale : difference;
    Worst& worst = held.name == "loss" ? loss : others;
    if (error > worst.error || worst.name.empty())
      worst = {std::max(error, worst.error), held.name};
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
  double floor_, largest_ = 0;
};

Status compare(const RankResult& serial, const std::vector<RankResult>& parallel,
               const Tolerances& tolerances, VerifyReport& report) {
  Worst loss, gradients, parameters;
  for (size_t step = 0; step < serial.steps.size(); ++step) {
    const State state = whole_state(serial.steps[step]);
    Comparison comparison(state, tolerances.gradient_floor);
    for (const RankResult& rank : parallel) {
      for (const Held& held : rank.steps[step])
        TESSERA_TRY_VOID(comparison.add(held, loss, gradients));
    }
    TESSERA_TRY_VOID(comparison.finish());
  }
  const State state = whole_state(serial.parameters);
  Comparison comparison(state, tolerances.parameter_floor);
  for (const RankResult& rank : parallel) {
    for (const Held& held : rank.parameters)
      TESSERA_TRY_VOID(comparison.add(held, loss, parameters));
  }
  TESSERA_TRY_VOID(comparison.finish());
  report.loss_error = loss.error;
  report.gradients_error = gradients.error;
  report.parameters_error = parameters.error;
  report.worst_gradient = gradients.name;
  report.worst_parameter = parameters.name;
  return {};
}

// The first thing that is not as it should be, in words.
void set_reason(VerifyReport& report, std::string why) {
  if (report.why.empty()) report.why = std::move(why);
}

void compare_contract(const std::vector<RankResult>& ranks, const VerifyConfig& config,
                      VerifyReport& report) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankResult& one = ranks[rank];
    int64_t predicted_messages = 0, counted_messages = one.counted.point_to_point.messages;
    for (const auto& [kind, traffic] : one.predicted.by_kind)
      predicted_messages += traffic.messages * config.steps;
    for (const Traffic& traffic : one.counted.collectives) counted_messages += traffic.messages;
    const int64_t predicted_bytes = one.predicted.bytes() * config.steps,
                  counted_bytes = one.counted.total_bytes();
    report.bytes_predicted += predicted_bytes;
    report.bytes_counted += counted_bytes;
    report.messages_predicted += predicted_messages;
    report.messages_counted += counted_messages;
    for (const auto& [kind, bytes] : one.counted.bytes_by_kind())
      report.bytes_by_kind[kind] += bytes;
    report.peak_predicted = std::max(report.peak_predicted, one.predicted_memory[0]);
    report.peak_counted = std::max(report.peak_counted, one.counted_memory[0]);
    const auto expect_equal = [&](std::string_view what, int64_t predicted, int64_t counted) {
      if (predicted == counted) return;
      set_reason(report, fmt::format("rank {}: {}: predicted {}, counted {}", rank, what, predicted,
                                     counted));
    };
    expect_equal("bytes sent", predicted_bytes, counted_bytes);
    expect_equal("messages sent", predicted_messages, counted_messages);
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      const auto t = static_cast<size_t>(tier);
      expect_equal(tier == Tier::kDevice ? "peak memory"
                                         : fmt::format("peak memory of the {}", tier_name(tier)),
                   one.predicted_memory[t], one.counted_memory[t]);
    }
  }
}

}  // namespace

namespace {

Result<VerifyReport> compare_runs(const Compiled& serial, const Compiled& parallel,
                                  const VerifyConfig& config, const Alter& alter = {}) {
  TESSERA_TRY(const std::vector<RankResult> expected, run_plan(serial, config));
  TESSERA_TRY(const std::vector<RankResult> found, run_plan(parallel, config, alter));
  TESSERA_TRY(const DType dtype, parse_dtype(config.precision));
  VerifyReport report;
  report.tolerances = tolerances(dtype, serial.graph(), config.tolerance);
  report.ranks = parallel.ranks();
  report.steps = config.steps;
  TESSERA_TRY_VOID(compare(expected.front(), found, report.tolerances, report));
  const auto expect_small = [&](std::string_view what, double error, double tolerance,
                                const std::string& where) {
    if (error <= tolerance) return;
    set_reason(report, fmt::format("{}: largest relative error {:.2e} ({}), tolerance {:.0e}", what,
                                   error, where, tolerance));
  };
  report.lossy =
      std::any_of(found.begin(), found.end(), [](const auto& rank) { return rank.lossy; });
  if (report.lossy) {
    if (!(report.loss_error <= config.lossy_tolerance)) {
      set_reason(report,
                 fmt::format("loss of a plan that compresses: largest relative error {:.2e}, "
                             "margin {:g}",
                             report.loss_error, config.lossy_tolerance));
    }
  } else {
    const Tolerances& limits = report.tolerances;
    expect_small("loss", report.loss_error, limits.loss, "loss");
    expect_small("gradients", report.gradients_error, limits.gradients, report.worst_gradient);
    expect_small("parameters", report.parameters_error, limits.parameters, report.worst_parameter);
  }
  compare_contract(found, config, report);
  report.ok = report.why.empty();
  return report;
}

}  // namespace

Result<VerifyReport> verify_plan(const VerifyConfig& config) { return verify_altered(config, {}); }

Result<VerifyReport> verify_altered(const VerifyConfig& config, const Alter& alter) {
  Compiler compiler;
  const auto compile_plan = [&](const std::string& plan) {
    return compiler.compile({config.model, plan, config.batch, config.precision, "",
                             specification(config.optimizer), true});
  };
  TESSERA_TRY(const Compiled parallel, compile_plan(config.plan));
  if (config.ranks > 0) TESSERA_TRY_VOID(check_ranks(parallel.plan().plan, config.ranks));
  TESSERA_TRY(const Compiled serial, compile_plan("serial"));
  return compare_runs(serial, parallel, config, alter);
}

Result<VerifyReport> verify_model(const Model& model, const std::string& plan_text,
                                  const VerifyConfig& config) {
  TESSERA_TRY(const DType dtype, parse_dtype(config.precision));
  Compiler compiler;
  const auto shared = std::make_shared<const Model>(model);
  const CompileOptions options{specification(config.optimizer), true};
  TESSERA_TRY(Plan plan, parse_plan(plan_text, "plan"));
  TESSERA_TRY(const Compiled parallel, compiler.compile(shared, std::move(plan), dtype, options));
  TESSERA_TRY(Plan one_rank, parse_plan("mesh = { dp = 1 }", "serial"));
  TESSERA_TRY(const Compiled serial, compiler.compile(shared, std::move(one_rank), dtype, options));
  return compare_runs(serial, parallel, config);
}

}  // namespace tessera
