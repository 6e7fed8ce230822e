#include <algorithm>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
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
  bool all = true;
  Layout out = layout;
  const auto move = [&](AxisId& axis) {
    const AxisId there = to.find(from.axis(axis).name);
    all = all && there.valid() && to.axis(there).size == from.axis(axis).size;
    axis = there;
  };
  for (Axes& dim : out.shards) std::for_each(dim.begin(), dim.end(), move);
  for (AxisPin& pin : out.at) move(pin.axis);
  std::for_each(out.partial.begin(), out.partial.end(), move);
  if (!all) return std::nullopt;
  std::sort(out.at.begin(), out.at.end());
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

}  // namespace tessera
