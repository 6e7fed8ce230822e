#include "tessera/plan/resolve/halos.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

bool has(const DimGroup& group, int dim) {
  return std::find(group.begin(), group.end(), dim) != group.end();
}

// Returns the tensor dim of the operand that consists of the op dim alone; -1 if there is none.
int tensor_dim(const OperandDims& operand, int dim) {
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (has(operand.dims[d], dim)) return operand.dims[d].size() == 1 ? static_cast<int>(d) : -1;
  }
  return -1;
}

bool made_by(const Op& op, int dim) {
  return !op.outputs.empty() &&
         std::ranges::all_of(op.annotation.outputs,
                             [&](const OperandDims& out) { return tensor_dim(out, dim) >= 0; });
}

template <class Visit>
void for_each_coordinate(const Axes& axes, const Mesh& mesh, Visit&& visit) {
  std::vector<int64_t> at(mesh.axes.size(), 0);
  for (bool more = true; more;) {
    visit(std::as_const(at));
    more = false;
    for (auto axis = axes.rbegin(); axis != axes.rend() && !more; ++axis) {
      int64_t& coordinate = at[axis->index()];
      more = ++coordinate < mesh.axis(*axis).size;
      if (!more) coordinate = 0;
    }
  }
}

class Settler {
 public:
  Settler(const Graph& graph, ResolvedPlan& plan)
      : graph_(graph), plan_(plan), readers_(graph.consumers()) {}

  void run() {
    for (const Op& op : graph_.ops()) {
      if (op.phase == Phase::kBackward) follow_gradients(op);
    }
    for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
      OpPlan& plan = plan_.ops[op->id.index()];
      for (size_t d = 0; d < plan.dims.size(); ++d) {
        if (plan.dims[d].computes_halo) grow(*op, static_cast<int>(d));
      }
    }
    for (const Op& op : graph_.ops()) {
      OpPlan& plan = plan_.ops[op.id.index()];
      for (size_t d = 0; d < plan.dims.size(); ++d) {
        if (plan.dims[d].rims) plan.dims[d].rims = has_rims(op, static_cast<int>(d));
      }
    }
  }

 private:
  const Mesh& mesh_of(const Op& op) const {
    return plan_.stages[plan_.ops[op.id.index()].stage.index()].mesh;
  }

  // Sets `computes_halo` of an op that makes a gradient. It is set if the halo of the tensor to
  // which the gradient belongs is computed, else it is cleared.
  void follow_gradients(const Op& op) {
    OpPlan& plan = plan_.ops[op.id.index()];
    for (size_t d = 0; d < plan.dims.size(); ++d) {
      DimSplit& split = plan.dims[d];
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        const Tensor& made = graph_.tensor(op.outputs[o]);
        if (made.role != Role::kGradient || !made.of.valid()) continue;
        split.computes_halo = false;
        const int at = tensor_dim(op.annotation.outputs[o], static_cast<int>(d));
        const OpId maker = graph_.tensor(made.of).producer;
        if (at < 0 || !maker.valid()) continue;
        const Op& forward = graph_.op(maker);
        const auto output = std::find(forward.outputs.begin(), forward.outputs.end(), made.of) -
                            forward.outputs.begin();
        const DimGroup& group =
            forward.annotation.outputs[static_cast<size_t>(output)].dims[static_cast<size_t>(at)];
        split.computes_halo =
            group.size() == 1 &&
            plan_.ops[maker.index()].dims[static_cast<size_t>(group[0])].computes_halo;
      }
    }
  }

  // Returns whether each rank may make more of the dim than its piece.
  bool may_grow(const Op& op, int dim) const {
    const OpPlan& plan = plan_.ops[op.id.index()];
    const DimSplit& split = plan.dims[static_cast<size_t>(dim)];
    if (split.axes.empty() || split.steps > 1 || !plan.at.empty() || !made_by(op, dim))
      return false;
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      for (size_t d = 0; d < plan.dims.size(); ++d) {
        if (!plan.dims[d].axes.empty() && op.annotation.reduces(static_cast<int>(d), o))
          return false;
      }
      for (OpId id : readers_[op.outputs[o].index()]) {
        if (plan_.ops[id.index()].stage != plan.stage) return false;
      }
    }
    return true;
  }

  // Sets `grown` of the dim, so that each rank makes what the reader with the largest need
  // reads there.
  void grow(const Op& op, int dim) {
    DimSplit& split = plan_.ops[op.id.index()].dims[static_cast<size_t>(dim)];
    if (!may_grow(op, dim)) return;
    const Mesh& mesh = mesh_of(op);
    const int64_t size = op.annotation.dims[static_cast<size_t>(dim)].size;
    int64_t most = size;  // elements that all ranks together make if nothing grows
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const auto at = static_cast<size_t>(tensor_dim(op.annotation.outputs[o], dim));
      for (OpId id : readers_[op.outputs[o].index()]) {
        const Op& reader = graph_.op(id);
        for (size_t i = 0; i < reader.inputs.size(); ++i) {
          if (reader.inputs[i] != op.outputs[o]) continue;
          std::vector<WindowRead> grown = need(reader, i, at, split.axes);
          if (grown.empty()) continue;
          int64_t made = 0;
          bool holds = true;
          for_each_coordinate(split.axes, mesh, [&](const std::vector<int64_t>& c) {
            const Interval own = cut_interval(size, 1, split.axes, mesh, c);
            const Interval more = grown_interval(grown, size, split.axes, mesh, c);
            holds = holds && (own.empty() || intersect(own, more) == own);
            made += more.size;
          });
          if (!holds || made <= most) continue;
          most = made;
          split.grown = std::move(grown);
        }
      }
    }
  }

  // Returns the windows through which the reader and the ops after it read tensor dim `at` of the
  // operand. Empty if no window is on the way, or if other axes than `axes` cut the reader's dim.
  std::vector<WindowRead> need(const Op& reader, size_t operand, size_t at,
                               const Axes& axes) const {
    const DimGroup& group = reader.annotation.inputs[operand].dims[at];
    if (group.size() != 1) return {};
    const DimSplit& split = plan_.ops[reader.id.index()].dims[static_cast<size_t>(group.front())];
    if (split.axes != axes) return {};
    std::vector<WindowRead> out = split.grown;
    if (const auto read = reader.annotation.window_read(reader.annotation.inputs[operand], at))
      out.insert(out.begin(), *read);
    return out;
  }

  // Returns whether there are both places of the dim that need a halo and places that need none, so
  // that a loop over interior and rims makes sense.
  bool has_rims(const Op& op, int dim) const {
    const OpPlan& plan = plan_.ops[op.id.index()];
    if (!made_by(op, dim)) return false;
    RimCut cut = rim_cut(op, plan, dim, graph_);
    cut.position = 0;
    cut.dims = 1;
    if (cut.axes.empty() || cut.inside.empty()) return false;
    int64_t interior = 0, rims = 0;
    for_each_coordinate(cut.axes, mesh_of(op), [&](const std::vector<int64_t>& at) {
      interior += rim_interval(cut, 0, mesh_of(op), at).size;
      for (int64_t step : {1, 2}) rims += rim_interval(cut, step, mesh_of(op), at).size;
    });
    return interior > 0 && rims > 0;
  }

  const Graph& graph_;
  ResolvedPlan& plan_;
  const std::vector<std::vector<OpId>> readers_;
};

}  // namespace

