// Makes backward and update ops, in reverse mode: walks the forward ops from the loss back to the
// inputs. The rule of each op's kind turns the gradients of the op's outputs into contributions to
// the gradients of its inputs. The contributions to a tensor are added up when the walk reaches the
// tensor's producer (for a parameter: when it has passed the parameter's first consumer).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/carried.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/optimizers.h"
#include "tessera/graph/pieces.h"
#include "tessera/graph/repeat.h"

namespace tessera {
namespace {

struct Contribution {
  TensorId gradient;
  std::string from;  // path of the forward op whose rule made the contribution
  // True: made by that rule, so we name it. False: the gradient of another tensor, passed on.
  bool fresh = false;
};

class Differentiator {
 public:
  // `by_rows` says for each tensor whether it is a table whose gradient is kept as what each
  // look-up adds to the table's rows.
  Differentiator(const Graph& forward, const OptimizerSpec& spec, std::vector<bool> by_rows)
      : builder_(forward),
        precision_(spec.precision),
        micro_batch_dim_(spec.micro_batch_dim),
        by_rows_(std::move(by_rows)),
        forward_ops_(forward.ops().size()),
        forward_tensors_(forward.tensors().size()) {}

  Status run() {
    TESSERA_TRY_VOID(check_loss());
    find_wanted();
    contributions_.resize(forward_tensors_);
    gradients_.resize(forward_tensors_);
    TESSERA_TRY_VOID(check_parameters());
    builder_.set_phase(Phase::kBackward);
    builder_.set_role(Role::kGradient);
    add_seed();
    row_gradients_.resize(forward_tensors_);
    for (size_t i = forward_ops_; i-- > 0;) TESSERA_TRY_VOID(differentiate_op(OpId(i)));
    for (std::vector<RowGradient>& rows : row_gradients_) std::reverse(rows.begin(), rows.end());
    return {};
  }

  GraphBuilder& builder() { return builder_; }
  ParameterGradient gradient(TensorId tensor) const {
    return {gradients_[tensor.index()], row_gradients_[tensor.index()]};
  }
  // Sets the gradient that an optimizer reads in place of the computed one: the unscaled gradient.
  void set_gradient(TensorId tensor, ParameterGradient gradient) {
    gradients_[tensor.index()] = gradient.whole;
    row_gradients_[tensor.index()] = std::move(gradient.rows);
  }
  TensorId scale() const { return scale_; }
  // Returns the dtype of the scalars of an update: float64 in a float64 model, else float32.
  DType scale_dtype() {
    for (const Tensor& tensor : builder_.graph().tensors()) {
      if (tensor.role == Role::kParameter && tensor.trained && tensor.dtype == DType::kFloat64)
        return DType::kFloat64;
    }
    return DType::kFloat32;
  }

 private:
  Graph& graph() { return builder_.graph(); }

  Status check_loss() {
    const TensorId loss = graph().loss;
    if (!loss.valid()) return invalid_input("expected a graph with a loss, found none");
    const Tensor& tensor = graph().tensor(loss);
    if (!tensor.dims.empty() || !is_floating(tensor.dtype) || !tensor.producer.valid()) {
      return invalid_input(fmt::format(
          "expected a loss that is a floating scalar made by an op, found {}", describe(tensor)));
    }
    return {};
  }

  // Finds the tensors that need a gradient: those that depend on a trained parameter and on which
  // the loss depends.
  void find_wanted() {
    std::vector<bool> trained(forward_tensors_, false);
    std::vector<bool> used(forward_tensors_, false);
    first_use_.resize(forward_tensors_);
    for (const Tensor& tensor : graph().tensors())
      trained[tensor.id.index()] = tensor.role == Role::kParameter && tensor.trained;
    auto any = [](const std::vector<bool>& flags, const std::vector<TensorId>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](TensorId id) { return flags[id.index()]; });
    };
    const auto stops = [](const Op& op) { return info_of(op).stops_gradient; };
    for (const Op& op : graph().ops()) {
      if (stops(op) || !any(trained, op.inputs)) continue;
      for (const TensorId output : op.outputs)
        trained[output.index()] = is_floating(graph().tensor(output).dtype);
    }
    used[graph().loss.index()] = true;
    for (size_t i = forward_ops_; i-- > 0;) {
      const Op& op = graph().op(OpId(i));
      if (stops(op) || !any(used, op.outputs)) continue;
      for (const TensorId input : op.inputs) {
        used[input.index()] = true;
        first_use_[input.index()] = op.id;
      }
    }
    wanted_.resize(forward_tensors_);
    for (size_t i = 0; i < forward_tensors_; ++i) wanted_[i] = trained[i] && used[i];
  }

