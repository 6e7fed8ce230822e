#include "tessera/runtime/evaluation/predicting.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/base/toml_reader.h"
#include "tessera/compile/compile.h"
#include "tessera/graph/carried.h"
#include "tessera/models/model.h"
#include "tessera/models/multiply_adds.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/runtime/data/data.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/data/sample_passes.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/step/forward_only.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/state/source.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

tl::unexpected<Error> evaluate_error(std::string_view message) {
  return invalid_input(fmt::format("evaluate: {}", message));
}

// The model's forward graph and its lowering, in which the tensor to return is a fetch.
struct Forward {
  Model model;
  int64_t batch = 1;  // samples of a batch; for a graph all of its nodes
  TensorId output, targets;
  std::optional<Lowering> lowering;
  std::vector<Program> programs;
};

// Returns the tensor that config.tensor names; if it names none, the output that the loss compares
// with `targets`.
Result<TensorId> output_of(const PredictConfig& config, const Graph& graph,
                           const Forward& forward) {
  const Model& model = forward.model;
  if (!config.tensor.empty()) {
    const TensorId id = graph.find_tensor(config.tensor);
    if (!id.valid()) {
      std::vector<std::string> names;
      for (const Tensor& tensor : graph.tensors()) names.push_back(tensor.name);
      return evaluate_error(fmt::format("expected a tensor of '{}', found '{}'{}", model.family,
                                        config.tensor, did_you_mean(config.tensor, names)));
    }
    const Tensor& tensor = graph.tensor(id);
    if (!tensor.dims.empty() && tensor.dims[0].name == "batch" &&
        tensor.elements() % forward.batch == 0)
      return id;
    return evaluate_error(
        fmt::format("expected a tensor whose first dim is the batch, found '{}' {}", config.tensor,
                    describe(tensor.dims)));
  }
  if (graph.find_tensor("targets").valid()) {
    for (const TensorId id : compared_with_targets(graph)) {
      if (graph.tensor(id).elements() % forward.batch == 0) return id;
    }
  }
  return evaluate_error(fmt::format(
      "expected a model whose loss compares an output with 'targets', found '{}'", model.spec));
}

Result<Model> model_of(const PredictConfig& config) {
  TESSERA_TRY(const DType compute, parse_dtype(config.precision));
  return build_model_of(config.model, 0, config.batch, storage_dtype(compute));
}

Status lower_predictor(const PredictConfig& config, Forward& out) {
  TESSERA_TRY(const DType compute, parse_dtype(config.precision));
  out.batch = out.model.batch;
  if (!config.data.nodes.empty()) {
    const TensorId targets = out.model.graph.find_tensor("targets");
    if (targets.valid()) out.batch = out.model.graph.tensor(targets).elements();
  }
  TESSERA_TRY(const WithoutUpdates parts, without_updates(out.model.graph));
  TESSERA_TRY(Plan plan, load_plan(config.plan, parts.forward, "", compute));
  plan = forward_part(std::move(plan), parts.forward);
  plan.precision = computing_in(compute, plan.precision);
  TESSERA_TRY(Graph shaped,
              shape_forward(parts.forward, plan, plan.precision.compute, plan.precision.parameter));
  TESSERA_TRY(Prepared prepared, prepare(std::move(shaped), plan));
  TESSERA_TRY(out.output, output_of(config, prepared.graph, out));
  out.targets = prepared.graph.find_tensor("targets");
  // If the tensor to return is an input, its values are kept when they are loaded. Any other tensor
  // is fetched.
  std::vector<TensorId> fetched;
  if (prepared.graph.tensor(out.output).role != Role::kInput) fetched.push_back(out.output);
  TESSERA_TRY(out.lowering,
              Lowering::create(std::make_shared<const Graph>(std::move(prepared.graph)),
                               std::move(prepared.plan), {std::move(fetched)}));
  TESSERA_TRY(out.programs, lower_and_verify(*out.lowering));
  return {};
}

