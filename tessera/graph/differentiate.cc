// Backward and update ops. Reverse-mode: walk the forward ops from the loss back; the rule of each
// kind turns the gradients of its outputs into contributions to the gradients of its inputs;
// contributions to a tensor are added up when its producer is reached (for a parameter: when its
// first consumer has been passed).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

struct Contribution {
  TensorId gradient;
  std::string from;    // path of the forward op that gives it
  bool fresh = false;  // made by that op's rule, so ours to name; else the gradient of another
                       // tensor, passed on
};

class Differentiator {
 public:
  explicit Differentiator(const Graph& forward)
      : builder_(forward),
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
    for (size_t i = forward_ops_; i-- > 0;) TESSERA_TRY_VOID(differentiate_op(OpId(i)));
    return {};
  }

  GraphBuilder& builder() { return builder_; }
  TensorId gradient(TensorId tensor) const { return gradients_[tensor.index()]; }

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

  // A tensor wants a gradient if it depends on a parameter and the loss depends on it.
  void find_wanted() {
    std::vector<bool> trained(forward_tensors_, false);
    std::vector<bool> used(forward_tensors_, false);
    first_use_.resize(forward_tensors_);
    for (const Tensor& tensor : graph().tensors())
      trained[tensor.id.index()] = tensor.role == Role::kParameter;
    auto any = [](const std::vector<bool>& flags, const std::vector<TensorId>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](TensorId id) { return flags[id.index()]; });
    };
    const auto stops = [](const Op& op) { return find_kind(op.kind)->stops_gradient; };
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
      if (tensor.role == Role::kParameter && !wanted_[tensor.id.index()]) {
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
    const TensorId seed = builder_.op1(loss.name + ".grad", "fill", {},
                                       {{"value", 1.0}, {"dims", ""}, {"dtype", dtype}});
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
    const bool needed = std::find(wanted.begin(), wanted.end(), true) != wanted.end();
    if (reached && needed) {
      const KindInfo* info = find_kind(op.kind);
      TESSERA_CHECK(info != nullptr, "op '{}'", op.path);
      if (!info->differentiate) {
        return invalid_input(
            fmt::format("op '{}' ({}) lies between a parameter and the loss, but has no derivative",
                        op.path, op.kind));
      }
      builder_.set_mirror(op.id);
      const size_t made_before = graph().tensors().size();
      const InputGradients contributions = info->differentiate(builder_, op, dy, wanted);
      if (!builder_.ok()) return builder_.finish().map([](const Graph&) {});
      TESSERA_CHECK(contributions.size() == op.inputs.size(), "rule of '{}'", op.kind);
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

  // The gradient of a forward tensor once all contributions are there; invalid if there are none.
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
      return gradient =
                 parts[0].gradient;  // shared: `of` stays with the tensor whose gradient it is
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
  size_t forward_ops_;
  size_t forward_tensors_;
  std::vector<bool> wanted_;
  std::vector<OpId> first_use_;  // by tensor: its first consumer on a way to the loss
  std::vector<std::vector<Contribution>> contributions_;
  std::vector<TensorId> gradients_;
};

// Clipping sums squares by group: "blocks.3" for parameters under it, else the first component of
// the path.
std::string clip_group(const std::string& parameter) {
  const std::vector<std::string> parts = split_text(parameter, '.');
  const bool numbered =
      parts.size() > 2 && !parts[1].empty() &&
      std::all_of(parts[1].begin(), parts[1].end(), [](char c) { return c >= '0' && c <= '9'; });
  return numbered ? parts[0] + "." + parts[1] : parts[0];
}

class Updater {
 public:
  Updater(Differentiator& differentiator, const OptimizerSpec& spec)
      : differentiator_(differentiator), builder_(differentiator.builder()), spec_(spec) {
    for (const Tensor& tensor : builder_.graph().tensors()) {
      if (tensor.role == Role::kParameter) parameters_.push_back(tensor.id);
    }
  }

  Status run() {
    builder_.set_phase(Phase::kUpdate);
    builder_.set_mirror({});
    builder_.set_role(Role::kGradient);
    TensorId coefficient;
    if (spec_.clip_norm > 0) coefficient = clip();
    TESSERA_TRY(const TensorId lr, scalar_input("lr"));
    TESSERA_TRY(const TensorId step, scalar_input("step"));
    for (const TensorId parameter : parameters_) update(parameter, lr, step, coefficient);
    return {};
  }

 private:
  DType scalar_dtype() const {
    return builder_.tensor(parameters_.front()).dtype == DType::kFloat64 ? DType::kFloat64
                                                                         : DType::kFloat32;
  }

  Result<TensorId> scalar_input(const std::string& name) {
    const TensorId existing = builder_.graph().find_tensor(name);
    if (!existing.valid()) return builder_.input(name, {}, scalar_dtype());
    const Tensor& tensor = builder_.tensor(existing);
    if (tensor.role != Role::kInput || !tensor.dims.empty() || tensor.dtype != scalar_dtype()) {
      return invalid_input(
          fmt::format("expected '{}' to be a scalar input of dtype {}, found {} {}", name,
                      dtype_name(scalar_dtype()), role_name(tensor.role), describe(tensor)));
    }
    return existing;
  }

  TensorId add_up(const std::string& path, const std::vector<TensorId>& parts) {
    return parts.size() == 1 ? parts[0] : builder_.op1(path, "add_n", parts);
  }

  TensorId clip() {
    std::vector<std::pair<std::string, std::vector<TensorId>>>
        groups;  // in order of first occurrence
    for (const TensorId parameter : parameters_) {
      const std::string name = builder_.tensor(parameter).name;
      const TensorId squares = builder_.op1(fmt::format("clip.{}.sum_squares", name), "sum_squares",
                                            {differentiator_.gradient(parameter)});
      const std::string group = clip_group(name);
      auto it = std::find_if(groups.begin(), groups.end(),
                             [&](const auto& g) { return g.first == group; });
      if (it == groups.end()) it = groups.insert(groups.end(), {group, {}});
      it->second.push_back(squares);
    }
    std::vector<TensorId> sums;
    sums.reserve(groups.size());
    for (const auto& [group, squares] : groups) sums.push_back(add_up("clip." + group, squares));
    const TensorId total = add_up("clip.total", sums);
    return builder_.op1("clip.coefficient", "clip_coefficient", {total},
                        {{"max_norm", spec_.clip_norm}});
  }

  void update(TensorId parameter, TensorId lr, TensorId step, TensorId coefficient) {
    if (!builder_.ok()) return;
    const std::string name = builder_.tensor(parameter).name;
    const double weight_decay =
        builder_.tensor(parameter).dims.size() >= 2 ? spec_.weight_decay : 0.0;
    const bool adamw = spec_.kind == "adamw";
    const Init zeros{Init::Kind::kZeros, 0};
    std::vector<TensorId> updated = {parameter};
    for (const char* state :
         adamw ? std::vector<const char*>{"m", "v"} : std::vector<const char*>{"momentum"}) {
      updated.push_back(
          builder_.state(fmt::format("optimizer.{}.{}", state, name), parameter, zeros));
    }
    std::vector<TensorId> inputs = updated;
    inputs.insert(inputs.begin() + 1, differentiator_.gradient(parameter));
    inputs.push_back(lr);
    if (adamw) inputs.push_back(step);
    if (coefficient.valid()) inputs.push_back(coefficient);
    Attributes attributes = {{"weight_decay", weight_decay}};
    if (adamw) {
      attributes["beta1"] = spec_.beta1;
      attributes["beta2"] = spec_.beta2;
      attributes["eps"] = spec_.eps;
    } else {
      attributes["momentum"] = spec_.momentum;
    }
    const std::vector<TensorId> outputs =
        builder_.op("optimizer." + name, spec_.kind, inputs, attributes);
    if (!builder_.ok()) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      Tensor& output = builder_.graph().tensor(outputs[i]);
      const Tensor& target = builder_.tensor(updated[i]);
      output.name = "updated." + target.name;
      output.role = target.role;
      output.update_of = target.id;
      output.of = target.of;
    }
  }

  Differentiator& differentiator_;
  GraphBuilder& builder_;
  const OptimizerSpec& spec_;
  std::vector<TensorId> parameters_;
};

}  // namespace

Result<Graph> differentiate(const Graph& forward, const OptimizerSpec& optimizer) {
  const std::vector<std::string> kinds = {"adamw", "sgd", "none"};
  if (std::find(kinds.begin(), kinds.end(), optimizer.kind) == kinds.end()) {
    return invalid_input(
        fmt::format("expected an optimizer ({}), found '{}'", join(kinds, ", "), optimizer.kind));
  }
  Differentiator differentiator(forward);
  TESSERA_TRY_VOID(differentiator.run());
  if (optimizer.kind != "none" && parameter_count(forward) > 0) {
    TESSERA_TRY_VOID(Updater(differentiator, optimizer).run());
  }
  return differentiator.builder().finish();
}

}  // namespace tessera