  Status check_parameters() {
    const Graph& g = graph();
    for (const Tensor& tensor : g.tensors()) {
      if (tensor.role == Role::kParameter && tensor.trained && !wanted_[tensor.id.index()]) {
        return invalid_input(fmt::format("parameter '{}' does not influence the loss '{}'",
                                         tensor.name, g.tensor(g.loss).name));
      }
    }
    return {};
  }

  void add_seed() {
    const Tensor loss = graph().tensor(graph().loss);
    builder_.set_mirror(loss.producer);
    const std::string dtype(dtype_name(loss.dtype));
    if (precision_.loss_scale && precision_.loss_scale->dynamic) {
      scale_ = builder_.scalar_state("optimizer.loss_scale", scale_dtype(),
                                     {Init::Kind::kConstant, precision_.loss_scale->initial});
      const TensorId scaled =
          builder_.op1(loss.name + ".grad", "cast", {scale_}, {{"dtype", dtype}});
      contributions_[loss.id.index()].push_back({scaled, "", true});
      return;
    }
    const double value = precision_.loss_scale ? precision_.loss_scale->initial : 1.0;
    const TensorId seed = builder_.op1(loss.name + ".grad", "fill", {},
                                       {{"value", value}, {"dims", ""}, {"dtype", dtype}});
    contributions_[loss.id.index()].push_back({seed, "", true});
  }

  Status differentiate_op(OpId id) {
    const Op op = graph().op(id);  // a copy: rules add ops
    OutputGradients dy;
    dy.reserve(op.outputs.size());
    for (const TensorId output : op.outputs) dy.push_back(settle(output));
    std::vector<bool> wanted;
    wanted.reserve(op.inputs.size());
    for (const TensorId input : op.inputs) wanted.push_back(wanted_[input.index()]);
    const bool reached = std::any_of(dy.begin(), dy.end(), [](TensorId d) { return d.valid(); });
    if (reached) keep_rows(op, dy[0], wanted);
    const bool needed = std::find(wanted.begin(), wanted.end(), true) != wanted.end();
    if (reached && needed) {
      const KindInfo& info = info_of(op);
      if (!info.differentiate) {
        return invalid_input(
            fmt::format("op '{}' ({}) lies between a parameter and the loss, but has no derivative",
                        op.path, op.kind));
      }
      builder_.set_mirror(op.id);
      const size_t made_before = graph().tensors().size();
      InputGradients contributions = differentiate_by_rule(info, op, dy, wanted);
      if (!builder_.ok()) return builder_.finish().map([](const Graph&) {});
      TESSERA_CHECK(contributions.size() == op.inputs.size(), "rule of '{}'", op.kind);
      set_gradient_dtype(op, contributions, wanted, made_before);
      for (size_t i = 0; i < contributions.size(); ++i) {
        if (!wanted[i] || !contributions[i].valid()) continue;
        const bool fresh = contributions[i].index() >= made_before;
        contributions_[op.inputs[i].index()].push_back({contributions[i], op.path, fresh});
      }
    }
    for (const TensorId input : op.inputs) {
      if (!graph().tensor(input).producer.valid() && first_use_[input.index()] == op.id)
        settle(input);
    }
    return {};
  }

  // Returns the tensor, collected from all micro-batches if it is cut into micro-batches.
  TensorId collected(const std::string& path, TensorId id) {
    const std::vector<Dim>& dims = graph().tensor(id).dims;
    const bool comes_in_parts = std::any_of(
        dims.begin(), dims.end(), [&](const Dim& dim) { return dim.name == micro_batch_dim_; });
    if (!comes_in_parts) return id;
    return builder_.op1(path, "collect", {id}, {{"dim", micro_batch_dim_}});
  }

