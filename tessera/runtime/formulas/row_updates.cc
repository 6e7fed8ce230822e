// Formulas of updates by rows. Time and memory grow with the number of ids and not with the number of
// rows, so a formula writes the rows itself.
#include <ATen/ATen.h>

#include <sstream>

#include "tessera/base/philox.h"
#include "tessera/graph/rows.h"
#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/formulas/random.h"
#include "tessera/runtime/formulas/row_gradients.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

// Returns the type in which an op on a table computes.
at::ScalarType compute_type(const Call& c) {
  return c.input(0).dtype == DType::kFloat64 ? at::kDouble : at::kFloat;
}

NamedRows rows_of_call(const Call& c) {
  std::istringstream modes(c.op().text("modes"));
  std::vector<LookUp> look_ups;
  size_t at = tables_of_rows(c.op());
  for (std::string mode; modes >> mode; at += operands_of_look_up(mode)) {
    const bool weighted = operands_of_look_up(mode) > 2;
    look_ups.push_back({c.in(at), c.in(at + 1).to(compute_type(c)),
                        weighted ? c.in(at + 2) : at::Tensor(), mode == "mean"});
  }
  return named_rows(look_ups, c.rows_of(op_dims(c.op().annotation.inputs[0])[0]));
}

// Returns the place of the first input behind the look-ups.
size_t behind_look_ups(const Call& c) {
  std::istringstream modes(c.op().text("modes"));
  size_t at = tables_of_rows(c.op());
  for (std::string mode; modes >> mode;) at += operands_of_look_up(mode);
  return at;
}

// Returns a scalar input in float64; `otherwise` if the call lacks it.
at::Tensor scalar(const Call& c, size_t i, double otherwise) {
  const auto options = at::TensorOptions(at::kDouble).device(c.stored(1).device());
  return c.has(i) ? c.in(i).to(at::kDouble) : at::full({}, otherwise, options);
}

// Returns the new rows of the table in its dtype, rounded as the op's attribute says.
at::Tensor rounded(const Call& c, const at::Tensor& values, const at::Tensor& row) {
  const at::ScalarType dtype = c.stored(0).scalar_type();
  if (c.op().text("rounding") != "stochastic" || at::elementSize(dtype) != 2)
    return values.to(dtype);
  const std::vector<int> dims = op_dims(c.op().annotation.inputs[0]);
  const int64_t width = c.op().annotation.dims[static_cast<size_t>(dims[1])].size;
  const std::string given = c.op().text("stream"), &stream = given.empty() ? c.op().path : given;
  const int64_t step = c.context().step;
  const uint64_t drawn = stable_hash(reinterpret_cast<const char*>(&step), sizeof step,
                                     stable_hash(stream.data(), stream.size()));
  const at::Tensor first =
      (row + c.rows_of(dims[0]).begin) * width + c.box().dims[static_cast<size_t>(dims[1])].begin;
  return rounded_stochastically(values, dtype,
                                random_words(c.context().seed, drawn, first, values.size(1)));
}

// The operands of a step: the old rows of all tables, their gradient, and scalars.
struct Step {
  std::vector<at::Tensor> old;
  at::Tensor gradient;
  at::Tensor lr, count, scale;  // float64; the number of the step, if the op has one

  // Returns a scalar in the dtype of the rows.
  at::Tensor as_rows(const at::Tensor& x) const { return x.to(gradient.scalar_type()); }
};

// Writes to the outputs what `made` makes of the rows that ids name, in the order of the outputs.
template <class Made>
Values step_of_rows(const Call& c, size_t scalars, const Made& made) {
  const NamedRows rows = rows_of_call(c);
  Step step;
  const size_t tables = tables_of_rows(c.op()), at = behind_look_ups(c);
  for (size_t i = 0; i < tables; ++i)
    step.old.push_back(c.stored(i).index_select(0, rows.row).to(compute_type(c)));
  step.gradient = rows.gradient;
  step.lr = scalar(c, at, 0);
  step.count = scalar(c, scalars > 1 ? at + 1 : SIZE_MAX, 0);
  step.scale = scalar(c, at + scalars, 1);
  const at::Tensor skip = scalar(c, at + scalars + 1, 0) != 0;
  const Values values = made(step);
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor to = c.updated(i);
    const at::Tensor value =
        i == 0 ? rounded(c, values[i], rows.row) : values[i].to(to.scalar_type());
    write_rows(to, rows, at::where(skip, to.index_select(0, rows.row), value));
  }
  return Values(values.size());
}

Values row_sgd(const Call& c) {
  return step_of_rows(c, 1, [](const Step& s) -> Values {
    return {s.old[0] - s.as_rows(s.lr * s.scale) * s.gradient};
  });
}

