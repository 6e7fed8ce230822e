#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/graph/ahead.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"
#include "tessera/program/walk.h"

namespace tessera {

std::vector<int64_t> ShapeRule::shape(TensorId tensor) const {
  const Tensor& t = graph->tensor(tensor);
  std::vector<int64_t> shape = t.shape();
  if (micro_batches > 1) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (t.dims[d].name == micro_batch_dim) shape[d] = micro_batch(shape[d]);
    }
  }
  return shape;
}

std::vector<int64_t> ShapeRule::space(const Op& op) const {
  std::vector<int64_t> sizes;
  sizes.reserve(op.annotation.dims.size());
  for (const OpDim& dim : op.annotation.dims) {
    sizes.push_back(dim.name == micro_batch_dim ? micro_batch(dim.size) : dim.size);
  }
  return sizes;
}

LoopOf loop_of(const OpPlan& plan) {
  for (size_t d = 0; d < plan.dims.size(); ++d) {
    const DimSplit& split = plan.dims[d];
    if (split.steps > 1) return {static_cast<int>(d), split, split.steps, {}};
    if (!split.rims) continue;
    std::vector<int> rims = rim_dims(plan);
    const int64_t steps = rim_steps(rims.size());
    return {static_cast<int>(d), split, steps, std::move(rims)};
  }
  return {};
}

std::optional<Band> narrowing_band(const Op& op, const OpPlan& plan) {
  std::optional<Band> band = band_of(op);
  if (!band) return std::nullopt;
  const DimSplit& keys = plan.dims[static_cast<size_t>(band->key)];
  const bool narrows = keys.axes.empty() && keys.skew.empty() &&
                       !plan.dims[static_cast<size_t>(band->query)].axes.empty();
  return narrows ? band : std::nullopt;
}

int leading_dim(const Annotation& annotation, const DimGroup& group) {
  for (int dim : group) {
    if (annotation.dims[static_cast<size_t>(dim)].size != 1) return dim;
  }
  return group.empty() ? -1 : group.front();
}

int64_t inner_size(const Annotation& annotation, const DimGroup& group) {
  if (uneven_extent(annotation.dims, group) >= 0) return 1;  // the op dim is cut as the tensor dim
  const int lead = leading_dim(annotation, group);
  int64_t inner = 1;
  bool behind = false;
  for (int dim : group) {
    if (behind) inner *= annotation.dims[static_cast<size_t>(dim)].size;
    behind = behind || dim == lead;
  }
  return inner;
}

namespace {

// Returns the axes that have more than one member, in order.
Axes real_axes(const Axes& axes, const Mesh& mesh) {
  Axes out;
  for (AxisId axis : axes) {
    if (mesh.axis(axis).size > 1) out.push_back(axis);
  }
  return out;
}

}  // namespace

Layout operand_layout(const Op& op, const OpPlan& plan, const OperandDims& operand,
                      const Mesh& mesh, const std::vector<int64_t>& shape) {
  Layout layout = Layout::whole(shape.size());
  const std::optional<Band> band = narrowing_band(op, plan);
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const int lead = leading_dim(op.annotation, operand.dims[d]);
    if (lead < 0) continue;
    const DimSplit& split = plan.dims[static_cast<size_t>(lead)];
    layout.shards[d] = split.axes;
    layout.grain[d] = inner_size(op.annotation, operand.dims[d]);
    if (const auto read = op.annotation.window_read(operand, d)) {
      layout.windows.push_back({d, *read, split.grown});
    } else if (!split.grown.empty() && operand.dims[d].size() == 1) {
      layout.windows.push_back(
          {d, split.grown.front(), {split.grown.begin() + 1, split.grown.end()}});
    }
    // With a band, the axes that cut the queries also cut the keys of an operand without the
    // queries. An operand that has the queries too is cut by these axes already.
    if (!band || lead != band->key || operand.contains(band->query)) continue;
    layout.shards[d] = plan.dims[static_cast<size_t>(band->query)].axes;
    layout.windows.push_back({d, band->read(), {}});
  }
  layout.at.assign(plan.at.begin(), plan.at.end());
  return normalise(std::move(layout), mesh, shape);
}