  // Keeps, for each table that is updated by rows and that the look-up `op` reads, what `op` adds
  // to the table's gradient. No other op reads such a table (is_only_looked_up).
  void keep_rows(const Op& op, TensorId dy, std::vector<bool>& wanted) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!wanted[i] || !by_rows_[op.inputs[i].index()]) continue;
      const bool mean = op.attributes.contains("mode") && op.text("mode") == "mean";
      builder_.set_mirror(op.id);
      RowGradient one;
      one.ids = collected(op.path + ".ids", op.inputs[0]);
      one.dy = collected(op.path + ".dy", dy);
      if (op.inputs.size() > 2) one.weights = collected(op.path + ".weights", op.inputs[2]);
      one.mean = mean;
      row_gradients_[table_of(graph(), op.inputs[i]).index()].push_back(one);
      wanted[i] = false;
    }
  }

  bool is_parameter(TensorId id) { return graph().tensor(id).role == Role::kParameter; }

  // Returns whether the tensor is a parameter or a copy of one in another dtype. The gradients of
  // these tensors get the dtype that the precision asks for.
  bool holds_parameter(TensorId id) {
    const OpId producer = graph().tensor(id).producer;
    return is_parameter(id) || (producer.valid() && info_of(graph().op(producer)).converts &&
                                is_parameter(graph().op(producer).inputs[0]));
  }

  // Applies the kind's rule. If the op converts a parameter, the gradient of the result has the
  // dtype of parameter gradients already, and is passed on unchanged.
  InputGradients differentiate_by_rule(const KindInfo& info, const Op& op,
                                       const OutputGradients& dy, const std::vector<bool>& wanted) {
    if (precision_.gradient && info.converts && is_parameter(op.inputs[0])) return {dy[0]};
    return info.differentiate(builder_, op, dy, wanted);
  }

  // Gives contributions to parameters the dtype that the precision asks for. If an op makes the
  // contribution by a sum over the batch, the op gets that dtype, so that sums over micro-batches
  // and ranks are taken in it too. Otherwise the contribution is cast.
  void set_gradient_dtype(const Op& op, InputGradients& contributions,
                          const std::vector<bool>& wanted, size_t made_before) {
    if (!precision_.gradient) return;
    const DType dtype = *precision_.gradient;
    std::vector<TensorId> due;
    for (size_t i = 0; i < contributions.size(); ++i) {
      if (wanted[i] && contributions[i].valid() && holds_parameter(op.inputs[i]))
        due.push_back(contributions[i]);
    }
    for (size_t i = 0; i < contributions.size(); ++i) {
      TensorId& one = contributions[i];
      if (!wanted[i] || !one.valid() || !holds_parameter(op.inputs[i])) continue;
      if (graph().tensor(one).dtype == dtype) continue;
      const bool fresh = one.index() >= made_before;
      if (fresh && widen_sum(graph(), one, dtype, due)) continue;
      one = builder_.op1(fmt::format("{}.d{}.cast", op.path, i), "cast", {one},
                         {{"dtype", std::string(dtype_name(dtype))}});
    }
  }

  // Returns the gradient of a forward tensor, invalid if it has no contributions.
  TensorId settle(TensorId id) {
    TensorId& gradient = gradients_[id.index()];
    std::vector<Contribution>& parts = contributions_[id.index()];
    if (gradient.valid() || parts.empty()) return gradient;
    const Tensor target = graph().tensor(id);
    builder_.set_mirror(target.producer);
    const std::string path = target.name + ".grad";
    if (parts.size() > 1) {
      name_contributions(target.name, parts);
      std::vector<TensorId> inputs;
      inputs.reserve(parts.size());
      for (const Contribution& part : parts) inputs.push_back(part.gradient);
      gradient = builder_.op1(path, "add_n", inputs);
    } else if (parts[0].fresh) {
      gradient = parts[0].gradient;
    } else if (target.role == Role::kParameter) {
      // The gradient of a parameter is a tensor of its own.
      gradient = builder_.op1(path, "scale", {parts[0].gradient}, {{"factor", 1.0}});
    } else {
      return gradient = parts[0].gradient;  // of another tensor, which `of` names
    }
    if (gradient.valid()) {
      graph().tensor(gradient).name = "grad." + target.name;
      graph().tensor(gradient).of = id;
    }
    return gradient;
  }

  void name_contributions(const std::string& target, const std::vector<Contribution>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].fresh) continue;
      const auto same =
          std::count_if(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Contribution& part) { return part.from == parts[i].from; });
      std::string name = fmt::format("grad.{}.from.{}", target, parts[i].from);
      if (same > 0) name += fmt::format(".{}", same);
      graph().tensor(parts[i].gradient).name = std::move(name);
    }
  }

  GraphBuilder builder_;
  const Precision& precision_;
  const std::string& micro_batch_dim_;
  const std::vector<bool> by_rows_;
  TensorId scale_;  // the scale of the loss; invalid if it is not dynamic
  size_t forward_ops_;
  size_t forward_tensors_;
  std::vector<bool> wanted_;
  std::vector<OpId> first_use_;  // for each tensor: its first consumer on a path to the loss
  std::vector<std::vector<Contribution>> contributions_;
  std::vector<TensorId> gradients_;
  std::vector<std::vector<RowGradient>> row_gradients_;
};

