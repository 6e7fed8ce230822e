// Formulas of values between the places of a grid: other sizes of maps, and grids at points. Which
// elements lie beside one is computed where the values are. Those outside of the piece count as 0:
// they belong to other pieces.
#include <ATen/ATen.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/runtime/formulas/picking.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/runtime/kernels/windows/windows.h"

namespace tessera::kernels {
namespace {

// One of the elements beside each of some places along a dim, and what it counts there.
struct Beside {
  at::Tensor index, weight;
};

// Returns elements with their numbers in the piece; the weight of one outside is 0.
Beside in_piece(const at::Tensor& element, const at::Tensor& weight, Interval piece) {
  const Places places = places_of(element, piece);
  return {places.row, at::where(places.here, weight, at::zeros_like(weight))};
}

// ---- resize
// Returns, for each element of y along a tensor dim, the elements of x that it is made of, with the
// weights along that dim; empty if x and y are equally long there.
std::vector<Beside> beside_each(const Call& c, const OperandDims& x, const OperandDims& y, size_t d,
                                const at::Tensor& like) {
  const int64_t of_x = extent_of(c.op(), x, d), of_y = extent_of(c.op(), y, d);
  if (of_x == of_y) return {};
  const Interval piece = interval_of(c.op(), c.box(), x, d),
                 made = interval_of(c.op(), c.box(), y, d);
  const at::Tensor i = at::arange(made.begin, made.end(), like.options().dtype(at::kLong));
  std::vector<int64_t> shape(x.dims.size(), 1);
  shape[d] = made.size;
  const auto one = [&](const at::Tensor& element, const at::Tensor& weight) {
    const Beside at = in_piece(element, weight, piece);
    return Beside{at.index, at.weight.to(like.scalar_type()).reshape(shape)};
  };
  const at::Tensor places = i.to(at::kDouble);
  if (c.op().text("mode") != "linear")
    return {one(at::floor_divide(i * of_x, of_y), at::ones_like(places))};
  const auto from = static_cast<double>(of_x), to = static_cast<double>(of_y);
  const bool corners = c.op().integer("corners") != 0;
  const at::Tensor place = corners ? places * (of_y > 1 ? (from - 1) / (to - 1) : 0.0)
                                   : at::clamp_min((places + 0.5) * from / to - 0.5, 0);
  const at::Tensor low = at::clamp_max(place.to(at::kLong), of_x - 1);
  const at::Tensor beyond = place - low;
  return {one(low, 1 - beyond), one(at::clamp_max(low + 1, of_x - 1), beyond)};
}

Values resize(const Call& c) {
  const OperandDims &x = c.op().annotation.inputs[0], &y = c.op().annotation.outputs[0];
  at::Tensor values = c.in(0);
  for (size_t d = 0; d < x.dims.size(); ++d) {
    at::Tensor next;
    for (const Beside& one : beside_each(c, x, y, d, values)) {
      const at::Tensor part = values.index_select(static_cast<int64_t>(d), one.index) * one.weight;
      next = next.defined() ? next + part : part;
    }
    if (next.defined()) values = next;
  }
  return {values};
}

Values resize_grad(const Call& c) {
  if (c.input(0).empty()) return {at::zeros({}, c.in(0).options())};  // nothing is made of dx
  const OperandDims &x = c.op().annotation.outputs[0], &y = c.op().annotation.inputs[0];
  at::Tensor values = c.in(0);
  for (size_t d = 0; d < x.dims.size(); ++d) {
    std::vector<int64_t> shape = values.sizes().vec();
    shape[d] = c.output_size(0, d);
    at::Tensor sums = at::zeros(shape, values.options());
    const std::vector<Beside> all = beside_each(c, x, y, d, values);
    for (const Beside& one : all)
      sums = sums.index_add(static_cast<int64_t>(d), one.index, values * one.weight);
    if (!all.empty()) values = sums;
  }
  return {values};
}

// ---- grid_sample
// The points of a call in the cells of its grid. A coordinate is -1 at the first place of a dim and 1
// at the last; a point outside counts for nothing.
struct Cells {
  // The two elements beside each point along a sampled dim, with weights, and with the derivatives
  // of the weights by the coordinate.
  struct Along {
    size_t coordinate = 0;
    int64_t size = 1;  // of the piece
    Beside side[2], slope[2];
  };
  // A corner of each cell: its row of the grid, what it counts for its point, and the derivative of
  // that by the coordinate of each sampled dim, [points], [points, 1] and [points].
  struct Corner {
    at::Tensor row, weight;
    std::vector<at::Tensor> slopes;
  };

  std::vector<int> sampled;
  Picking picking;
  std::vector<Along> dims;

  Cells(const Call& c, const OperandDims& grid, size_t points)
      : sampled(sampled_dims(c)),
        picking(c, op_dims(grid), without_last(c.op().annotation.inputs[points]), sampled) {
    std::vector<int64_t> coordinates = numbers_of(c.op(), "coordinates", 0);
    if (coordinates.empty()) coordinates = {0, 1, 2};
    std::vector<int> order = picking.ids_order();
    order.push_back(op_dims(c.op().annotation.inputs[points]).back());
    const at::Tensor all = c.along(points, order);
    for (size_t d = 0; d < sampled.size(); ++d) {
      const auto dim = static_cast<size_t>(sampled[d]);
      dims.push_back(along(all.select(-1, coordinates[d]), c.op().annotation.dims[dim].size,
                           c.box().dims[dim]));
      dims.back().coordinate = static_cast<size_t>(coordinates[d]);
    }
  }

