#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/check.h"
#include "tessera/base/infinity.h"
#include "tessera/planners/published/alpa.h"
#include "tessera/planners/published/one_hot_cbc.h"

namespace tessera::published {
namespace {

using Dims = std::vector<std::string>;

// Returns the cost of a collective. The result is truncated to a whole number, as in the published
// prototype. `tie`: a small constant that orders collectives of equal cost.
double collective_cost(const ShardingMesh& mesh, size_t axis, double share, double tie) {
  return mesh.devices.at(axis) == 1 ? 0 : std::trunc(mesh.alpha.at(axis) + share) + tie;
}
double moved_bytes(const ShardingMesh& mesh, size_t axis, double bytes) {
  const auto n = static_cast<double>(mesh.devices.at(axis));
  return mesh.beta.at(axis) * (n - 1) / n * bytes;
}

std::optional<size_t> position(const Dims& dims, const std::string& dim) {
  const auto found = std::find(dims.begin(), dims.end(), dim);
  if (found == dims.end()) return std::nullopt;
  return static_cast<size_t>(found - dims.begin());
}

bool holds_all(const Dims& dims, const Dims& all) {
  return std::all_of(all.begin(), all.end(),
                     [&](const std::string& dim) { return position(dims, dim).has_value(); });
}

class Choices {
 public:
  Choices(const ShardingGraph& graph, const ShardingMesh& mesh) : graph_(graph), mesh_(mesh) {}

  std::vector<std::vector<ShardingChoice>> all() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ShardingOp& op = graph_.ops[i];
      if (op.reads.empty()) {
        depth_.push_back(0);
        inputs(i);
      } else if (is_product(op)) {
        depth_.push_back(deepest(op) + 1);
        products(i);
      } else {
        depth_.push_back(deepest(op) + 1);
        follow(i);
      }
    }
    return std::move(choices_);
  }

  bool is_product(const ShardingOp& op) const { return published::is_product(graph_, op); }
  // Returns the operand whose split an op that is no product takes over, and its depth: the deepest
  // operand among those that have all of the op's dims, or among all operands if there is none. If
  // several are equally deep, the first of them.
  std::pair<size_t, size_t> leader(const ShardingOp& op) const {
    std::vector<size_t> able;
    for (size_t i = 0; i < op.reads.size(); ++i) {
      if (holds_all(graph_.ops[op.reads[i]].dims, op.dims)) able.push_back(i);
    }
    if (able.empty()) {
      for (size_t i = 0; i < op.reads.size(); ++i) able.push_back(i);
    }
    size_t best = able.front();
    for (const size_t i : able) {
      if (depth_[op.reads[i]] > depth_[op.reads[best]]) best = i;
    }
    return {best, depth_[op.reads[best]]};
  }

 private:
  // A cut by name: axis 0 cuts dim cut[0], axis 1 cuts dim cut[1]; empty for none.
  using Cut = std::array<std::string, 2>;

  size_t deepest(const ShardingOp& op) const {
    size_t out = 0;
    for (const size_t read : op.reads) out = std::max(out, depth_[read]);
    return out;
  }

  ShardingSpec spec_of(const Dims& dims, const Cut& cut) const {
    ShardingSpec spec;
    for (size_t axis = 0; axis < 2; ++axis) {
      if (mesh_.devices.at(axis) > 1) spec.at(axis) = position(dims, cut.at(axis));
    }
    return spec;
  }
  int64_t size_of(const std::string& dim) const {
    for (const auto& [name, size] : graph_.sizes) {
      if (name == dim) return size;
    }
    TESSERA_CHECK(false, "no size of dim '{}'", dim);
  }
  bool divides(const Cut& cut) const { return divided(cut) == cut; }
  // Returns the cut without the dims whose sizes their axes do not divide. These dims stay whole.
  Cut divided(Cut cut) const {
    for (size_t axis = 0; axis < 2; ++axis) {
      std::string& dim = cut.at(axis);
      if (!dim.empty() && size_of(dim) % mesh_.devices.at(axis) != 0) dim.clear();
    }
    return cut;
  }
  int64_t devices_of(const Cut& cut) const {
    int64_t out = 1;
    for (size_t axis = 0; axis < 2; ++axis) {
      if (!cut.at(axis).empty()) out *= mesh_.devices.at(axis);
    }
    return out;
  }
  // Returns whether the forced dim allows the cut: axis 0 must cut this dim if the op has it, and
  // an input or parameter without it must stay whole. True if no dim is forced.
  bool obeys(const Dims& own, const Cut& cut, bool is_input) const {
    if (!graph_.forced_dim) return true;
    if (position(own, *graph_.forced_dim)) return cut[0] == *graph_.forced_dim;
    return !is_input || (cut[0].empty() && cut[1].empty());
  }