// Returns the last group that contains the parameter, or null if no group does.
const OptimizerGroup* own_group_of(const OptimizerSpec& spec, const std::string& name) {
  for (auto group = spec.groups.rbegin(); group != spec.groups.rend(); ++group) {
    if (takes(group->parameters, name)) return &*group;
  }
  return nullptr;
}

// Returns the first parameter that the group contains, or null. Sets `last` to a parameter that the
// group does not contain, if one was seen.
const Tensor* first_taken(const OptimizerGroup& group, const Graph& forward, const Tensor*& last) {
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    if (takes(group.parameters, tensor.name)) return &tensor;
    last = &tensor;
  }
  return nullptr;
}

Status check_group(const OptimizerGroup& group, const Graph& forward) {
  const bool known = group.kind.empty() || group.kind == kNoOptimizer;
  if (!known && find_optimizer(group.kind) == nullptr) {
    return invalid_input(fmt::format("group '{}': expected an optimizer ({}) or {}, found '{}'",
                                     group.parameters, join(optimizer_names(), ", "), kNoOptimizer,
                                     group.kind));
  }
  const Tensor* parameter = nullptr;  // a parameter that the error names as an example
  if (first_taken(group, forward, parameter) != nullptr) return {};
  return invalid_input(fmt::format(
      "optimizer.group: expected a pattern of the model's parameters{}, found '{}', which none has",
      parameter == nullptr ? "" : fmt::format(" (as '{}')", parameter->name), group.parameters));
}

// Returns the parameter's block: the name up to its first number ("transformer.h.3" for
// "transformer.h.3.mlp.weight"). Returns "" if the name has no number.
std::string numbered_block(const std::string& parameter) {
  const std::vector<std::string> parts = split_text(parameter, '.');
  std::string block = parts[0];
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    block += "." + parts[i];
    if (parse_int(parts[i])) return block;
  }
  return "";
}

// Groups parameters for sums over all parameters (squares for clipping, flags of overflow). The
// sums are taken from block to block, so that each pipeline stage adds its own terms. A parameter's
// group is the block in its name; in a model without such names the repeated block (repeat.h) that
// reads it; else the first component of its name.
class SumGroups {
 public:
  SumGroups(const Graph& graph, const std::vector<TensorId>& parameters) {
    for (const TensorId id : parameters) {
      const std::string& name = graph.tensor(id).name;
      if (std::string block = numbered_block(name); !block.empty()) groups_[name] = block;
    }
    if (groups_.empty()) find_blocks(graph);
  }

  std::string of(const std::string& parameter) const {
    const auto found = groups_.find(parameter);
    return found != groups_.end() ? found->second : parameter.substr(0, parameter.find('.'));
  }

 private:
  void find_blocks(const Graph& graph) {
    const std::vector<std::vector<OpId>> blocks = repeated_blocks(graph);
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (const OpId op : blocks[i]) {
        for (const TensorId input : graph.op(op).inputs) {
          const TensorId parameter = graph.parameter_of(input);
          if (parameter.valid())
            groups_.emplace(graph.tensor(parameter).name, fmt::format("block.{}", i));
        }
      }
    }
  }

  std::map<std::string, std::string> groups_;  // by parameter: its group
};

class Updater {
 public:
  Updater(Differentiator& differentiator, const OptimizerSpec& spec)
      : differentiator_(differentiator),
        builder_(differentiator.builder()),
        spec_(spec),
        origins_(builder_.graph()) {
    for (const Tensor& tensor : builder_.graph().tensors()) {
      if (tensor.role == Role::kParameter && tensor.trained) parameters_.push_back(tensor.id);
    }
    sum_groups_.emplace(builder_.graph(), parameters_);
  }

