#include "tessera/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "tessera/base/doing.h"
#include "tessera/graph/kinds.h"
#include "tessera/simulate/memory.h"
#include "tessera/simulate/price.h"

namespace tessera {
namespace {

// Returns the number of tokens (sequences x length), or of samples if the model has no tokens, in
// the largest of the inputs that are cut into micro-batches.
int64_t tokens_of(const Graph& graph, const std::string& batch) {
  int64_t most = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::kInput) continue;
    int64_t samples = 0;
    int64_t length = 1;
    for (const Dim& dim : tensor.dims) {
      if (dim.name == batch) samples = dim.size;
      if (dim.name == "seq" || dim.name == "sample") length *= dim.size;
    }
    most = std::max(most, samples * length);
  }
  return most;
}

bool counts_as_model(const Op& op) {
  if (op.phase != Phase::kForward) return false;
  const WorkClass work = *info_of(op).work;
  return work == WorkClass::kMatmul || work == WorkClass::kConvolution ||
         work == WorkClass::kAttention || work == WorkClass::kScan;
}

// The arithmetics in which matrix products may be computed, in the order of their names.
constexpr std::array<std::string_view, 4> kArithmetics = {"bf16", "fp16", "fp32", "fp64"};
constexpr size_t kSingle = 2;

size_t arithmetic_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 0;
    case DType::kFloat16: return 1;
    case DType::kFloat64: return 3;
    default: return kSingle;
  }
}

// Returns the peak FLOP/s of one device in the style's arithmetic, if the device has it, else in
// the arithmetic `most`.
double peak_flops(std::string most, const Device& device, const Style& style) {
  if (!style.matmul_arithmetic.empty() && device.peak.contains(style.matmul_arithmetic)) {
    most = style.matmul_arithmetic;
  }
  for (const std::string& name : {most, std::string("fp16"), std::string("fp32")}) {
    if (const auto it = device.peak.find(name); it != device.peak.end()) return it->second;
  }
  return device.peak.empty() ? 0 : device.peak.begin()->second;
}

RankResult role_of(const PlayedClass& played) {
  RankResult role;
  role.representative = played.representative;
  role.ranks = played.ranks;
  for (const StageId stage : played.stages) role.stages.push_back(stage.value);
  return role;
}

RankResult role_of(const PlayedClass& played, PricedPlayer& priced,
                   const engine::PlayerResult& result) {
  RankResult role = role_of(played);
  role.spent_s = result.spent_s;
  role.busy_s = result.busy_s;
  role.flops = priced.flops;
  role.host_s = priced.host_s;
  role.launches = priced.launches;
  role.traffic = std::move(priced.rows);
  for (size_t row = 0; row < role.traffic.size(); ++row) {
    role.traffic[row].seconds = result.accounts[row].busy_s;
    role.traffic[row].exposed_s = result.accounts[row].exposed_s;
  }
  return role;
}

void add_labels(const Outline& outline, const Priced& priced, engine::Outcome& outcome,
                Simulation& out) {
  out.labels = priced.play.labels;
  std::map<std::string, int32_t> index;
  std::vector<int32_t> what;
  for (const std::string& name : outline.what) {
    const auto [it, fresh] = index.try_emplace(name, static_cast<int32_t>(out.labels.size()));
    if (fresh) out.labels.push_back(name);
    what.push_back(it->second);
  }
  out.events = std::move(outcome.events);
  for (TraceEvent& event : out.events) event.what = what[static_cast<size_t>(event.label)];
}

std::vector<int32_t> representatives(const Classes& classes) {
  std::vector<int32_t> out;
  for (const int32_t played : classes.of_rank)
    out.push_back(played < 0 ? -1 : classes.all[static_cast<size_t>(played)].representative);
  return out;
}

void add_path(const Priced& priced, const engine::Outcome& outcome, Simulation& out) {
  for (const engine::PathPart& part : outcome.critical_path) {
    out.critical_path.push_back({priced.play.players[static_cast<size_t>(part.player)].rank,
                                 part.what, priced.play.labels[static_cast<size_t>(part.label)],
                                 part.start_s, part.end_s, part.times, part.period_s});
  }
}

// Adds to the simulation a time that passes once a step before the first instruction.
void add_overhead(double seconds, const char* label, Simulation& out) {
  if (seconds <= 0) return;
  out.step_time_s += seconds;
  for (RankResult& role : out.roles) role.spent_s[static_cast<size_t>(Spent::kHost)] += seconds;
  for (TraceEvent& event : out.events) {
    event.start_s += seconds;
    event.end_s += seconds;
  }
  for (PathStep& step : out.critical_path) {
    step.start_s += seconds;
    step.end_s += seconds;
  }
  const int32_t rank = out.critical_path.empty() ? 0 : out.critical_path.front().rank;
  out.critical_path.insert(out.critical_path.begin(), {rank, Spent::kHost, label, 0, seconds});
}

