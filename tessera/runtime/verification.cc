// verify_plan; see session.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/compile/compile.h"
#include "tessera/graph/ahead.h"
#include "tessera/graph/carried.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/pieces.h"
#include "tessera/plan/load.h"
#include "tessera/program/passes/ahead_part.h"
#include "tessera/runtime/arrays/tolerance.h"
#include "tessera/runtime/cached_rows/row_exchange.h"
#include "tessera/runtime/data/data.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/open.h"
#include "tessera/runtime/session.h"
#include "tessera/runtime/step/forward_only.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/runtime/training/periods.h"
#include "tessera/runtime/verification.h"
#include "tessera/state/source.h"

namespace tessera {
namespace {

// A region of a tensor that a rank has after a step, and its values.
struct HeldValues {
  std::string name;
  Box region;
  std::vector<double> values;
};

struct RankResult {
  std::vector<std::vector<HeldValues>> steps;  // loss and gradients after each step
  std::vector<HeldValues> parameters;          // parameters and running state after the last step
  Traffic predicted;  // traffic of all steps, and of the changes of plan between them
  comm::Counters counted;
  struct Memory {
    std::array<int64_t, 3> predicted{}, counted{};  // by tier
  };
  std::vector<Memory> memory;  // of each period
  bool lossy = false;
};

struct Whole {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
using State = std::map<std::string, Whole>;

// Returns the tensor whose elements are summed to the given gradient of a parameter, if the
// gradient is such a sum of one tensor (as that of a bias is); otherwise returns an invalid id.
TensorId terms_of(const Graph& graph, TensorId gradient) {
  for (TensorId at = gradient; graph.tensor(at).producer.valid();) {
    const Op& op = graph.op(graph.tensor(at).producer);
    if (op.inputs.size() != 1 || op.outputs.size() != 1) break;
    bool adds = false;
    for (size_t d = 0; d < op.annotation.dims.size(); ++d)
      adds = adds || op.annotation.reduces(static_cast<int>(d), 0);
    const bool sum = op.annotation.outputs[0].combiner == Combiner::kSum;
    if (adds) return sum ? op.inputs[0] : TensorId();
    if (!info_of(op).linear) break;
    at = op.inputs[0];
  }
  return {};
}

std::string display_name(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  if (id == graph.loss) return "loss";
  // A gradient that is not multiplied by the loss scale.
  if (tensor.role == Role::kGradient && tensor.of.valid())
    return "grad." + graph.tensor(tensor.of).name;
  return tensor.name;
}

std::vector<HeldValues> read_homes(const RankExecutor& executor, const Graph& graph,
                                   const std::vector<Home>& homes, bool trained_only) {
  std::vector<HeldValues> held;
  const Origins origins(graph);
  const std::vector<bool> carried = carried_buffers(graph), ahead = buffers_ahead(graph);
  for (const Home& home : homes) {
    const bool trained = graph.tensor(home.tensor).role == Role::kParameter;
    if (trained_only && !trained && !carried[home.tensor.index()]) continue;
    if (ahead[home.tensor.index()]) continue;  // its value is for the next step
    if (home.region.empty()) continue;
    const PieceOrigin origin = origins.of(home.tensor);
    const std::string name = display_name(graph, home.tensor);
    held.push_back({origin.piece ? std::string(name_of_whole(name)) : name,
                    origin.in_whole(home.region), executor.read(home).values()});
  }
  return held;
}

// Returns the traffic that a step of the program sends. `load` gives the ids of the step, on which
// exchanges of rows depend.
Traffic predicted_traffic(const Program& program, const Graph& graph, int64_t step,
                          const LoadFunction& load) {
  const std::optional<Program> counted = with_counted_rows(program, graph, step, load);
  Traffic sent;
  for (const auto& [kind, traffic] : volume(counted ? *counted : program, graph).by_kind)
    sent += traffic;
  return sent;
}

// The data and the weights of both runs. A null pointer stands for random inputs or initial values.
struct Given {
  std::unique_ptr<DataSource> data;
  std::unique_ptr<TensorSource> weights;
};

Result<Given> open_given(const VerifyConfig& config, const Compiled& compiled) {
  Given given;
  if (config.data.given() && !config.data.random) {
    TESSERA_TRY(given.data, open_data(config.data, {compiled.model.get(), config.seed}));
  }
  if (config.weights.empty()) return given;
  TESSERA_TRY(given.weights, open_source(config.weights));
  if (auto fits = check_weights(compiled.model->graph, *given.weights); !fits)
    return invalid_input("verify: " + fits.error().message);
  return given;
}

Status run_rank(const Periods& periods, const VerifyConfig& config, const Given& given,
                uint64_t roundings, const std::string& device, comm::Communicator& world,
                RankResult& result) {
  const Model& model = *periods.front().compiled.model;
  const int islands = periods.front().compiled.islands();
  const int island = world.rank() / (world.size() / islands);
  const auto load_input = [&](int64_t step, const Tensor& tensor, const Box& region,
                              const kernels::Array& to) {
    const int64_t batch = (step - 1) * islands + island + 1;  // islands have batches of their own
    if (given.data == nullptr) return load_random(model, config.seed, batch, tensor, region, to);
    const Status status = given.data->load(batch, tensor, region, to);
    if (!status) throw comm::CommFault{status.error().message, status.error().code};
  };
  ExecutorOptions options{static_cast<uint64_t>(config.seed), 1, false, {}};
  options.ahead = load_input;
  options.roundings = roundings;
  options.device = device;
  PeriodExecutor executor(periods, world, options);
  const auto end_period = [&] {
    result.memory.push_back({executor.program().arena_bytes, executor->peak_bytes()});
    if (executor.outer() == nullptr) return;
    result.predicted += executor.outer()->predicted();
    result.lossy = result.lossy || executor.outer()->lossy();
  };
  for (int64_t step = 1; step <= config.steps; ++step) {
    TESSERA_TRY(const auto change, executor.begin_step(step));
    const Program& program = executor.program();
    const Compiled& compiled = executor.period().compiled;
    if (step == 1 && given.weights != nullptr) {
      TESSERA_TRY_VOID(load_parameters(*executor, compiled.graph(), program, *given.weights));
      executor.resume_outer_steps(0);
    }
    if (step == 1) world.counters() = {};
    if (change) {
      result.predicted.bytes += change->bytes_predicted;
      result.predicted.messages += change->messages_predicted;
    }
    const LoadFunction load = [&](const Tensor& tensor, const Box& region,
                                  const kernels::Array& to) {
      if (tensor.init.kind == Init::Kind::kLearningRate) {
        load_scalar(learning_rate(config.optimizer, step, config.steps), to);
      } else if (tensor.init.kind == Init::Kind::kStep) {
        load_scalar(static_cast<double>(step), to);
      } else {
        load_input(step, tensor, region, to);
      }
    };
    executor->run_step(step, load);
    executor.end_step(step);
    result.predicted += predicted_traffic(program, compiled.graph(), step, load);
    result.lossy = result.lossy || is_lossy(program) || works_on_old_values(compiled.graph());
    // Under each plan, before the first step, the executor runs the part of the program that works
    // ahead, because the first step uses its results. This traffic is added here.
    if (step == executor.period().first_step) {
      TESSERA_TRY(const auto ahead, ahead_part(program, compiled.graph()));
      if (ahead) {
        for (const auto& [kind, traffic] :
             volume(program_of(*ahead, program), compiled.graph()).by_kind)
          result.predicted += traffic;
      }
    }
    result.steps.push_back(read_homes(*executor, compiled.graph(), program.fetches, false));
    if (step == config.steps || executor.begins_period(step + 1)) end_period();
  }
  result.parameters =
      read_homes(*executor, executor.period().compiled.graph(), executor.program().homes, true);
  result.counted = world.counters();
  return {};
}

Result<std::vector<RankResult>> run_plan(Periods& periods, const VerifyConfig& config,
                                         const Given& given, const Alter& alter = {},
                                         uint64_t roundings = 0,
                                         const std::string& device = "cpu") {
  for (Period& period : periods) {
    if (alter) alter(period.compiled.graph(), period.programs);
  }
  std::vector<RankResult> results(periods.front().programs.size());
  comm::Options options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  const int ranks = static_cast<int>(results.size());
  TESSERA_TRY_VOID(comm::run_threads(ranks, options, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const Status status = run_rank(periods, config, given, roundings, device, world, results[rank]);
    if (!status) throw comm::CommFault{status.error().message, status.error().code};
  }));
  return results;
}

// Returns the values of the serial run by tensor name. In a serial run every region is the
// whole tensor.
State whole_state(const std::vector<HeldValues>& held) {
  State state;
  for (const HeldValues& one : held) state[one.name] = {one.region.shape(), one.values};
  return state;
}

// A gradient that is a sum of one tensor counts as cancelled if its largest element is at most
// this share of the largest element of that tensor. Its error then comes from the roundings of
// its terms and is divided by their size. The errors of other gradients are divided by the size
// of the gradient.
constexpr double kCancels = 1e-3;

// By the name of a gradient that is a sum of one tensor: the largest element of that tensor.
// take_terms() computes this map and removes these tensors from the state of the serial run.
using LargestTerms = std::map<std::string, double>;
LargestTerms take_terms(const Graph& graph, State& state) {
  LargestTerms largest;
  std::vector<std::string> taken;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kGradient || !state.contains(display_name(graph, tensor.id))) continue;
    const TensorId terms = terms_of(graph, tensor.id);
    if (!terms.valid()) continue;
    const auto found = state.find(display_name(graph, terms));
    if (found == state.end()) continue;
    double& most = largest[display_name(graph, tensor.id)];
    for (const double value : found->second.values) most = std::max(most, std::abs(value));
    taken.push_back(found->first);
  }
  for (const std::string& name : taken) state.erase(name);
  return largest;
}