  Status run() {
    builder_.set_phase(Phase::kUpdate);
    builder_.set_mirror({});
    builder_.set_role(Role::kGradient);
    UpdateScalars scalars;
    if (spec_.precision.loss_scale) {
      scalars.skip = find_overflow();
      unscale();
    }
    if (spec_.clip_norm > 0) {
      scalars.coefficient = clip();
    } else if (scalars.skip.valid()) {
      scalars.coefficient =
          builder_.op1("clip.coefficient", "fill", {},
                       {{"value", 1.0},
                        {"dims", ""},
                        {"dtype", std::string(dtype_name(differentiator_.scale_dtype()))}});
    }
    TESSERA_TRY(scalars.lr, scalar_input("lr", Init::Kind::kLearningRate));
    TESSERA_TRY(scalars.step, scalar_input("step", Init::Kind::kStep));
    std::vector<TensorId> state;
    if (differentiator_.scale().valid()) {
      state = scale_state();
      // Skipped steps are not counted as steps of the optimizer.
      scalars.step = builder_.op1("optimizer.step", "sub", {scalars.step, state[3]});
    }
    for (const TensorId parameter : parameters_) update(parameter, scalars);
    if (!state.empty()) update_scale(state, scalars.skip);
    return {};
  }

 private:
  DType scalar_dtype() { return differentiator_.scale_dtype(); }

  static void name_updated(Tensor& output, const Tensor& target) {
    output.name = "updated." + target.name;
    output.role = target.role;
    output.update_of = target.id;
    output.of = target.of;
  }

  // ---- the loss scale
  // Returns the scale, steps without overflow, overflows since the scale grew, and skipped steps.
  // The last three are states of the scale, so that they are stored where it is.
  std::vector<TensorId> scale_state() {
    std::vector<TensorId> state{differentiator_.scale()};
    for (const char* name : {"clean", "overflows", "skipped"}) {
      const TensorId id = builder_.scalar_state(fmt::format("optimizer.loss_scale.{}", name),
                                                scalar_dtype(), {Init::Kind::kZeros, 0});
      builder_.graph().tensor(id).of = state[0];
      state.push_back(id);
    }
    return state;
  }

  void update_scale(const std::vector<TensorId>& state, TensorId flag) {
    if (!builder_.ok()) return;
    const LossScale& scale = *spec_.precision.loss_scale;
    std::vector<TensorId> inputs = state;
    inputs.push_back(flag);
    const std::vector<TensorId> outputs = builder_.op("optimizer.loss_scale", "loss_scale", inputs,
                                                      {{"growth", scale.growth},
                                                       {"interval", scale.interval},
                                                       {"backoff", scale.backoff},
                                                       {"hysteresis", scale.hysteresis},
                                                       {"min", scale.min},
                                                       {"max", scale.max}});
    if (!builder_.ok()) return;
    for (size_t i = 0; i < outputs.size(); ++i)
      name_updated(builder_.graph().tensor(outputs[i]), builder_.tensor(state[i]));
  }

  // Makes a flag that is 1 if the gradient of any parameter has an element that is not finite, on
  // any rank. It is the maximum of the flags of all parameters.
  TensorId find_overflow() {
    std::vector<std::pair<std::string, std::vector<TensorId>>> groups;
    for (const TensorId parameter : parameters_) {
      const std::string name = builder_.tensor(parameter).name;
      const TensorId looked_at = is_by_rows(parameter) ? row_squares(parameter)
                                                       : differentiator_.gradient(parameter).whole;
      const TensorId flag =
          builder_.op1(fmt::format("overflow.{}.non_finite", name), "non_finite", {looked_at});
      group_of(groups, name).push_back(flag);
    }
    return merge("overflow", "total", "max_n", groups);
  }

  void unscale() {
    for (const TensorId parameter : parameters_) {
      if (is_by_rows(parameter)) continue;  // its update is unscaled by row_coefficient
      if (!builder_.ok()) return;
      const Tensor target = builder_.tensor(parameter);
      const DType dtype = target.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
      const TensorId unscaled =
          unscaled_of("unscaled." + target.name, differentiator_.gradient(parameter).whole, dtype);
      if (!unscaled.valid()) return;
      builder_.graph().tensor(unscaled).of = parameter;
      differentiator_.set_gradient(parameter, {unscaled});
    }
  }

  TensorId unscaled_of(const std::string& path, TensorId tensor, DType dtype) {
    const LossScale& scale = *spec_.precision.loss_scale;
    std::vector<TensorId> inputs{tensor};
    if (scale.dynamic) inputs.push_back(differentiator_.scale());
    return builder_.op1(path, "unscale", inputs,
                        {{"dtype", std::string(dtype_name(dtype))},
                         {"factor", scale.dynamic ? 1.0 : 1.0 / scale.initial}});
  }