Status check_size(const Lowering& lowering, const Cluster& cluster, const RankDevices& devices,
                  const SimulateOptions& options) {
  const int64_t end = devices.end(lowering.plan().ranks);
  if (cluster.devices() < end) {
    return invalid_input(
        fmt::format("cluster '{}': expected at least {} devices for the plan's ranks, found {}",
                    cluster.name, end, cluster.devices()));
  }
  for (const auto& [device, times] : options.stragglers) {
    if (device < 0 || device >= end || !(times > 0)) {
      return invalid_input(fmt::format(
          "straggler: expected a device from 0 to {} and a positive factor, found {}*{}", end - 1,
          device, times));
    }
  }
  return {};
}

// Returns for each tensor whether it is made of parameters alone that are not trained, such as the
// base of low-rank fine-tuning or its copy in 16 bits. Such a tensor has no gradient.
std::vector<bool> frozen_tensors(const Graph& graph) {
  std::vector<bool> frozen(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors())
    frozen[tensor.id.index()] = tensor.role == Role::kParameter && !tensor.trained;
  for (const Op& op : graph.ops()) {
    const bool made_of_frozen = op.phase == Phase::kForward && !op.inputs.empty() &&
                                std::all_of(op.inputs.begin(), op.inputs.end(),
                                            [&](TensorId input) { return frozen[input.index()]; });
    if (!made_of_frozen) continue;
    for (const TensorId output : op.outputs) frozen[output.index()] = true;
  }
  return frozen;
}

// Facts of the model for the summary of a simulation. They do not depend on machine and style.
struct ModelFacts {
  explicit ModelFacts(const Lowering& lowering)
      : tokens(tokens_of(lowering.whole_graph(), lowering.plan().plan.micro_batch_dim)) {
    const Graph& graph = lowering.whole_graph();
    std::array<double, kArithmetics.size()> by_arithmetic{};
    const std::vector<bool> frozen = frozen_tensors(graph);
    for (const Op& op : graph.ops()) {
      if (!counts_as_model(op)) continue;
      const auto of_op = static_cast<double>(op_flops(op));
      const auto without = std::count_if(op.inputs.begin(), op.inputs.end(),
                                         [&](TensorId input) { return frozen[input.index()]; });
      flops += static_cast<double>(3 - without) * of_op;
      if (!op.inputs.empty())
        by_arithmetic[arithmetic_of(graph.tensor(op.inputs[0]).dtype)] += of_op;
    }
    size_t most = kSingle;
    for (size_t i = 0; i < by_arithmetic.size(); ++i) {
      if (by_arithmetic[i] > by_arithmetic[most]) most = i;
    }
    arithmetic = kArithmetics[most];
  }
  // FLOP of a step: 3 times those of matrix products and attention in the forward pass, and twice
  // those of products with a parameter that is not trained and has no gradient. Attention counts
  // all scores, also masked ones.
  double flops = 0;
  int64_t tokens;
  std::string arithmetic;  // the arithmetic of most FLOP of the model's products
};

// The memory sizes of ranks. They are kept from run to run as long as styles have an equal
// MemoryStyle.
class KnownSizes {
 public:
  const MemorySizes& of(const Lowered& lowered, int rank, const Style& of_style) {
    if (style_ != MemoryStyle(of_style)) {
      by_rank_.clear();
      alike_.clear();
    }
    style_ = MemoryStyle(of_style);
    const auto found = by_rank_.find(rank);
    if (found != by_rank_.end()) return found->second;
    const auto made_of = lowered.made_of.find(rank);
    const int first = made_of == lowered.made_of.end() ? rank : made_of->second;
    auto alike = alike_.find(first);
    if (alike == alike_.end()) {
      alike = alike_
                  .emplace(first, AlikeMemory(lowered.programs.at(first), lowered.lowering->graph(),
                                              of_style))
                  .first;
    }
    return by_rank_.emplace(rank, alike->second.sizes(lowered.programs.at(rank))).first->second;
  }
  // Forgets all sizes. Must be called before the programs change.
  void forget() { by_rank_.clear(), alike_.clear(); }

 private:
  std::optional<MemoryStyle> style_;
  std::map<int, MemorySizes> by_rank_;
  std::map<int, AlikeMemory> alike_;  // by the rank from whose program others are made
};