Values row_adagrad(const Call& c) {
  return step_of_rows(c, 1, [&](const Step& s) -> Values {
    const at::Tensor g = s.as_rows(s.scale) * s.gradient, sum = s.old[1] + g * g;
    return {s.old[0] - s.as_rows(s.lr) * (g / (at::sqrt(sum) + c.number("eps"))), sum};
  });
}

Values row_adam(const Call& c) {
  return step_of_rows(c, 2, [&](const Step& s) -> Values {
    const double b1 = c.number("beta1"), b2 = c.number("beta2");
    const at::Tensor g = s.as_rows(s.scale) * s.gradient;
    const at::Tensor m = b1 * s.old[1] + (1 - b1) * g, v = b2 * s.old[2] + (1 - b2) * g * g;
    const auto correction = [&](double beta) {
      return 1 - at::pow(at::full_like(s.count, beta), s.count);
    };
    const at::Tensor size = s.as_rows(s.lr / correction(b1)),
                     second = s.as_rows(at::rsqrt(correction(b2)));
    return {s.old[0] - size * m / (at::sqrt(v) * second + c.number("eps")), m, v};
  });
}

// Returns the rows after a step by their sums of squares.
at::Tensor rowwise_step_of(const Call& c, const Step& s, const at::Tensor& sum) {
  const at::Tensor by = s.as_rows(s.lr * s.scale) / (at::sqrt(sum) + c.number("eps"));
  return s.old[0] - by.unsqueeze(-1) * s.gradient;
}

Values rowwise_adagrad(const Call& c) {
  return step_of_rows(c, 1, [&](const Step& s) -> Values {
    const at::Tensor grown = at::square(s.gradient).sum(-1) * s.as_rows(s.scale * s.scale) /
                             static_cast<double>(s.gradient.size(1));
    const at::Tensor sum = s.old[1] + grown;
    return {rowwise_step_of(c, s, sum), sum};
  });
}

Values rowwise_step(const Call& c) {
  return step_of_rows(c, 1,
                      [&](const Step& s) -> Values { return {rowwise_step_of(c, s, s.old[1])}; });
}

Values row_sum_squares(const Call& c) {
  const NamedRows rows = rows_of_call(c);
  const at::Tensor of_row = at::square(rows.gradient).sum(-1).to(at::kDouble);
  return {at::where(rows.named, of_row, at::zeros({}, of_row.options())).sum()};
}

Values row_squares(const Call& c) {
  const NamedRows rows = rows_of_call(c);
  const at::Tensor of_place = at::square(rows.gradient).sum(-1).index_select(0, rows.of_place);
  const at::Tensor made = at::where(rows.first, of_place, at::zeros({}, of_place.options()));
  return {at::zeros_like(made).scatter(0, rows.place, made)};
}

Values row_sums(const Call& c) {
  const at::Tensor sum = c.in(0);
  const Interval rows = c.rows_of(op_dims(c.op().annotation.inputs[0])[0]);
  const size_t behind = 1 + ids_of_rows(c.op()).size();
  std::vector<at::Tensor> all;
  for (size_t k = 1; k < behind; ++k) all.push_back(c.in(k).to(at::kLong).flatten());
  const at::Tensor ids = at::cat(all), row = ids - rows.begin;
  const at::Tensor here = at::logical_and(ids >= 0, at::logical_and(row >= 0, row < rows.size));
  const at::Tensor factor = scalar(c, behind + 1, 1).to(sum.scalar_type());
  const at::Tensor term = factor * factor * c.in(behind).to(sum.scalar_type()) /
                          static_cast<double>(c.op().integer("width"));
  const at::Tensor zero = at::zeros({}, sum.options());
  // A row has at most one term that is not 0, so that the order of additions does not matter.
  const at::Tensor made =
      sum.index_add(0, at::where(here, row, at::zeros_like(row)), at::where(here, term, zero));
  return {at::where(scalar(c, behind + 2, 0) != 0, sum, made)};
}

// Returns whether a formula computes the update where the rows are in a cache. Stochastic rounding
// draws by the row's number in the whole table, which the host keeps (KernelCall::row_at).
bool rounds_to_nearest(const Op& op) { return op.text("rounding") != "stochastic"; }

}  // namespace

std::span<const Formula> row_update_formulas() {
  static const std::vector<Formula> formulas = {
      {"row_sgd", row_sgd, nullptr, rounds_to_nearest},
      {"row_adagrad", row_adagrad, nullptr, rounds_to_nearest},
      {"rowwise_adagrad", rowwise_adagrad, nullptr, rounds_to_nearest},
      {"row_adam", row_adam, nullptr, rounds_to_nearest},
      {"row_sum_squares", row_sum_squares},
      {"row_squares", row_squares},
      {"row_sums", row_sums},
      {"rowwise_step", rowwise_step, nullptr, rounds_to_nearest},
  };
  return formulas;
}

}  // namespace tessera::kernels