  // ---- tables updated by rows: the gradients of look-ups keep the factor of the loss scale
  bool is_by_rows(TensorId parameter) const {
    return !differentiator_.gradient(parameter).rows.empty();
  }

  // Returns the sum of squares of the gradient of a table that is updated by rows. The gradient of
  // a row is the sum of what all look-ups add to the row.
  TensorId row_squares(TensorId parameter) {
    TensorId& squares = row_squares_[parameter];
    if (squares.valid()) return squares;
    std::vector<TensorId> inputs{parameter};
    const Attributes attributes = update_of(parameter, {}).add_rows(inputs);
    squares = builder_.op1(fmt::format("clip.{}.row_sum_squares", builder_.tensor(parameter).name),
                           "row_sum_squares", inputs, attributes);
    return squares;
  }

  // Returns the factor of gradients by rows: the coefficient, divided by any loss scale.
  TensorId row_coefficient(TensorId coefficient) {
    if (!spec_.precision.loss_scale) return coefficient;
    if (!row_coefficient_.valid())
      row_coefficient_ = unscaled_of("clip.row_coefficient", coefficient, scalar_dtype());
    return row_coefficient_;
  }

  // ---- sums over parameters, by group
  using Groups = std::vector<std::pair<std::string, std::vector<TensorId>>>;

  std::vector<TensorId>& group_of(Groups& groups, const std::string& parameter) const {
    const std::string group = sum_groups_->of(parameter);
    const auto it =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == group; });
    if (it != groups.end()) return it->second;
    return groups.emplace_back(group, std::vector<TensorId>{}).second;
  }

  // Merges the terms of all groups, from the last group to the first. Each group adds its terms to
  // the result of the later groups. So each pipeline stage sends one term to the stage before it,
  // and the last stage, whose gradients are complete first, begins.
  TensorId merge(const std::string& scope, const std::string& whole, const std::string& kind,
                 const Groups& groups) {
    TensorId so_far;
    for (size_t g = groups.size(); g-- > 0;) {
      const auto& [group, members] = groups[g];
      std::vector<TensorId> terms = members;
      if (so_far.valid()) terms.push_back(so_far);
      const std::string path = fmt::format("{}.{}", scope, g == 0 ? whole : group);
      so_far = terms.size() == 1 ? terms[0] : builder_.op1(path, kind, terms);
    }
    return so_far;
  }

  // Returns a scalar input that the trainer sets in each step. Adds it if it is missing.
  Result<TensorId> scalar_input(const std::string& name, Init::Kind what) {
    TensorId existing = builder_.graph().find_tensor(name);
    if (!existing.valid()) existing = builder_.input(name, {}, scalar_dtype());
    const Tensor& tensor = builder_.tensor(existing);
    if (tensor.role != Role::kInput || !tensor.dims.empty() || tensor.dtype != scalar_dtype()) {
      return invalid_input(
          fmt::format("expected '{}' to be a scalar input of dtype {}, found {} {}", name,
                      dtype_name(scalar_dtype()), role_name(tensor.role), describe(tensor)));
    }
    builder_.graph().tensor(existing).init.kind = what;
    return existing;
  }

  TensorId clip() {
    Groups groups;
    for (const TensorId parameter : parameters_) {
      const std::string name = builder_.tensor(parameter).name;
      group_of(groups, name).push_back(squares_of(parameter));
    }
    return builder_.op1("clip.coefficient", "clip_coefficient",
                        {merge("clip", "total", "add_n", groups)}, {{"max_norm", spec_.clip_norm}});
  }

  TensorId squares_of(TensorId parameter) {
    const std::string name = builder_.tensor(parameter).name;
    if (!is_by_rows(parameter)) {
      return builder_.op1(fmt::format("clip.{}.sum_squares", name), "sum_squares",
                          {differentiator_.gradient(parameter).whole});
    }
    TensorId squares = row_squares(parameter);
    for (int i = 0; i < 2 && spec_.precision.loss_scale; ++i)
      squares = unscaled_of(fmt::format("clip.{}.unscaled.{}", name, i), squares, scalar_dtype());
    return squares;
  }

  // Returns the learning rate times a group's factor, which is made once for each factor.
  TensorId rate_of(TensorId lr, double factor) {
    if (factor == 1) return lr;
    const auto [it, fresh] = rates_.try_emplace(factor);
    if (fresh) {
      it->second = builder_.op1(fmt::format("optimizer.lr.{}", rates_.size()), "scale", {lr},
                                {{"factor", factor}});
    }
    return it->second;
  }

  void update(TensorId parameter, UpdateScalars scalars) {
    if (!builder_.ok()) return;
    OptimizerSpec spec = spec_;
    if (const OptimizerGroup* group = own_group_of(spec_, builder_.tensor(parameter).name)) {
      spec.weight_decay = group->weight_decay.value_or(spec.weight_decay);
      if (!group->kind.empty()) spec.kind = group->kind;
      if (!group->rounding.empty()) spec.rounding = group->rounding;
      scalars.lr = rate_of(scalars.lr, group->rate);
    }
    const Optimizer& optimizer = *find_optimizer(spec.kind);
    const bool by_rows = is_by_rows(parameter);
    if (by_rows && scalars.coefficient.valid())
      scalars.coefficient = row_coefficient(scalars.coefficient);
    ParameterUpdate one(builder_, spec, parameter, differentiator_.gradient(parameter), scalars);
    const size_t first = builder_.graph().ops().size();
    by_rows ? one.by_rows(optimizer.rows) : optimizer.update(one);
    check_pieces(parameter, spec.kind, first);
  }

  // Checks that the update of a piece of a table reads only that piece: none of the ops from
  // `first` on sums over rows or needs all rows.
  void check_pieces(TensorId parameter, const std::string& optimizer, size_t first) {
    const Graph& graph = builder_.graph();
    const Tensor& piece = graph.tensor(parameter);
    if (!builder_.ok() || !origins_.of(parameter).piece) return;
    for (size_t i = first; i < graph.ops().size(); ++i) {
      const Annotation& annotation = graph.ops()[i].annotation;
      const int rows = annotation.find(piece.dims[0].name);
      if (rows < 0) continue;
      bool apart = annotation.dims[static_cast<size_t>(rows)].mark != Mark::kFrozen;
      for (size_t o = 0; o < annotation.outputs.size(); ++o)
        apart = apart && !annotation.reduces(rows, o);
      if (apart) continue;
      builder_.fail(
          fmt::format("optimizer '{}' reads all rows of table '{}' at once, which a loop over its "
                      "rows keeps in pieces: leave it out of the loop, or name another optimizer "
                      "for the table",
                      optimizer, name_of_whole(piece.name)));
      return;
    }
  }

  ParameterUpdate update_of(TensorId parameter, const UpdateScalars& scalars) {
    return {builder_, spec_, parameter, differentiator_.gradient(parameter), scalars};
  }

  Differentiator& differentiator_;
  GraphBuilder& builder_;
  const OptimizerSpec& spec_;
  Origins origins_;
  std::vector<TensorId> parameters_;
  std::optional<SumGroups> sum_groups_;
  std::map<double, TensorId> rates_;
  std::map<TensorId, TensorId> row_squares_;  // by parameter
  TensorId row_coefficient_;
};