  // Adds a choice of op i, unless the forced dim forbids it.
  void push(size_t i, const Cut& cut, double communication, const Dims& own) {
    const ShardingOp& op = graph_.ops[i];
    if (!obeys(own, cut, op.reads.empty())) return;
    ShardingChoice choice;
    choice.output = spec_of(op.dims, cut);
    for (const size_t read : op.reads) {
      choice.operands.push_back(spec_of(graph_.ops[read].dims, cut));
    }
    choice.communication = communication;
    choice.tie_break = op.reads.empty() && !choice.output[0] && !choice.output[1] ? 2 : 0;
    choices_.back().push_back(std::move(choice));
  }

  // Adds the choices of an input or a parameter: it is whole, or one axis cuts one of its dims.
  void inputs(size_t i) {
    const Dims& dims = graph_.ops[i].dims;
    choices_.emplace_back();
    push(i, {}, 0, dims);
    for (size_t axis = 0; axis < 2; ++axis) {
      for (const std::string& dim : dims) {
        Cut cut;
        cut.at(axis) = dim;
        if (mesh_.devices.at(axis) > 1 && divides(cut)) push(i, cut, 0, dims);
      }
    }
  }

  double bytes_of(const ShardingOp& op) const {
    double bytes = graph_.element_bytes;
    for (const std::string& dim : op.dims) bytes *= static_cast<double>(size_of(dim));
    return bytes;
  }

  void products(size_t i) {
    const ShardingOp& op = graph_.ops[i];
    const Dims& left = graph_.ops[op.reads[0]].dims;
    const Dims& right = graph_.ops[op.reads[1]].dims;
    Dims m, n, k, batch, own;
    for (const std::string& dim : left) {
      own.push_back(dim);
      const bool in_right = position(right, dim).has_value();
      const bool in_result = position(op.dims, dim).has_value();
      (in_right ? (in_result ? batch : k) : m).push_back(dim);
    }
    for (const std::string& dim : right) {
      if (position(left, dim)) continue;
      own.push_back(dim);
      n.push_back(dim);
    }
    choices_.emplace_back();
    std::vector<Cut> cuts;
    for (size_t a = 0; a < 2; ++a) {
      const size_t b = 1 - a;
      const auto each = [&](const Dims& on_a, const Dims& on_b) {
        for (const std::string& x : on_a) {
          for (const std::string& y : on_b) {
            if (x == y) continue;
            Cut& cut = cuts.emplace_back();
            cut.at(a) = x;
            cut.at(b) = y;
          }
        }
      };
      each(m, n);
      each(m, k);
      each(n, k);
      each(batch, {""});
      if (a == 0) each(batch, batch);
    }
    for (const Cut& cut : as_far_as_divided(cuts)) push(i, cut, summed_over(i, cut), own);
  }

  // Returns the cuts whose axes divide all dims. If there is none, drops from each cut the dims
  // that their axes do not divide, and returns the cuts that still use the most devices. Cuts over
  // fewer devices are left out, because this model charges nothing for computing the same on
  // several devices.
  std::vector<Cut> as_far_as_divided(const std::vector<Cut>& cuts) const {
    std::vector<Cut> out;
    for (const Cut& cut : cuts) {
      if (divides(cut)) out.push_back(cut);
    }
    if (!out.empty()) return out;
    const auto part_of = [&](const Cut& cut) {
      Cut part = divided(cut);
      for (size_t axis = 0; axis < 2; ++axis) {
        if (mesh_.devices.at(axis) == 1) part.at(axis).clear();
      }
      return part;
    };
    int64_t most = 0;
    for (const Cut& cut : cuts) most = std::max(most, devices_of(part_of(cut)));
    for (const Cut& cut : cuts) {
      const Cut part = part_of(cut);
      const bool is_new = std::find(out.begin(), out.end(), part) == out.end();
      if (devices_of(part) == most && is_new) out.push_back(part);
    }
    return out;
  }

