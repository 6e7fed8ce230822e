#include "tessera/graph/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/pieces.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

bool is_in(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string words_of(const Names& names, const Names& summed = {}) {
  std::string out;
  for (const std::string& name : names)
    out += (out.empty() ? "" : " ") + name + (is_in(summed, name) ? "+" : "");
  return out.empty() ? "()" : out;
}

Names names_of(const std::vector<Dim>& dims) {
  Names names;
  for (const Dim& dim : dims) names.push_back(dim.name);
  return names;
}

Names without(Names names, const Names& others) {
  std::erase_if(names, [&](const std::string& name) { return is_in(others, name); });
  return names;
}

// Returns the names of the dims that one published dim joins.
Names joined_names(const Tensor& parameter, const std::vector<int>& joined) {
  Names names;
  for (const int d : joined) names.push_back(parameter.dims[static_cast<size_t>(d)].name);
  return names;
}

int64_t published_size(const Tensor& parameter, const std::vector<int>& joined) {
  int64_t size = 1;
  for (const int d : joined) size *= parameter.dims[static_cast<size_t>(d)].size;
  return size;
}

// Makes the sum of squares of all elements.
TensorId squares(ParameterUpdate& u, const std::string& suffix, TensorId of) {
  return u.op1(suffix, "sum_squares", {of});
}

// Makes the parameter's new value p - rate u, where u is `direction`. Weight decay is applied with
// the learning rate.
void apply(ParameterUpdate& u, TensorId direction, TensorId rate, Attributes attributes = {}) {
  std::vector<TensorId> inputs = {u.parameter(), direction, rate, u.scalars().lr};
  if (u.scalars().skip.valid()) inputs.push_back(u.scalars().skip);
  u.becomes(u.parameter(), u.op1("", "apply_update", inputs, std::move(attributes)));
}

// ---- lamb, lars: for vectors (biases, gains) the learning rate is not adapted
bool is_vector(const ParameterUpdate& u) {
  return published_dims(u.tensor(u.parameter())).size() < 2;
}

void lamb(ParameterUpdate& u) {
  const TensorId m = u.state("m"), v = u.state("v");
  std::vector<TensorId> inputs = {u.parameter(), u.gradient(), m, v, u.scalars().step};
  u.add_flags(inputs);
  const std::vector<TensorId> made = u.op("direction", "adam_direction", inputs);
  if (made.empty()) return;
  u.becomes(m, made[1]);
  u.becomes(v, made[2]);
  TensorId rate = u.scalars().lr;
  if (!is_vector(u)) {
    const TensorId ratio =
        u.op1("ratio", "trust_ratio",
              {squares(u, "weights", u.parameter()), squares(u, "length", made[0])},
              {{"weight_decay", 0.0}});
    rate = u.op1("rate", "mul", {rate, ratio});
  }
  apply(u, made[0], rate, {{"weight_decay", 0.0}});  // the direction includes the decay
}

void lars(ParameterUpdate& u) {
  if (is_vector(u)) return u.by_one_op("sgd");
  const TensorId momentum = u.state("momentum");
  constexpr double kTrust = 1e-3;  // as in the paper
  const TensorId lr = u.scalars().lr;
  std::vector<TensorId> norms = {squares(u, "weights", u.parameter()),
                                 squares(u, "length", u.gradient())};
  if (u.scalars().coefficient.valid()) norms.push_back(u.scalars().coefficient);
  const TensorId ratio = u.op1("ratio", "trust_ratio", norms, {{"trust", kTrust}});
  std::vector<TensorId> inputs = {u.parameter(), u.gradient(), momentum, lr, ratio};
  u.add_flags(inputs);
  const std::vector<TensorId> made = u.op("", "lars", inputs);
  if (made.empty()) return;
  u.becomes(u.parameter(), made[0]);
  u.becomes(momentum, made[1]);
}

// ---- adafactor
// Makes the running mean of x, and keeps it in a state.
TensorId decayed(ParameterUpdate& u, const std::string& name, const std::vector<Dim>& dims,
                 TensorId x) {
  const TensorId old = u.state(name, dims);
  std::vector<TensorId> inputs = {old, x, u.scalars().step};
  if (u.scalars().skip.valid()) inputs.push_back(u.scalars().skip);
  const std::vector<TensorId> made = u.op(name, "decayed_mean", inputs);
  if (made.empty()) return {};
  u.becomes(old, made[1]);
  return made[0];
}

// Updates by Adafactor, which keeps second moments by row and by column of the last two published
// dims. The product of the two is the estimate of the second moment of an element.
void adafactor(ParameterUpdate& u) {
  const Tensor parameter = u.tensor(u.parameter());
  const DType wide = u.tensor(u.scalars().lr).dtype;
  const double least = wide == DType::kFloat64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
  TensorId g = u.in_dtype("gradient", u.gradient(), wide);
  if (u.scalars().coefficient.valid()) g = u.op1("clipped", "mul", {g, u.scalars().coefficient});
  TensorId square;
  const Names all = names_of(parameter.dims);
  if (is_vector(u)) {
    square = decayed(u, "v", parameter.dims, u.op1("square", "mul", {g, g}));
  } else {
    const PublishedDims published = published_dims(parameter);
    const std::vector<int>&row = published[published.size() - 2], &column = published.back();
    const Names row_names = joined_names(parameter, row),
                column_names = joined_names(parameter, column);
    const auto mean_over = [&](const std::string& name, const std::vector<int>& summed) {
      const Names over = joined_names(parameter, summed);
      std::vector<Dim> dims;
      for (const Dim& dim : parameter.dims) {
        if (!is_in(over, dim.name)) dims.push_back(dim);
      }
      const Attributes spec = {{"spec", words_of(all, over) + ", " + words_of(all) + " -> " +
                                            words_of(without(all, over))}};
      const TensorId sum = over.empty() ? u.op1(name + ".sum", "mul", {g, g})
                                        : u.op1(name + ".sum", "einsum", {g, g}, spec);
      const double size = static_cast<double>(published_size(parameter, summed));
      return decayed(u, name, dims, u.op1(name + ".mean", "scale", {sum}, {{"factor", 1 / size}}));
    };
    const TensorId rows = mean_over("row", column), columns = mean_over("column", row);
    const TensorId mean =
        row_names.empty()
            ? rows
            : u.op1("mean", "reduce_sum", {rows},
                    {{"dims", join(row_names, " ")},
                     {"factor", 1.0 / static_cast<double>(published_size(parameter, row))}});
    const TensorId positive = u.op1("positive", "clamp", {mean}, {{"min", least}});
    const TensorId relative = u.op1("relative", "div", {rows, positive});
    // Dims of size 1 are not among the names, so the rows or the columns may have all names.
    if (row_names.empty()) {
      square = u.op1("second_moment", "mul", {columns, relative});
    } else if (column_names.empty()) {
      square = u.op1("second_moment", "mul", {relative, columns});
    } else {
      square = u.op1("second_moment", "einsum", {relative, columns},
                     {{"spec", words_of(without(all, column_names)) + ", " +
                                   words_of(without(all, row_names)) + " -> " + words_of(all)}});
    }
  }
  const TensorId positive = u.op1("above", "clamp", {square}, {{"min", least * least}});
  const TensorId inverse = u.op1("inverse", "power", {positive}, {{"exponent", -0.5}});
  const TensorId direction = u.op1("direction", "mul", {g, inverse});
  const TensorId rate = u.op1("rate", "adafactor_rate",
                              {squares(u, "weights", u.parameter()),
                               squares(u, "length", direction), u.scalars().lr, u.scalars().step},
                              {{"elements", parameter.elements()}});
  apply(u, direction, rate);
}

// ---- muon
// Makes the matrices of x about orthogonal. A matrix has the last two dims; earlier dims are a
// stack. Each of five steps multiplies every matrix by (a + b y + c y^2) with y = x x^T (or x^T x,
// if that is smaller). This polynomial moves all singular values, which are at most 1, to about 1.
TensorId orthogonalised(ParameterUpdate& u, TensorId x) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // as in the paper
  if (!x.valid()) return x;
  const std::vector<Dim> dims = u.tensor(x).dims;
  const Dim &row = dims[dims.size() - 2], &column = dims.back();
  std::string stack;
  for (size_t i = 0; i + 2 < dims.size(); ++i) stack += dims[i].name + " ";
  const bool wide = row.size <= column.size;
  const std::string side = wide ? row.name : column.name, other = wide ? column.name : row.name,
                    again = side + ".o", middle = side + ".k";
  const auto matrix = [&](const std::string& rows, const std::string& columns) {
    return stack + rows + " " + columns;
  };
  const auto oriented = [&](const std::string& name, const std::string& mark = "") {
    return wide ? matrix(name, other + mark) : matrix(other + mark, name);
  };
  const auto product = [](const std::string& a, const std::string& b, const std::string& y) {
    return fmt::format("{}, {} -> {}", a, b, y);
  };
  const std::string square_of_side = matrix(side, again), summed = matrix(side, middle + "+");
  const std::string gram_spec = product(oriented(side, "+"), oriented(again), square_of_side);
  const std::string square_spec = product(summed, matrix(middle, again), square_of_side);
  const std::string step_spec = product(summed, oriented(middle), matrix(row.name, column.name));
  for (int i = 0; i < 5 && x.valid(); ++i) {
    const auto op1 = [&](const char* name, const char* kind, std::vector<TensorId> inputs,
                         Attributes attributes = {}) {
      return u.op1(fmt::format("{}.{}", name, i), kind, std::move(inputs), std::move(attributes));
    };
    const TensorId gram = op1("gram", "einsum", {x, x}, {{"spec", gram_spec}});
    const TensorId square = op1("square", "einsum", {gram, gram}, {{"spec", square_spec}});
    const TensorId linear = op1("linear", "scale", {gram}, {{"factor", kB}});
    const TensorId cubic = op1("quadratic", "scale", {square}, {{"factor", kC}});
    const TensorId polynomial = op1("polynomial", "add", {linear, cubic});
    const TensorId moved = op1("product", "einsum", {polynomial, x}, {{"spec", step_spec}});
    const TensorId same = op1("same", "scale", {x}, {{"factor", kA}});
    x = op1("step", "add", {same, moved});
  }
  return x;
}