Layout made_layout(const Op& op, const OpPlan& plan, size_t output, const Mesh& mesh,
                   const std::vector<int64_t>& shape) {
  Layout layout = operand_layout(op, plan, op.annotation.outputs[output], mesh, shape);
  for (size_t d = 0; d < plan.dims.size(); ++d) {
    if (!op.annotation.reduces(static_cast<int>(d), output)) continue;
    for (AxisId axis : plan.dims[d].axes) layout.partial.push_back(axis);
  }
  // A tensor without dims is made on all ranks, also where the op is pinned to another coordinate
  // and sums over nothing. So its parts must be added over the pinned axes.
  for (const AxisPin& pin : shape.empty() ? plan.at : std::vector<AxisPin>())
    layout.partial.push_back(pin.axis);
  layout.combiner = op.annotation.outputs[output].combiner;
  return normalise(std::move(layout), mesh, shape);
}

namespace {

std::optional<StepPiece> rim_piece(const Op& op, const OpPlan& plan, const OperandDims& operand,
                                   const Graph& graph, const LoopOf& loop, int64_t step) {
  StepPiece piece;
  piece.steps = loop.steps;
  piece.step = step;
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const int lead = leading_dim(op.annotation, operand.dims[d]);
    if (std::find(loop.rims.begin(), loop.rims.end(), lead) == loop.rims.end()) continue;
    piece.rims.push_back(
        {d, rim_cut(op, plan, lead, graph), op.annotation.window_read(operand, d)});
  }
  if (piece.rims.empty()) return std::nullopt;
  piece.dim = piece.rims.front().dim;
  return piece;
}

}  // namespace

std::optional<StepPiece> step_piece(const Op& op, const OpPlan& plan, const OperandDims& operand,
                                    const Mesh& mesh, const Graph& graph, int64_t step) {
  const LoopOf loop = loop_of(plan);
  if (!loop.exists()) return std::nullopt;
  if (!loop.rims.empty()) return rim_piece(op, plan, operand, graph, loop, step);
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (leading_dim(op.annotation, operand.dims[d]) != loop.op_dim) continue;
    StepPiece piece;
    piece.dim = d;
    piece.prefix = real_axes(loop.split.axes, mesh).size();
    piece.steps = loop.split.steps;
    piece.step = step;
    piece.order = loop.split.order;
    for (const SkewAxis& skew : loop.split.skew) {
      if (mesh.axis(skew.axis).size > 1) piece.skew.push_back(skew);
    }
    piece.grain = inner_size(op.annotation, operand.dims[d]);
    piece.read = op.annotation.window_read(operand, d);
    return piece;
  }
  return std::nullopt;
}

std::optional<Layout> translate(const Layout& layout, const Mesh& from, const Mesh& to) {
  const auto move = [&](AxisId axis) -> std::optional<AxisId> {
    const AxisId there = to.find(from.axis(axis).name);
    if (!there.valid() || to.axis(there).size != from.axis(axis).size) return std::nullopt;
    return there;
  };
  Layout out = layout;
  for (Axes& dim : out.shards) {
    for (AxisId& axis : dim) {
      const std::optional<AxisId> there = move(axis);
      if (!there) return std::nullopt;
      axis = *there;
    }
  }
  for (AxisPin& pin : out.at) {
    const std::optional<AxisId> there = move(pin.axis);
    if (!there) return std::nullopt;
    pin.axis = *there;
  }
  std::sort(out.at.begin(), out.at.end());
  for (AxisId& axis : out.partial) {
    const std::optional<AxisId> there = move(axis);
    if (!there) return std::nullopt;
    axis = *there;
  }
  std::sort(out.partial.begin(), out.partial.end());
  return out;
}

std::optional<Layout> translate(const OfPlace<Layout>& layout, const ResolvedPlan& plan,
                                PlaceId to) {
  const PlaceId from = layout.place();
  if (from == to) return layout.at(to);
  return translate(layout.at(from), plan.places[from.index()].mesh, plan.places[to.index()].mesh);
}

