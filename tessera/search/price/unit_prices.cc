#include "tessera/search/price/unit_prices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "tessera/graph/optimizers.h"
#include "tessera/program/place_text.h"
#include "tessera/search/question/op_units.h"
#include "tessera/search/question/with_part.h"
#include "tessera/simulate/memory.h"

namespace tessera {
namespace {

// Micro-batches of the priced step: one without gradient transfers, and the last, with them.
constexpr int64_t kMicroBatches = 2;

const Instruction& instruction_of(const Program& program, const TraceEvent& event) {
  return program.block(event.block)[static_cast<size_t>(event.instruction)];
}

// Returns the collective if it sums gradients of parameters, else null. Inside a stage no other
// collective moves gradients of parameters.
const Issue* sums_gradients(const Instruction& instruction, const Graph& graph) {
  const auto* issue = std::get_if<Issue>(&instruction.body);
  const auto is_one = [&](const Transfer& transfer) {
    return graph.is_parameter_gradient(transfer.tensor);
  };
  return issue != nullptr && std::ranges::all_of(issue->transfers, is_one) ? issue : nullptr;
}

// Returns the intervals in which collectives of the rank sum gradients once a step, sorted by start
// and without overlap. Adds the time of each collective to reduce_s of its units.
std::vector<std::pair<double, double>> divide_sums(UnitPrices& costs, const OpUnits& units,
                                                   const Program& program, const Graph& graph,
                                                   const Simulation& simulation) {
  std::vector<std::pair<double, double>> found, out;
  for (const TraceEvent& event : simulation.events) {
    if (event.rank != program.rank || event.lane != Lane::kCollective) continue;
    const Instruction& instruction = instruction_of(program, event);
    const bool is_once = instruction.when == When::kLast || program.micro_batches == 1 ||
                         event.block.kind == BlockKind::kUpdate;
    const Issue* issue = is_once ? sums_gradients(instruction, graph) : nullptr;
    if (issue == nullptr) continue;
    found.emplace_back(event.start_s, event.end_s);
    const double each =
        (event.end_s - event.start_s) / static_cast<double>(issue->transfers.size());
    for (const Transfer& transfer : issue->transfers)
      costs.units[units.of(transfer.tensor)].reduce_s += each;
  }
  std::sort(found.begin(), found.end());
  for (const auto& [start, end] : found) {
    if (out.empty() || start > out.back().second) out.emplace_back(start, end);
    out.back().second = std::max(out.back().second, end);
  }
  return out;
}

double seconds_within(const std::vector<std::pair<double, double>>& times, double from, double to) {
  double out = 0;
  for (const auto& [start, end] : times)
    out += std::max(0.0, std::min(end, to) - std::max(start, from));
  return out;
}

void divide_time(UnitPrices& costs, const OpUnits& units, const Program& program,
                 const Graph& graph, const Simulation& simulation) {
  const auto n = static_cast<double>(program.micro_batches);
  const auto sums = divide_sums(costs, units, program, graph, simulation);
  double now = 0;
  // By unit: seconds of the backward pass of the last micro-batch.
  std::vector<double> later(costs.units.size());
  bool is_first_update = true;
  for (const TraceEvent& event : simulation.events) {
    if (event.rank != program.rank || event.lane != Lane::kCompute) continue;
    const Instruction& instruction = instruction_of(program, event);
    const double waited = std::max(0.0, std::min(event.start_s, event.end_s) - now);
    // With one micro-batch only, waits for sums are left out of backward_s, because reduce_s
    // has them.
    const double waited_for_sums =
        program.micro_batches == 1 ? seconds_within(sums, now, now + waited) : 0;
    const double spent = std::max(0.0, event.end_s - now);
    now = std::max(now, event.end_s);
    const OpId cause = instruction.cause;
    const size_t unit = units.of(cause);
    UnitPrice& cost = costs.units[unit];
    const auto add_to_slice = [&](double seconds) {
      if (!costs.slice_s.empty())
        costs.slice_s[units.slice_of(cause, costs.slice_s.size())][unit] += seconds;
    };
    switch (event.block.kind) {
      case BlockKind::kForward:
        cost.forward_s += spent / n;
        add_to_slice(spent / n);
        break;
      case BlockKind::kBackward:
      case BlockKind::kWeight:
        if (event.micro_batch == 0) {
          cost.backward_s += spent - waited_for_sums;
          add_to_slice(spent - waited_for_sums);
        }
        if (event.micro_batch + 1 == program.micro_batches) later[unit] += spent;
        if (instruction.when == When::kLast && program.micro_batches > 1)
          cost.update_s += event.end_s - event.start_s;
        break;
      case BlockKind::kPrologue:
        cost.once_s += spent;
        cost.update_s += spent;
        break;
      case BlockKind::kUpdate:
        // The first op waits for transfers of gradients of all units; this wait counts for the
        // last unit.
        costs.units.back().once_s += waited;
        cost.once_s += spent - waited;
        cost.update_s += spent - (std::exchange(is_first_update, false) ? waited : 0);
        break;
    }
  }
  for (size_t u = 0; u < later.size(); ++u) {
    UnitPrice& cost = costs.units[u];
    cost.once_s += std::max(0.0, later[u] - cost.backward_s);
  }
  const double end_s = std::max(0.0, simulation.step_time_s - now);
  costs.units.back().once_s += end_s;
  costs.units.back().update_s += end_s;
}

void divide_memory(UnitPrices& costs, const OpUnits& units, const Program& program,
                   const Graph& graph, DType compute, const Style& style, const MemoryUse& memory) {
  const HeldBuffers sizes = held_buffers(program, graph, style);
  double held = 0;
  for (const Buffer& buffer : program.buffers) {
    const bool stays = sizes.resident[buffer.id.index()];
    if (buffer.tier != Tier::kDevice || (buffer.lifetime == Lifetime::kBlock && !stays)) continue;
    UnitPrice& cost = costs.units[units.of(buffer.tensor)];
    const auto bytes = static_cast<double>(sizes.bytes[buffer.id.index()]);
    held += bytes;
    if (buffer.lifetime == Lifetime::kMicroBatch && !stays) {
      cost.activation_bytes += bytes;
      continue;
    }
    switch (graph.tensor(buffer.tensor).role) {
      case Role::kParameter:
        cost.parameter_squares += bytes * bytes;
        cost.parameter_bytes += bytes;
        cost.parameters += 1;
        if (buffer.bytes() * dtype_bytes(compute) >= kPlainBucket * dtype_bytes(buffer.dtype))
          cost.large_parameters += 1;
        if (compute != storage_dtype(compute) && buffer.dtype == compute)
          cost.uncopied_bytes += bytes;
        break;
      case Role::kBuffer: cost.parameter_bytes += bytes; break;
      case Role::kGradient:
        if (stays) cost.gradient_buffer_bytes += bytes;
        if (buffer.lifetime != Lifetime::kBlock)
          cost.gradient_bytes += static_cast<double>(buffer.bytes());
        break;
      case Role::kOptimizerState: cost.state_bytes += bytes; break;
      default: cost.copy_bytes += bytes; break;
    }
  }
  // With slices all micro-batches are in flight at once, so the activations of the others are
  // held, too.
  if (!costs.slice_s.empty()) {
    for (const UnitPrice& cost : costs.units)
      held += static_cast<double>(program.micro_batches - 1) * cost.activation_bytes;
  }
  // Takes the peak from several numbers, because an emulated allocator places buffers otherwise
  // than the arena does, and because buffers that kernels keep in addition to their outputs are in
  // no arena.
  const auto peak = static_cast<double>(
      std::max(memory.live_bytes, std::min(memory.peak_bytes, memory.reserved_bytes)));
  costs.transient_bytes = std::max(0.0, peak - held);
  costs.overhead_bytes = std::max(0.0, memory.high - peak);
  costs.allocator_bytes =
      std::clamp(static_cast<double>(memory.reserved_bytes) - peak, 0.0, costs.overhead_bytes);
  costs.allocator_share = peak > 0 ? costs.allocator_bytes / peak : 0;
}

// Measures the parameters that ranks hold alike on axes that hold copies, and the parameters whose
// gradients ranks sum.
void measure_alike(UnitPrices& costs, const OpUnits& units, const Program& program,
                   const Lowering& lowering, const Fold& fold, std::vector<ChoiceAxis> axes) {
  const std::vector<int64_t> often = fold.counts();
  std::vector<int64_t> times;  // by op of the folded graph
  for (const int unit : fold.unit_of) times.push_back(often[static_cast<size_t>(unit)]);
  std::erase_if(axes,
                [&](const ChoiceAxis& axis) { return !holds_copies(axis, fold.graph, times); });
  const Graph& graph = lowering.graph();
  const PlaceText& text = lowering.texts().front();
  // Number of ranks, by parameter.
  std::vector<double> alike(graph.tensors().size(), 1), summed = alike;
  for (const TextBuffer& buffer : text.buffers) {
    if (!buffer.persistent) continue;
    for (const ChoiceAxis& axis : axes) {
      if (!buffer.region.layout->uses(text.mesh.find(axis.name)))
        alike[buffer.tensor.index()] *= static_cast<double>(axis.size);
    }
  }
  for (const auto& [block, body] : program.blocks) {
    for (const Instruction& instruction : body) {
      const Issue* issue = sums_gradients(instruction, graph);
      if (issue == nullptr) continue;
      const auto ranks =
          static_cast<double>(program.groups[static_cast<size_t>(issue->group)].members.size());
      for (const Transfer& transfer : issue->transfers) {
        double& known = summed[graph.parameter_of(graph.tensor(transfer.tensor).of).index()];
        known = std::max(known, ranks);
      }
    }
  }
  for (const Buffer& buffer : program.buffers) {
    const bool counts = graph.tensor(buffer.tensor).role == Role::kParameter &&
                        buffer.tier == Tier::kDevice && buffer.lifetime != Lifetime::kBlock;
    if (!counts) continue;
    UnitPrice& cost = costs.units[units.of(buffer.tensor)];
    const auto bytes = static_cast<double>(buffer.bytes());
    const auto add = [&](double ranks, double& all, double& shard) {
      if (ranks == 1) return;
      all += bytes;
      shard += bytes / ranks;
    };
    add(alike[buffer.tensor.index()], cost.alike_bytes, cost.alike_shard_bytes);
    add(summed[buffer.tensor.index()], cost.summed_bytes, cost.summed_shard_bytes);
  }
}

// Measures parameters that several units read. A gradient is taken to have the dtype in which its
// parameter rests.
void measure_tied(UnitPrices& costs, const Fold& fold, const Program& program, const Graph& graph,
                  DType compute) {
  std::map<std::string, std::set<int>> readers;  // the units that read a parameter, by its name
  for (const Op& op : fold.graph.ops()) {
    for (const TensorId input : op.inputs) {
      const Tensor& tensor = fold.graph.tensor(input);
      if (tensor.role == Role::kParameter) readers[tensor.name].insert(fold.unit_of[op.id.index()]);
    }
  }
  for (const Buffer& buffer : program.buffers) {
    const Tensor& tensor = graph.tensor(buffer.tensor);
    const bool rests = tensor.role == Role::kParameter && buffer.tier == Tier::kDevice &&
                       buffer.lifetime != Lifetime::kBlock;
    const auto found = rests ? readers.find(tensor.name) : readers.end();
    if (found == readers.end()) continue;
    const auto bytes = static_cast<double>(buffer.bytes());
    const double as_used = bytes * static_cast<double>(dtype_bytes(compute)) /
                           static_cast<double>(dtype_bytes(buffer.dtype));
    const int first = *found->second.begin();
    for (const int later : found->second) {
      if (later != first) costs.tied.push_back({first, later, bytes, as_used});
    }
    readers.erase(found);
  }
}

// Returns the number of pieces into which the axes cut a tensor that goes to the next stage. Parts
// of a sum are summed before they are sent, into the pieces that `reader` reads.
int64_t pieces_of(const Graph& graph, const Tensor& tensor, const Op& reader,
                  const std::vector<ChoiceAxis>& axes) {
  const auto input = std::find(reader.inputs.begin(), reader.inputs.end(), tensor.id);
  const OperandDims& read =
      reader.annotation.inputs[static_cast<size_t>(input - reader.inputs.begin())];
  int64_t pieces = 1;
  for (const ChoiceAxis& axis : axes) {
    const std::string layout = layout_of(graph, tensor.id, axis);
    const int by_reader = reader.annotation.find(dim_to_cut(reader, axis));
    const bool is_cut =
        layout == kParts ? by_reader >= 0 && read.contains(by_reader) : !layout.empty();
    if (is_cut) pieces *= axis.size;
  }
  return pieces;
}

// Measures for each unit the activations of a sequence that later units read and earlier or this
// unit makes.
void measure_borders(UnitPrices& costs, const Fold& fold, const std::vector<ChoiceAxis>& axes,
                     DType compute, int64_t batch) {
  const Graph& graph = fold.graph;
  std::vector<int> last_reader(graph.tensors().size(), -1);
  // By tensor: its first reader in a later unit.
  std::vector<const Op*> reader(graph.tensors().size());
  for (const Op& op : graph.ops()) {
    for (const TensorId input : op.inputs) {
      const int unit = fold.unit_of[op.id.index()];
      int& last = last_reader[input.index()];
      last = std::max(last, unit);
      const OpId made = graph.tensor(input).producer;
      if (reader[input.index()] == nullptr && made.valid() && fold.unit_of[made.index()] != unit)
        reader[input.index()] = &op;
    }
  }
  for (const Tensor& tensor : graph.tensors()) {
    if (reader[tensor.id.index()] == nullptr) continue;
    const int from = fold.unit_of[tensor.producer.index()];
    const auto bytes =
        static_cast<double>(tensor.elements() * dtype_bytes(compute)) / static_cast<double>(batch);
    const auto pieces =
        static_cast<double>(pieces_of(graph, tensor, *reader[tensor.id.index()], axes));
    for (int u = from; u < last_reader[tensor.id.index()]; ++u) {
      UnitPrice& unit = costs.units[static_cast<size_t>(u)];
      unit.leaving_bytes += bytes;
      unit.leaving_piece_bytes += bytes / pieces;
    }
  }
}

}  // namespace

namespace {

// Members of UnitPrice that sum_of() adds up.
constexpr auto kSummed = std::to_array<double UnitPrice::*>(
    {&UnitPrice::forward_s, &UnitPrice::backward_s, &UnitPrice::once_s, &UnitPrice::update_s,
     &UnitPrice::reduce_s, &UnitPrice::parameter_bytes, &UnitPrice::gradient_bytes,
     &UnitPrice::gradient_buffer_bytes, &UnitPrice::state_bytes, &UnitPrice::parameter_squares,
     &UnitPrice::parameters, &UnitPrice::large_parameters, &UnitPrice::alike_bytes,
     &UnitPrice::alike_shard_bytes, &UnitPrice::summed_bytes, &UnitPrice::summed_shard_bytes,
     &UnitPrice::copy_bytes, &UnitPrice::uncopied_bytes, &UnitPrice::activation_bytes});
// Members for which sum_of() takes the value of the later unit.
constexpr auto kOfTheLast = std::to_array<double UnitPrice::*>(
    {&UnitPrice::leaving_bytes, &UnitPrice::leaving_piece_bytes});
static_assert(sizeof(UnitPrice) == (kSummed.size() + kOfTheLast.size()) * sizeof(double));

}  // namespace

UnitPrice sum_of(const UnitPrice& earlier, const UnitPrice& later) {
  UnitPrice out = later;
  for (const auto member : kSummed) out.*member += earlier.*member;
  return out;
}

UnitPrice between(const UnitPrice& smaller, const UnitPrice& larger, double share) {
  UnitPrice out = smaller;
  const auto mix = [&](double UnitPrice::*member) {
    out.*member += share * (larger.*member - smaller.*member);
  };
  for (const auto member : kSummed) mix(member);
  for (const auto member : kOfTheLast) mix(member);
  return out;
}

namespace {

// Returns the prices of all units, interpolated from the prices of the sampled units.
// `units`: Samples::sampled.
UnitPrices prices_of_all(UnitPrices sampled, const std::vector<Samples::Between>& between_units,
                         const std::vector<int>& units) {
  UnitPrices out = std::move(sampled);
  const std::vector<UnitPrice> prices = std::exchange(out.units, {});
  const std::vector<std::vector<double>> slices = out.slice_s;
  for (std::vector<double>& of_units : out.slice_s) of_units.clear();
  for (const Samples::Between& at : between_units) {
    const auto smaller = static_cast<size_t>(at.smaller), larger = static_cast<size_t>(at.larger);
    out.units.push_back(between(prices[smaller], prices[larger], at.share));
    for (size_t s = 0; s < slices.size(); ++s)
      out.slice_s[s].push_back(std::lerp(slices[s][smaller], slices[s][larger], at.share));
  }
  for (TiedParameter& tied : out.tied) {
    tied.first = units[static_cast<size_t>(tied.first)];
    tied.later = units[static_cast<size_t>(tied.later)];
  }
  return out;
}

}  // namespace

double share_in_shards(const UnitPrice& unit) {
  return unit.parameter_bytes > 0
             ? 1 - (unit.alike_bytes - unit.alike_shard_bytes) / unit.parameter_bytes
             : 1;
}

UnitPrice in_shards(UnitPrice unit, DType compute, int64_t sharded, int64_t replicas,
                    bool gradients) {
  const double alike = unit.parameter_bytes > 0 ? unit.alike_bytes / unit.parameter_bytes : 0;
  const double d = static_cast<double>(replicas) / share_in_shards(unit);
  const bool is_narrow = compute != storage_dtype(compute);
  if (sharded >= 1) unit.state_bytes /= d;
  if (unit.gradient_buffer_bytes > 0) {
    // The buffer is as large as the larger of the whole gradient and the shard that the
    // optimizer reads.
    const double read = unit.gradient_buffer_bytes / (sharded >= 1 ? d : 1);
    unit.gradient_bytes = std::max(unit.gradient_bytes, read);
  } else if (gradients) {
    unit.gradient_bytes /= d;
  }
  if (parameters_in_shards(sharded, compute)) unit.parameter_bytes /= d;
  if (sharded >= 3 && is_narrow) unit.copy_bytes *= replicas > 1 ? 0 : 1 - alike;
  return unit;
}

double even_pieces(double sum, double squares) {
  return squares > 0 ? std::max(1.0, sum * sum / squares) : 1;
}

double overhead_beside(const UnitPrices& prices, double buffer_bytes) {
  return prices.overhead_bytes - prices.allocator_bytes +
         std::min(prices.allocator_bytes, prices.allocator_share * buffer_bytes);
}

double slowest_slice(const UnitPrices& prices) {
  double slowest = 0, all = 0;
  for (const std::vector<double>& slice : prices.slice_s) {
    const double seconds = std::accumulate(slice.begin(), slice.end(), 0.0);
    slowest = std::max(slowest, seconds);
    all += seconds;
  }
  return all > 0 ? slowest / all : 1;
}

UnitQuestion unit_question(const Choice& choice, int64_t batch, size_t stage) {
  UnitQuestion out;
  int64_t replicas = 1;
  const std::vector<ChoiceAxis>& axes = choice.axes_of_stage(stage);
  for (size_t a = 0; a < axes.size(); ++a) {
    if (a == 0) {
      replicas = axes[a].size;
    } else if (axes[a].size > 1) {
      out.axes.push_back(axes[a]);
    }
  }
  out.sequences = std::max<int64_t>(1, batch / choice.micro_batches / replicas);
  out.recompute = choice.recompute;
  out.halos = choice.halos;
  out.offload = choice.offload;
  return out;
}

int64_t UnitPricer::batch_of(const UnitQuestion& question) const {
  return model_.fixed_batch > 0 ? model_.fixed_batch : question.sequences * kMicroBatches;
}

Result<const UnitPricer::Folded*> UnitPricer::folded(int64_t batch) {
  const auto it = folded_.find(batch);
  if (it != folded_.end()) return &it->second;
  TESSERA_TRY(const auto model,
              compiler_.model(model_.model, batch, storage_dtype(model_.compute)));
  TESSERA_TRY(Fold fold, fold_layers(model->graph));
  Folded made;
  if (auto samples = sample_layers(fold)) {
    fold = std::move(samples->fold);
    made.between = std::move(samples->between);
    made.sampled = std::move(samples->sampled);
  }
  made.fold = std::make_shared<const Fold>(std::move(fold));
  made.graph = std::shared_ptr<const Graph>(made.fold, &made.fold->graph);
  return &folded_.emplace(batch, std::move(made)).first->second;
}

Result<std::unique_ptr<Lowering>> UnitPricer::lower_units(const Folded& model,
                                                          const UnitQuestion& question,
                                                          const Plan& plan) {
  CompileOptions compiled;
  // Drops optimizer groups that name only layers that folding has left out.
  compiled.optimizer = without_idle_groups(model_.optimizer, *model.graph);
  if (question.passes_only) compiled.optimizer.kind = kNoOptimizer;
  if (model_.part) {
    const auto with = add_part(plan, part_for_units(*model_.part, plan));
    auto lowering =
        with ? compiler_.lower(model.graph, *with, compiled) : tl::unexpected(with.error());
    if (lowering) return lowering;
  }
  return compiler_.lower(model.graph, plan, compiled);
}

Result<UnitPrices> UnitPricer::simulate_units(const UnitQuestion& question) {
  const int64_t fixed = model_.fixed_batch;
  if (fixed % question.sequences != 0) {
    return invalid_input(
        fmt::format("{} sequences do not divide the fixed batch {}", question.sequences, fixed));
  }
  const int64_t batch = batch_of(question);
  TESSERA_TRY(const Folded* model, folded(batch));
  Choice choice;
  choice.axes = question.axes;
  choice.micro_batches = batch / question.sequences;
  choice.recompute = question.recompute;
  choice.compute = model_.compute;
  choice.slices = question.slices;
  if (!question.slices.empty()) {
    choice.schedule = "token";
    choice.sliced_stages = true;
  }
  choice.slice_dim = question.slice_dim;
  choice.halos = question.halos;
  choice.offload = question.offload;
  TESSERA_TRY(const std::string text, write_plan(choice, *model->graph, {}, "units"));
  TESSERA_TRY(const Plan plan, parse_plan(text, choice.str()));
  ++simulated_;
  TESSERA_TRY(const auto lowering, lower_units(*model, question, plan));
  SimulateOptions options = model_.options;
  options.events = true;
  options.critical_path = options.memory_details = false;
  options.memory = !question.passes_only;
  Simulator simulator(*lowering);
  TESSERA_TRY(const Simulation simulation,
              simulator.run(question.on != nullptr ? *question.on : *model_.cluster, options));
  const Program& program = simulator.program_of(0);
  const OpUnits units(lowering->graph(), *model->fold);
  UnitPrices costs;
  costs.units.resize(static_cast<size_t>(model->fold->folded_units));
  costs.slice_s.assign(question.slices.size(), std::vector<double>(costs.units.size()));
  costs.step_s = simulation.step_time_s;
  divide_time(costs, units, program, lowering->graph(), simulation);
  divide_memory(costs, units, program, lowering->graph(), model_.compute, options.style,
                simulation.roles.front().memory);
  measure_alike(costs, units, program, *lowering, *model->fold, question.axes);
  measure_tied(costs, *model->fold, program, lowering->graph(), model_.compute);
  measure_borders(costs, *model->fold, question.axes, model_.compute, batch);
  return model->between.empty() ? costs
                                : prices_of_all(std::move(costs), model->between, model->sampled);
}

Result<const UnitPrices*> UnitPricer::price(const UnitQuestion& question) {
  TESSERA_TRY(const Folded* model, folded(batch_of(question)));
  const std::string sliced = question.slices.empty() ? ""
                                                     : fmt::format("{}={} ", question.slice_dim,
                                                                   fmt::join(question.slices, "+"));
  const std::string key = fmt::format("{} {} {} {} {} {}{} {} {}", fmt::ptr(question.on),
                                      question.sequences, question.recompute, question.offload,
                                      question.passes_only, sliced, question.halos.rims,
                                      question.halos.layers, cuts_of(*model->graph, question.axes));
  auto it = known_.find(key);
  if (it == known_.end()) {
    it = known_.emplace(key, model_.broken->run([&] { return simulate_units(question); })).first;
  }
  if (!it->second) return tl::unexpected(it->second.error());
  return &*it->second;
}

}  // namespace tessera