// Divides x by its norm, so that no singular value is above 1. In a stack each matrix is divided by
// its own norm.
TensorId of_norm_one(ParameterUpdate& u, TensorId x, const Names& stack) {
  if (!x.valid()) return x;
  TensorId squared;
  if (stack.empty()) {
    squared = squares(u, "length", x);
  } else {
    const Names all = names_of(u.tensor(x).dims);
    std::string summed;
    for (const std::string& name : all) {
      const bool in_stack = std::find(stack.begin(), stack.end(), name) != stack.end();
      summed += (summed.empty() ? "" : " ") + name + (in_stack ? "" : "+");
    }
    squared =
        u.op1("length", "einsum", {x, x},
              {{"spec", fmt::format("{}, {} -> {}", summed, words_of(all), words_of(stack))}});
  }
  const TensorId norm = u.op1("positive", "clamp", {squared}, {{"min", 1e-14}});
  const TensorId inverse = u.op1("inverse", "power", {norm}, {{"exponent", -0.5}});
  return u.op1("unit", "mul", {x, inverse});
}

// A parameter as a matrix, or as a stack of matrices of this form. The rows are the first published
// dim. The columns are all other published dims, joined. Dims of the stack, and dims of size 1
// without a name, are ignored.
struct PublishedMatrix {
  std::vector<Dim> rows, columns;  // in the parameter's order; empty if the parameter is no matrix
};