// Returns for each tensor whether it is a table that is updated by rows, or a copy of such a table
// in another dtype. Returns an error if a plan has changed how a table is read.
Result<std::vector<bool>> updated_by_rows(const Graph& forward, const OptimizerSpec& spec) {
  std::vector<bool> out(forward.tensors().size(), false);
  const std::vector<std::string> tables =
      spec.by_rows ? *spec.by_rows : tables_by_rows(forward, spec);
  if (tables.empty()) return out;
  const Origins origins(forward);
  std::map<std::string, std::vector<TensorId>> pieces;  // by table; of a whole table itself
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role == Role::kParameter) pieces[origins.of(tensor.id).name].push_back(tensor.id);
  }
  for (const std::string& name : tables) {
    const std::vector<TensorId>& parts = pieces[name];
    const bool only = std::all_of(parts.begin(), parts.end(),
                                  [&](TensorId part) { return is_only_looked_up(forward, part); });
    if (parts.empty() || !only) {
      return invalid_input(fmt::format(
          "optimizer '{}' updates table '{}' by rows, so nothing but look-ups may read it, but the "
          "plan cuts or rewrites these (a loop over the table's dims): leave them out of the loop, "
          "or name another optimizer for the table",
          optimizer_of(spec, name), name));
    }
    for (const Tensor& tensor : forward.tensors()) {
      const auto part = std::find(parts.begin(), parts.end(), table_of(forward, tensor.id));
      if (part != parts.end()) out[tensor.id.index()] = true;
    }
  }
  return out;
}