Simulation summarise(const Lowered& lowered, const ModelFacts& model, const Cluster& cluster,
                     const Outline& outline, const SimulateOptions& options, Priced& priced,
                     engine::Outcome& outcome, KnownSizes& sizes) {
  const Lowering& lowering = *lowered.lowering;
  const Classes& classes = outline.classes;
  Simulation out;
  const Graph& graph = lowering.graph();
  out.step_time_s = outcome.end_s;
  out.ranks = lowering.plan().ranks;
  out.model_flops = model.flops;
  out.tokens = model.tokens;
  const NodeType& first = cluster.type_of(lowered.devices.device_of(0));
  out.peak_flops = peak_flops(model.arithmetic, first.device, options.style);
  out.simulated_events = outcome.played_events;
  for (size_t c = 0; c < classes.all.size(); ++c) {
    const PlayedClass& played = classes.all[c];
    const auto ranks = static_cast<double>(played.ranks);
    PricedPlayer& player = priced.players[c];
    out.hardware_flops += player.flops * ranks;
    out.uncertain_s += player.uncertain_s * ranks;
    for (size_t s = 0; s < out.source_share.size(); ++s) {
      out.source_share[s] += player.source_s[s] * ranks;
      out.device_s += player.source_s[s] * ranks;
    }
    out.roles.push_back(role_of(played, player, outcome.players[c]));
  }
  if (out.device_s > 0) {
    for (double& share : out.source_share) share /= out.device_s;
    out.uncertainty = out.uncertain_s / out.device_s;
  }
  if (options.events) {
    add_labels(outline, priced, outcome, out);
    out.played_by = representatives(classes);
  }
  add_path(priced, outcome, out);
  add_overhead(options.style.step_overhead_s * first.host_slowness, "once a step", out);
  if (options.style.host == Style::Host::kGraph && !first.device.synchronous) {
    const double issue_s = first.device.host_issue_s * first.host_slowness;
    for (RankResult& role : out.roles) role.host_s += issue_s;
    add_overhead(issue_s + first.device.launch_s, "launch of the graph", out);
  }
  std::stable_sort(out.roles.begin(), out.roles.end(),
                   [](const RankResult& a, const RankResult& b) { return a.stages < b.stages; });
  for (RankResult& role : out.roles) {
    const Program& program = lowered.programs.at(role.representative);
    role.device = lowered.devices.device_of(role.representative);
    if (!options.memory) continue;
    if (!options.memory_details && out.events.empty()) {
      role.memory = memory_use(program, sizes.of(lowered, role.representative, options.style),
                               cluster, lowered.devices, out.step_time_s);
      continue;
    }
    const auto events =
        std::ranges::equal_range(out.events, role.representative, {}, &TraceEvent::rank);
    role.memory = memory_use(program, graph, cluster, lowered.devices, options.style,
                             {out.step_time_s,
                              {},
                              {events.begin(), events.end()},
                              options.memory_details,
                              !out.events.empty()});
  }
  constexpr double kYear = 365.25 * 24 * 3600;
  out.failure_loss_s = out.step_time_s * options.failures_a_device_year *
                       static_cast<double>(out.ranks) / kYear * options.restart_s;
  return out;
}

// The options and facts on which an outline depends in addition to the lowering.
struct OutlineKey {
  bool fold = true, places = false, gradients = true, parameters = true, messages = true,
       profile = false, labels = true, one_machine = false;
  std::vector<int64_t> alone;
  RankDevices devices;
  std::vector<std::array<int64_t, 4>> parts;  // by part: nodes, devices, cores, sockets
  std::vector<FabricTier> tiers;
  std::vector<FabricSwitch> switches;
  std::vector<FabricPath> paths;
  std::vector<std::array<double, 2>> rates;  // link rates by part; empty if none depends on them
  friend bool operator==(const OutlineKey&, const OutlineKey&) = default;
};
OutlineKey key_of(const Cluster& cluster, const RankDevices& devices,
                  const SimulateOptions& options) {
  const Style& style = options.style;
  OutlineKey key{options.fold && !options.counts && options.jitter == 0 && style.jitter == 0,
                 options.fold_places,
                 style.overlap_gradients,
                 style.overlap_parameters,
                 style.overlap_messages,
                 cluster.profile != nullptr,
                 options.has_labels(),
                 cluster.one_machine,
                 {},
                 devices,
                 {},
                 cluster.tiers,
                 cluster.switches,
                 cluster.paths,
                 {}};
  for (const auto& [device, times] : options.stragglers) key.alone.push_back(device);
  for (const ClusterPart& part : cluster.parts) {
    key.parts.push_back({part.nodes, part.type.devices,
                         2 * part.type.cores + (part.type.device.synchronous ? 1 : 0),
                         part.type.sockets});
    if (cluster.parts.size() == 1 && cluster.tiers.empty()) continue;
    key.rates.push_back(
        {static_cast<double>(part.type.nics) * part.type.nic.rate, part.type.inner.rate});
  }
  return key;
}

bool needs_offsets(const SimulateOptions& options) {
  return options.memory &&
         (options.memory_details || options.style.allocator == Style::Allocator::kPlanned);
}

}  // namespace