PublishedMatrix published_matrix(const Tensor& parameter, const std::vector<Dim>& stack) {
  PublishedMatrix matrix;
  std::vector<int> columns;
  for (std::vector<int> joined : published_dims(parameter)) {
    std::erase_if(joined, [&](int d) {
      return std::find(stack.begin(), stack.end(), parameter.dims[static_cast<size_t>(d)]) !=
             stack.end();
    });
    if (joined.empty()) continue;
    if (matrix.rows.empty()) {
      for (const int d : joined) matrix.rows.push_back(parameter.dims[static_cast<size_t>(d)]);
    } else {
      columns.insert(columns.end(), joined.begin(), joined.end());
    }
  }
  std::sort(columns.begin(), columns.end());
  for (const int d : columns) matrix.columns.push_back(parameter.dims[static_cast<size_t>(d)]);
  return matrix;
}

int64_t elements_of(const std::vector<Dim>& dims) {
  int64_t elements = 1;
  for (const Dim& dim : dims) elements *= dim.size;
  return elements;
}

// Brings a parameter into the form of a matrix, or of a stack of matrices, and back. The dims of
// the stack come first. The rows are those dims that come first in the parameter, either inputs or
// outputs. This makes no difference, because the orthogonalised transpose is the transpose of the
// orthogonalised matrix.
class MatrixForm {
 public:
  MatrixForm(ParameterUpdate& u, std::vector<Dim> stack, const PublishedMatrix& matrix)
      : u_(u), stack_(std::move(stack)) {
    const std::vector<Dim>& dims = u.tensor(u.parameter()).dims;
    const auto place = [&](const Dim& dim) { return std::find(dims.begin(), dims.end(), dim); };
    const bool rows_first = place(matrix.rows.front()) < place(matrix.columns.front());
    dims_ = rows_first ? matrix.rows : matrix.columns;
    cut_ = dims_.size();
    const std::vector<Dim>& rest = rows_first ? matrix.columns : matrix.rows;
    dims_.insert(dims_.end(), rest.begin(), rest.end());
  }