void check_axes(const Layout& layout, const Mesh& mesh, const Tensor& tensor) {
  TESSERA_CHECK(layout.shards.size() == tensor.dims.size(), "{} cuts for the {} dims of '{}'",
                layout.shards.size(), tensor.dims.size(), tensor.name);
  uint64_t used = 0;  // bit i: axis i of the mesh is used
  const auto use = [&](AxisId axis, bool may_repeat) {
    TESSERA_CHECK(axis.valid() && axis.index() < mesh.axes.size(),
                  "'{}' is cut over axis {} of the mesh {}", tensor.name, axis.value,
                  mesh.to_string());
    const uint64_t bit = uint64_t{1} << (axis.index() % 64);
    TESSERA_CHECK(may_repeat || (used & bit) == 0 || axis.index() >= 64,
                  "axis '{}' cuts '{}' twice", mesh.axis(axis).name, tensor.name);
    used |= bit;
  };
  for (const Axes& dim : layout.shards) {
    for (const AxisId axis : dim) use(axis, false);
  }
  for (const AxisPin& pin : layout.at) use(pin.axis, false);
  // If parts overlap (windows), the axis over which they are parts also cuts the tensor.
  for (const AxisId axis : layout.partial) use(axis, !layout.windows.empty());
}

namespace {

bool persistent(Role role) {
  return role == Role::kParameter || role == Role::kBuffer || role == Role::kOptimizerState;
}

class Analyser {
 public:
  Analyser(const Graph& graph, const ResolvedPlan& plan)
      : graph_(graph), plan_(plan), updates_(updated_parameters(graph)) {}