struct Simulator::Impl {
  explicit Impl(const Lowering& lowering) : lowered(lowering), model(lowering) {}
  Lowered lowered;
  ModelFacts model;
  OutlineKey key;
  std::optional<Outline> outline;
  Priced priced;  // of the outline
  KnownSizes sizes;
  // Says on which devices the ranks are, and whether buffers of programs need offsets in arenas.
  void use(const RankDevices& devices, bool offsets);
};

Simulator::Simulator(const Lowering& lowering) : impl_(std::make_unique<Impl>(lowering)) {}
Simulator::~Simulator() = default;
Simulator::Simulator(Simulator&&) noexcept = default;

void Simulator::Impl::use(const RankDevices& devices, bool offsets) {
  lowered.devices = devices;
  if (!offsets || lowered.offsets) return;  // later runs use the programs with offsets too
  sizes.forget();
  lowered.programs.clear();
  lowered.made_of.clear();
  lowered.offsets = true;
  outline.reset();
}

Status Simulator::prepare(const Cluster& cluster, const SimulateOptions& options) {
  const Lowering& lowering = *impl_->lowered.lowering;
  const RankDevices devices = options.devices.value_or(lowering.plan().devices);
  TESSERA_TRY_VOID(check_size(lowering, cluster, devices, options));
  OutlineKey key = key_of(cluster, devices, options);
  impl_->use(devices, needs_offsets(options));
  key.labels = key.labels || (impl_->outline && impl_->key.labels);  // once made, labels are kept
  if (!impl_->outline || key != impl_->key) {
    impl_->outline.reset();
    impl_->lowered.counts = options.counts;
    TESSERA_TRY(impl_->outline, make_outline(impl_->lowered, cluster, options));
    impl_->key = std::move(key);
    impl_->priced = unpriced(*impl_->outline);
  }
  price(*impl_->outline, cluster, options, impl_->priced);
  return {};
}

Result<Simulation> Simulator::run(const Cluster& cluster, const SimulateOptions& options) {
  TESSERA_TRY_VOID(prepare(cluster, options));
  auto played = engine::run(impl_->priced.play);
  if (!played && !impl_->key.labels) {  // play again with labels, for the names in the error
    SimulateOptions named = options;
    named.critical_path = true;
    return run(cluster, named);
  }
  TESSERA_TRY(engine::Outcome outcome, std::move(played));
  return summarise(impl_->lowered, impl_->model, cluster, *impl_->outline, options, impl_->priced,
                   outcome, impl_->sizes);
}

Result<std::optional<MemoryUse>> Simulator::memory_of(int rank, const Cluster& cluster,
                                                      const SimulateOptions& options) {
  const Lowering& lowering = *impl_->lowered.lowering;
  const RankDevices devices = options.devices.value_or(lowering.plan().devices);
  TESSERA_TRY_VOID(check_size(lowering, cluster, devices, options));
  const std::vector<int32_t>& roles = impl_->lowered.role_of_rank;
  if (rank < 0 || static_cast<size_t>(rank) >= roles.size() ||
      roles[static_cast<size_t>(rank)] < 0) {
    return std::nullopt;
  }
  impl_->use(devices, needs_offsets(options));
  impl_->lowered.counts = options.counts;
  TESSERA_TRY_VOID(impl_->lowered.add(rank));
  return memory_use(impl_->lowered.programs.at(rank),
                    impl_->sizes.of(impl_->lowered, rank, options.style), cluster, devices, 0);
}

Result<std::vector<RankResult>> Simulator::memory(const Cluster& cluster,
                                                  const SimulateOptions& options) {
  TESSERA_TRY_VOID(prepare(cluster, options));
  std::vector<RankResult> out;
  for (const PlayedClass& played : impl_->outline->classes.all) {
    const int rank = played.representative;
    RankResult& role = out.emplace_back(role_of(played));
    role.device = impl_->lowered.devices.device_of(rank);
    role.memory = memory_use(impl_->lowered.programs.at(rank),
                             impl_->sizes.of(impl_->lowered, rank, options.style), cluster,
                             impl_->lowered.devices, 0);
  }
  return out;
}

Result<double> Simulator::least_step_s(const Cluster& cluster, const SimulateOptions& options) {
  TESSERA_TRY_VOID(prepare(cluster, options));
  return tessera::least_step_s(*impl_->outline, impl_->priced);
}

const Program& Simulator::program_of(int rank) const { return impl_->lowered.programs.at(rank); }

Result<Simulation> simulate(const Lowering& lowering, const Cluster& cluster,
                            const SimulateOptions& options) {
  const Doing doing("simulating the plan", lowering.plan().plan.file);
  return Simulator(lowering).run(cluster, options);
}

}  // namespace tessera