  TensorId of(TensorId x) {
    x = permuted(x, "front", names_of(u_.tensor(u_.parameter()).dims), stack_first());
    x = joined(x, 0, cut_, 0);
    return joined(x, cut_, dims_.size(), 1);
  }
  TensorId back(TensorId x) {
    x = parted(x, cut_, dims_.size());
    x = parted(x, 0, cut_);
    return permuted(x, "back", stack_first(), names_of(u_.tensor(u_.parameter()).dims));
  }

 private:
  Names stack_first() const {
    Names names = names_of(stack_);
    for (const Dim& dim : dims_) names.push_back(dim.name);
    return names;
  }

  TensorId permuted(TensorId x, const char* suffix, const Names& from, const Names& to) {
    if (from == to) return x;
    return u_.op1(suffix, "einsum", {x},
                  {{"spec", fmt::format("{} -> {}", words_of(from), words_of(to))}});
  }

  // Joins the dims begin to end to one. `first` is the joined dim's position after the dims of
  // the stack.
  TensorId joined(TensorId x, size_t begin, size_t end, size_t first) {
    if (end - begin < 2) return x;
    return u_.op1(fmt::format("join.{}", first), "group", {x},
                  {{"first", static_cast<int64_t>(stack_.size() + first)},
                   {"count", static_cast<int64_t>(end - begin)},
                   {"name", dims_[begin].name}});
  }

  TensorId parted(TensorId x, size_t begin, size_t end) {
    if (end - begin < 2) return x;
    std::string names;
    for (size_t i = begin; i < end; ++i)
      names += fmt::format("{}{}={}", i == begin ? "" : " ", dims_[i].name, dims_[i].size);
    return u_.op1(fmt::format("part.{}", begin), "ungroup", {x},
                  {{"dim", dims_[begin].name}, {"names", names}});
  }

  ParameterUpdate& u_;
  const std::vector<Dim> stack_;
  std::vector<Dim> dims_;
  size_t cut_ = 0;
};

// Updates factors of products and convolutions by the orthogonalised momentum, each matrix of a
// stack by itself. Vectors and tables (looked up, or added as positions) are updated by AdamW.
void muon(ParameterUpdate& u) {
  const std::vector<Dim> stack = u.stacked();
  const PublishedMatrix published = published_matrix(u.tensor(u.parameter()), stack);
  if (published.columns.empty() || u.is_looked_up() || !u.is_multiplied())
    return u.by_one_op("adamw");
  const TensorId momentum = u.state("momentum");
  std::vector<TensorId> inputs = {u.parameter(), u.gradient(), momentum};
  u.add_flags(inputs);
  const std::vector<TensorId> made = u.op("mean", "momentum_direction", inputs);
  if (made.empty()) return;
  u.becomes(momentum, made[1]);
  const DType wide = u.tensor(u.scalars().lr).dtype;
  const TensorId direction = u.in_dtype("wide", made[0], wide);
  MatrixForm form(u, stack, published);
  const TensorId matrix = form.of(of_norm_one(u, direction, names_of(stack)));
  // Matrices with more rows than columns take longer steps, as in torch.optim.Muon and the
  // author's code.
  const double factor =
      std::sqrt(std::max(1.0, static_cast<double>(elements_of(published.rows)) /
                                  static_cast<double>(elements_of(published.columns))));
  apply(u, form.back(orthogonalised(u, matrix)), u.scalars().lr, {{"factor", factor}});
}

