// Formulas of look-ups by ids.
#include <ATen/ATen.h>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/formulas/picking.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

Values embedding(const Call& c) {
  const at::Tensor table = c.in(1);
  const Interval rows = c.rows_of(op_dims(c.op().annotation.inputs[1])[0]);
  const Places places = places_of(c.in(0), rows);
  const at::Tensor found = table.index_select(0, places.row.flatten());
  std::vector<int64_t> shape = places.row.sizes().vec();
  shape.push_back(table.size(1));
  return {found.reshape(shape) * places.here.unsqueeze(-1).to(table.scalar_type())};
}

Values embedding_grad(const Call& c) {
  const at::Tensor dy = c.in(1);
  const Interval rows = c.rows_of(c.dims_of_output(0)[0]);
  const Places places = places_of(c.in(0), rows);
  const at::Tensor terms = dy * places.here.unsqueeze(-1).to(dy.scalar_type());
  const at::Tensor made = at::zeros({rows.size, dy.size(-1)}, dy.options());
  return {made.index_add(0, places.row.flatten(), terms.reshape({-1, dy.size(-1)}))};
}

}  // namespace

std::span<const Formula> lookup_formulas() {
  static const std::vector<Formula> formulas = {{"embedding", embedding},
                                                {"embedding_grad", embedding_grad}};
  return formulas;
}

}  // namespace tessera::kernels
