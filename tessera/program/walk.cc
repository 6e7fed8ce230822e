// Length: one walk over the graph, whose state (what each place holds) is shared by all of its
// steps.
#include "tessera/program/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <list>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/program/crossing.h"

namespace tessera {
namespace {

// A value of a tensor at a place: a region of a buffer, perhaps still on its way.
struct Held {
  int buffer = -1;
  Region region;
  int pending = -1;                      // handle to wait for before use
  BlockRef block = BlockKind::kForward;  // where it is made
};

// An issue that nobody has waited for yet.
struct Pending {
  BlockRef block;
  When when;
};

// Its wait, in another block than the issue.
struct Awaited {
  Pending issued;
  BlockRef block;
};

// A send whose buffer must rest until it has been taken.
struct OpenSend {
  int handle;
  int buffer;
  BlockRef block;
};

// Parts of a gradient that are on their way to their shards: waited for (and added to the sum) once
// another bucket's worth is under way behind them, so that unsharded gradients never pile up and
// travel beside what computes the next.
struct Leaving {
  Held moved;
  std::optional<TextCopy> add;
  OpId cause;
  When when;
};

struct LeavingParts {
  std::vector<Leaving> before, parts;
  int64_t bytes = 0;  // of `parts`
};

// The steps' pieces that a loop op has fetched, for readers of the same pieces soon after it.
struct FetchedSteps {
  TensorId tensor;
  BlockRef block;
  Region region;  // of step 0
  Axes axes;
  std::vector<Held> by_step;
  OpId last_reader;
};

struct PlaceState {
  PlaceText text;
  std::map<TensorId, Held> home;
  std::map<std::pair<BlockRef, TensorId>, std::vector<Held>> copies;
  std::map<TensorId, std::vector<Held>> loads;
  std::map<int, Pending> pending;  // by handle
  std::map<int, Awaited> awaited;
  std::vector<OpenSend> sends;
  std::list<FetchedSteps> fetched;  // a list: readers keep pointers
  std::map<BlockRef, LeavingParts> leaving;
};

class Walker {
 public:
  Walker(const WalkInput& input, Analysis analysis)
      : graph_(*input.graph), plan_(*input.plan), fetch_(input.fetch), a_(std::move(analysis)) {
    places_.resize(plan_.places.size());
    shapes_.reserve(graph_.tensors().size());
    for (const Tensor& tensor : graph_.tensors()) shapes_.push_back(a_.shapes.shape(tensor.id));
    for (size_t s = 0; s < places_.size(); ++s) places_[s].text.mesh = plan_.places[s].mesh;
  }

