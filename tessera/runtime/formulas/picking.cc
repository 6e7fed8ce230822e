// Formulas of kinds that look up elements by ids, and of those that add elements to places.
#include "tessera/runtime/formulas/picking.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {

Places places_of(const at::Tensor& ids, Interval rows) {
  const at::Tensor row = ids.to(at::kLong) - rows.begin;
  const at::Tensor here = at::logical_and(row >= 0, row < rows.size);
  return {at::where(here, row, at::zeros_like(row)), here};
}

Picking::Picking(const Call& c, const std::vector<int>& table, const std::vector<int>& ids,
                 const std::vector<int>& indexed)
    : c_(c), indexed_(indexed) {
  const auto has = [](const std::vector<int>& dims, int dim) {
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  };
  for (const int dim : ids) (has(table, dim) ? shared_ : fresh_).push_back(dim);
  for (const int dim : table) {
    if (!has(ids, dim) && !has(indexed, dim)) rest_.push_back(dim);
  }
}

std::vector<int> Picking::joined(const std::vector<std::vector<int>>& parts) {
  std::vector<int> all;
  for (const std::vector<int>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

int64_t Picking::size_of(const std::vector<int>& dims) const {
  int64_t size = 1;
  for (const int dim : dims) size *= c_.box().dims[static_cast<size_t>(dim)].size;
  return size;
}

at::Tensor Picking::as_rows(const at::Tensor& value) const {
  return value.reshape({-1, size_of(rest_)});
}

at::Tensor Picking::as_dims(const at::Tensor& rows, const std::vector<int>& order) const {
  std::vector<int64_t> shape;
  for (const int dim : order) shape.push_back(size_of({dim}));
  return rows.reshape(shape);
}

at::Tensor Picking::numbers(const at::Tensor& places) const {
  const int64_t samples = size_of(shared_);
  const at::Tensor begins = at::arange(samples, places.options()) * size_of(indexed_);
  return (places.reshape({samples, -1}) + begins.unsqueeze(-1)).flatten();
}

namespace {

// The picking of gather, scatter_add and scatter_max. `table` are the dims of the operand whose
// elements ids name.
struct ByIds {
  Picking picking;
  Places places;
  at::Tensor rows, here;  // of each picked row: its number, and whether it is in this piece

  ByIds(const Call& c, const OperandDims& table)
      : picking(c, op_dims(table), op_dims(c.op().annotation.inputs[1]), {dim(c)}),
        places(
            places_of(c.along(1, picking.ids_order()), c.box().dims[static_cast<size_t>(dim(c))])),
        rows(picking.numbers(places.row)),
        here(places.here.reshape({-1, 1})) {}
  static int dim(const Call& c) { return c.op().annotation.find(c.op().text("dim")); }
};

Values gather(const Call& c) {
  const Annotation& dims = c.op().annotation;
  const ByIds by(c, dims.inputs[0]);
  const at::Tensor table = by.picking.as_rows(c.along(0, by.picking.table_order()));
  const at::Tensor found = table.index_select(0, by.rows);
  const std::vector<int> order = by.picking.picked_order();
  return {c.summed(by.picking.as_dims(at::where(by.here, found, at::zeros_like(found)), order),
                   order, 0)};
}

Values scatter_add(const Call& c) {
  const ByIds by(c, c.op().annotation.outputs[0]);
  const at::Tensor x = by.picking.as_rows(c.along(0, by.picking.picked_order()));
  const at::Tensor none = at::zeros({by.picking.table_rows(), x.size(1)}, x.options());
  const at::Tensor made = none.index_add(0, by.rows, at::where(by.here, x, at::zeros_like(x)));
  const std::vector<int> order = by.picking.table_order();
  return {c.summed(by.picking.as_dims(made, order), order, 0)};
}

Values scatter_max(const Call& c) {
  const ByIds by(c, c.op().annotation.outputs[0]);
  const at::Tensor x = by.picking.as_rows(c.along(0, by.picking.picked_order()));
  const double never = -std::numeric_limits<double>::infinity();
  const at::Tensor none = at::full({by.picking.table_rows(), x.size(1)}, never, x.options());
  const at::Tensor made =
      none.scatter_reduce(0, by.rows.unsqueeze(-1).expand_as(x),
                          at::where(by.here, x, at::full_like(x, never)), "amax");
  const std::vector<int> order = by.picking.table_order();
  return {c.summed(by.picking.as_dims(made, order), order, 0)};
}

}  // namespace

std::span<const Formula> picking_formulas() {
  static const std::vector<Formula> formulas = {
      {"gather", gather},
      {"scatter_add", scatter_add},
      {"scatter_max", scatter_max},
  };
  return formulas;
}

}  // namespace tessera::kernels