const std::vector<Optimizer>& optimizer_table() {
  static const std::vector<Optimizer> all = {
      {"adagrad", "steps by the root of the sum of squares; of tables the rows that were looked up",
       [](ParameterUpdate& u) { u.by_one_op("adagrad"); }, "row_adagrad"},
      {"adafactor", "second moments by row and column, steps relative to the weights", adafactor},
      {"adamw", "Adam with decoupled weight decay",
       [](ParameterUpdate& u) { u.by_one_op("adamw"); }},
      {"lamb", "Adam, each tensor's step relative to its weights", lamb},
      {"lars", "sgd, each tensor's step relative to its weights", lars},
      {"lion", "the sign of a mean of gradients", [](ParameterUpdate& u) { u.by_one_op("lion"); }},
      {"muon", "momentum, orthogonalised; vectors and tables by adamw", muon},
      {"row_adam", "adamw; of tables the rows that were looked up, without decay",
       [](ParameterUpdate& u) { u.by_one_op("adamw"); }, "row_adam"},
      {"row_sgd", "sgd; of tables the rows that were looked up, without momentum and decay",
       [](ParameterUpdate& u) { u.by_one_op("sgd"); }, "row_sgd"},
      {"rowwise_adagrad", "adagrad; of tables one sum of squares for each row",
       [](ParameterUpdate& u) { u.by_one_op("adagrad"); }, "rowwise_adagrad"},
      {"sgd", "stochastic gradient descent with momentum; nesterov = 1 looks ahead",
       [](ParameterUpdate& u) { u.by_one_op("sgd"); }},
  };
  return all;
}

}  // namespace

TensorId ParameterUpdate::state(const std::string& name) {
  return state(name, tensor(parameter_).dims);
}

TensorId ParameterUpdate::state(const std::string& name, std::vector<Dim> dims) {
  const TensorId id = builder_.state(fmt::format("optimizer.{}.{}", name, tensor(parameter_).name),
                                     parameter_, {Init::Kind::kZeros, 0});
  if (!id.valid()) return id;
  const DType own = tensor(parameter_).dtype;
  const DType wide = own == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  Tensor& made = builder_.graph().tensor(id);
  made.dtype = spec_.precision.state.value_or(wide);
  made.dims = std::move(dims);
  return id;
}

double ParameterUpdate::weight_decay() const {
  return published_dims(tensor(parameter_)).size() >= 2 ? spec_.weight_decay : 0.0;
}

std::vector<TensorId> ParameterUpdate::op(const std::string& suffix, const std::string& kind,
                                          std::vector<TensorId> inputs, Attributes attributes) {
  for (const AttributeInfo& wanted : find_kind(kind)->attributes) {
    const auto value = spec_.value(wanted.name);
    if (value)
      attributes.emplace(wanted.name, wanted.name == "weight_decay" ? weight_decay() : *value);
  }
  const std::string& name = tensor(parameter_).name;
  const std::string path =
      suffix.empty() ? "optimizer." + name : fmt::format("update.{}.{}", name, suffix);
  return builder_.op(path, kind, std::move(inputs), std::move(attributes));
}

TensorId ParameterUpdate::op1(const std::string& suffix, const std::string& kind,
                              std::vector<TensorId> inputs, Attributes attributes) {
  const std::vector<TensorId> outputs = op(suffix, kind, std::move(inputs), std::move(attributes));
  return outputs.empty() ? TensorId() : outputs[0];
}