  // Returns the cost of the all-reduces of an op whose operands have this cut. There is one over
  // each axis that cuts a dim which the result lacks. Its bytes are those of the result, divided by
  // the other axis if that cuts the result.
  double summed_over(size_t i, const Cut& cut) const {
    const ShardingOp& op = graph_.ops[i];
    const ShardingSpec spec = spec_of(op.dims, cut);
    double cost = 0;
    for (size_t axis = 0; axis < 2; ++axis) {
      if (cut.at(axis).empty() || position(op.dims, cut.at(axis))) continue;
      const int64_t tiles = spec.at(1 - axis) ? mesh_.devices.at(1 - axis) : 1;
      cost += all_reduce_cost(mesh_, axis, bytes_of(op) / static_cast<double>(tiles));
    }
    return cost;
  }

  // Adds the choices of an op that takes over the cut of its leader(). Cuts are compared by names
  // of dims, because other operands may lack some dims.
  void follow(size_t i) {
    const ShardingOp& op = graph_.ops[i];
    const size_t at = op.reads[leader(op).first];
    const Dims& dims = graph_.ops[at].dims;
    const std::vector<ShardingChoice> leader = choices_[at];
    choices_.emplace_back();
    for (const ShardingChoice& choice : leader) {
      Cut cut;
      for (size_t axis = 0; axis < 2; ++axis) {
        if (choice.output.at(axis)) cut.at(axis) = dims[*choice.output.at(axis)];
      }
      ShardingChoice own;
      own.output = spec_of(op.dims, cut);
      for (const size_t read : op.reads) {
        own.operands.push_back(spec_of(graph_.ops[read].dims, cut));
      }
      own.communication = summed_over(i, cut);
      choices_.back().push_back(std::move(own));
    }
  }

  const ShardingGraph& graph_;
  const ShardingMesh& mesh_;
  std::vector<size_t> depth_;
  std::vector<std::vector<ShardingChoice>> choices_;
};

double bytes_of(const ShardingGraph& graph, const ShardingOp& op) {
  double bytes = graph.element_bytes;
  for (const std::string& dim : op.dims) {
    for (const auto& [name, size] : graph.sizes) {
      if (name == dim) bytes *= static_cast<double>(size);
    }
  }
  return bytes;
}

// Returns the cost of changing a tensor from one split to another. Slicing is free. If an axis no
// longer cuts its dim, the tensor is gathered; like the prototype, this charges the bytes of the
// whole tensor.
double resharding_cost(const ShardingMesh& mesh, const ShardingSpec& from, const ShardingSpec& to,
                       double bytes) {
  double cost = 0;
  for (size_t axis = 0; axis < 2; ++axis) {
    if (from.at(axis) && from.at(axis) != to.at(axis)) cost += all_gather_cost(mesh, axis, bytes);
  }
  return cost;
}

}  // namespace

bool is_product(const ShardingGraph& graph, const ShardingOp& op) {
  return op.reads.size() == 2 && std::all_of(op.reads.begin(), op.reads.end(), [&](size_t read) {
           const Dims& dims = graph.ops[read].dims;
           return !holds_all(dims, op.dims) || !holds_all(op.dims, dims);
         });
}

std::string why_not_an_op(const ShardingGraph& graph, const ShardingOp& op) {
  const auto missing = [](const Dims& dims, const Dims& in) {
    const auto found = std::find_if(dims.begin(), dims.end(),
                                    [&](const std::string& dim) { return !position(in, dim); });
    return found == dims.end() ? std::string() : *found;
  };
  if (op.reads.size() < 2) return "";
  if (is_product(graph, op)) {
    const Dims& left = graph.ops[op.reads[0]].dims;
    const Dims& right = graph.ops[op.reads[1]].dims;
    Dims both = left;
    both.insert(both.end(), right.begin(), right.end());
    std::string lost = missing(op.dims, both);
    if (!lost.empty()) {
      return fmt::format("expected the product's dim '{}' in one of its operands", lost);
    }
    for (const auto& [own, other] : {std::pair(&left, &right), std::pair(&right, &left)}) {
      Dims known = op.dims;
      known.insert(known.end(), other->begin(), other->end());
      lost = missing(*own, known);
      if (lost.empty()) continue;
      return fmt::format("expected the dim '{}' in the product or in its other operand too", lost);
    }
    return "";
  }
  bool is_whole = false;
  for (const size_t read : op.reads) {
    const ShardingOp& operand = graph.ops[read];
    is_whole = is_whole || holds_all(operand.dims, op.dims);
    const std::string lost = missing(operand.dims, op.dims);
    if (lost.empty()) continue;
    return fmt::format(
        "expected two operands of a product, or operands whose dims the op has; '{}' has '{}' too",
        operand.name, lost);
  }
  return is_whole ? "" : "expected an operand with all of the op's dims";
}