  Result<Analysis> run() {
    out_.shapes = {&graph_, plan_.plan.micro_batch_dim, plan_.plan.micro_batches, false};
    out_.tensor_shapes.reserve(graph_.tensors().size());
    for (const Tensor& tensor : graph_.tensors())
      out_.tensor_shapes.push_back(out_.shapes.shape(tensor.id));
    out_.ops = plan_.ops;
    for (const Op& op : graph_.ops()) sum_replicas_in_one_order(op);
    out_.consumers = graph_.consumers();
    out_.homes.resize(graph_.tensors().size());
    first_state_.resize(graph_.tensors().size());
    TESSERA_TRY_VOID(assign_blocks());
    set_weight_parts_apart();
    for (const Tensor& tensor : graph_.tensors()) {
      const bool states = tensor.role == Role::kOptimizerState && tensor.of.valid();
      if (persistent(tensor.role) && !states && !tensor.update_of.valid()) place_at_rest(tensor);
    }
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.role == Role::kOptimizerState && tensor.of.valid() && !tensor.update_of.valid())
        place_state(tensor);
      if (graph_.is_parameter_gradient(tensor.id)) place_gradient(tensor);
    }
    for (const Op& op : graph_.ops()) follow(op);
    return std::move(out_);
  }

 private:
  // If the op sums over its time loop, removes from the loop's skew all axes that cut no dim of the
  // op. Ranks along such an axis compute the same value, and with a skew they would sum in
  // different orders. Their replicas would then differ by rounding errors, and a checkpoint, which
  // has only one replica, could not restore the others.
  void sum_replicas_in_one_order(const Op& op) {
    OpPlan& plan = out_.ops[op.id.index()];
    const LoopOf loop = loop_of(plan);
    if (!loop.exists() || loop.split.skew.empty()) return;
    bool sums = false;
    for (size_t output = 0; output < op.annotation.outputs.size(); ++output)
      sums = sums || op.annotation.reduces(loop.op_dim, output);
    if (!sums) return;
    const auto cuts_nothing = [&](const SkewAxis& skew) {
      return std::none_of(plan.dims.begin(), plan.dims.end(), [&](const DimSplit& split) {
        return std::find(split.axes.begin(), split.axes.end(), skew.axis) != split.axes.end();
      });
    };
    DimSplit& split = plan.dims[static_cast<size_t>(loop.op_dim)];
    const size_t before = split.skew.size();
    std::erase_if(split.skew, cuts_nothing);
    // Nested rings have as many steps as all their axes together have ranks. If an axis was
    // removed, the number no longer fits, so the loop is not skewed at all.
    if (split.order == StepOrder::kNested && split.skew.size() < before) split.skew.clear();
    if (split.skew.empty()) split.order = StepOrder::kAligned;
  }

  bool has_micro_batch_dim(const Op& op) const {
    return op.annotation.find(plan_.plan.micro_batch_dim) >= 0;
  }

  // Checks that a tensor dim with the name of the micro-batch dim is made of the op dim of that
  // name alone. Needed only if there are several micro-batches.
  Status check_micro_batch_dim(const Op& op) const {
    const std::string& name = plan_.plan.micro_batch_dim;
    const int dim_of_op = op.annotation.find(name);
    const auto check = [&](TensorId id, const OperandDims& operand) -> Status {
      const Tensor& tensor = graph_.tensor(id);
      for (size_t d = 0; d < operand.dims.size(); ++d) {
        const DimGroup& group = operand.dims[d];
        const bool in_group =
            dim_of_op >= 0 && std::find(group.begin(), group.end(), dim_of_op) != group.end();
        if (in_group == (tensor.dims[d].name == name) && (!in_group || group.size() == 1)) continue;
        return invalid_input(fmt::format(
            "{}: micro_batches = {}: op '{}' relates dim '{}' of tensor '{}' to something else; "
            "use micro_batches = 1",
            plan_.plan.file, plan_.plan.micro_batches, op.path, tensor.dims[d].name, tensor.name));
      }
      return {};
    };
    for (size_t i = 0; i < op.inputs.size(); ++i)
      TESSERA_TRY_VOID(check(op.inputs[i], op.annotation.inputs[i]));
    for (size_t i = 0; i < op.outputs.size(); ++i)
      TESSERA_TRY_VOID(check(op.outputs[i], op.annotation.outputs[i]));
    return {};
  }

  Status assign_blocks() {
    const bool many = plan_.plan.micro_batches > 1;
    enum class Dependence : uint8_t { kNone, kInside, kAfter };
    std::vector<Dependence> tensors(graph_.tensors().size(), Dependence::kNone);
    const std::vector<bool> behind = behind_updates(graph_);
    for (const Op& op : graph_.ops()) {
      Dependence before = Dependence::kNone;
      OpId culprit;
      for (TensorId input : op.inputs) {
        if (tensors[input.index()] > before) {
          before = tensors[input.index()];
          culprit = graph_.tensor(input).producer;
        }
      }
      const bool inside = has_micro_batch_dim(op);
      if (many) TESSERA_TRY_VOID(check_micro_batch_dim(op));
      if (behind[op.id.index()]) {
        out_.blocks.emplace_back(BlockKind::kUpdate);
      } else if (!many) {
        // With one micro-batch the phase decides. There is one exception: an op that reads only
        // tensors at rest runs in the prologue if its result is kept for the step, or if it works
        // on shards from which blocks gather what they need.
        const bool ahead = !inside && before == Dependence::kNone && reads_what_is_ahead(op) &&
                           (kept_for_the_step(op) || works_on_shards(op));
        out_.blocks.push_back(ahead ? BlockRef(BlockKind::kPrologue) : phase_block(op));
      } else if (inside) {
        if (before == Dependence::kAfter) {
          return invalid_input(fmt::format(
              "{}: micro_batches = {}: op '{}' works on one micro-batch but reads what '{}' makes "
              "of all of them; use "
              "micro_batches = 1",
              plan_.plan.file, plan_.plan.micro_batches, op.path, graph_.op(culprit).path));
        }
        out_.blocks.push_back(phase_block(op));
      } else {
        out_.blocks.emplace_back(before == Dependence::kNone ? BlockKind::kPrologue
                                                             : BlockKind::kUpdate);
      }
      out_.once_a_step.push_back(!many || !inside);
      for (TensorId output : op.outputs) {
        const Tensor& tensor = graph_.tensor(output);
        const bool per_micro_batch =
            std::any_of(tensor.dims.begin(), tensor.dims.end(),
                        [&](const Dim& dim) { return dim.name == plan_.plan.micro_batch_dim; });
        Dependence made = before;
        if (inside) made = per_micro_batch || !many ? Dependence::kInside : Dependence::kAfter;
        tensors[output.index()] = made;
      }
    }
    return {};
  }

  // Returns whether all inputs of the op are at rest or made in the prologue. This is false for a
  // constant that a forward block makes.
  bool reads_what_is_ahead(const Op& op) const {
    return std::all_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
      const OpId producer = graph_.tensor(input).producer;
      return !producer.valid() || out_.blocks[producer.index()].kind == BlockKind::kPrologue;
    });
  }

  bool kept_for_the_step(const Op& op) const {
    return std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId output) {
      return plan_.tensors[output.index()].keep == Keep::kStep;
    });
  }

  // Returns whether the op is a cast of a parameter that rests in shards on the device.
  bool works_on_shards(const Op& op) const {
    const KindInfo* kind = op.info;
    if (kind == nullptr || !kind->linear || op.inputs.size() != 1) return false;
    const TensorPlan& input = plan_.tensors[op.inputs[0].index()];
    return graph_.tensor(op.inputs[0]).role == Role::kParameter && !input.over.numbers().empty() &&
           input.tier == Tier::kDevice;
  }

  BlockRef phase_block(const Op& op) const {
    return {op.phase == Phase::kForward ? BlockKind::kForward : BlockKind::kBackward,
            plan_.ops[op.id.index()].stage.value};
  }

  // If the schedule has a weight block for a stage, moves backward ops of the stage to it: those
  // whose results are read only by the weight block itself, by updates and by sums over the step.
  void set_weight_parts_apart() {
    std::set<StageId> apart;
    for (const auto& row : plan_.schedule) {
      for (const BlockRun& run : row) {
        if (run.kind == BlockRun::kWeight) apart.insert(StageId(static_cast<int32_t>(run.stage)));
      }
    }
    if (apart.empty()) return;
    for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
      BlockRef& block = out_.blocks[op->id.index()];
      const StageId stage = plan_.ops[op->id.index()].stage;
      if (block.kind != BlockKind::kBackward || !apart.contains(stage)) continue;
      const BlockRef weight{BlockKind::kWeight, block.chunk};
      const bool waits = std::all_of(op->outputs.begin(), op->outputs.end(), [&](TensorId output) {
        const auto& readers = out_.consumers[output.index()];
        return std::all_of(readers.begin(), readers.end(), [&](OpId reader) {
          const BlockRef where = out_.blocks[reader.index()];
          return where == weight || where.kind == BlockKind::kUpdate;
        });
      });
      if (waits) block = weight;
    }
  }

  // Returns the first op that reads the tensor at this stage; null if there is none.
  const Op* first_reader(TensorId tensor, StageId stage) const {
    for (const OpId id : out_.consumers[tensor.index()]) {
      if (out_.ops[id.index()].stage == stage) return &graph_.op(id);
    }
    return nullptr;
  }

  StageId home_stage(TensorId tensor) const { return plan_.tensors[tensor.index()].home; }
  PlaceId home_place(TensorId tensor) const { return plan_.place_of(home_stage(tensor)); }

  // Cuts a layout further over the axes of a store entry (`over`). The dim that is cut is the one
  // that the entry names; else the dim that the time loop of the first reader cuts, so that the
  // loop's steps can fetch the pieces; else the first dim that the axes divide evenly; else the
  // largest dim. Optimizer states and gradients are not fetched by steps, so their looped dim is
  // taken only if the axes divide it evenly.
  OfPlace<Layout> add_over(Layout layout, const Tensor& tensor, const TensorPlan& rule) const {
    const PlaceId place = plan_.place_of(rule.home);
    const std::vector<int64_t> shape = tensor.shape();
    const Mesh& mesh = plan_.places[place.index()].mesh;
    if (shape.empty()) return {place, normalise(std::move(layout), mesh, shape)};
    const Axes over = rule.over.numbers().empty() ? Axes() : rule.over.at(place);
    for (AxisId axis : over) {
      const int64_t n = mesh.axis(axis).size;
      if (n == 1 || layout.uses(axis)) continue;
      size_t chosen = shape.size();
      for (size_t d = 0; d < shape.size(); ++d) {
        if (!rule.dim.empty() && tensor.dims[d].name == rule.dim) chosen = d;
      }
      const auto local = [&](size_t d) {
        return cut_interval(shape[d], layout.grain[d], layout.shards[d], mesh,
                            std::vector<int64_t>(mesh.axes.size(), 0))
            .size;
      };
      const auto divides = [&](size_t d) { return local(d) >= n && local(d) % n == 0; };
      if (chosen == shape.size()) {
        const Tensor& read = tensor.of.valid() ? graph_.tensor(tensor.of) : tensor;
        const Op* reader = first_reader(read.id, rule.home);
        const size_t walked = reader == nullptr ? chosen : looped_dim(*reader, read.id);
        if (walked < shape.size() && (!tensor.of.valid() || divides(walked))) chosen = walked;
      }
      for (size_t d = 0; d < shape.size() && chosen >= shape.size(); ++d) {
        if (divides(d)) chosen = d;
      }
      if (chosen >= shape.size()) {
        chosen = 0;
        for (size_t d = 1; d < shape.size(); ++d) {
          if (local(d) > local(chosen)) chosen = d;
        }
      }
      layout.shards[chosen].push_back(axis);
    }
    return {place, normalise(std::move(layout), mesh, shape)};
  }

  size_t looped_dim(const Op& reader, TensorId tensor) const {
    const size_t none = graph_.tensor(tensor).dims.size();
    const LoopOf loop = loop_of(out_.ops[reader.id.index()]);
    if (!loop.exists() || !loop.rims.empty()) return none;
    for (size_t i = 0; i < reader.inputs.size(); ++i) {
      if (reader.inputs[i] != tensor) continue;
      const OperandDims& operand = reader.annotation.inputs[i];
      for (size_t d = 0; d < operand.dims.size(); ++d) {
        if (leading_dim(reader.annotation, operand.dims[d]) == loop.op_dim) return d;
      }
    }
    return none;
  }

  // Returns the op whose operand layout a tensor at rest takes, and the tensor that this op reads.
  // The op is the first reader. But if only updates read the tensor itself, it is the first op that
  // reads the tensor's new value (ops that work ahead do so, graph/ahead.h).
  std::pair<const Op*, TensorId> first_to_read(TensorId tensor) const {
    const StageId home = home_stage(tensor);
    const Op* reader = first_reader(tensor, home);
    if (reader == nullptr || reader->phase != Phase::kUpdate) return {reader, tensor};
    for (const OpId id : out_.consumers[tensor.index()]) {
      for (const TensorId made : graph_.op(id).outputs) {
        if (graph_.tensor(made).update_of != tensor) continue;
        const Op* next = first_reader(made, home);
        if (next != nullptr && next->phase != Phase::kUpdate) return {next, made};
      }
    }
    return {reader, tensor};
  }

  void place_at_rest(const Tensor& tensor) {
    Layout layout = Layout::whole(tensor.dims.size());
    if (const auto [reader, read_as] = first_to_read(tensor.id); reader != nullptr) {
      const OpPlan& plan = out_.ops[reader->id.index()];
      const size_t operand =
          static_cast<size_t>(std::find(reader->inputs.begin(), reader->inputs.end(), read_as) -
                              reader->inputs.begin());
      const Mesh& mesh = plan_.stages[plan.stage.index()].mesh;
      const OperandDims& read = reader->annotation.inputs[operand];
      layout = without_windows(operand_layout(*reader, plan, read, mesh, tensor.shape()), mesh,
                               tensor.shape());
    }
    out_.homes[tensor.id.index()] =
        add_over(std::move(layout), tensor, plan_.tensors[tensor.id.index()]);
  }

  void place_state(const Tensor& state) {
    const Layout& of = out_.homes[state.of.index()].at(home_place(state.id));
    Layout base = of;
    const Tensor& parameter = graph_.tensor(state.of);
    if (state.dims != parameter.dims) {  // the state has only some of the parameter's dims
      base.shards.assign(state.dims.size(), {});
      base.grain.assign(state.dims.size(), 1);  // grains of the parameter's dims come with the cuts
      take_shards(of, parameter, base, state);
    }
    out_.homes[state.id.index()] =
        add_over(std::move(base), state, plan_.tensors[state.id.index()]);
    TensorId& first = first_state_[state.of.index()];
    if (!first.valid()) first = state.id;
  }

  // Cuts each dim of `target` as the dim of `source` with the same name and size is cut. An axis
  // that cuts another dim of `to` already is not used.
  static void take_shards(const Layout& from, const Tensor& source, Layout& to,
                          const Tensor& target) {
    for (size_t t = 0; t < target.dims.size(); ++t) {
      const auto dim = std::find(source.dims.begin(), source.dims.end(), target.dims[t]);
      if (dim == source.dims.end()) continue;
      const Axes own = std::exchange(to.shards[t], {});
      const Axes& axes = from.shards[static_cast<size_t>(dim - source.dims.begin())];
      const bool free =
          std::none_of(axes.begin(), axes.end(), [&](AxisId axis) { return to.shards_over(axis); });
      to.shards[t] = free ? axes : own;
      if (free) to.grain[t] = from.grain[static_cast<size_t>(dim - source.dims.begin())];
    }
  }

  void place_gradient(const Tensor& gradient) {
    // The gradient of a narrow copy of a parameter rests as the parameter's own gradient does.
    Tensor as_parameters = gradient;
    as_parameters.of = graph_.parameter_of(gradient.of);
    out_.homes[gradient.id.index()] =
        add_over(out_.homes[as_parameters.of.index()].at(home_place(gradient.id)), as_parameters,
                 plan_.tensors[gradient.id.index()]);
  }

  // Splits the op as its operand at rest is cut. If the operand rests at another place, axes are
  // matched by name; the op is not changed if its mesh lacks one of these axes.
  void adopt(const Op& op, const OperandDims& operand, const OfPlace<Layout>& rests) {
    OpPlan& plan = out_.ops[op.id.index()];
    const std::optional<Layout> layout = translate(rests, plan_, plan_.place_of(plan.stage));
    if (!layout) return;
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      const int lead = leading_dim(op.annotation, operand.dims[d]);
      if (lead >= 0) plan.dims[static_cast<size_t>(lead)].axes = layout->shards[d];
    }
    pin_as(op, *layout);
  }

  // Pins the op as the layout is pinned, except an op without dims, which is computed on all ranks.
  void pin_as(const Op& op, const Layout& layout) {
    if (!op.annotation.dims.empty()) out_.ops[op.id.index()].at = layout.at;
  }

  // Makes an op that no entry of the plan names follow a tensor at rest, which means that the op is
  // split as the tensor is cut:
  //   update ops, norms of a gradient  the first optimizer state of the parameter, else the
  //                                    parameter itself; or the buffer that the op changes
  //   sums and casts that make a       the gradient's home if the plan gives one; else as update
  //   parameter's gradient             ops
  //   ops that read only a parameter   the parameter
  void follow(const Op& op) {
    const KindInfo* kind = op.info;
    const OpPlan& plan = out_.ops[op.id.index()];
    if (op.inputs.empty()) return;
    const Tensor& first = graph_.tensor(op.inputs[0]);
    if (op.phase == Phase::kUpdate) {
      if (plan.named()) return;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const Tensor& input = graph_.tensor(op.inputs[i]);
        if (is_state_of_parameter(input))
          return adopt(op, op.annotation.inputs[i], out_.homes[input.id.index()]);
      }
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (is_new_value_of(op, op.inputs[i]))
          return adopt(op, op.annotation.inputs[i], out_.homes[op.inputs[i].index()]);
      }
      const TensorId parameter = updates_[op.id.index()];
      if (parameter.valid()) return adopt_update(op, parameter);
      const bool others_are_scalars =
          std::all_of(op.inputs.begin() + 1, op.inputs.end(),
                      [&](TensorId input) { return graph_.tensor(input).dims.empty(); });
      if (first.role == Role::kGradient && first.of.valid() && others_are_scalars) {
        adopt(op, op.annotation.inputs[0], update_layout(first.of));
      }
      return;
    }
    if (kind == nullptr || !kind->linear || op.outputs.size() != 1) return;
    const Tensor& made = graph_.tensor(op.outputs[0]);
    const bool makes_gradient = made.role == Role::kGradient && made.of.valid() &&
                                graph_.tensor(made.of).role == Role::kParameter;
    if (makes_gradient && loop_of(plan).op_dim < 0 &&
        op.annotation.find(plan_.plan.micro_batch_dim) < 0) {
      const bool rests = plan_.tensors[made.id.index()].over_entry >= 0;
      adopt(op, op.annotation.outputs[0],
            rests ? out_.homes[made.id.index()] : update_layout(made.of));
    } else if (op.inputs.size() == 1 && first.role == Role::kParameter &&
               plan.stage == home_stage(first.id) && loop_of(plan).op_dim < 0) {
      adopt(op, op.annotation.inputs[0], out_.homes[first.id.index()]);
    }
  }

  // Returns whether the op makes the new value of that buffer.
  bool is_new_value_of(const Op& op, TensorId buffer) const {
    return graph_.tensor(buffer).role == Role::kBuffer &&
           std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId output) { return graph_.tensor(output).update_of == buffer; });
  }

  bool is_state_of_parameter(const Tensor& tensor) const {
    return tensor.role == Role::kOptimizerState && tensor.of.valid() && !tensor.update_of.valid() &&
           graph_.tensor(tensor.of).role == Role::kParameter;
  }

  // Returns the layout in which a parameter is updated. This is the layout of its first optimizer
  // state, or the parameter's own if it has no state.
  OfPlace<Layout> update_layout(TensorId parameter) const {
    const OfPlace<Layout>& home = out_.homes[parameter.index()];
    const TensorId state = first_state_[parameter.index()];
    if (!state.valid()) return home;
    const Tensor& of = graph_.tensor(state);
    if (of.dims == graph_.tensor(parameter).dims) return out_.homes[state.index()];
    const PlaceId place = home.place();
    Layout layout = home.at(place);
    take_shards(out_.homes[state.index()].at(place), of, layout, graph_.tensor(parameter));
    return {place, std::move(layout)};
  }

  // Splits op dims by the layout in which the parameter is updated (update_layout): an op dim with
  // the same name as a parameter's dim is split over the axes that cut this dim. The op dim must be
  // the first in its bracket in every operand.
  void adopt_update(const Op& op, TensorId parameter) {
    const std::vector<Dim>& dims = graph_.tensor(parameter).dims;
    OpPlan& plan = out_.ops[op.id.index()];
    const auto layout = translate(update_layout(parameter), plan_, plan_.place_of(plan.stage));
    if (!layout) return;
    pin_as(op, *layout);
    for (size_t d = 0; d < dims.size(); ++d) {
      const int dim = op.annotation.find(dims[d].name);
      if (dim < 0 || layout->shards[d].empty()) continue;
      const auto leads = [&](const OperandDims& operand) {
        return std::none_of(operand.dims.begin(), operand.dims.end(), [&](const DimGroup& group) {
          return std::find(group.begin(), group.end(), dim) != group.end() &&
                 leading_dim(op.annotation, group) != dim;
        });
      };
      const bool first =
          std::all_of(op.annotation.inputs.begin(), op.annotation.inputs.end(), leads) &&
          std::all_of(op.annotation.outputs.begin(), op.annotation.outputs.end(), leads);
      if (first) plan.dims[static_cast<size_t>(dim)].axes = layout->shards[d];
    }
  }

  const Graph& graph_;
  const ResolvedPlan& plan_;
  const std::vector<TensorId> updates_;  // by op: the parameter that it updates
  std::vector<TensorId> first_state_;    // by parameter
  Analysis out_;
};

}  // namespace

bool Analysis::sums_micro_batches(const Graph& graph, TensorId tensor) const {
  const Tensor& t = graph.tensor(tensor);
  if (shapes.micro_batches == 1 || !t.producer.valid() || once_a_step[t.producer.index()])
    return false;
  return std::none_of(t.dims.begin(), t.dims.end(),
                      [&](const Dim& dim) { return dim.name == shapes.micro_batch_dim; });
}

Result<Analysis> analyse(const Graph& graph, const ResolvedPlan& plan) {
  return Analyser(graph, plan).run();
}

}  // namespace tessera