TensorId ParameterUpdate::in_dtype(const std::string& suffix, TensorId id, DType dtype) {
  if (tensor(id).dtype == dtype) return id;
  return op1(suffix, "cast", {id}, {{"dtype", std::string(dtype_name(dtype))}});
}

void ParameterUpdate::becomes(TensorId target, TensorId output) {
  if (!builder_.ok()) return;
  const Tensor old = builder_.tensor(target);
  Tensor& made = builder_.graph().tensor(output);
  made.name = "updated." + old.name;
  made.role = old.role;
  made.update_of = old.id;
  made.of = old.of;
}

std::vector<std::pair<const Op*, size_t>> ParameterUpdate::readers(WorkClass work) const {
  const Graph& graph = builder_.graph();
  std::vector<std::pair<const Op*, size_t>> out;
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kForward || info_of(op).work != work) continue;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (graph.parameter_of(op.inputs[i]) == parameter_) out.emplace_back(&op, i);
    }
  }
  return out;
}

bool ParameterUpdate::is_looked_up() const { return !readers(WorkClass::kLookup).empty(); }

bool ParameterUpdate::is_multiplied() const {
  const auto products = readers(WorkClass::kMatmul);
  return !readers(WorkClass::kConvolution).empty() ||
         std::any_of(products.begin(), products.end(), [](const auto& product) {
           const auto& [op, input] = product;
           return op->inputs.size() >= 2 && input < 2;
         });
}

std::vector<Dim> ParameterUpdate::stacked() const {
  auto products = readers(WorkClass::kMatmul);
  std::erase_if(products, [](const auto& product) { return product.first->inputs.size() < 2; });
  std::vector<Dim> out;
  const std::vector<Dim>& dims = tensor(parameter_).dims;
  for (size_t d = 0; d < dims.size() && !products.empty(); ++d) {
    const bool batched = std::all_of(products.begin(), products.end(), [&](const auto& product) {
      const auto& [op, input] = product;
      if (tensor(op->inputs[input]).dims != dims) return false;
      const Annotation& annotation = op->annotation;
      const DimGroup& group = annotation.inputs[input].dims[d];
      return group.size() == 1 && annotation.inputs[0].contains(group[0]) &&
             annotation.inputs[1].contains(group[0]) && annotation.outputs[0].contains(group[0]);
    });
    if (batched) out.push_back(dims[d]);
  }
  return out;
}

void ParameterUpdate::add_flags(std::vector<TensorId>& inputs) const {
  for (const TensorId scalar : {scalars_.coefficient, scalars_.skip}) {
    if (scalar.valid()) inputs.push_back(scalar);
  }
}

void ParameterUpdate::by_one_op(const std::string& kind) {
  const OptimizerInfo& info = *find_kind(kind)->optimizer;
  std::vector<TensorId> updated = {parameter_};
  for (const std::string& moment : info.states) updated.push_back(state(moment));
  std::vector<TensorId> inputs = updated;
  inputs.insert(inputs.begin() + 1, gradient_.whole);
  for (const Init::Kind scalar : info.scalars)
    inputs.push_back(scalar == Init::Kind::kStep ? scalars_.step : scalars_.lr);
  add_flags(inputs);
  const std::vector<TensorId> outputs = op("", kind, std::move(inputs));
  if (!builder_.ok()) return;
  for (size_t i = 0; i < outputs.size(); ++i) becomes(updated[i], outputs[i]);
}

Attributes ParameterUpdate::add_rows(std::vector<TensorId>& inputs) const {
  std::string modes;
  for (const RowGradient& one : gradient_.rows) {
    inputs.insert(inputs.end(), {one.ids, one.dy});
    if (one.weights.valid()) inputs.push_back(one.weights);
    const bool weighted = one.weights.valid();
    modes += (modes.empty() ? "" : " ") + std::string(one.mean   ? "mean"
                                                      : weighted ? "weighted"
                                                                 : "sum");
  }
  std::string within;  // the rows of a larger table that the table has, as its look-ups say
  for (const auto& [op, input] : readers(WorkClass::kLookup)) {
    if (op->attributes.contains("within")) within = op->text("within");
  }
  return {{"modes", modes}, {"within", within}};
}

