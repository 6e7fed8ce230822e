// Dynamic axial parallelism (docs/strategies/dap.md). Some models work along the rows of an
// activation in one part of a block and along its columns in another part. Each part is cut by the
// axis along which it does not work.
//
// A part is the set of ops that a residual sum needs and that no earlier sum needs. Its two axes
// are the rows and columns of the sum. The part is cut by the axis for which its ops fetch fewer
// elements from other ranks; if both cost the same, by the axis that already cuts the activation.
// Some ops of a part lack that axis (those that make a bias for one activation from another
// activation). Such an op is cut by the dim by which its operand is cut.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "tessera/graph/kinds.h"
#include "tessera/plan/recipes/families.h"
#include "tessera/plan/recipes/parts.h"

namespace tessera::recipes {
namespace {

using Names = std::vector<std::string>;

// Returns the names of all dims of the activation except batch and the last dim, which is
// the features.
Names names_of_axes(const Tensor& tensor) {
  Names axes;
  for (size_t i = 0; i + 1 < tensor.dims.size(); ++i) {
    if (tensor.dims[i].name != "batch") axes.push_back(tensor.dims[i].name);
  }
  return axes;
}

bool has_all(const Tensor& tensor, const Names& names) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                       [&](const Dim& dim) { return dim.name == name; });
  });
}

struct Part {
  std::vector<OpId> ops;
  Names axes;       // axes of its residual sum; empty: the ops after the last sum
  std::string cut;  // the axis by which the part is cut
};

class Axial {
 public:
  Axial(const Graph& graph, int64_t ranks) : graph_(graph), ranks_(ranks) {
    find_parts();
    for (Part& part : parts_) choose(part);
    cuts_.resize(graph.tensors().size(), -1);
    for (const Op& op : graph.ops()) {
      if (op.phase == Phase::kForward) assign(op, part_of_[op.id.index()]);
    }
  }

  // Returns whether two parts with the same axes are cut by different axes.
  bool alternates() const {
    std::map<Names, std::set<std::string>> cuts;
    for (const Part& part : parts_) {
      if (!part.axes.empty()) cuts[part.axes].insert(part.cut);
    }
    return std::any_of(cuts.begin(), cuts.end(),
                       [](const auto& entry) { return entry.second.size() > 1; });
  }

  // Returns for each dim the ops that it cuts. The dims are in the order of their first ops.
  const std::vector<std::pair<std::string, std::vector<OpId>>>& cut() const { return cut_; }

 private:
  bool is_activation(TensorId tensor) const { return !graph_.parameter_of(tensor).valid(); }

  // Returns whether the op is a residual sum: it adds several activations that have the dims of the
  // sum, and the sum has two axes (names_of_axes).
  bool is_residual_sum(const Op& op) const {
    if (info_of(op).merges != Combiner::kSum) return false;
    const Tensor& sum = graph_.tensor(op.outputs.at(0));
    const auto is_term = [&](TensorId input) {
      return is_activation(input) && graph_.tensor(input).dims == sum.dims;
    };
    return names_of_axes(sum).size() == 2 &&
           std::count_if(op.inputs.begin(), op.inputs.end(), is_term) > 1;
  }

  void find_parts() {
    constexpr size_t kNone = SIZE_MAX;
    part_of_.resize(graph_.ops().size(), kNone);
    for (const Op& op : graph_.ops()) {
      if (op.phase != Phase::kForward || !is_residual_sum(op)) continue;
      Part part{{}, names_of_axes(graph_.tensor(op.outputs[0])), ""};
      for (std::vector<OpId> rest{op.id}; !rest.empty();) {
        const OpId next = rest.back();
        rest.pop_back();
        if (part_of_[next.index()] != kNone) continue;
        part_of_[next.index()] = parts_.size();
        part.ops.push_back(next);
        for (const TensorId input : graph_.ops()[next.index()].inputs) {
          if (const OpId from = graph_.tensor(input).producer; from.valid()) rest.push_back(from);
        }
      }
      parts_.push_back(std::move(part));
    }
    std::replace(part_of_.begin(), part_of_.end(), kNone, parts_.size());
    parts_.emplace_back();
  }