double all_reduce_cost(const ShardingMesh& mesh, size_t axis, double bytes) {
  return collective_cost(mesh, axis, 2 * moved_bytes(mesh, axis, bytes), 0.01);
}
double all_gather_cost(const ShardingMesh& mesh, size_t axis, double bytes) {
  return collective_cost(mesh, axis, moved_bytes(mesh, axis, bytes), 0.1);
}

std::string to_string(const ShardingSpec& spec, size_t dims) {
  std::string out;
  for (size_t dim = 0; dim < dims; ++dim) {
    std::string cut;
    for (size_t axis = 0; axis < 2; ++axis) {
      if (spec.at(axis) == dim) cut += std::to_string(axis);
    }
    out += cut.empty() ? "R" : "S" + cut;
  }
  return out;
}

std::vector<std::vector<ShardingChoice>> sharding_choices(const ShardingGraph& graph,
                                                          const ShardingMesh& mesh) {
  return Choices(graph, mesh).all();
}

OneHotProblem sharding_problem(const ShardingGraph& graph, const ShardingMesh& mesh,
                               const std::vector<std::vector<ShardingChoice>>& choices) {
  Choices rules(graph, mesh);
  rules.all();
  OneHotProblem problem;
  for (size_t v = 0; v < graph.ops.size(); ++v) {
    const ShardingOp& op = graph.ops[v];
    auto& costs = problem.nodes.emplace_back();
    for (const ShardingChoice& choice : choices[v]) {
      costs.push_back(choice.communication + choice.tie_break);
    }
    for (size_t i = 0; i < op.reads.size(); ++i) {
      const size_t u = op.reads[i];
      const bool follows = !rules.is_product(op) && rules.leader(op).first == i;
      OneHotEdge edge{u, v, {}};
      for (size_t a = 0; a < choices[u].size(); ++a) {
        auto& row = edge.cost.emplace_back();
        for (size_t b = 0; b < choices[v].size(); ++b) {
          if (follows) {
            row.push_back(a == b ? 0 : kInfinity);
          } else {
            row.push_back(resharding_cost(mesh, choices[u][a].output, choices[v][b].operands[i],
                                          bytes_of(graph, graph.ops[u])));
          }
        }
      }
      problem.edges.push_back(std::move(edge));
    }
    if (!op.updates) continue;
    OneHotEdge alias{*op.updates, v, {}};
    for (const ShardingChoice& before : choices[*op.updates]) {
      auto& row = alias.cost.emplace_back();
      for (const ShardingChoice& after : choices[v]) {
        row.push_back(before.output == after.output ? 0 : kInfinity);
      }
    }
    problem.edges.push_back(std::move(alias));
  }
  return problem;
}

Result<std::optional<ShardingPlan>> best_sharding(const ShardingGraph& graph,
                                                  const ShardingMesh& mesh,
                                                  const OneHotSolver& solve) {
  const auto choices = sharding_choices(graph, mesh);
  for (const auto& own : choices) {
    if (own.empty()) return std::nullopt;
  }
  TESSERA_TRY(const auto answer, solve(sharding_problem(graph, mesh, choices)));
  if (!answer) return std::nullopt;
  ShardingPlan plan{answer->cost, answer->cost, {}, answer->proved, answer->bound, answer->solver};
  if (answer->choices.empty()) return plan;
  for (size_t v = 0; v < choices.size(); ++v) {
    plan.ops.push_back(choices[v][answer->choices[v]]);
    plan.communication -= plan.ops.back().tie_break;
  }
  return plan;
}

std::optional<ShardingPlan> best_sharding(const ShardingGraph& graph, const ShardingMesh& mesh) {
  return best_sharding(graph, mesh, OneHotSolver(solve_one_hot_by_either)).value();
}

}  // namespace tessera::published
