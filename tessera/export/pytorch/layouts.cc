// Which parameters the tensor axis cuts, and where activations change their layout over it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/export/compare.h"
#include "tessera/export/pytorch/facts.h"
#include "tessera/graph/kinds.h"

namespace tessera::pytorch {
namespace {

// How a tensor lies over the tensor axis: cut in one dim of its graph dims, whole, or parts of a
// sum.
struct Over {
  int dim = -1;  // -1: whole
  bool partial = false;
  int entry = -1;
  friend bool operator==(const Over& a, const Over& b) {
    return a.dim == b.dim && a.partial == b.partial;
  }
};

class Layouts {
 public:
  Layouts(Facts& facts, const ModulePaths& modules)
      : facts_(facts), modules_(modules), graph_(*facts.graph) {}

  Status run() {
    if (facts_.tensor_axis() == nullptr) return {};
    TESSERA_TRY_VOID(find_parameters());
    const auto readers = graph_.consumers();
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::kForward) continue;
      if (*info_of(op).work == WorkClass::kLoss && cut_dim(op) >= 0) facts_.parallel_loss = true;
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        const Tensor& tensor = graph_.tensor(op.outputs[o]);
        if (is_floating(tensor.dtype) && parameter_read(graph_, tensor.id) == nullptr)
          find_change(op, o, readers[tensor.id.index()]);
      }
    }
    return {};
  }

 private:
  // Returns the op dim that the tensor axis cuts; -1: none.
  int cut_dim(const Op& op) const {
    for (size_t d = 0; d < op.annotation.dims.size(); ++d) {
      for (const std::string& axis : axes_of(facts_, op, d)) {
        if (axis == facts_.tensor_axis()->name) return static_cast<int>(d);
      }
    }
    return -1;
  }

  Over over(const Op& op, const OperandDims& operand, bool made) const {
    const int cut = cut_dim(op);
    Over out;
    if (cut < 0) return out;
    out.entry = facts_.resolved.ops[op.id.index()].dims[static_cast<size_t>(cut)].entry;
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      const DimGroup& group = operand.dims[d];
      if (std::find(group.begin(), group.end(), cut) != group.end()) out.dim = static_cast<int>(d);
    }
    out.partial = made && out.dim < 0;
    return out;
  }

  // ---- parameters
  Status find_parameters() {
    std::map<std::string, Over> found;
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::kForward) continue;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const Tensor* parameter = parameter_read(graph_, op.inputs[i]);
        // Copies of a parameter (casts, parts) lie as their readers need them.
        if (parameter == nullptr || parameter_read(graph_, op.outputs[0]) != nullptr) continue;
        const bool itself = graph_.tensor(op.inputs[i]).dims == parameter->dims;
        const Over read = itself ? over(op, op.annotation.inputs[i], false) : Over{};
        const auto [at, fresh] = found.try_emplace(parameter->name, read);
        if (fresh || at->second == read) continue;
        return cannot_run(
            split_place(facts_, std::max(read.entry, at->second.entry)),
            fmt::format("'{}' has one layout, and its readers here want two", parameter->name),
            "all of them cut alike, or left whole");
      }
    }
    for (const auto& [name, layout] : found) {
      if (layout.dim < 0) continue;
      const Tensor& parameter = graph_.tensor(graph_.find_tensor(name));
      TESSERA_TRY(const int64_t dim, published_dim(parameter, layout));
      facts_.cut.push_back({name, dim});
    }
    return {};
  }

  // Returns the dim of the module's own shape that is cut where a dim of the graph is cut.
  Result<int64_t> published_dim(const Tensor& parameter, const Over& layout) const {
    const PublishedDims published = published_dims(parameter);
    for (size_t p = 0; p < published.size(); ++p) {
      for (const int dim : published[p]) {
        if (dim == layout.dim) return static_cast<int64_t>(p);
        if (parameter.dims[static_cast<size_t>(dim)].size == 1) continue;
        if (std::find(published[p].begin(), published[p].end(), layout.dim) == published[p].end())
          break;
        const std::string module = parent_of(parameter.name);
        return cannot_run(
            split_place(facts_, layout.entry),
            fmt::format("'{}' joins '{}' and '{}' in dim {}, and a Shard would cut the outer one",
                        parameter.name, parameter.dims[static_cast<size_t>(dim)].name,
                        parameter.dims[static_cast<size_t>(layout.dim)].name, p),
            fmt::format("'{}' whole (split entries that leave it out), or a module with one "
                        "parameter for each part",
                        module));
      }
    }
    return invalid_input(
        fmt::format("{}: a dim of '{}' is not published", facts_.plan.file, parameter.name));
  }

  // ---- activations
  const Tensor* weight_of(const Op& op) const {
    const WorkClass work = *info_of(op).work;
    if (work != WorkClass::kMatmul && work != WorkClass::kLookup) return nullptr;
    for (const TensorId id : op.inputs) {
      if (const Tensor* weight = parameter_read(graph_, id)) return weight;
    }
    return nullptr;
  }

  // Returns the dim of the module's tensor: the last one for what a product makes of features.
  int64_t module_dim(const Op& op, const OperandDims& operand, int dim) const {
    if (weight_of(op) == nullptr) return dim;
    for (const int d : operand.dims[static_cast<size_t>(dim)]) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (parameter_read(graph_, op.inputs[i]) != nullptr && op.annotation.inputs[i].contains(d))
          return -1;
      }
    }
    return dim;
  }

  void find_change(const Op& op, size_t output, const std::vector<OpId>& readers) {
    const TensorId tensor = op.outputs[output];
    const OperandDims& made_dims = op.annotation.outputs[output];
    const Over made = over(op, made_dims, true);
    std::vector<std::pair<const Op*, Over>> wanted;
    for (const OpId id : readers) {
      const Op& reader = graph_.op(id);
      if (reader.phase != Phase::kForward) continue;
      for (size_t i = 0; i < reader.inputs.size(); ++i) {
        if (reader.inputs[i] == tensor)
          wanted.emplace_back(&reader, over(reader, reader.annotation.inputs[i], false));
      }
    }
    if (wanted.empty() && !made.partial) return;
    Over target = wanted.empty() ? Over{} : wanted.front().second;
    const bool alike = std::all_of(wanted.begin(), wanted.end(),
                                   [&](const auto& one) { return one.second == target; });
    if (alike && target == made) return;
    const std::string& module = modules_.of(op);
    const bool leaves = !module.empty() && modules_.owns(module) &&
                        std::none_of(wanted.begin(), wanted.end(), [&](const auto& one) {
                          return inside(modules_.of(*one.first), module);
                        });
    if (leaves && (alike || made.partial)) {
      add(facts_.leave, module, target, target.dim < 0 ? 0 : module_dim(op, made_dims, target.dim));
      return;
    }
    for (const auto& [reader, layout] : wanted) {
      if (layout == made || weight_of(*reader) == nullptr) continue;
      add(facts_.enter, modules_.of(*reader), layout, layout.dim);
    }
  }

  static void add(std::vector<Border>& borders, const std::string& module, const Over& layout,
                  int64_t dim) {
    Border border{module, std::nullopt};
    if (layout.dim >= 0) border.dim = dim;
    const auto same = [&](const Border& other) { return other.module == module; };
    if (std::none_of(borders.begin(), borders.end(), same)) borders.push_back(std::move(border));
  }

  Facts& facts_;
  const ModulePaths& modules_;
  const Graph& graph_;
};

}  // namespace

Status find_layouts(Facts& facts, const ModulePaths& modules) {
  return Layouts(facts, modules).run();
}

}  // namespace tessera::pytorch