// The results, into which each rank writes what it has.
struct SharedOutputs {
  std::vector<double> outputs, targets;  // those of all batches, one after the other
  std::vector<std::optional<double>> losses;
  double fastest = 0;  // seconds of the fastest batch; 0: none yet
  Status data;
  std::mutex mutex;
};

class RankPredictor {
 public:
  RankPredictor(const Forward& forward, const DataSource& data, const TensorSource& source,
                SharedOutputs& shared, comm::Communicator& world)
      : forward_(forward),
        program_(forward.programs[static_cast<size_t>(world.rank())]),
        graph_(forward.lowering->graph()),
        data_(data),
        source_(source),
        shared_(shared),
        world_(world) {}

  Status run() {
    ExecutorOptions options{1, threads_of_rank(world_.size()), false};
    TESSERA_TRY(const std::unique_ptr<RankExecutor> executor,
                RankExecutor::create(graph_, program_, world_, options));
    executor->initialise();
    TESSERA_TRY_VOID(load_parameters(*executor, graph_, program_, source_));
    for (size_t batch = 0; batch < shared_.losses.size(); ++batch) {
      world_.barrier();
      const Clock::time_point start = Clock::now();
      executor->evaluate(static_cast<int64_t>(batch) + 1,
                         [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                           load(static_cast<int64_t>(batch), tensor, region, to);
                         });
      world_.barrier();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      hand_over(*executor, batch, seconds);
    }
    return {};
  }

 private:
  void load(int64_t batch, const Tensor& tensor, const Box& region, const kernels::Array& to) {
    if (tensor.init.kind == Init::Kind::kStep) return load_scalar(1, to);
    if (tensor.init.kind == Init::Kind::kLearningRate) return load_scalar(0, to);
    Status status = data_.load(batch + 1, tensor, region, to);
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    if (!status && shared_.data) shared_.data = std::move(status);
    if (tensor.id == forward_.targets) note(tensor, batch, region, to, shared_.targets);
    if (tensor.id == forward_.output) note(tensor, batch, region, to, shared_.outputs);
  }

  static void note(const Tensor& tensor, int64_t batch, const Box& region, const kernels::Array& to,
                   std::vector<double>& out) {
    const int64_t first = batch * tensor.elements();
    each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
      const std::byte* at = to.data + offset * dtype_bytes(to.dtype);
      out[static_cast<size_t>(first + index)] =
          is_floating(to.dtype) ? kernels::load_element<double>(at, to.dtype)
                                : static_cast<double>(*reinterpret_cast<const int64_t*>(at));
    });
  }

  void hand_over(const RankExecutor& executor, size_t batch, double seconds) {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    if (shared_.fastest == 0 || seconds < shared_.fastest) shared_.fastest = seconds;
    const std::optional<double> loss = read_loss(executor, program_, graph_.loss);
    if (loss) shared_.losses[batch] = loss;
    const Tensor& output = graph_.tensor(forward_.output);
    const std::vector<int64_t> strides = row_major_strides(output.shape());
    for (const Home& home : program_.fetches) {
      if (home.tensor != forward_.output || home.region.empty()) continue;
      const int64_t first = static_cast<int64_t>(batch) * output.elements();
      std::vector<int64_t> at(home.region.rank(), 0);
      for (const double value : executor.read(home).values()) {
        int64_t place = first;
        for (size_t d = 0; d < at.size(); ++d)
          place += (home.region.dims[d].begin + at[d]) * strides[d];
        shared_.outputs[static_cast<size_t>(place)] = value;
        for (size_t d = at.size(); d-- > 0 && ++at[d] == home.region.dims[d].size;) at[d] = 0;
      }
    }
  }

  const Forward& forward_;
  const Program& program_;
  const Graph& graph_;
  const DataSource& data_;
  const TensorSource& source_;
  SharedOutputs& shared_;
  comm::Communicator& world_;
};