  // Returns `ranks_` times the number of elements that a rank fetches if the dim cuts all ops of
  // the part that have it. An operand without the dim is gathered, so all its elements count. An
  // output that sums over the dim counts twice. If an operand has another dim in the place of this
  // one, it is redistributed, so that a share of 1 / ranks_ of its elements counts.
  int64_t price(const Part& part, const std::string& dim) const {
    int64_t all = 0;
    for (const OpId id : part.ops) {
      const Op& op = graph_.ops()[id.index()];
      const int d = op.annotation.find(dim);
      if (d < 0) continue;
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        const Tensor& operand = graph_.tensor(op.inputs[i]);
        if (!is_activation(op.inputs[i])) continue;
        const int at = position(op.annotation.inputs[i], d);
        if (at < 0) all += ranks_ * operand.elements();
        if (at >= 0 && operand.dims[static_cast<size_t>(at)].name != dim) all += operand.elements();
      }
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        if (op.annotation.reduces(d, i))
          all += 2 * ranks_ * graph_.tensor(op.outputs[i]).elements();
      }
    }
    return all;
  }

  void choose(Part& part) {
    if (part.axes.empty()) return;
    std::string& held = held_[part.axes];
    const int64_t first = price(part, part.axes[0]), second = price(part, part.axes[1]);
    if (held.empty() || first != second) held = part.axes[first <= second ? 0 : 1];
    part.cut = held;
  }

  // Returns the op dim at position `at` of the operand; -1 if that dim may not be cut or `at`
  // is negative.
  static int op_dim(const Op& op, const OperandDims& operand, int at) {
    if (at < 0) return -1;
    const DimGroup& group = operand.dims[static_cast<size_t>(at)];
    if (group.size() != 1 || operand.is_windowed(static_cast<size_t>(at))) return -1;
    return op.annotation.dims[static_cast<size_t>(group[0])].mark == Mark::kSpatial ? group[0] : -1;
  }
  static int position(const OperandDims& operand, int d) {
    for (size_t t = 0; t < operand.dims.size(); ++t) {
      if (operand.dims[t] == DimGroup{d}) return static_cast<int>(t);
    }
    return -1;
  }

  // Returns the axis by which the tensor should be cut at the end of part `part`. This is the axis
  // that cuts the next later part whose axes are all dims of the tensor. If there is no later one,
  // it is the axis that cuts the last such part; "" if there is none at all.
  std::string wanted(const Tensor& tensor, size_t part) const {
    std::string last;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].axes.empty() || !has_all(tensor, parts_[p].axes)) continue;
      if (p > part) return parts_[p].cut;
      last = parts_[p].cut;
    }
    return last;
  }

  int place_of(const Tensor& tensor, const std::string& dim) const {
    for (size_t i = 0; i < tensor.dims.size(); ++i) {
      if (tensor.dims[i].name == dim) return static_cast<int>(i);
    }
    return -1;
  }

  // Returns the op dim that cuts an op without the part's axis. It follows the first operand that
  // is cut, else the wanted cut of the output; -1 if neither gives a dim.
  int aside(const Op& op, size_t part) const {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& operand = graph_.tensor(op.inputs[i]);
      const bool is_sum =
          operand.producer.valid() && is_residual_sum(graph_.ops()[operand.producer.index()]);
      const int at = is_sum && is_activation(operand.id) ? place_of(operand, wanted(operand, part))
                                                         : cuts_[operand.id.index()];
      if (at >= 0) return op_dim(op, op.annotation.inputs[i], at);
    }
    const Tensor& made = graph_.tensor(op.outputs.at(0));
    return op_dim(op, op.annotation.outputs[0], place_of(made, wanted(made, part)));
  }

  void assign(const Op& op, size_t part) {
    int d = parts_[part].cut.empty() ? -1 : op.annotation.find(parts_[part].cut);
    if (d >= 0 && op.annotation.dims[static_cast<size_t>(d)].mark == Mark::kFrozen) d = -1;
    if (d < 0) d = aside(op, part);
    if (d < 0) return;
    for (size_t i = 0; i < op.outputs.size(); ++i)
      cuts_[op.outputs[i].index()] = position(op.annotation.outputs[i], d);
    const std::string& name = op.annotation.dims[static_cast<size_t>(d)].name;
    auto entry = std::find_if(cut_.begin(), cut_.end(),
                              [&](const auto& known) { return known.first == name; });
    if (entry == cut_.end()) entry = cut_.insert(entry, {name, {}});
    entry->second.push_back(op.id);
  }

  const Graph& graph_;
  const int64_t ranks_;
  std::vector<Part> parts_;
  std::vector<size_t> part_of_;        // by op: index of its part
  std::map<Names, std::string> held_;  // by the axes of an activation: the axis that cuts it so far
  std::vector<int> cuts_;              // by tensor: position of the dim that is cut; -1: none
  std::vector<std::pair<std::string, std::vector<OpId>>> cut_;
};

bool has(const Graph& graph, OpId op, const std::string& dim) {
  return graph.ops()[op.index()].annotation.find(dim) >= 0;
}

Result<PlanText> emit_dap(const RecipeArguments& arguments, const Graph& graph) {
  const int64_t dap = arguments.number("dap");
  TESSERA_TRY(PlanText text, outer(arguments, graph, {{"dap", dap}}));
  TESSERA_TRY_VOID(data_parallel(text, graph));
  const Axial axial(graph, dap);
  if (!axial.alternates()) {
    return invalid_input(
        "expected residual sums with two dims between batch and features (rows and columns), parts "
        "of blocks that work along one of them and parts that work along the other (as "
        "evoformer's), found none");
  }
  for (const auto& [dim, ops] : axial.cut()) {
    const Op& op = graph.ops()[ops[0].index()];
    const int64_t size = op.annotation.dims[static_cast<size_t>(op.annotation.find(dim))].size;
    if (dap > size)
      return invalid_input(fmt::format("dap = {} is more than {} = {}", dap, dim, size));
    const std::string pattern = alternatives(patterns_of(graph, ops, dim));
    text.split(pattern, dim, "dap");
    std::vector<OpId> others;  // ops that the pattern selects though they are not to be cut
    for (const OpId other : selected(graph, pattern)) {
      if (!std::binary_search(ops.begin(), ops.end(), other) && has(graph, other, dim))
        others.push_back(other);
    }
    if (!others.empty()) text.split(alternatives(patterns_of(graph, others, dim)), dim, "");
  }
  zero(text, arguments.number("zero"), "dp,dap");
  return text;
}

}  // namespace

std::vector<Recipe> axial_recipes() {
  return {{"dap",
           "dynamic axial parallelism (FastFold): parts of blocks cut by rows or by columns, with "
           "all-to-alls between",
           with_outer({number("dap", std::nullopt, "ranks that share rows and columns")}),
           emit_dap}};
}

}  // namespace tessera::recipes
