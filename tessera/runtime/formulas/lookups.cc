// Formulas of look-ups by ids, and of the search for the nearest code.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/formulas/picking.h"
#include "tessera/runtime/formulas/row_gradients.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

// Returns the rows of the table, the second input, that the box has.
Interval rows_of_table(const Call& c) { return c.rows_of(op_dims(c.op().annotation.inputs[1])[0]); }

// Returns the rows of the table at the places, [places.., width], 0 where a place is not there.
at::Tensor rows_at(const at::Tensor& table, const Places& places) {
  std::vector<int64_t> shape = places.row.sizes().vec();
  shape.push_back(table.size(1));
  const at::Tensor found = table.index_select(0, places.row.flatten()).reshape(shape);
  return at::where(places.here.unsqueeze(-1), found, at::zeros({}, found.options()));
}

Values embedding(const Call& c) {
  return {rows_at(c.stored(1), places_of(c.in(0), rows_of_table(c)))};
}

Values embedding_grad(const Call& c) {
  const at::Tensor dy = c.in(1);
  const Interval rows = c.rows_of(c.dims_of_output(0)[0]);
  const Places places = places_of(c.in(0), rows);
  // On a GPU the order of additions is fixed by libtorch's deterministic mode (configure_process()).
  const at::Tensor terms = dy * places.here.unsqueeze(-1).to(dy.scalar_type());
  const at::Tensor made = at::zeros({rows.size, dy.size(-1)}, dy.options());
  return {made.index_add(0, places.row.flatten(), terms.reshape({-1, dy.size(-1)}))};
}

// Adds up the rows of a bag place by place, so that no more than one row of each bag is in memory.
Values embedding_bag(const Call& c) {
  const at::Tensor table = c.stored(1), ids = c.in(0);
  const at::ScalarType wide = table.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Interval rows = rows_of_table(c);
  at::Tensor sum;
  for (int64_t i = 0; i < ids.size(-1); ++i) {
    at::Tensor term = rows_at(table, places_of(ids.select(-1, i), rows)).to(wide);
    if (c.has(2)) term = term * c.in(2).select(-1, i).unsqueeze(-1).to(wide);
    sum = i == 0 ? term : sum + term;
  }
  if (c.op().text("mode") == "mean") sum = sum / (ids >= 0).sum(-1, true).clamp_min(1).to(wide);
  return {sum};
}

Values embedding_bag_weights_grad(const Call& c) {
  const at::Tensor table = c.stored(1), ids = c.in(0), dy = c.in(2);
  const Interval rows = rows_of_table(c);
  std::vector<at::Tensor> of_place;
  for (int64_t i = 0; i < ids.size(-1); ++i)
    of_place.push_back((rows_at(table, places_of(ids.select(-1, i), rows)) * dy).sum(-1));
  return {at::stack(of_place, -1)};
}

Values embedding_bag_grad(const Call& c) {
  const at::Tensor dy = c.in(1);
  const Interval rows = c.rows_of(c.dims_of_output(0)[0]);
  const NamedRows named = named_rows(
      {{c.in(0), dy, c.has(2) ? c.in(2) : at::Tensor(), c.op().text("mode") == "mean"}}, rows);
  const at::Tensor made = at::zeros({rows.size, dy.size(-1)}, dy.options());
  write_rows(made, named, named.gradient);
  return {made};
}

// Calls f(scores, first) for a few codes after the others: minus the squared distances [points.., codes]
// and the place of the first of these codes. A distance is summed along the width element by element,
// so that it is the same number in whatever piece its code lies.
template <class F>
void each_score(const Call& c, const F& f) {
  const at::Tensor x = c.in(0), codes = c.in(1);
  const int64_t width = x.size(-1), all = codes.size(0);
  const int64_t dim = c.op().annotation.inputs[1].dims[0].front();
  const int64_t begin = c.box().dims[static_cast<size_t>(dim)].begin;
  for (int64_t first = 0; first < all; first += width) {  // results are as large as x
    const at::Tensor few = codes.narrow(0, first, std::min(width, all - first));
    at::Tensor sum;
    for (int64_t i = 0; i < width; ++i) {
      const at::Tensor apart = x.select(-1, i).unsqueeze(-1) - few.select(-1, i);
      const at::Tensor square = apart * apart;
      sum = i == 0 ? square : sum + square;
    }
    f(-sum, begin + first);
  }
}

Values code_score(const Call& c) {
  at::Tensor most;
  each_score(c, [&](const at::Tensor& scores, int64_t) {
    const at::Tensor best = at::amax(scores, {-1});
    most = most.defined() ? at::maximum(most, best) : best;
  });
  return {most};
}

Values code_place(const Call& c) {
  const at::Tensor wanted = c.in(2).unsqueeze(-1);
  at::Tensor place;
  each_score(c, [&](const at::Tensor& scores, int64_t first) {
    const at::Tensor codes = at::arange(first, first + scores.size(-1), scores.options());
    const double never = -std::numeric_limits<double>::infinity();
    const at::Tensor found =
        at::amax(at::where(scores == wanted, -codes, at::full({}, never, codes.options())), {-1});
    place = place.defined() ? at::maximum(place, found) : found;
  });
  return {place};
}

Values code_ids(const Call& c) {
  const at::Tensor place = c.in(0);
  const at::Tensor safe = at::where(at::isfinite(place), place, at::zeros({}, place.options()));
  return {at::round(-safe).to(at::kLong)};
}

}  // namespace

std::span<const Formula> lookup_formulas() {
  static const std::vector<Formula> formulas = {
      {"embedding", embedding},
      {"embedding_grad", embedding_grad},
      {"embedding_bag", embedding_bag},
      {"embedding_bag_grad", embedding_bag_grad},
      {"embedding_bag_weights_grad", embedding_bag_weights_grad},
      {"code_score", code_score},
      {"code_place", code_place},
      {"code_ids", code_ids},
  };
  return formulas;
}

}  // namespace tessera::kernels