// Returns the largest magnitude of the finite elements; 0 if there is none.
double largest_of(const Whole& whole) {
  double largest = 0;
  for (const double value : whole.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

struct Worst {
  double error = 0;
  std::string name;
};

// Returns the difference of two values. It is 0 if both are NaN (0 / 0 in both runs), and infinite
// if only one of them is NaN.
double apart(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) && std::isnan(b) ? 0 : std::numeric_limits<double>::infinity();
  return a == b ? 0 : std::abs(a - b);  // this handles infinities too
}

// By tensor name: the largest difference of an element between the serial run and the serial runs
// with other roundings.
using Noise = std::map<std::string, double>;
struct NoiseOfRun {
  std::vector<Noise> steps;  // of loss and gradients
  Noise parameters;
};

void add_noise(const std::vector<HeldValues>& serial, const std::vector<HeldValues>& other,
               Noise& noise) {
  TESSERA_CHECK(serial.size() == other.size(), "runs of one program");
  for (size_t i = 0; i < serial.size(); ++i) {
    double& most = noise[serial[i].name];
    for (size_t k = 0; k < serial[i].values.size(); ++k)
      most = std::max(most, apart(serial[i].values[k], other[i].values[k]));
  }
}

// Compares the values of all ranks with those of the serial run. Each element must be held by
// some rank.
class Comparison {
 public:
  // Makes a comparison. Errors above the limit that `noise` explains are added to `explained` and
  // do not count; null: all errors count.
  Comparison(const State& serial, double floor, const Tolerances& limits, const Noise* noise,
             WithinNoise& explained, LargestTerms terms = {})
      : serial_(serial),
        terms_(std::move(terms)),
        limits_(limits),
        noise_(noise),
        explained_(explained),
        floor_(floor) {
    for (const auto& [name, whole] : serial) {
      covered_[name].resize(whole.values.size(), false);
      if (!std::ranges::all_of(whole.values, [](double v) { return std::isfinite(v); }))
        ++not_finite_;
      if (name != "loss") largest_ = std::max(largest_, largest_of(whole));
    }
  }

  Status add(const HeldValues& held, Worst& loss, Worst& others) {
    const auto found = serial_.find(held.name);
    if (found == serial_.end())
      return check_failed(fmt::format("tensor {}: the serial run has none", held.name));
    const Whole& whole = found->second;
    double scale = held.name == "loss" ? 0.0 : floor_ * largest_;
    scale = std::max(scale, largest_of(whole));
    if (const auto terms = terms_.find(held.name); terms != terms_.end())
      scale = std::max(scale, terms->second);
    double difference = 0;
    const std::vector<int64_t> strides = row_major_strides(whole.shape);
    std::vector<int64_t> at(held.region.rank(), 0);
    for (const double value : held.values) {
      int64_t index = 0;
      for (size_t d = 0; d < at.size(); ++d)
        index += (held.region.dims[d].begin + at[d]) * strides[d];
      difference = std::max(difference, apart(value, whole.values[static_cast<size_t>(index)]));
      covered_[held.name][static_cast<size_t>(index)] = true;
      for (size_t d = at.size(); d-- > 0 && ++at[d] == held.region.dims[d].size;) at[d] = 0;
    }
    const double error = scale > 0 ? difference / scale : difference;
    Worst& worst = held.name == "loss" ? loss : others;
    const double limit = held.name == "loss" ? limits_.loss : limits_.gradients;
    if (error > limit && is_noise(held.name, difference, scale)) return {};
    if (error > worst.error || worst.name.empty())
      worst = {std::max(error, worst.error), held.name};
    return {};
  }

  // Returns how many tensors of the serial run have elements that are not finite.
  int64_t not_finite() const { return not_finite_; }

  Status finish() const {
    for (const auto& [name, elements] : covered_) {
      if (std::find(elements.begin(), elements.end(), false) != elements.end()) {
        return check_failed(fmt::format("tensor {}: no rank holds all of its elements", name));
      }
    }
    return {};
  }

 private:
  bool is_noise(const std::string& name, double difference, double scale) {
    const auto found = noise_ == nullptr ? Noise::const_iterator() : noise_->find(name);
    if (noise_ == nullptr || found == noise_->end()) return false;
    if (!(difference <= kNoiseMargin * found->second)) return false;
    if (explained_names_.insert(name).second) ++explained_.tensors;
    const double error = scale > 0 ? difference / scale : difference;
    if (error > explained_.error) {
      explained_.worst = name;
      explained_.error = error;
      explained_.noise = scale > 0 ? found->second / scale : found->second;
    }
    return true;
  }

  const State& serial_;
  LargestTerms terms_;
  const Tolerances& limits_;
  const Noise* noise_;
  WithinNoise& explained_;
  std::set<std::string> explained_names_;
  std::map<std::string, std::vector<bool>> covered_;
  double floor_, largest_ = 0;
  int64_t not_finite_ = 0;
};

// Compares the parallel run with the serial run and writes the errors to the report. `noise` is
// null if it was not measured.
Status compare(const Graph& graph, const RankResult& serial,
               const std::vector<RankResult>& parallel, const NoiseOfRun* noise,
               VerifyReport& report) {
  const Tolerances& tolerances = report.tolerances;
  report.within_noise = {};
  report.not_finite = 0;
  Worst loss, gradients, parameters;
  std::map<std::string, bool> cancels;  // gradients: whether each is nothing but roundings of its
                                        // terms in every step
  for (size_t step = 0; step < serial.steps.size(); ++step) {
    State state = whole_state(serial.steps[step]);
    LargestTerms terms = take_terms(graph, state);
    std::erase_if(terms, [&](const auto& entry) {
      const auto sum = state.find(entry.first);
      // Removes gradients that are not compared and those that do not cancel.
      return sum == state.end() || largest_of(sum->second) > kCancels * entry.second;
    });
    for (const auto& [name, largest] : terms) {
      const bool rounding = largest_of(state.at(name)) <= tolerances.gradients * largest;
      const auto [before, first] = cancels.try_emplace(name, true);
      before->second = before->second && rounding;
    }
    Comparison comparison(state, tolerances.gradient_floor, tolerances,
                          noise == nullptr ? nullptr : &noise->steps[step], report.within_noise,
                          terms);
    for (const RankResult& rank : parallel) {
      for (const HeldValues& held : rank.steps[step])
        TESSERA_TRY_VOID(comparison.add(held, loss, gradients));
    }
    TESSERA_TRY_VOID(comparison.finish());
    report.not_finite += comparison.not_finite();
  }
  const State state = whole_state(serial.parameters);
  // If a parameter changes only by roundings, its error is divided by the largest element of all
  // parameters, because its own size means nothing.
  double largest = 0;
  for (const auto& [name, whole] : state) largest = std::max(largest, largest_of(whole));
  LargestTerms by_all;
  for (const auto& [name, rounding] : cancels) {
    if (rounding) by_all[name.substr(std::string_view("grad.").size())] = largest;
  }
  Comparison comparison(state, tolerances.parameter_floor, tolerances,
                        noise == nullptr ? nullptr : &noise->parameters, report.within_noise,
                        by_all);
  for (const RankResult& rank : parallel) {
    for (const HeldValues& held : rank.parameters)
      TESSERA_TRY_VOID(comparison.add(held, loss, parameters));
  }
  TESSERA_TRY_VOID(comparison.finish());
  report.not_finite += comparison.not_finite();
  report.loss_error = loss.error;
  report.gradients_error = gradients.error;
  report.parameters_error = parameters.error;
  report.worst_gradient = gradients.name;
  report.worst_parameter = parameters.name;
  return {};
}

// Sets the reason why the report is not ok, unless an earlier reason is set.
void set_reason(VerifyReport& report, std::string why) {
  if (report.why.empty()) report.why = std::move(why);
}

void compare_contract(const std::vector<RankResult>& ranks, VerifyReport& report) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankResult& one = ranks[rank];
    int64_t counted_messages = one.counted.point_to_point.messages;
    for (const Traffic& traffic : one.counted.collectives) counted_messages += traffic.messages;
    const int64_t predicted_messages = one.predicted.messages,
                  predicted_bytes = one.predicted.bytes, counted_bytes = one.counted.total_bytes();
    report.bytes_predicted += predicted_bytes;
    report.bytes_counted += counted_bytes;
    report.messages_predicted += predicted_messages;
    report.messages_counted += counted_messages;
    for (const auto& [kind, bytes] : one.counted.bytes_by_kind())
      report.bytes_by_kind[kind] += bytes;
    const auto expect_equal = [&](std::string_view what, int64_t predicted, int64_t counted) {
      if (predicted == counted) return;
      set_reason(report, fmt::format("rank {}: {}: predicted {}, counted {}", rank, what, predicted,
                                     counted));
    };
    expect_equal("bytes sent", predicted_bytes, counted_bytes);
    expect_equal("messages sent", predicted_messages, counted_messages);
    for (const RankResult::Memory& memory : one.memory) {
      report.peak_predicted = std::max(report.peak_predicted, memory.predicted[0]);
      report.peak_counted = std::max(report.peak_counted, memory.counted[0]);
      for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
        const auto t = static_cast<size_t>(tier);
        expect_equal(tier == Tier::kDevice ? "peak memory"
                                           : fmt::format("peak memory of the {}", tier_name(tier)),
                     memory.predicted[t], memory.counted[t]);
      }
    }
  }
}

}  // namespace