void ParameterUpdate::by_rows(const std::string& kind) {
  const OptimizerInfo& info = *find_kind(kind)->optimizer;
  std::vector<TensorId> inputs = {parameter_};
  for (const std::string& moment : info.states) {
    inputs.push_back(info.state_a_row ? state(moment, {tensor(parameter_).dims[0]})
                                      : state(moment));
  }
  const std::vector<TensorId> updated = inputs;
  Attributes attributes = add_rows(inputs);
  attributes.emplace("rounding", spec_.rounding);
  // An element of a piece must be rounded as it would be in the whole table, so the random bits are
  // drawn under the name of the whole.
  const auto within = std::get<std::string>(attributes.at("within"));
  if (!within.empty()) {
    attributes.emplace("stream",
                       fmt::format("optimizer.{}", name_of_whole(tensor(parameter_).name)));
  }
  for (const Init::Kind scalar : info.scalars)
    inputs.push_back(scalar == Init::Kind::kStep ? scalars_.step : scalars_.lr);
  add_flags(inputs);
  const std::vector<TensorId> outputs = op("", kind, std::move(inputs), std::move(attributes));
  if (!builder_.ok()) return;
  for (size_t i = 0; i < outputs.size(); ++i) becomes(updated[i], outputs[i]);
}

bool is_only_looked_up(const Graph& graph, TensorId parameter) {
  if (graph.tensor(parameter).dims.size() != 2) return false;
  bool looked_up = false;
  for (const Op& op : graph.ops()) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (table_of(graph, op.inputs[i]) != parameter) continue;
      if (op.inputs[i] == parameter && info_of(op).converts) continue;
      if (!looks_up_rows(op) || i != 1) return false;
      looked_up = true;
    }
  }
  return looked_up;
}

TensorId table_of(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  if (tensor.role == Role::kParameter) return id;
  if (!tensor.producer.valid() || !info_of(graph.op(tensor.producer)).converts) return {};
  const TensorId from = graph.op(tensor.producer).inputs[0];
  return graph.tensor(from).role == Role::kParameter ? from : TensorId();
}

std::vector<std::string> tables_by_rows(const Graph& forward, const OptimizerSpec& spec) {
  std::vector<std::string> out;
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role != Role::kParameter || !tensor.trained) continue;
    const Optimizer* optimizer = find_optimizer(optimizer_of(spec, tensor.name));
    const bool by_rows = optimizer != nullptr && !optimizer->rows.empty();
    if (by_rows && is_only_looked_up(forward, tensor.id)) out.push_back(tensor.name);
  }
  return out;
}

bool may_update_rows(const OptimizerSpec& spec) {
  const auto by_rows = [](const std::string& kind) {
    const Optimizer* optimizer = find_optimizer(kind);
    return optimizer != nullptr && !optimizer->rows.empty();
  };
  return by_rows(spec.kind) ||
         std::any_of(spec.groups.begin(), spec.groups.end(),
                     [&](const OptimizerGroup& group) { return by_rows(group.kind); });
}

const std::vector<Optimizer>& all_optimizers() { return optimizer_table(); }

const Optimizer* find_optimizer(std::string_view name) {
  const auto& all = optimizer_table();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Optimizer& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Optimizer& one : optimizer_table()) names.push_back(one.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<TensorId> updated_parameters(const Graph& graph) {
  std::vector<TensorId> served(graph.ops().size());
  const auto parameter_of = [&](TensorId id) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.role == Role::kParameter) return tensor.update_of.valid() ? tensor.update_of : id;
    const bool belongs = tensor.of.valid() && graph.tensor(tensor.of).role == Role::kParameter;
    if (belongs) return tensor.of;
    return tensor.producer.valid() ? served[tensor.producer.index()] : TensorId();
  };
  for (const Op& op : graph.ops()) {
    if (op.phase != Phase::kUpdate) continue;
    TensorId& one = served[op.id.index()];
    for (const TensorId input : op.inputs) {
      const TensorId parameter = parameter_of(input);
      if (!parameter.valid() || parameter == one) continue;
      if (one.valid()) {  // the op serves several parameters
        one = {};
        break;
      }
      one = parameter;
    }
  }
  return served;
}

}  // namespace tessera