  Result<std::vector<PlaceText>> run() {
    for (const Tensor& tensor : graph_.tensors()) place_persistent(tensor);
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::kUpdate) continue;
      walk(op);
    }
    for (size_t p = 0; p < places_.size(); ++p) {
      for (auto& [block, under_way] : places_[p].leaving) {
        let_arrive(PlaceId(p), block, std::exchange(under_way.before, {}));
        let_arrive(PlaceId(p), block, std::exchange(under_way.parts, {}));
      }
    }
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::kUpdate) walk(op);
    }
    fetch_all();
    rest_in_tiers();
    std::vector<PlaceText> texts;
    for (PlaceState& place : places_) {
      close(place);
      texts.push_back(std::move(place.text));
    }
    return texts;
  }

 private:
  // ---- small helpers
  // ------------------------------------------------------------------------------------------
  PlaceState& at(PlaceId place) { return places_[place.index()]; }
  const Mesh& mesh(PlaceId place) const { return plan_.places[place.index()].mesh; }
  const OpPlan& op_plan(const Op& op) const { return a_.ops[op.id.index()]; }
  PlaceId place_of(const Op& op) const { return plan_.place_of(op_plan(op).stage); }
  BlockRef block_of(const Op& op) const { return a_.blocks[op.id.index()]; }
  const std::vector<int64_t>& shape(TensorId tensor) const { return shapes_[tensor.index()]; }

  void emit(PlaceId place, BlockRef block, TextInstruction instruction) {
    instruction.order = next_order_++;
    at(place).text.blocks[block].push_back(std::move(instruction));
  }

  int new_buffer(PlaceId place, TensorId tensor, std::string_view what, Region region) {
    TextBuffer buffer;
    buffer.tensor = tensor;
    buffer.name = graph_.tensor(tensor).name + (what.empty() ? "" : fmt::format("@{}", what));
    buffer.region = std::move(region);
    buffer.dtype = graph_.tensor(tensor).dtype;
    at(place).text.buffers.push_back(std::move(buffer));
    return static_cast<int>(at(place).text.buffers.size()) - 1;
  }

  TextView view(const Held& held) const { return {held.buffer, held.region}; }

  // Waits for a held value that is still on its way, in the block where it is used (prologue
  // values: in the prologue).
  void settle(PlaceId place, const Held& held, BlockRef block, OpId cause) {
    if (held.pending < 0) return;
    PlaceState& state = at(place);
    const auto it = state.pending.find(held.pending);
    if (it == state.pending.end()) return settle_earlier(place, held.pending, block, cause);
    const Pending issued = it->second;
    state.pending.erase(it);
    wait_in(place, held.pending, issued,
            issued.block.kind == BlockKind::kPrologue ? issued.block : block, cause);
  }

  void wait_in(PlaceId place, int handle, const Pending& issued, BlockRef block, OpId cause) {
    const bool same = issued.block == block;
    emit(place, block, {TextWait{handle, 0}, same ? issued.when : When::kAlways, cause});
    if (!same) at(place).awaited[handle] = {issued, block};
  }

  // Blocks are not walked in the order in which the place runs them: what a later block waits for
  // may be used in an earlier one too. The wait moves there; to the end of the issue's block if
  // neither always runs before the other.
  void settle_earlier(PlaceId place, int handle, BlockRef block, OpId cause) {
    PlaceState& state = at(place);
    const auto it = state.awaited.find(handle);
    if (it == state.awaited.end()) return;
    const auto [issued, late] = it->second;
    if (block == late || runs_before(place, late, block)) return;
    std::erase_if(state.text.blocks[late], [&](const TextInstruction& instruction) {
      const auto* wait = std::get_if<TextWait>(&instruction.body);
      return wait != nullptr && wait->handle == handle;
    });
    state.awaited.erase(it);
    wait_in(place, handle, issued, runs_before(place, block, late) ? block : issued.block, cause);
  }

  // ---- at rest
  // ------------------------------------------------------------------------------------------------
  void place_persistent(const Tensor& tensor) {
    if (tensor.update_of.valid()) return;
    if (tensor.role != Role::kParameter && tensor.role != Role::kBuffer &&
        tensor.role != Role::kOptimizerState)
      return;
    if (a_.consumers[tensor.id.index()].empty()) return;
    const PlaceId place = a_.home_place[tensor.id.index()];
    const Region region{a_.homes[tensor.id.index()], std::nullopt};
    const int buffer = new_buffer(place, tensor.id, "", region);
    at(place).text.buffers.back().persistent = true;
    at(place).text.buffers.back().tier = plan_.tensors[tensor.id.index()].tier;
    at(place).text.homes.push_back({tensor.id, buffer});
    at(place).home[tensor.id] = {buffer, region, -1, BlockKind::kPrologue};
  }

  // Gradients of parameters and activations: where they are held until they are read elsewhere.
  void rest_in_tiers() {
    for (PlaceState& place : places_) {
      for (const auto& [tensor, held] : place.home) {
        const Tensor& t = graph_.tensor(tensor);
        const bool activation =
            t.producer.valid() && graph_.op(t.producer).phase == Phase::kForward;
        if (!activation && !is_gradient_of_parameter(tensor)) continue;
        place.text.buffers[static_cast<size_t>(held.buffer)].tier =
            plan_.tensors[tensor.index()].tier;
      }
    }
  }

  bool rests(TensorId tensor) const {
    const Tensor& t = graph_.tensor(tensor);
    return !t.producer.valid() && t.role != Role::kInput;
  }

  // ---- hold -> need
  // -------------------------------------------------------------------------------------------
  // Steps of a conversion; the last one may be told where to put its result.
  Held convert(PlaceId place, TensorId tensor, Held from, const Layout& to, BlockRef block,
               OpId cause, When when, int into = -1) {
    const std::vector<ConversionStep> path =
        apart(place, tensor, from.region.layout->combiner,
              find_path(place, tensor, from.region.layout, to));
    int parts = -1;  // the buffer of parts that were scattered: whole again, they go back there
    for (size_t i = 0; i < path.size(); ++i) {
      const ConversionStep& step = path[i];
      Held next = from;
      next.region = {step.to, std::nullopt};
      if (!step.slice) {
        settle(place, from, block, cause);
        const bool whole_buffer =
            at(place).text.buffers[static_cast<size_t>(from.buffer)].region == from.region;
        const bool reduces =
            step.kind == CollectiveKind::kAllReduce || step.kind == CollectiveKind::kReduceScatter;
        const bool in_place = step.kind == CollectiveKind::kAllReduce && whole_buffer;
        if (step.kind == CollectiveKind::kReduceScatter && whole_buffer &&
            compression(tensor, CollectiveKind::kAllReduce))
          parts = from.buffer;
        const bool into_parts = gathers_back(path, i) && parts >= 0;
        if (i + 1 == path.size() && into >= 0) {
          next.buffer = into;
        } else if (into_parts) {
          next.buffer = parts;
        } else if (!in_place) {
          next.buffer = new_buffer(place, tensor, collective_name(step.kind), next.region);
        }
        TextIssue issue;
        issue.handle = next_handle_++;
        issue.kind = step.kind;
        issue.axes = step.axes;
        if (reduces) issue.combiner = from.region.layout->combiner;
        issue.compression = step_compression(tensor, path, i);
        issue.transfers.push_back({tensor, view(from), {next.buffer, next.region}});
        next.pending = issue.handle;
        next.block = block;
        at(place).pending[issue.handle] = {block, when};
        emit(place, block, {std::move(issue), when, cause});
      }
      from = std::move(next);
    }
    return from;
  }

  // A compressed all-reduce is a reduce-scatter and an all-gather: each part is encoded once,
  // summed where it arrives, and the sum is encoded once.
  std::vector<ConversionStep> apart(PlaceId place, TensorId tensor, Combiner combiner,
                                    const std::vector<ConversionStep>& path) const {
    std::vector<ConversionStep> out;
    for (const ConversionStep& step : path) {
      out.push_back(step);
      const std::vector<int64_t> sizes = shape(tensor);
      if (step.slice || step.kind != CollectiveKind::kAllReduce || sizes.empty() ||
          !compression(tensor, step.kind) || combiner != Combiner::kSum)
        continue;
      const size_t dim =
          static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
      Layout scattered = step.to;
      for (AxisId axis : step.axes) scattered.shards[dim].push_back(axis);
      scattered = normalise(std::move(scattered), mesh(place), sizes);
      ConversionStep gather = step;
      out.back().kind = CollectiveKind::kReduceScatter;
      out.back().to = std::move(scattered);
      gather.kind = CollectiveKind::kAllGather;
      out.push_back(std::move(gather));
    }
    return out;
  }

  const std::optional<Compression>& compression(TensorId tensor, CollectiveKind kind) const {
    return plan_.tensors[tensor.index()].compress[static_cast<size_t>(kind)];
  }

  // Step i and the one before are halves of an all-reduce.
  static bool gathers_back(const std::vector<ConversionStep>& path, size_t i) {
    return i > 0 && path[i].kind == CollectiveKind::kAllGather && !path[i].slice &&
           !path[i - 1].slice && path[i - 1].kind == CollectiveKind::kReduceScatter &&
           path[i].axes == path[i - 1].axes;
  }

  std::optional<Compression> step_compression(TensorId tensor,
                                              const std::vector<ConversionStep>& path,
                                              size_t i) const {
    const auto& all_reduce = compression(tensor, CollectiveKind::kAllReduce);
    const bool half = gathers_back(path, i) || (i + 1 < path.size() && gathers_back(path, i + 1));
    return half && all_reduce ? all_reduce : compression(tensor, path[i].kind);
  }

  const std::vector<ConversionStep>& find_path(PlaceId place, TensorId tensor, const Layout& from,
                                               const Layout& to) {
    auto it = paths_.find(std::tie(place, shape(tensor), from, to));
    if (it == paths_.end()) {
      it = paths_
               .emplace(std::make_tuple(place, shape(tensor), from, to),
                        conversion_path(from, to, mesh(place), shape(tensor)))
               .first;
    }
    return it->second;
  }

  // Where the tensor is held at the place, best suited to become `need`; null: nowhere.
  const Held* best_hold(PlaceId place, TensorId tensor, BlockRef block, const Layout* need) {
    PlaceState& state = at(place);
    SmallVector<const Held*, 8> candidates;
    if (const auto it = state.home.find(tensor); it != state.home.end())
      candidates.push_back(&it->second);
    SmallVector<BlockRef, 3> blocks{block, BlockKind::kPrologue};
    if (plan_.tensors[tensor.index()].keep == Keep::kMicroBatch && block.kind > BlockKind::kForward)
      blocks.push_back({BlockKind::kForward, block.chunk});
    for (BlockRef kind : blocks) {
      if (const auto it = state.copies.find({kind, tensor}); it != state.copies.end()) {
        for (const Held& held : it->second) candidates.push_back(&held);
      }
    }
    const Held* best = nullptr;
    double best_cost = 0;
    for (const Held* held : candidates) {
      double cost = 0;
      if (need != nullptr && held->region.layout != *need) {
        if (held->region.layout->partial != need->partial && !need->complete()) continue;
        cost = path_cost(held->region.layout, find_path(place, tensor, held->region.layout, *need),
                         mesh(place), shape(tensor));
      }
      if (best == nullptr || cost < best_cost) {
        best = held;
        best_cost = cost;
      }
    }
    return best;
  }

  // Has what `made` made been made for sure when `used` runs, of the same micro-batch?
  bool seen(BlockRef made, BlockRef used) const {
    if (made == used || made.kind == BlockKind::kPrologue) return true;
    if (used.kind == BlockKind::kUpdate) return a_.shapes.micro_batches == 1;
    return made.chunk == used.chunk && made.kind < used.kind;
  }

  Held load(PlaceId place, TensorId tensor, const Layout& need, BlockRef block, OpId cause) {
    for (const Held& held : at(place).loads[tensor]) {
      if (held.region.layout == need && seen(held.block, block)) return held;
    }
    Held held;
    held.region = {need, std::nullopt};
    held.buffer =
        new_buffer(place, tensor, at(place).loads[tensor].empty() ? "" : "load", held.region);
    held.block = block;
    emit(place, block, {TextLoad{tensor, view(held)}, When::kAlways, cause});
    at(place).loads[tensor].push_back(held);
    return held;
  }

  // The tensor at the place in the layout that is needed; inserts what is missing.
  Held materialise(PlaceId place, TensorId tensor, const Layout& need, BlockRef block,
                   const Op& reader) {
    if (graph_.tensor(tensor).role == Role::kInput)
      return load(place, tensor, need, block, reader.id);
    if (best_hold(place, tensor, block, nullptr) == nullptr)
      fetch_from_other_place(place, tensor, block, reader);
    const Held* hold = best_hold(place, tensor, block, &need);
    TESSERA_CHECK(hold != nullptr, "tensor '{}' is held nowhere", graph_.tensor(tensor).name);
    if (hold->region.layout == need) {
      Held held = *hold;
      return held;
    }
    const bool completes = !hold->region.layout->complete() && need.complete();
    // What rests, or is made of it once a step (the narrow copy of a parameter).
    const bool once = rests(tensor) || a_.blocks[graph_.tensor(tensor).producer.index()] ==
                                           BlockRef(BlockKind::kPrologue);
    if (once && plan_.tensors[tensor.index()].keep == Keep::kStep && block != BlockKind::kUpdate) {
      block = BlockKind::kPrologue;
    }
    Held converted = convert(place, tensor, *hold, need, block, reader.id, When::kAlways);
    if (completes) {
      at(place).home[tensor] = converted;  // the parts are of no further use
    } else {
      at(place).copies[{block, tensor}].push_back(converted);
    }
    return converted;
  }

  // ---- between places
  // -----------------------------------------------------------------------------------------
  bool accumulates(TensorId tensor) const { return a_.sums_micro_batches(graph_, tensor); }

  BlockRef crossing_block(TensorId tensor) const {
    const Tensor& t = graph_.tensor(tensor);
    if (!t.producer.valid()) return BlockKind::kPrologue;
    if (accumulates(tensor)) return BlockKind::kUpdate;
    return a_.blocks[t.producer.index()];
  }

  PlaceId made_on(TensorId tensor) const {
    const Tensor& t = graph_.tensor(tensor);
    return t.producer.valid() ? place_of(graph_.op(t.producer)) : a_.home_place[tensor.index()];
  }

  // What a reader at `place` wants to hold before its own steps: its need, sharded further where
  // its time loop can fetch from.
  Layout landing_layout(PlaceId place, TensorId tensor, const Op& reader,
                        const std::optional<Layout>& hint) {
    const size_t operand = operand_index(reader, tensor);
    Layout need = need_of(reader, operand, place);
    const auto piece =
        step_piece(reader, op_plan(reader), reader.annotation.inputs[operand], mesh(place), 0);
    if (!piece || !hint) return need;
    return staged_layout(need, *piece, *hint, place, tensor);
  }

  void fetch_from_other_place(PlaceId place, TensorId tensor, BlockRef block, const Op& reader) {
    const PlaceId source = made_on(tensor);
    TESSERA_CHECK(source != place,
                  "tensor '{}' is not held at its own place (reader '{}', block {})",
                  graph_.tensor(tensor).name, reader.path, block_name(block));
    cross(tensor, source, place, crossing_block(tensor), reader);
  }

  void cross(TensorId tensor, PlaceId source, PlaceId place, BlockRef block, const Op& reader) {
    const Held* hold = best_hold(source, tensor, block, nullptr);
    TESSERA_CHECK(hold != nullptr, "tensor '{}' is held nowhere at place {}",
                  graph_.tensor(tensor).name, source.value);
    Held from = *hold;
    if (!from.region.layout->complete()) {
      const Layout there = need_of(reader, operand_index(reader, tensor), place);
      from = complete(source, tensor, from, translate(there, mesh(place), mesh(source)), block,
                      reader.id);
    }
    settle(source, from, block, reader.id);
    const Layout landing = landing_layout(place, tensor, reader,
                                          translate(from.region.layout, mesh(source), mesh(place)));
    const BlockRef arrives =
        block.once() ? block : first_reading_block(block.kind, tensor, place, reader);
    Held to;
    to.region = {landing, std::nullopt};
    if (lands_shared(plan_.plan.resharding, mesh(source), mesh(place)))
      to.region.layout = shared_landing(landing, mesh(place), shape(tensor));
    to.buffer = new_buffer(place, tensor, "recv", to.region);
    to.block = arrives;
    to.pending = next_handle_++;
    TextCross crossing;
    crossing.from_place = source;
    crossing.to_place = place;
    crossing.tensor = tensor;
    crossing.tag = next_tag_++;
    crossing.from = view(from);
    crossing.to = view(to);
    crossing.routes = find_routes(tensor, source, place, from.region.layout, to.region.layout);
    crossing.handle = to.pending;
    at(place).pending[to.pending] = {arrives, When::kAlways};
    TextCross sending = crossing;
    sending.sends = true;
    sending.handle = next_handle_++;
    at(source).sends.push_back({sending.handle, from.buffer, block});
    // A rank at both places copies where it receives. In one block, what the sender does for the
    // crossing (waits, copies from other tiers) must come before that.
    const bool copies = arrives == block && share_ranks(mesh(source), mesh(place));
    if (copies) emit(source, block, {sending, When::kAlways, reader.id});
    emit(place, arrives, {std::move(crossing), When::kAlways, reader.id});
    if (!copies) emit(source, block, {std::move(sending), When::kAlways, reader.id});
    // Blocks are not walked in the order in which the place runs them.
    if (a_.blocks[reader.id.index()] != arrives && !block.once())
      settle(place, to, arrives, reader.id);
    at(place).home[tensor] = convert(place, tensor, to, landing, arrives, reader.id, When::kAlways);
  }

  // Of the blocks of this kind at the place that read the tensor, the first in the place's order;
  // the reader's own if there is none.
  BlockRef first_reading_block(BlockKind kind, TensorId tensor, PlaceId place,
                               const Op& first) const {
    std::set<int32_t> stages;
    for (OpId reader : a_.consumers[tensor.index()]) {
      const Op& op = graph_.op(reader);
      if (place_of(op) == place) stages.insert(op_plan(op).stage.value);
    }
    const auto run_kind = kind == BlockKind::kForward ? BlockRun::kForward : BlockRun::kBackward;
    for (const BlockRun& run : schedule_of(place)) {
      const auto stage = static_cast<int32_t>(run.stage);
      if (run.kind == run_kind && stages.contains(stage)) return {kind, stage};
    }
    return a_.blocks[first.id.index()];
  }

  std::shared_ptr<const CrossRoutes> find_routes(TensorId tensor, PlaceId source, PlaceId place,
                                                 const Layout& from, const Layout& to) {
    const auto key = std::make_tuple(source, place, shape(tensor), from, to);
    auto it = routes_.find(key);
    if (it == routes_.end()) {
      it = routes_.emplace(key, plan_routes(mesh(source), from, mesh(place), to, shape(tensor)))
               .first;
    }
    return it->second;
  }

  // Parts -> a complete home: sharded as wanted over the partial axes if possible, else whole over
  // them.
  Held complete(PlaceId place, TensorId tensor, const Held& from,
                const std::optional<Layout>& wanted, BlockRef block, OpId cause,
                When when = When::kAlways) {
    Layout target = from.region.layout;
    target.partial.clear();
    target = normalise(std::move(target), mesh(place), shape(tensor));
    if (wanted && wanted->complete()) target = *wanted;
    Held done = convert(place, tensor, from, target, block, cause, when);
    at(place).home[tensor] = done;
    return done;
  }

  // ---- needs
  // --------------------------------------------------------------------------------------------------
  size_t operand_index(const Op& reader, TensorId tensor) const {
    const auto it = std::find(reader.inputs.begin(), reader.inputs.end(), tensor);
    TESSERA_CHECK(it != reader.inputs.end(), "'{}' does not read '{}'", reader.path,
                  graph_.tensor(tensor).name);
    return static_cast<size_t>(it - reader.inputs.begin());
  }

  Layout need_of(const Op& op, size_t operand, PlaceId place) const {
    return operand_layout(op, op_plan(op), op.annotation.inputs[operand], mesh(place),
                          shape(op.inputs[operand]));
  }

  // From where the steps of a loop fetch: the need, with the looped dim sharded further over an
  // axis (of a nested loop: over all its axes) over which it is held so (or over which parts of it
  // are to be summed), if the reader does not use that axis for this operand.
  Layout staged_layout(const Layout& need, const StepPiece& piece, const Layout& hold,
                       PlaceId place, TensorId tensor) const {
    const auto extended = [&](const Axes& axes) {
      Layout out = need;
      out.grain[piece.dim] = piece.grain;  // as the steps cut it
      for (AxisId axis : axes) out.shards[piece.dim].push_back(axis);
      return normalise(std::move(out), mesh(place), shape(tensor));
    };
    const Axes& held = hold.shards[piece.dim];
    if (piece.order == StepOrder::kNested) {
      Axes axes;
      for (const SkewAxis& skew : piece.skew) axes.push_back(skew.axis);
      const bool fits = std::all_of(axes.begin(), axes.end(), [&](AxisId axis) {
        return !need.uses(axis) && hold.uses(axis);
      });
      if (fits) return extended(axes);
    }
    for (auto axis = held.rbegin(); axis != held.rend(); ++axis) {
      if (!need.uses(*axis)) return extended({*axis});
    }
    for (AxisId axis : hold.partial) {
      if (!need.uses(axis)) return extended({axis});
    }
    return need;
  }

  // ---- ops
  // ----------------------------------------------------------------------------------------------------
  // Linear ops work on parts if all their operands are parts alike.
  std::optional<std::vector<Held>> parts_of(const Op& op, PlaceId place) {
    const KindInfo* kind = find_kind(op.kind);
    if (kind == nullptr || !is_linear(op) || op.inputs.empty() || op.outputs.size() != 1)
      return std::nullopt;
    if (loop_of(op_plan(op)).exists()) return std::nullopt;
    std::vector<Held> parts;
    for (TensorId input : op.inputs) {
      if (graph_.tensor(input).role == Role::kInput) return std::nullopt;
      if (graph_.tensor(input).dims.size() != graph_.tensor(op.outputs[0]).dims.size())
        return std::nullopt;
      const auto it = at(place).home.find(input);
      if (it == at(place).home.end()) return std::nullopt;
      const Layout& layout = it->second.region.layout;
      if (layout.complete() || layout.combiner != Combiner::kSum) return std::nullopt;
      if (!parts.empty() && layout != parts[0].region.layout) return std::nullopt;
      parts.push_back(it->second);
    }
    Layout complete = parts[0].region.layout;
    complete.partial.clear();
    if (normalise(complete, mesh(place), shape(op.outputs[0])) != need_of(op, 0, place)) {
      const OpPlan& plan = op_plan(op);
      const bool named = std::any_of(plan.dims.begin(), plan.dims.end(),
                                     [](const DimSplit& s) { return s.entry >= 0; });
      if (named) return std::nullopt;
    }
    return parts;
  }

  void work_on_parts(const Op& op, PlaceId place, BlockRef block, const std::vector<Held>& parts) {
    OpPlan& plan = a_.ops[op.id.index()];
    for (DimSplit& split : plan.dims) split.axes.clear();
    const Layout& layout = parts[0].region.layout;
    const OperandDims& output = op.annotation.outputs[0];
    for (size_t d = 0; d < output.dims.size(); ++d) {
      const int lead = leading_dim(op.annotation, output.dims[d]);
      if (lead >= 0) plan.dims[static_cast<size_t>(lead)].axes = layout.shards[d];
    }
    TextCompute compute;
    compute.op = op.id;
    for (const Held& part : parts) {
      settle(place, part, block, op.id);
      compute.inputs.push_back(view(part));
    }
    Held made;
    made.region = {layout, std::nullopt};
    made.buffer = new_buffer(place, op.outputs[0], "", made.region);
    made.block = block;
    compute.outputs.push_back({view(made), op.outputs[0], Write::kSet, 0, 1});
    emit(place, block, {std::move(compute), When::kAlways, op.id});
    produced(op, op.outputs[0], made);
  }

  // Fetching one operand of a loop op step by step.
  struct Walked {
    Held staged;  // what the steps take from
    Layout need;  // loop left out
    std::optional<StepPiece> piece;
    Axes axes;  // over which the looped dim is held sharded; none: local
    std::vector<Held> by_step;
    std::optional<Held> early;      // of a nested loop: the piece of the next outer step
    FetchedSteps* known = nullptr;  // fetched already, for an op shortly before
  };

  // Readers of the same pieces (query, key and value products) share what was fetched if they are
  // near each other; farther apart the memory is worth more than the transfer.
  static constexpr int kNearOps = 16;
  FetchedSteps* fetched_before(const Op& op, TensorId tensor, const Walked& walked, PlaceId place,
                               BlockRef block) {
    std::list<FetchedSteps>& fetched = at(place).fetched;
    std::erase_if(fetched, [&](const FetchedSteps& steps) {
      return steps.block != block || steps.last_reader.value + kNearOps < op.id.value;
    });
    const auto it = std::find_if(fetched.begin(), fetched.end(), [&](const FetchedSteps& steps) {
      return steps.tensor == tensor && steps.region == Region{walked.need, walked.piece} &&
             steps.axes == walked.axes;
    });
    return it == fetched.end() ? nullptr : &*it;
  }

  Walked prepare_operand(const Op& op, size_t operand, PlaceId place, BlockRef block) {
    Walked walked;
    walked.need = need_of(op, operand, place);
    walked.piece = step_piece(op, op_plan(op), op.annotation.inputs[operand], mesh(place), 0);
    if (walked.piece) leave_out_masked(op, place, *walked.piece);
    Layout target = walked.need;
    const TensorId tensor = op.inputs[operand];
    if (walked.piece && graph_.tensor(tensor).role != Role::kInput) {
      if (best_hold(place, tensor, block, nullptr) == nullptr)
        fetch_from_other_place(place, tensor, block, op);
      target =
          staged_layout(walked.need, *walked.piece,
                        best_hold(place, tensor, block, nullptr)->region.layout, place, tensor);
      const size_t d = walked.piece->dim;
      walked.axes.assign(
          target.shards[d].begin() + static_cast<std::ptrdiff_t>(walked.need.shards[d].size()),
          target.shards[d].end());
    }
    if (!walked.axes.empty()) walked.known = fetched_before(op, tensor, walked, place, block);
    if (walked.known != nullptr) {
      walked.known->last_reader = op.id;
    } else {
      walked.staged = materialise(place, tensor, target, block, op);
    }
    return walked;
  }

  // Makes the operand of a step available (issued, not waited for).
  void fetch_step(const Op& op, size_t operand, Walked& walked, int64_t step, PlaceId place,
                  BlockRef block) {
    if (walked.known != nullptr) {
      walked.by_step.push_back(walked.known->by_step[static_cast<size_t>(step)]);
      return;
    }
    if (!walked.piece || walked.axes.empty()) {
      Held held = walked.staged;
      if (walked.piece) held.region = step_region(walked, step);
      walked.by_step.push_back(std::move(held));
      return;
    }
    // Aligned: every rank of the axis takes the same piece from its holder. Rotated by this axis:
    // the neighbour had the piece in the step before, so pieces travel around a ring. Nested: inner
    // rings start from what the neighbour on the outer axes had when its inner ring started.
    const StepPiece& piece = *walked.piece;
    const auto move = [&](const Held& source, int64_t to, Axes axes) {
      return send_step(op, operand, source, step_region(walked, to), std::move(axes), place, block,
                       to);
    };
    if (step == 0 && starts_at_home(piece, walked.axes, place)) {
      walked.by_step.push_back(walked.staged);
      walked.by_step.back().region = step_region(walked, 0);
    } else if (piece.order == StepOrder::kNested && starts_at_home(piece, walked.axes, place)) {
      const Axes inner = {piece.skew.back().axis};
      walked.by_step.push_back(step % inner_steps(piece, place) == 0
                                   ? *std::exchange(walked.early, std::nullopt)
                                   : move(walked.by_step.back(), step, inner));
    } else {
      const bool ring = step > 0 && piece.order == StepOrder::kRotated &&
                        piece.skewed_by(walked.axes.back()) &&
                        mesh(place).axis(walked.axes.back()).size == piece.steps;
      walked.by_step.push_back(
          move(ring ? walked.by_step.back() : walked.staged, step, walked.axes));
    }
    if (piece.order != StepOrder::kNested || !starts_at_home(piece, walked.axes, place)) return;
    const int64_t inner = inner_steps(piece, place);
    if (step % inner != 0 || step + inner >= piece.steps) return;
    Axes outer;  // one step outwards: at least the last digit but one moves
    for (size_t i = 0; i + 1 < piece.skew.size(); ++i) outer.push_back(piece.skew[i].axis);
    const Held source = walked.by_step.back();
    walked.early = move(source, step + inner, outer);
  }

  static Region step_region(const Walked& walked, int64_t step) {
    Region region{walked.need, walked.piece};
    region.piece.own().step = step;
    return region;
  }

  // A step's piece from where it is held.
  Held send_step(const Op& op, size_t operand, const Held& source, Region region, Axes axes,
                 PlaceId place, BlockRef block, int64_t step) {
    settle(place, source, block, op.id);
    Held held;
    held.region = std::move(region);
    held.buffer = new_buffer(place, op.inputs[operand], fmt::format("step{}", step), held.region);
    held.pending = next_handle_++;
    held.block = block;
    at(place).pending[held.pending] = {block, When::kAlways};
    TextIssue issue;
    issue.handle = held.pending;
    issue.classify = true;
    issue.axes = std::move(axes);
    issue.transfers.push_back({op.inputs[operand], view(source), view(held)});
    emit(place, block, {std::move(issue), When::kAlways, op.id});
    return held;
  }

  // Is the piece of step 0 the rank's own shard over `axes`?
  bool starts_at_home(const StepPiece& piece, const Axes& axes, PlaceId place) const {
    int64_t product = 1;
    for (AxisId axis : axes) product *= mesh(place).axis(axis).size;
    const bool same =
        piece.skew.size() == axes.size() && product == piece.steps &&
        std::equal(axes.begin(), axes.end(), piece.skew.begin(),
                   [](AxisId axis, const SkewAxis& skew) { return axis == skew.axis; });
    return same && (piece.order == StepOrder::kNested ||
                    (piece.order == StepOrder::kRotated && axes.size() == 1));
  }

  int64_t inner_steps(const StepPiece& piece, PlaceId place) const {
    return mesh(place).axis(piece.skew.back().axis).size;
  }

  // Keys that none of a rank's queries sees stay where they are. In a ring this needs a falling
  // skew by the very axes that cut the queries: then whoever passes a piece on has used it himself.
  void leave_out_masked(const Op& op, PlaceId place, StepPiece& piece) const {
    const OpPlan& plan = op_plan(op);
    const int key = loop_of(plan).op_dim;
    const int query = op.annotation.dims[static_cast<size_t>(key)].causal_of;
    if (query < 0) return;
    const Axes& axes = plan.dims[static_cast<size_t>(query)].axes;
    const bool falls = std::all_of(piece.skew.begin(), piece.skew.end(),
                                   [](const SkewAxis& skew) { return skew.falls; });
    if (piece.order != StepOrder::kAligned && (!falls || !starts_at_home(piece, axes, place)))
      return;
    piece.queries = a_.shapes.space(op)[static_cast<size_t>(query)];
    piece.query_axes = axes;
  }

  // ---- sums made in place
  // -------------------------------------------------------------------------------------
  // A sum whose terms are all made here, alike, for it alone, by ops that can add to what is there:
  // they write into the sum's buffer one after the other, and the sum itself is no instruction. Its
  // terms may be made in other blocks than the sum (of other stages at this place; of a
  // micro-batch, if they are summed over micro-batches too). Null: it is not such a sum.
  const Op* sum_in_place(TensorId term, PlaceId place) {
    const std::vector<OpId>& readers = a_.consumers[term.index()];
    if (readers.size() != 1 || graph_.tensor(term).update_of.valid()) return nullptr;
    const Op& sum = graph_.op(readers[0]);
    const auto known = sums_.find(sum.id);
    if (known != sums_.end()) return known->second ? &sum : nullptr;
    bool fits = sum.kind == "add_n" && place_of(sum) == place;
    std::optional<Layout> made;
    // What is at rest goes to its holder step by step: parts of the whole would be kept from the
    // first term to the last.
    const TensorId of = graph_.tensor(sum.outputs[0]).of;
    const bool rests = of.valid() && graph_.tensor(of).role == Role::kParameter;
    for (size_t i = 0; fits && i < sum.inputs.size(); ++i) {
      const TensorId input = sum.inputs[i];
      const OpId producer = graph_.tensor(input).producer;
      fits = producer.valid() && a_.consumers[input.index()].size() == 1 &&
             std::count(sum.inputs.begin(), sum.inputs.end(), input) == 1;
      if (!fits) break;
      const Op& op = graph_.op(producer);
      if (block_of(op) != block_of(sum)) fits = accumulates(input) || a_.shapes.micro_batches == 1;
      const size_t output = static_cast<size_t>(
          std::find(op.outputs.begin(), op.outputs.end(), input) - op.outputs.begin());
      const Layout layout = made_layout(op, op_plan(op), output, mesh(place), shape(input));
      fits =
          fits && place_of(op) == place && tessera::accumulates(op, output) && !is_linear(op) &&
          (!made || layout == *made) &&
          (!rests || !step_piece(op, op_plan(op), op.annotation.outputs[output], mesh(place), 0));
      made = layout;
    }
    if (fits) {
      Layout complete = *made;
      complete.partial.clear();
      const bool alike = normalise(complete, mesh(place), shape(term)) == need_of(sum, 0, place);
      fits = !loop_of(op_plan(sum)).exists() && (alike || !made->complete());
    }
    sums_[sum.id] = fits;
    return fits ? &sum : nullptr;
  }

  bool is_across(const Op& sum) const {
    return std::any_of(sum.inputs.begin(), sum.inputs.end(), [&](TensorId input) {
      return block_of(graph_.op(graph_.tensor(input).producer)) != block_of(sum);
    });
  }

  // Where an output of a loop op goes, step by step.
  struct Making {
    int term = 0, terms = 1;
    bool first = true;    // of the terms that are made in this block
    bool across = false;  // the terms are made in several blocks
    TensorId tensor;      // what is made: the output, or the sum of which it is a term
    Held home;
    std::optional<StepPiece> piece;     // the loop moves over this output
    std::optional<AxisId> reduce_axis;  // each step's part is reduced to its holder on this axis
    // Parts travel: the sum of a piece moves along these axes as the piece itself does, each rank
    // adds its part, and the last move brings it home.
    Axes travel_axes;
    Held sum;  // of this step's piece, on its way from where it was a step before
    Layout made;
  };

  Making prepare_output(const Op& op, size_t output, PlaceId place, BlockRef block) {
    Making making;
    const TensorId tensor = op.outputs[output];
    making.tensor = tensor;
    making.made = made_layout(op, op_plan(op), output, mesh(place), shape(tensor));
    making.piece = step_piece(op, op_plan(op), op.annotation.outputs[output], mesh(place), 0);
    if (const Op* sum = sum_in_place(tensor, place)) {
      making.tensor = sum->outputs[0];
      making.terms = static_cast<int>(sum->inputs.size());
      making.term = static_cast<int>(operand_index(*sum, tensor));
      making.across = is_across(*sum);
      making.first = started_.emplace(sum->id, block).second;
      if (!terms_.contains(sum->id)) {
        Held held;
        held.region = {making.made, std::nullopt};
        held.buffer = new_buffer(place, making.tensor, "", held.region);
        held.block = block;
        at(place).text.buffers.back().accumulates = making.across && a_.shapes.micro_batches > 1;
        terms_[sum->id] = held;
      }
      making.home = terms_[sum->id];
      return making;
    }
    Layout home = making.made;
    const Axes axes = homeward_axes(making, tensor, place);
    if (!axes.empty()) home.grain[making.piece->dim] = making.piece->grain;
    for (AxisId axis : axes) {
      erase_value(home.partial, axis);
      home.shards[making.piece->dim].push_back(axis);
    }
    home = normalise(std::move(home), mesh(place), shape(tensor));
    if (!axes.empty() && making.piece->skew.empty()) {
      making.reduce_axis = axes.front();
    } else {
      making.travel_axes = axes;
    }
    if (!axes.empty()) {
      leave_out_masked(op, place, *making.piece);
      if (making.piece->query_axes != axes) making.piece->queries = 0;
    }
    making.home.region = {home, std::nullopt};
    making.home.block = block;
    if (const TensorId old = graph_.tensor(tensor).update_of; old.valid()) {
      making.home.buffer = at(place).home.at(old).buffer;  // in place
    } else {
      making.home.buffer = new_buffer(place, tensor, "", making.home.region);
    }
    return making;
  }

  // A step that must set a piece of one output (to zero) computes, and then it makes all of them.
  static void leave_out_alike(std::vector<Making>& outputs) {
    const bool computes = std::any_of(outputs.begin(), outputs.end(), [](const Making& making) {
      return making.piece && making.piece->queries == 0;
    });
    for (Making& making : outputs) {
      if (computes && making.piece) making.piece->queries = 0;
    }
  }

  // Axes over which the steps make parts of pieces that are at home sharded over these axes: a
  // part need not wait for the others. Empty: parts are collected, and merged at the end.
  Axes homeward_axes(const Making& making, TensorId tensor, PlaceId place) {
    if (!making.piece || making.made.combiner != Combiner::kSum) return {};
    const StepPiece& piece = *making.piece;
    const std::optional<Layout> target = destination(tensor, place, making.made);
    Axes extended = making.made.shards[piece.dim];
    if (!target || target->shards[piece.dim].size() <= extended.size()) return {};
    const Axes& wanted = target->shards[piece.dim];
    Axes axes = {wanted[extended.size()]};
    if (piece.order == StepOrder::kNested) {
      axes.clear();
      for (const SkewAxis& skew : piece.skew) axes.push_back(skew.axis);
    } else if (!piece.skew.empty() &&
               (!piece.skewed_by(axes[0]) || mesh(place).axis(axes[0]).size != piece.steps)) {
      return {};
    }
    extended.insert(extended.end(), axes.begin(), axes.end());
    const Axes& partial = making.made.partial;
    const bool parts = std::all_of(axes.begin(), axes.end(), [&](AxisId axis) {
      return std::find(partial.begin(), partial.end(), axis) != partial.end();
    });
    const bool homeward = extended.size() <= wanted.size() &&
                          std::equal(extended.begin(), extended.end(), wanted.begin());
    return parts && homeward ? axes : Axes{};
  }

  // The layout in which the first reader of a tensor wants it (time loops included as far as an
  // axis can hold them).
  std::optional<Layout> destination(TensorId tensor, PlaceId place, const Layout& made) {
    const std::vector<OpId>& readers = a_.consumers[tensor.index()];
    const Op* chosen = nullptr;
    for (OpId id : readers) {
      const Op& reader = graph_.op(id);
      const bool updates =
          !reader.outputs.empty() && graph_.tensor(reader.outputs[0]).update_of.valid();
      if (chosen == nullptr || (updates && chosen->phase == Phase::kUpdate)) chosen = &reader;
    }
    if (chosen == nullptr) return std::nullopt;
    const PlaceId there = place_of(*chosen);
    const size_t operand = operand_index(*chosen, tensor);
    Layout need = need_of(*chosen, operand, there);
    if (there != place) {
      return translate(need, mesh(there), mesh(place));
    }
    if (const auto piece = step_piece(*chosen, op_plan(*chosen), chosen->annotation.inputs[operand],
                                      mesh(there), 0)) {
      need = staged_layout(need, *piece, made, there, tensor);
    }
    return need;
  }

  void walk(const Op& op) {
    const PlaceId place = place_of(op);
    const BlockRef block = block_of(op);
    if (const auto sum = terms_.find(op.id); sum != terms_.end()) {  // its terms have made it
      produced(op, op.outputs[0], sum->second);
      return;
    }
    if (const auto parts = parts_of(op, place)) {
      work_on_parts(op, place, block, *parts);
      return;
    }
    const LoopOf loop = loop_of(op_plan(op));
    const int64_t steps = loop.exists() ? loop.split.steps : 1;
    std::vector<Walked> operands;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      operands.push_back(prepare_operand(op, i, place, block));
    std::vector<Making> outputs;
    for (size_t o = 0; o < op.outputs.size(); ++o)
      outputs.push_back(prepare_output(op, o, place, block));
    leave_out_alike(outputs);
    for (size_t i = 0; i < operands.size(); ++i) fetch_step(op, i, operands[i], 0, place, block);
    std::vector<TextInstruction> due;
    for (int64_t step = 0; step < steps; ++step) {
      for (size_t i = 0; i < operands.size(); ++i)
        settle(place, operands[i].by_step.back(), block, op.id);
      TextCompute compute;
      compute.op = op.id;
      compute.step = step;
      for (const Walked& operand : operands) compute.inputs.push_back(view(operand.by_step.back()));
      if (step + 1 <
          steps) {  // double buffer: the next step's operands travel while this step computes
        for (size_t i = 0; i < operands.size(); ++i)
          fetch_step(op, i, operands[i], step + 1, place, block);
      }
      std::vector<TextInstruction> sends, arrivals;
      for (size_t o = 0; o < outputs.size(); ++o) {
        compute.outputs.push_back(output_of_step(op, o, outputs[o], step, place, sends, arrivals));
      }
      emit(place, block, {std::move(compute), When::kAlways, op.id});
      for (TextInstruction& instruction : sends) emit(place, block, std::move(instruction));
      for (TextInstruction& instruction : due) emit(place, block, std::move(instruction));
      due = std::move(arrivals);  // parts travel while the next step computes
    }
    for (TextInstruction& instruction : due) emit(place, block, std::move(instruction));
    for (size_t i = 0; i < operands.size(); ++i) {
      Walked& walked = operands[i];
      if (walked.axes.empty() || walked.known != nullptr) continue;
      at(place).fetched.push_back(
          {op.inputs[i], block, {walked.need, walked.piece}, walked.axes, walked.by_step, op.id});
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      if (outputs[o].terms == 1) produced(op, op.outputs[o], outputs[o].home);
    }
  }

  TextOutput output_of_step(const Op& op, size_t output, Making& making, int64_t step,
                            PlaceId place, std::vector<TextInstruction>& sends,
                            std::vector<TextInstruction>& arrivals) {
    const TensorId tensor = op.outputs[output];
    const bool over_micro_batches = accumulates(tensor);
    if (making.terms > 1) {
      Region region = making.home.region;
      if (making.piece) {  // each step another region
        region.piece = making.piece;
        region.piece.own().step = step;
      }
      const bool fresh = making.first && (step == 0 || making.piece);
      const Write begins = making.across ? Write::kAddExceptFirst : Write::kSet;
      const Write write = fresh ? begins : Write::kAdd;
      return {{making.home.buffer, region}, making.tensor, write, making.term, making.terms};
    }
    if (over_micro_batches)
      at(place).text.buffers[static_cast<size_t>(making.home.buffer)].accumulates = true;
    const Write across = over_micro_batches ? Write::kAddExceptFirst : Write::kSet;
    TextOutput out;
    out.tensor = tensor;
    if (!making.piece) {
      out.view = view(making.home);
      out.write = step == 0 ? across : Write::kAdd;
      return out;
    }
    StepPiece piece = *making.piece;
    piece.step = step;
    if (!making.travel_axes.empty()) {
      out.view = travel(op, tensor, making, step, place, sends, arrivals);
      return out;
    }
    if (!making.reduce_axis) {
      out.view = {making.home.buffer, {making.home.region.layout, piece}};
      out.write = across;
      return out;
    }
    const Region part{making.made, piece};
    out.view = {new_buffer(place, tensor, fmt::format("part{}", step), part), part};
    piece.queries = 0;  // the holder takes it, whoever has a part
    const Region mine{making.home.region.layout, piece};
    TextView arrives{making.home.buffer, mine};
    if (over_micro_batches)
      arrives.buffer = new_buffer(place, tensor, fmt::format("arrive{}", step), mine);
    TextIssue issue;
    issue.handle = next_handle_++;
    issue.classify = true;
    issue.axes = {*making.reduce_axis};
    issue.combiner = making.made.combiner;
    issue.transfers.push_back({tensor, out.view, arrives});
    const int handle = issue.handle;
    sends.push_back({std::move(issue), When::kAlways, op.id});
    arrivals.push_back({TextWait{handle, 0}, When::kAlways, op.id});
    if (over_micro_batches) {
      arrivals.push_back(
          {TextCopy{tensor, arrives, {making.home.buffer, mine}, across}, When::kAlways, op.id});
    }
    return out;
  }

  // Where a step puts its part of a travelling sum: step 0 starts the sum, later steps add to what
  // comes from the rank before, while the next step computes.
  TextView travel(const Op& op, TensorId tensor, Making& making, int64_t step, PlaceId place,
                  std::vector<TextInstruction>& sends, std::vector<TextInstruction>& arrivals) {
    const StepPiece& loop = *making.piece;
    const auto region = [&](int64_t at, bool limited) {
      Region out{making.made, loop};
      out.piece.own().step = at;
      if (!limited) out.piece.own().queries = 0;
      return out;
    };
    Region part = region(step, true);
    TextView made;
    if (step == 0) {
      making.sum.region = region(0, false);
      making.sum.buffer = new_buffer(place, tensor, "sum0", making.sum.region);
      made = view(making.sum);
    } else {
      made = {new_buffer(place, tensor, fmt::format("part{}", step), part), part};
      sends.push_back({TextWait{making.sum.pending, 0}, When::kAlways, op.id});
      sends.push_back(
          {TextCopy{tensor, made, {making.sum.buffer, part}, Write::kAdd}, When::kAlways, op.id});
    }
    const bool last = step + 1 == loop.steps;
    const bool over_micro_batches = accumulates(tensor);
    Held next = making.home;
    if (!last) next.region = region(step + 1, false);
    if (!last || over_micro_batches) {
      next.buffer =
          new_buffer(place, tensor, last ? "arrive" : fmt::format("sum{}", step + 1), next.region);
    }
    next.pending = next_handle_++;
    TextIssue issue;
    issue.handle = next.pending;
    issue.classify = true;
    issue.axes = making.travel_axes;
    if (loop.order == StepOrder::kNested && (step + 1) % inner_steps(loop, place) != 0)
      issue.axes = {loop.skew.back().axis};
    issue.transfers.push_back({tensor, view(making.sum), view(next)});
    sends.push_back({std::move(issue), When::kAlways, op.id});
    making.sum = next;
    if (!last) return made;
    arrivals.push_back({TextWait{next.pending, 0}, When::kAlways, op.id});
    if (over_micro_batches) {
      arrivals.push_back({TextCopy{tensor, view(next), view(making.home), Write::kAddExceptFirst},
                          When::kAlways, op.id});
    }
    return made;
  }

  // ---- make -> home
  // -------------------------------------------------------------------------------------------
  void produced(const Op& op, TensorId tensor, Held made) {
    const PlaceId place = place_of(op);
    const BlockRef block = block_of(op);
    if (graph_.tensor(tensor).update_of.valid()) return put_back(op, tensor, made);
    const bool summed = accumulates(tensor);
    at(place).home[tensor] = made;
    if (summed) scatter_each_time(op, tensor);
    const Op* reader = first_reader(tensor);
    if (reader == nullptr) return;
    complete_early(tensor, place, *reader, block, summed);
    if (summed) return;
    std::set<PlaceId> sent;
    for (OpId id : a_.consumers[tensor.index()]) {
      const Op& far = graph_.op(id);
      const PlaceId there = place_of(far);
      if (there == place || !sent.insert(there).second) continue;
      if (at(there).home.contains(tensor)) continue;
      cross(tensor, place, there, block, far);
    }
  }

  const Op* first_reader(TensorId tensor) const {
    const std::vector<OpId>& readers = a_.consumers[tensor.index()];
    return readers.empty() ? nullptr : &graph_.op(readers.front());
  }

  // The store rule may want a sum over micro-batches sharded at rest: then each micro-batch's parts
  // go home at once.
  void scatter_each_time(const Op& op, TensorId tensor) {
    const PlaceId place = place_of(op);
    const BlockRef block = block_of(op);
    const Held made = at(place).home.at(tensor);
    if (!sharded_at_rest(tensor) || made.region.layout->complete()) return;
    const Layout& rest = a_.homes[tensor.index()];
    // The parts of this micro-batch alone: set, not added.
    TextBuffer& parts = at(place).text.buffers[static_cast<size_t>(made.buffer)];
    parts.accumulates = false;
    for (TextInstruction& instruction : at(place).text.blocks[block]) {
      if (auto* compute = std::get_if<TextCompute>(&instruction.body)) {
        for (TextOutput& output : compute->outputs) {
          if (output.view.buffer == made.buffer && output.write == Write::kAddExceptFirst)
            output.write = Write::kSet;
        }
      } else if (auto* copy = std::get_if<TextCopy>(&instruction.body)) {
        if (copy->to.buffer == made.buffer) copy->write = Write::kSet;
      }
    }
    const Held moved = convert(place, tensor, made, rest, block, op.id, When::kAlways);
    Held home;
    home.region = {rest, std::nullopt};
    home.buffer = new_buffer(place, tensor, "sum", home.region);
    at(place).text.buffers.back().accumulates = true;
    home.block = block;
    leave(place, block, made,
          {moved, TextCopy{tensor, view(moved), view(home), Write::kAddExceptFirst}, op.id,
           When::kAlways});
    at(place).home[tensor] = home;
  }

  bool is_gradient_of_parameter(TensorId tensor) const {
    const Tensor& t = graph_.tensor(tensor);
    return t.role == Role::kGradient && t.of.valid() &&
           graph_.tensor(t.of).role == Role::kParameter;
  }

  bool sharded_at_rest(TensorId gradient) const {
    return !plan_.tensors[gradient.index()].over.empty() && graph_.is_parameter_gradient(gradient);
  }

  void leave(PlaceId place, BlockRef block, const Held& made, Leaving leaving) {
    LeavingParts& under_way = at(place).leaving[block];
    const TextBuffer& parts = at(place).text.buffers[static_cast<size_t>(made.buffer)];
    const std::vector<int64_t> origin(mesh(place).axes.size(), 0);
    under_way.bytes += evaluate(parts.region, mesh(place), shape(parts.tensor), origin).volume() *
                       dtype_bytes(parts.dtype);
    under_way.parts.push_back(std::move(leaving));
    if (under_way.bytes < plan_.plan.bucket_bytes) return;
    under_way.bytes = 0;
    let_arrive(place, block, std::exchange(under_way.before, std::exchange(under_way.parts, {})));
  }

  void let_arrive(PlaceId place, BlockRef block, const std::vector<Leaving>& parts) {
    for (const Leaving& leaving : parts) {
      settle(place, leaving.moved, block, leaving.cause);
      if (leaving.add) emit(place, block, {*leaving.add, leaving.when, leaving.cause});
    }
  }

  // Parts are completed as soon as they exist, in the layout that their first reader wants, unless
  // that reader is linear and may take them as they are. Sums over micro-batches: in the last run
  // of the block.
  void complete_early(TensorId tensor, PlaceId place, const Op& reader, BlockRef block,
                      bool summed) {
    const Held made = at(place).home.at(tensor);
    if (made.region.layout->complete()) return;
    const KindInfo* kind = find_kind(reader.kind);
    const bool takes_parts = kind != nullptr && is_linear(reader) && place_of(reader) == place;
    if (takes_parts && !(summed && scales_alone(reader))) return;
    std::optional<Layout> target = destination(tensor, place, made.region.layout);
    if (summed && block_of(reader).kind != BlockKind::kUpdate) return;
    if (takes_parts && collectives_to(tensor, place, made, target) != 1) return;
    const When when = summed ? When::kLast : When::kAlways;
    const bool later = block_of(reader).kind == BlockKind::kUpdate;
    const Held done = later ? begin_completion(tensor, place, made, target, block, reader.id, when)
                            : complete(place, tensor, made, target, block, reader.id, when);
    const bool backward = block.kind == BlockKind::kBackward || block.kind == BlockKind::kWeight;
    if (backward && sharded_at_rest(tensor))
      leave(place, block, made, {done, std::nullopt, reader.id, when});
  }

  // The first collective of a completion, for a reader in a later block that makes the others: this
  // block would wait between two.
  Held begin_completion(TensorId tensor, PlaceId place, const Held& made,
                        const std::optional<Layout>& target, BlockRef block, OpId cause,
                        When when) {
    if (collectives_to(tensor, place, made, target) <= 1)
      return complete(place, tensor, made, target, block, cause, when);
    const auto& path = find_path(place, tensor, made.region.layout, *target);
    const auto first =
        std::find_if(path.begin(), path.end(), [](const auto& step) { return !step.slice; });
    Held begun = convert(place, tensor, made, first->to, block, cause, when);
    at(place).home[tensor] = begun;
    return begun;
  }

  // How many collectives complete it, one after the other. Between two a block would wait.
  int64_t collectives_to(TensorId tensor, PlaceId place, const Held& made,
                         const std::optional<Layout>& target) {
    if (!target || !target->complete()) return 1;
    const auto& path = find_path(place, tensor, made.region.layout, *target);
    return std::count_if(path.begin(), path.end(), [](const auto& step) { return !step.slice; });
  }

  // Is the op, once a step, one of a chain of linear ops of one operand in one dtype at whose end
  // no other operand is added? Then completing its operand moves as many bytes as completing what
  // comes of it, but can begin in the last backward pass.
  bool scales_alone(const Op& op) const {
    const PlaceId place = place_of(op);
    const Op* at = &op;
    while (at != nullptr && is_linear(*at) && place_of(*at) == place) {
      if (at->inputs.size() != 1 || at->outputs.size() != 1) return false;
      const Tensor &from = graph_.tensor(at->inputs[0]), &to = graph_.tensor(at->outputs[0]);
      if (from.dtype != to.dtype || block_of(*at).kind != BlockKind::kUpdate) return false;
      at = first_reader(at->outputs[0]);
    }
    return true;
  }

  // The new value of a tensor at rest, made in the update op's layout inside its own buffer, back
  // to its home layout.
  void put_back(const Op& op, TensorId tensor, const Held& made) {
    const PlaceId place = place_of(op);
    const TensorId old = graph_.tensor(tensor).update_of;
    const Held home = at(place).home.at(old);
    if (made.region.layout == home.region.layout) return;
    Held back = convert(place, tensor, made, home.region.layout, BlockKind::kUpdate, op.id,
                        When::kAlways, home.buffer);
    if (back.buffer != home.buffer) {
      settle(place, back, BlockKind::kUpdate, op.id);
      emit(place, BlockKind::kUpdate,
           {TextCopy{tensor, view(back), view(home), Write::kSet}, When::kAlways, op.id});
    }
  }

  // ---- the end
  // ------------------------------------------------------------------------------------------------
  void fetch_all() {
    std::vector<TensorId> wanted = fetch_;
    if (graph_.loss.valid() &&
        std::find(wanted.begin(), wanted.end(), graph_.loss) == wanted.end()) {
      wanted.insert(wanted.begin(), graph_.loss);
    }
    for (TensorId tensor : wanted) {
      const PlaceId place = made_on(tensor);
      const Held* hold = best_hold(place, tensor, BlockKind::kUpdate, nullptr);
      TESSERA_CHECK(hold != nullptr, "fetched tensor '{}' is held nowhere",
                    graph_.tensor(tensor).name);
      Held held = *hold;
      if (!held.region.layout->complete()) {
        held = complete(place, tensor, held, std::nullopt, BlockKind::kUpdate,
                        graph_.tensor(tensor).producer);
      }
      settle(place, held, BlockKind::kUpdate, graph_.tensor(tensor).producer);
      at(place).text.fetches.push_back({tensor, held.buffer});
    }
  }

  // Waits that are still due: sends where their buffers come free at the latest, unused arrivals at
  // the end of their block.
  void close(PlaceState& place) {
    auto& blocks = place.text.blocks;
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    for (const auto& [handle, where] : place.pending) {
      blocks[where.block].push_back({TextWait{handle, 0}, where.when, {}, kEnd});
    }
    std::vector<TextInstruction>& update = blocks[BlockKind::kUpdate];
    for (auto it = place.sends.rbegin(); it != place.sends.rend(); ++it) {
      const TextInstruction wait{TextWait{it->handle, 0}, When::kAlways, {}, -1};
      const BlockRef backward{BlockKind::kBackward, it->block.chunk};
      if (it->block.kind == BlockKind::kUpdate) {
        update.push_back(wait);
        update.back().order = kEnd;
      } else if (it->block.kind == BlockKind::kForward && blocks.contains(backward)) {
        blocks[backward].insert(blocks[backward].begin(), wait);
      } else {  // what a later block reads too: plan_memory moves the wait
        update.insert(update.begin(), wait);
        if (it->block.kind == BlockKind::kPrologue) continue;
        std::vector<TextInstruction>& block = blocks[it->block];
        block.insert(first_write(block, it->buffer),
                     {TextWait{it->handle, 1}, When::kAlways, {}, -1});
      }
    }
  }

  // Of every micro-batch, in all rows that have the place.
  bool runs_before(PlaceId place, BlockRef a, BlockRef b) const {
    if (a.once() || b.once()) return a.kind == BlockKind::kPrologue || b.kind == BlockKind::kUpdate;
    for (size_t row = 0; row < plan_.rows.size(); ++row) {
      const std::vector<PlaceId>& places = plan_.rows[row];
      if (std::find(places.begin(), places.end(), place) == places.end()) continue;
      std::set<int64_t> done;  // micro-batches for which `a` has run
      for (const BlockRun& run : plan_.schedule[row]) {
        const BlockRef block = tessera::block_of(run);
        if (block == a) done.insert(run.micro_batch);
        if (block == b && !done.contains(run.micro_batch)) return false;
      }
      if (done.empty()) return false;
    }
    return true;
  }

  // The order of the first row that has the place.
  const std::vector<BlockRun>& schedule_of(PlaceId place) const {
    size_t row = 0;
    while (std::find(plan_.rows[row].begin(), plan_.rows[row].end(), place) ==
           plan_.rows[row].end()) {
      ++row;
    }
    return plan_.schedule[row];
  }

  static std::vector<TextInstruction>::iterator first_write(std::vector<TextInstruction>& block,
                                                            int buffer) {
    return std::find_if(block.begin(), block.end(), [&](const TextInstruction& instruction) {
      if (const auto* compute = std::get_if<TextCompute>(&instruction.body)) {
        return std::any_of(compute->outputs.begin(), compute->outputs.end(),
                           [&](const TextOutput& out) { return out.view.buffer == buffer; });
      }
      if (const auto* issue = std::get_if<TextIssue>(&instruction.body)) {
        return std::any_of(
            issue->transfers.begin(), issue->transfers.end(),
            [&](const TextTransfer& transfer) { return transfer.to.buffer == buffer; });
      }
      if (const auto* cross = std::get_if<TextCross>(&instruction.body))
        return !cross->sends && cross->to.buffer == buffer;
      if (const auto* copy = std::get_if<TextCopy>(&instruction.body))
        return copy->to.buffer == buffer;
      if (const auto* load = std::get_if<TextLoad>(&instruction.body))
        return load->to.buffer == buffer;
      return false;
    });
  }

  const Graph& graph_;
  const ResolvedPlan& plan_;
  std::vector<TensorId> fetch_;
  Analysis a_;
  std::vector<PlaceState> places_;
  std::vector<std::vector<int64_t>> shapes_;  // by tensor
  std::map<std::tuple<PlaceId, std::vector<int64_t>, Layout, Layout>, std::vector<ConversionStep>,
           std::less<>>
      paths_;
  std::map<std::tuple<PlaceId, PlaceId, std::vector<int64_t>, Layout, Layout>,
           std::shared_ptr<const CrossRoutes>>
      routes_;
  std::map<OpId, bool> sums_;                    // is this sum made in place
  std::map<OpId, Held> terms_;                   // its buffer
  std::set<std::pair<OpId, BlockRef>> started_;  // blocks that hold a term of it
  int next_handle_ = 0;
  int64_t next_tag_ = 0;
  int64_t next_order_ = 0;

 public:
  Analysis take_analysis() { return std::move(a_); }
};

}  // namespace

Result<std::vector<PlaceText>> write_place_texts(const WalkInput& input, Analysis& analysis) {
  Walker walker(input, std::move(analysis));
  Result<std::vector<PlaceText>> texts = walker.run();
  analysis = walker.take_analysis();
  return texts;
}

}  // namespace tessera