  static std::vector<int> sampled_dims(const Call& c) {
    std::vector<int> out;
    for (const std::string& name : split_text(c.op().text("dims"), ' ')) {
      if (!name.empty()) out.push_back(c.op().annotation.find(name));
    }
    return out;
  }
  static std::vector<int> without_last(const OperandDims& operand) {
    std::vector<int> order = op_dims(operand);
    order.pop_back();
    return order;
  }
  static Along along(const at::Tensor& coordinate, int64_t size, Interval piece) {
    const double half = static_cast<double>(size - 1) / 2;
    const at::Tensor place = (coordinate + 1) * half, zero = at::zeros_like(place);
    const at::Tensor inside = at::logical_and(place > -1, place < size);  // false for a NaN
    const at::Tensor safe = at::where(inside, place, zero), low = at::floor(safe);
    const at::Tensor beyond = safe - low, one = inside.to(place.scalar_type());
    Along made;
    made.size = piece.size;
    for (int side = 0; side < 2; ++side) {
      const at::Tensor element = low + side;
      made.side[side] = in_piece(element, (side == 0 ? 1 - beyond : beyond) * one, piece);
      made.slope[side] = in_piece(element, one * (side == 0 ? -half : half), piece);
    }
    return made;
  }

  size_t corners() const { return size_t{1} << dims.size(); }
  // Returns corner `number` of the cells: bit d says on which side along dim d it is.
  Corner corner(size_t number) const {
    const auto side = [&](size_t d) { return (number >> d) & 1U; };
    at::Tensor place, weight;
    for (size_t d = 0; d < dims.size(); ++d) {
      const Beside& one = dims[d].side[side(d)];
      place = d == 0 ? one.index : place * dims[d].size + one.index;
      weight = d == 0 ? one.weight : weight * one.weight;
    }
    Corner made{picking.numbers(place), weight.reshape({-1, 1}), {}};
    for (size_t d = 0; d < dims.size(); ++d) {
      at::Tensor slope = dims[d].slope[side(d)].weight;
      for (size_t other = 0; other < dims.size(); ++other) {
        if (other != d) slope = slope * dims[other].side[side(other)].weight;
      }
      made.slopes.push_back(slope.reshape({-1}));
    }
    return made;
  }
};

Values grid_sample(const Call& c) {
  const Cells cells(c, c.op().annotation.inputs[0], 1);
  const at::Tensor grid = cells.picking.as_rows(c.along(0, cells.picking.table_order()));
  at::Tensor made;
  for (size_t k = 0; k < cells.corners(); ++k) {
    const Cells::Corner corner = cells.corner(k);
    const at::Tensor part = grid.index_select(0, corner.row) * corner.weight;
    made = k == 0 ? part : made + part;
  }
  const std::vector<int> order = cells.picking.picked_order();
  return {c.summed(cells.picking.as_dims(made, order), order, 0)};
}

Values grid_sample_grad(const Call& c) {
  const Cells cells(c, c.op().annotation.outputs[0], 1);
  const at::Tensor dy = cells.picking.as_rows(c.along(0, cells.picking.picked_order()));
  at::Tensor made = at::zeros({cells.picking.table_rows(), dy.size(1)}, dy.options());
  for (size_t k = 0; k < cells.corners(); ++k) {
    const Cells::Corner corner = cells.corner(k);
    made = made.index_add(0, corner.row, dy * corner.weight);
  }
  const std::vector<int> order = cells.picking.table_order();
  return {c.summed(cells.picking.as_dims(made, order), order, 0)};
}

Values grid_sample_points_grad(const Call& c) {
  const Cells cells(c, c.op().annotation.inputs[1], 2);
  const at::Tensor dy = cells.picking.as_rows(c.along(0, cells.picking.picked_order())),
                   grid = cells.picking.as_rows(c.along(1, cells.picking.table_order()));
  std::vector<int> order = cells.picking.ids_order();
  order.push_back(c.dims_of_output(0).back());
  const auto coordinates = c.box().dims[static_cast<size_t>(order.back())].size;
  at::Tensor made = at::zeros({dy.size(0), coordinates}, dy.options());
  for (size_t k = 0; k < cells.corners(); ++k) {
    const Cells::Corner corner = cells.corner(k);
    const at::Tensor product = (dy * grid.index_select(0, corner.row)).sum(1);
    for (size_t d = 0; d < cells.dims.size(); ++d) {
      made.select(1, static_cast<int64_t>(cells.dims[d].coordinate))
          .add_(corner.slopes[d] * product);
    }
  }
  return {c.summed(cells.picking.as_dims(made, order), order, 0)};
}

}  // namespace

std::span<const Formula> grid_formulas() {
  static const std::vector<Formula> formulas = {
      {"resize", resize},
      {"resize_grad", resize_grad},
      {"grid_sample", grid_sample},
      {"grid_sample_grad", grid_sample_grad},
      {"grid_sample_points_grad", grid_sample_points_grad},
  };
  return formulas;
}

}  // namespace tessera::kernels