// Returns whether the graph has a parameter that is trained.
bool trains(const Graph& graph) {
  return std::any_of(graph.tensors().begin(), graph.tensors().end(), [](const Tensor& tensor) {
    return tensor.role == Role::kParameter && tensor.trained;
  });
}

// Returns whether a group leaves its parameters untrained.
bool freezes(const OptimizerSpec& spec) {
  return std::any_of(spec.groups.begin(), spec.groups.end(),
                     [](const OptimizerGroup& group) { return group.kind == kNoOptimizer; });
}

}  // namespace

bool takes(std::string_view pattern, std::string_view name) {
  constexpr std::string_view kEnds = ".#";
  for (size_t end = name.find_first_of(kEnds);; end = name.find_first_of(kEnds, end + 1)) {
    if (glob_match(pattern, name.substr(0, end))) return true;
    if (end == std::string_view::npos) return false;
  }
}

Graph with_frozen_groups(Graph forward, const OptimizerSpec& spec) {
  for (size_t i = 0; i < forward.tensors().size() && freezes(spec); ++i) {
    Tensor& tensor = forward.tensor(TensorId(i));
    if (tensor.role != Role::kParameter) continue;
    const OptimizerGroup* group = own_group_of(spec, tensor.name);
    if (group != nullptr && group->kind == kNoOptimizer) tensor.trained = false;
  }
  return forward;
}

const std::string& optimizer_of(const OptimizerSpec& spec, const std::string& parameter) {
  const OptimizerGroup* group = own_group_of(spec, parameter);
  return group != nullptr && !group->kind.empty() ? group->kind : spec.kind;
}

Status check_groups(const OptimizerSpec& spec, const Graph& forward) {
  for (const OptimizerGroup& group : spec.groups) TESSERA_TRY_VOID(check_group(group, forward));
  return {};
}

OptimizerSpec without_idle_groups(OptimizerSpec spec, const Graph& forward) {
  std::erase_if(spec.groups, [&](const OptimizerGroup& group) {
    const Tensor* last = nullptr;
    return first_taken(group, forward, last) == nullptr;
  });
  return spec;
}

std::optional<double> OptimizerSpec::value(std::string_view attribute) const {
  static constexpr std::array<std::pair<std::string_view, double OptimizerSpec::*>, 6> kValues = {
      {{"beta1", &OptimizerSpec::beta1},
       {"beta2", &OptimizerSpec::beta2},
       {"eps", &OptimizerSpec::eps},
       {"weight_decay", &OptimizerSpec::weight_decay},
       {"momentum", &OptimizerSpec::momentum},
       {"nesterov", &OptimizerSpec::nesterov}}};
  for (const auto& [name, member] : kValues) {
    if (name == attribute) return this->*member;
  }
  return std::nullopt;
}

Result<Graph> differentiate(const Graph& forward, const OptimizerSpec& optimizer) {
  if (has_updates(forward)) {
    TESSERA_TRY(const WithoutUpdates parts, without_updates(forward));
    TESSERA_TRY(Graph graph, differentiate(parts.forward, optimizer));
    return with_updates(std::move(graph), parts.updates);
  }
  std::vector<std::string> kinds = optimizer_names();
  kinds.emplace_back(kNoOptimizer);
  if (std::find(kinds.begin(), kinds.end(), optimizer.kind) == kinds.end()) {
    return invalid_input(
        fmt::format("expected an optimizer ({}), found '{}'", join(kinds, ", "), optimizer.kind));
  }
  TESSERA_TRY_VOID(check_groups(optimizer, forward));
  if (freezes(optimizer)) {
    const Graph model = with_frozen_groups(forward, optimizer);
    if (!trains(model)) {
      return invalid_input(fmt::format(
          "optimizer.group: expected a parameter that is trained, found kind '{}' for all of them",
          kNoOptimizer));
    }
    OptimizerSpec others = optimizer;
    std::erase_if(others.groups,
                  [](const OptimizerGroup& group) { return group.kind == kNoOptimizer; });
    return differentiate(model, others);
  }
  TESSERA_TRY(std::vector<bool> by_rows, updated_by_rows(forward, optimizer));
  Differentiator differentiator(forward, optimizer, std::move(by_rows));
  TESSERA_TRY_VOID(differentiator.run());
  if (optimizer.kind != kNoOptimizer && parameter_count(forward) > 0) {
    TESSERA_TRY_VOID(Updater(differentiator, optimizer).run());
  }
  return differentiator.builder().finish();
}

}  // namespace tessera
