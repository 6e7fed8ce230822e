#include "tessera/runtime/data/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "tessera/base/philox.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/step/forward_only.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/step/ranks.h"
#include "tessera/state/source.h"

namespace tessera {
namespace {

tl::unexpected<Error> sample_error(std::string_view message) {
  return invalid_input(fmt::format("sample: {}", message));
}

// Returns the boundary of an input that counts documents (models/model.h, InputRule::boundary); -1
// for other inputs.
int64_t boundary_of(const Model& model, const std::string& input) {
  for (const InputRule& rule : model.inputs) {
    if (rule.input == input) return rule.boundary;
  }
  return -1;
}

// Checks that the model reads `tokens` and has no other inputs than targets and numbers of
// documents, because only these can be made from the beginning of a text.
Status check_model(const Model& model) {
  bool reads_tokens = false, others = false;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role != Role::kInput) continue;
    const bool tokens = tensor.name == "tokens" && tensor.dims.size() == 2;
    reads_tokens = reads_tokens || tokens;
    others = others || (!tokens && !is_target(tensor.name) && boundary_of(model, tensor.name) < 0);
  }
  const bool masks =
      std::any_of(model.inputs.begin(), model.inputs.end(),
                  [](const InputRule& rule) { return rule.mask != InputRule::Mask::kNone; });
  if (reads_tokens && !others && !masks && model.text > model.seq) return {};
  return sample_error(fmt::format(
      "expected a model that predicts the next token of a text, found '{}'", model.spec));
}

// Returns the tensor of the logits, which the loss compares with `targets` and whose last dim is
// the vocabulary.
Result<TensorId> find_logits(const Graph& graph, const Model& model) {
  for (const TensorId id : compared_with_targets(graph)) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.dims.size() == 3 && tensor.dims[1].size == model.seq &&
        tensor.dims[2].size == model.vocab)
      return id;
  }
  return sample_error(fmt::format(
      "expected logits [batch, {}, {}] that are compared with 'targets' in '{}', found none",
      model.seq, model.vocab, model.spec));
}

// A model lowered without a backward pass. Its logits are a fetch of the programs.
struct ForwardModel {
  Model model;
  std::optional<Lowering> lowering;
  TensorId logits;
  std::vector<Program> programs;
};

Status lower_sampler(const SampleConfig& config, ForwardModel& out) {
  TESSERA_TRY(const DType compute, parse_dtype(config.precision));
  // Reads the plan with a model of any batch, because a plan's text does not depend on the batch.
  // The plan then tells the smallest batch.
  TESSERA_TRY(out.model, build_model_of(config.model, 0, 1, storage_dtype(compute)));
  TESSERA_TRY(Plan plan, load_plan(config.plan, out.model.graph, "", compute));
  if (const int64_t batch = smallest_batch(forward_part(plan, out.model.graph));
      batch != out.model.batch && !names_graph_file(config.model)) {
    TESSERA_TRY(out.model, build_model(config.model, batch, storage_dtype(compute)));
  }
  TESSERA_TRY_VOID(check_model(out.model));
  plan = forward_part(std::move(plan), out.model.graph);
  plan.precision = computing_in(compute, plan.precision);
  TESSERA_TRY(Graph shaped, shape_forward(out.model.graph, plan, plan.precision.compute,
                                          plan.precision.parameter));
  TESSERA_TRY(Prepared prepared, prepare(std::move(shaped), plan));
  TESSERA_TRY(out.logits, find_logits(prepared.graph, out.model));
  TESSERA_TRY(out.lowering,
              Lowering::create(std::make_shared<const Graph>(std::move(prepared.graph)),
                               std::move(prepared.plan), {{out.logits}}));
  TESSERA_TRY(out.programs, lower_and_verify(*out.lowering));
  return {};
}

// The data that the ranks share. Barriers before and after each token keep ranks from using the
// data of different tokens.
struct SharedSamples {
  std::vector<int64_t> text;   // prompt and generated tokens
  std::vector<double> logits;  // at the last token, by token of the vocabulary
  std::mutex mutex;            // guards `logits`, because several ranks may write the same elements
};

class RankSampler {
 public:
  RankSampler(const SampleConfig& config, const ForwardModel& forward, const TensorSource& source,
              SharedSamples& shared, comm::Communicator& world)
      : config_(config),
        forward_(forward),
        program_(forward.programs[static_cast<size_t>(world.rank())]),
        graph_(forward.lowering->graph()),
        source_(source),
        shared_(shared),
        world_(world) {}

  Status run(const std::function<void(int64_t)>& made) {
    ExecutorOptions options{static_cast<uint64_t>(config_.seed), threads_of_rank(world_.size()),
                            false};
    TESSERA_TRY(const std::unique_ptr<RankExecutor> executor,
                RankExecutor::create(graph_, program_, world_, options));
    executor->initialise();
    TESSERA_TRY_VOID(load_parameters(*executor, graph_, program_, source_));
    const Philox philox{static_cast<uint64_t>(config_.seed), stable_hash("sample", 6)};
    for (int64_t i = 0; i < config_.count; ++i) {
      world_.barrier();
      executor->evaluate(i + 1, [&](const Tensor& tensor, const Box& region,
                                    const kernels::Array& to) { load(tensor, region, to); });
      hand_over(*executor);
      world_.barrier();
      if (world_.rank() != 0) continue;
      // A number in [0, 1) from 53 bits of two random words.
      const double draw =
          (static_cast<double>(philox.bits(static_cast<uint64_t>(2 * i))) +
           static_cast<double>(philox.bits(static_cast<uint64_t>(2 * i + 1)) >> 11) * 0x1p-21) *
          0x1p-32;
      shared_.text.push_back(
          choose_token(shared_.logits, config_.temperature, config_.top_k, draw));
      if (made) made(shared_.text.back());
    }
    world_.barrier();
    return {};
  }