// Returns the share of samples whose largest output is that of the target's class, among the
// samples with a target; NaN if no sample has one.
double accuracy_of(const Predictions& made) {
  const auto width = static_cast<size_t>(made.width);
  int64_t right = 0, count = 0;
  for (size_t i = 0; i < made.targets.size(); ++i) {
    if (made.targets[i] < 0) continue;
    ++count;
    const auto first = made.outputs.begin() + static_cast<std::ptrdiff_t>(i * width);
    const auto best = std::max_element(first, first + static_cast<std::ptrdiff_t>(width));
    if (static_cast<double>(best - first) == made.targets[i]) ++right;
  }
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(right) / static_cast<double>(count);
}

}  // namespace

Result<Predictions> predict(const PredictConfig& config) {
  TESSERA_TRY(Model model, model_of(config));
  return predict(config, std::move(model));
}

Result<Predictions> predict(const PredictConfig& config, Model model) {
  if (comm::mpi_launched()) {
    return evaluate_error("expected to run as one process, found mpirun: its ranks are threads");
  }
  const bool nodes = !config.data.nodes.empty();
  if (config.data.arrays.empty() && !config.data.hdf5.given() && !nodes) {
    return evaluate_error(
        "expected data of arrays or of the nodes of a graph, found other data or none");
  }
  if (nodes && config.samples != 0)
    return evaluate_error("expected --samples with data of arrays, found the nodes of a graph");
  Forward forward;
  forward.model = std::move(model);
  TESSERA_TRY_VOID(lower_predictor(config, forward));
  TESSERA_TRY(
      const std::unique_ptr<DataSource> data,
      open_data(config.data, {&forward.model, 1, "evaluate", config.beside, true, config.samples}));
  const SamplePasses* const passes = data->passes();
  if (config.samples > data->samples() && !nodes) {
    return evaluate_error(fmt::format("expected at most {} samples, as the data have, found {}",
                                      data->samples(), config.samples));
  }
  TESSERA_TRY(const std::unique_ptr<TensorSource> source, open_source(config.weights));
  const Graph& graph = forward.lowering->graph();
  if (auto fits = check_weights(graph, *source); !fits) return evaluate_error(fits.error().message);
  Predictions made;
  made.samples = passes == nullptr ? forward.batch : passes->samples();
  const int64_t batches = passes == nullptr ? 1 : passes->steps();
  const int64_t target_width =
      forward.targets.valid() ? graph.tensor(forward.targets).elements() / forward.batch : 0;
  made.width = graph.tensor(forward.output).elements() / forward.batch;
  SharedOutputs shared;
  shared.outputs.resize(static_cast<size_t>(batches * forward.batch * made.width));
  shared.targets.resize(static_cast<size_t>(batches * forward.batch * target_width));
  shared.losses.resize(static_cast<size_t>(batches));
  comm::Options options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  const auto ranks = static_cast<int>(forward.programs.size());
  TESSERA_TRY_VOID(comm::run_threads(ranks, options, [&](comm::Communicator& world) {
    const Status status = RankPredictor(forward, *data, *source, shared, world).run();
    if (!status) throw comm::CommFault{status.error().message, status.error().code};
  }));
  TESSERA_TRY_VOID(shared.data);
  std::vector<double> losses;
  for (const std::optional<double>& loss : shared.losses) losses.push_back(loss.value_or(0));
  made.loss = passes == nullptr ? losses.front() : passes->mean(losses);
  shared.outputs.resize(static_cast<size_t>(made.samples * made.width));
  shared.targets.resize(static_cast<size_t>(made.samples * target_width));
  made.outputs = std::move(shared.outputs);
  made.targets = std::move(shared.targets);
  made.seconds_a_sample = shared.fastest / static_cast<double>(forward.batch);
  made.multiply_adds = multiply_adds_a_sample(forward.model);
  if (nodes) made.multiply_adds /= static_cast<double>(forward.batch);
  const bool classes = config.tensor.empty() && target_width == 1 &&
                       !is_floating(graph.tensor(forward.targets).dtype);
  if (classes && made.width > 1) made.accuracy = accuracy_of(made);
  return made;
}

}  // namespace tessera