namespace {

// Returns the names of the tensors whose sums are gradients. A serial run in float64 keeps these
// tensors in addition to the gradients. Narrow runs do not need them, because their larger floor
// lets roundings pass.
std::vector<std::string> summed_tensors(const Graph& graph) {
  std::vector<std::string> names;
  for (const Tensor& tensor : graph.tensors()) {
    const bool of_parameter = tensor.role == Role::kGradient && tensor.of.valid() &&
                              graph.tensor(tensor.of).role == Role::kParameter;
    if (!of_parameter) continue;
    const TensorId terms = terms_of(graph, tensor.id);
    if (!terms.valid() || graph.is_parameter_gradient(terms)) continue;
    const std::string& name = graph.tensor(terms).name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

// Measures the noise of each island's serial run; without outer steps there is one.
Result<std::vector<NoiseOfRun>> measure_noise(Periods& serial,
                                              const std::vector<RankResult>& expected,
                                              const VerifyConfig& config, const Given& given) {
  std::vector<NoiseOfRun> noise(expected.size());
  for (int run = 1; run <= kOtherRuns; ++run) {
    TESSERA_TRY(const std::vector<RankResult> other,
                run_plan(serial, config, given, {}, static_cast<uint64_t>(run)));
    for (size_t island = 0; island < expected.size(); ++island) {
      NoiseOfRun& mine = noise[island];
      mine.steps.resize(expected[island].steps.size());
      for (size_t step = 0; step < mine.steps.size(); ++step)
        add_noise(expected[island].steps[step], other[island].steps[step], mine.steps[step]);
      add_noise(expected[island].parameters, other[island].parameters, mine.parameters);
    }
  }
  return noise;
}

// Compares each island of the parallel run with its serial run and writes the largest errors to the
// report. `noise` is null if it was not measured.
Status compare_islands(const Graph& graph, const std::vector<RankResult>& expected,
                       const std::vector<RankResult>& found, const std::vector<NoiseOfRun>* noise,
                       VerifyReport& report) {
  VerifyReport worst = report;
  const size_t ranks = found.size() / expected.size();
  for (size_t island = 0; island < expected.size(); ++island) {
    const auto first = found.begin() + static_cast<std::ptrdiff_t>(island * ranks);
    const std::vector<RankResult> mine(first, first + static_cast<std::ptrdiff_t>(ranks));
    TESSERA_TRY_VOID(compare(graph, expected[island], mine,
                             noise == nullptr ? nullptr : &(*noise)[island], report));
    if (island == 0) {
      worst = report;
      continue;
    }
    worst.not_finite += report.not_finite;
    worst.within_noise.tensors += report.within_noise.tensors;
    if (report.within_noise.error > worst.within_noise.error) {
      const int64_t tensors = worst.within_noise.tensors;
      worst.within_noise = report.within_noise;
      worst.within_noise.tensors = tensors;
    }
    worst.loss_error = std::max(worst.loss_error, report.loss_error);
    if (report.gradients_error > worst.gradients_error) {
      worst.gradients_error = report.gradients_error;
      worst.worst_gradient = report.worst_gradient;
    }
    if (report.parameters_error > worst.parameters_error) {
      worst.parameters_error = report.parameters_error;
      worst.worst_parameter = report.worst_parameter;
    }
  }
  report = worst;
  return {};
}

// Returns the text of the plan with which a plan is compared: the serial one, or, for a plan with
// outer steps, the same outer steps without a codec on islands of one rank.
std::string reference_plan(const Compiled& compiled, const std::string& serial) {
  if (!compiled.outer) return serial;
  OuterSteps outer = *compiled.outer->plan.outer;
  outer.compression.reset();
  return fmt::format("mesh = {{ {} = {} }}\nouter = {}\n", outer.axis, compiled.islands(),
                     to_toml(outer));
}

Result<VerifyReport> compare_runs(Periods serial, Periods parallel, const VerifyConfig& config,
                                  const Alter& alter = {}) {
  if (parallel.size() > 1 && parallel.back().compiled.outer) {
    return invalid_input(
        "change: expected one plan for the whole run, because it has outer steps, found a change");
  }
  for (auto* periods : {&serial, &parallel}) {
    TESSERA_TRY_VOID(lower_periods(*periods, largest_ranks(*periods)));
    TESSERA_TRY_VOID(check_memory(*periods));
  }
  TESSERA_TRY(const Given given, open_given(config, serial.front().compiled));
  TESSERA_TRY(const std::vector<RankResult> expected, run_plan(serial, config, given));
  TESSERA_TRY(const std::vector<RankResult> found,
              run_plan(parallel, config, given, alter, 0, config.device));
  TESSERA_TRY(const DType dtype, parse_dtype(config.precision));
  VerifyReport report;
  report.tolerances = tolerances(dtype, serial.front().compiled.graph(), config.tolerance);
  report.ranks = static_cast<int64_t>(parallel.front().programs.size());
  report.steps = config.steps;
  report.lossy =
      std::any_of(found.begin(), found.end(), [](const auto& rank) { return rank.lossy; });
  const Graph& graph = serial.front().compiled.graph();
  TESSERA_TRY_VOID(compare_islands(graph, expected, found, nullptr, report));
  const bool exceeds = report.loss_error > report.tolerances.loss ||
                       report.gradients_error > report.tolerances.gradients ||
                       report.parameters_error > report.tolerances.parameters;
  // If the caller asks for a limit below the default, the limit holds even where roundings explain
  // the error.
  const bool stricter = config.tolerance < VerifyConfig{}.tolerance;
  if (exceeds && !stricter && !report.lossy && dtype == DType::kFloat64) {
    TESSERA_TRY(const std::vector<NoiseOfRun> noise,
                measure_noise(serial, expected, config, given));
    TESSERA_TRY_VOID(compare_islands(graph, expected, found, &noise, report));
  }
  const auto expect_small = [&](std::string_view what, double error, double tolerance,
                                const std::string& where) {
    if (error <= tolerance) return;
    set_reason(report, fmt::format("{}: largest relative error {:.2e} ({}), tolerance {:.0e}", what,
                                   error, where, tolerance));
  };
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
  compare_contract(found, report);
  report.ok = report.why.empty();
  return report;
}

}  // namespace

Result<VerifyReport> verify_plan(const VerifyConfig& config) { return verify_altered(config, {}); }

Result<VerifyReport> verify_altered(const VerifyConfig& config, const Alter& alter) {
  TESSERA_TRY_VOID(device::open(config.device));
  Compiler compiler;
  std::vector<std::string> fetch;
  const auto compile_plan = [&](const std::string& plan) {
    return compiler.compile({config.model, plan, config.batch, config.precision, "",
                             specification(config.optimizer), true, fetch, true});
  };
  TESSERA_TRY(auto parallel, compile_periods(compile_plan, config.plan, config.changes));
  if (config.ranks > 0) {
    const Compiled& compiled = parallel.front().compiled;
    TESSERA_TRY_VOID(
        check_ranks(compiled.outer ? compiled.outer->plan : compiled.plan().plan, config.ranks));
  }
  if (!config.changes.empty() && config.changes.back().after >= config.steps) {
    return invalid_input(
        fmt::format("change: expected a change of the plan before the last of {} steps, found one "
                    "after step {}",
                    config.steps, config.changes.back().after));
  }
  const std::string reference = reference_plan(parallel.front().compiled, "serial");
  TESSERA_TRY(auto serial, compile_periods(compile_plan, reference, {}));
  if (config.precision == "float64") {
    fetch = summed_tensors(serial.front().compiled.graph());
    TESSERA_TRY(serial, compile_periods(compile_plan, reference, {}));
  }
  return compare_runs(std::move(serial), std::move(parallel), config, alter);
}

Result<VerifyReport> verify_model(const Model& model, const std::string& plan_text,
                                  const VerifyConfig& config) {
  TESSERA_TRY(const DType dtype, parse_dtype(config.precision));
  Compiler compiler;
  const auto shared = std::make_shared<const Model>(model);
  CompileOptions options{specification(config.optimizer), true};
  const auto compile_plan = [&](const std::string& text) -> Result<Compiled> {
    TESSERA_TRY(Plan plan, parse_plan(text, text == plan_text ? "plan" : "serial"));
    return compiler.compile(shared, std::move(plan), dtype, options);
  };
  TESSERA_TRY(auto parallel, compile_periods(compile_plan, plan_text, config.changes));
  TESSERA_TRY(auto serial, compile_periods(compile_plan, "mesh = { dp = 1 }", {}));
  if (dtype == DType::kFloat64) {
    options.fetch = summed_tensors(serial.front().compiled.graph());
    TESSERA_TRY(serial, compile_periods(compile_plan, "mesh = { dp = 1 }", {}));
  }
  return compare_runs(std::move(serial), std::move(parallel), config);
}

}  // namespace tessera