void settle_halos(const Graph& graph, ResolvedPlan& plan) {
  const bool asks = std::ranges::any_of(
      plan.plan.splits, [](const SplitEntry& entry) { return entry.rims || entry.computes_halo; });
  if (asks) Settler(graph, plan).run();
}

std::vector<int> rim_dims(const OpPlan& plan) {
  std::vector<int> out;
  for (size_t d = 0; d < plan.dims.size(); ++d) {
    if (plan.dims[d].rims) out.push_back(static_cast<int>(d));
  }
  return out;
}

RimCut rim_cut(const Op& op, const OpPlan& plan, int dim, const Graph& graph) {
  const std::vector<int> dims = rim_dims(plan);
  const DimSplit& split = plan.dims[static_cast<size_t>(dim)];
  RimCut cut;
  cut.position = static_cast<size_t>(std::find(dims.begin(), dims.end(), dim) - dims.begin());
  cut.dims = dims.size();
  cut.size = op.annotation.dims[static_cast<size_t>(dim)].size;
  cut.axes = split.axes;
  cut.grown = split.grown;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (graph.tensor(op.inputs[i]).role == Role::kInput) continue;  // loaded with its halo
    const OperandDims& operand = op.annotation.inputs[i];
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      if (!has(operand.dims[d], dim)) continue;
      const auto read =
          operand.dims[d].size() == 1 ? op.annotation.window_read(operand, d) : std::nullopt;
      if (read && std::find(cut.inside.begin(), cut.inside.end(), *read) == cut.inside.end())
        cut.inside.push_back(*read);
    }
  }
  return cut;
}

Interval rim_interval(const RimCut& cut, int64_t step, const Mesh& mesh,
                      const std::vector<int64_t>& coordinates) {
  const Interval whole = grown_interval(cut.grown, cut.size, cut.axes, mesh, coordinates);
  // The slabs of the last dim come first.
  const auto slab = static_cast<size_t>((step + 1) / 2);
  const size_t of = step == 0 ? cut.dims : cut.dims - slab;
  if (cut.position > of) return whole;
  const auto rim = [&](int64_t place) {
    return std::ranges::any_of(cut.inside, [&](const WindowRead& read) {
      const Interval needs = read.of({place, 1});
      const Interval holds = cut_interval(read.extent, 1, cut.axes, mesh, coordinates);
      return !needs.empty() && intersect(needs, holds) != needs;
    });
  };
  int64_t begin = whole.begin, end = whole.end();
  while (begin < end && rim(begin)) ++begin;
  while (end > begin && rim(end - 1)) --end;
  if (cut.position < of) return {begin, end - begin};
  return step % 2 == 1 ? Interval{whole.begin, begin - whole.begin}
                       : Interval{end, whole.end() - end};
}

}  // namespace tessera