 private:
  int64_t seen() const {
    return std::min(static_cast<int64_t>(shared_.text.size()), forward_.model.seq);
  }

  // Loads the text so far into every sample of the batch. The places after the text get zeros,
  // which no token of the text sees.
  void load(const Tensor& tensor, const Box& region, const kernels::Array& to) const {
    const int64_t* text =
        shared_.text.data() + (static_cast<int64_t>(shared_.text.size()) - seen());
    const int64_t boundary = boundary_of(forward_.model, tensor.name);
    const bool zeros = is_target(tensor.name);
    each_element(tensor, region, to, [&](int64_t offset, int64_t index) {
      const int64_t at = index % forward_.model.seq;
      int64_t value = 0;
      if (boundary >= 0) {
        value = std::count(text, text + std::min(at, seen()), boundary);
      } else if (!zeros && at < seen()) {
        value = text[at];
      }
      *reinterpret_cast<int64_t*>(to.data + offset * dtype_bytes(to.dtype)) = value;
    });
  }

  // Writes the logits of the first sample at the last token to the shared data, as far as this rank
  // has them.
  void hand_over(const RankExecutor& executor) const {
    for (const Home& home : program_.fetches) {
      if (home.tensor != forward_.logits) continue;
      const auto& dims = home.region.dims;
      const int64_t row = seen() - 1 - dims[1].begin;
      if (home.region.empty() || dims[0].begin > 0 || row < 0 || row >= dims[1].size) continue;
      const std::vector<double> values = executor.read(home).values();
      const auto first = values.begin() + row * dims[2].size;
      const std::lock_guard<std::mutex> lock(shared_.mutex);
      std::copy(first, first + dims[2].size, shared_.logits.begin() + dims[2].begin);
    }
  }

  const SampleConfig& config_;
  const ForwardModel& forward_;
  const Program& program_;
  const Graph& graph_;
  const TensorSource& source_;
  SharedSamples& shared_;
  comm::Communicator& world_;
};

Status check_prompt(const SampleConfig& config, const Model& model) {
  if (config.prompt.empty()) return sample_error("expected a prompt of at least one token");
  for (size_t i = 0; i < config.prompt.size(); ++i) {
    if (config.prompt[i] >= 0 && config.prompt[i] < model.vocab) continue;
    return sample_error(
        fmt::format("prompt, token {}: expected a token below {} (vocab = {}), "
                    "found {}",
                    i, model.vocab, model.vocab, config.prompt[i]));
  }
  return {};
}

}  // namespace

int64_t choose_token(const std::vector<double>& logits, double temperature, int64_t top_k,
                     double draw) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto likelier = [&](size_t a, size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  const size_t kept = temperature <= 0 ? 1
                      : top_k > 0      ? std::min(logits.size(), static_cast<size_t>(top_k))
                                       : logits.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    likelier);
  if (kept == 1) return static_cast<int64_t>(order.front());
  std::vector<double> shares;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += std::exp((logits[order[i]] - logits[order.front()]) / temperature);
    shares.push_back(sum);
  }
  const auto chosen = std::upper_bound(shares.begin(), shares.end(), draw * sum);
  const auto index = std::min(kept - 1, static_cast<size_t>(chosen - shares.begin()));
  return static_cast<int64_t>(order[index]);
}

Result<std::vector<int64_t>> sample_tokens(const SampleConfig& config,
                                           const std::function<void(int64_t)>& made) {
  if (comm::mpi_launched()) {
    return sample_error("expected to run as one process, found mpirun: its ranks are threads");
  }
  ForwardModel forward;
  TESSERA_TRY_VOID(lower_sampler(config, forward));
  TESSERA_TRY_VOID(check_prompt(config, forward.model));
  TESSERA_TRY(const std::unique_ptr<TensorSource> source, open_source(config.weights));
  if (auto fits = check_weights(forward.lowering->graph(), *source); !fits)
    return sample_error(fits.error().message);
  SharedSamples shared;
  shared.text = config.prompt;
  shared.logits.resize(static_cast<size_t>(forward.model.vocab));
  comm::Options options;
  options.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::ceil(config.timeout_s * 1000)));
  const auto ranks = static_cast<int>(forward.programs.size());
  TESSERA_TRY_VOID(comm::run_threads(ranks, options, [&](comm::Communicator& world) {
    const Status status = RankSampler(config, forward, *source, shared, world).run(made);
    if (!status) throw comm::CommFault{status.error().message, status.error().code};
  }));
  return std::vector<int64_t>(
      shared.text.begin() + static_cast<std::ptrdiff_t>(config.prompt.size()), shared.text.end());
}

}  // namespace tessera
