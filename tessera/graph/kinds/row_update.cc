// Updates of tables by rows. The gradient of a table is kept as the ids of each look-up and the
// gradient of the look-up's result. So an update touches only the rows that the ids name, and no
// gradient with the table's dims is made (as in the fused optimizers of ZionEX and FBGEMM,
// docs/theory/zionex-dlrm.md). A row that several ids name takes one step, by the sum of the
// gradients. They are summed in the order of look-ups, samples and places in a bag, so that the
// result does not depend on how rows and width are cut.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"
#include "tessera/graph/pieces.h"
#include "tessera/graph/rows.h"

namespace tessera::kinds {
namespace {

const OptimizerInfo row_sgd = {
    .states = {}, .scalars = {Init::Kind::kLearningRate}, .by_rows = true};
const OptimizerInfo row_adagrad = {
    .states = {"sum"}, .scalars = {Init::Kind::kLearningRate}, .by_rows = true};
const OptimizerInfo rowwise_adagrad = {.states = {"sum"},
                                       .scalars = {Init::Kind::kLearningRate},
                                       .by_rows = true,
                                       .state_a_row = true};
const OptimizerInfo row_adam = {.states = {"m", "v"},
                                .scalars = {Init::Kind::kLearningRate, Init::Kind::kStep},
                                .by_rows = true};

// Checks a table. `within` says which rows of a larger table it has. Ids name rows of the
// larger table.
Status expect_rows(const Tensor& table, std::string_view within) {
  if (table.dims.size() == 2 && is_floating(table.dtype))
    return check_rows_within(within, table.dims[0]);
  return invalid_input(fmt::format("expected a floating table with 2 dims (rows, width), found {}",
                                   describe(table)));
}

// Counts the operands of all look-ups.
size_t look_up_operands(const Names& modes) {
  size_t count = 0;
  for (const std::string& mode : modes) count += operands_of_look_up(mode);
  return count;
}

Status expect_look_up(std::string_view mode, const Tensor& ids, const Tensor& dy,
                      const Tensor* weights, const Dim& width) {
  if (mode != "sum" && mode != "mean" && mode != kWeightedLookUp) {
    return invalid_input(fmt::format("expected mode \"sum\", \"mean\" or \"{}\", found \"{}\"",
                                     kWeightedLookUp, mode));
  }
  TESSERA_TRY_VOID(expect_dtype(ids, "ids", DType::kInt64));
  std::vector<Dim> lead = dy.dims;
  if (!lead.empty()) lead.pop_back();
  const bool bags = ids.dims.size() == lead.size() + 1;
  const std::vector<Dim> samples = bags ? without_last(ids.dims) : ids.dims;
  if (dy.dims.empty() || dy.dims.back() != width || samples != lead || !is_floating(dy.dtype)) {
    return invalid_input(fmt::format(
        "expected a floating dy with the dims of ids, but that of a bag, and then {}={}, found "
        "{} for {}",
        width.name, width.size, describe(dy), describe(ids)));
  }
  if (weights == nullptr || (is_floating(weights->dtype) && weights->dims == ids.dims)) return {};
  return invalid_input(
      fmt::format("expected floating weights with the dims of ids, found {} for {}",
                  describe(*weights), describe(ids)));
}

// Appends the annotations of ids, dy and weights of each look-up to `annotation`. They are the
// operands from number `first` on. All their dims except the width are frozen and have names of
// their own, because every piece of the table reads all ids.
Status spell_look_ups(const Operands& x, size_t first, std::string& annotation) {
  const Dim& width = x[0].dims[1];
  const Names modes = words(x.text("modes"));
  if (modes.empty() || x.count() < first + look_up_operands(modes)) {
    return invalid_input(fmt::format(
        "expected ids and dy for each of {} look-up(s) (attribute modes), found {} operand(s)",
        modes.size(), x.count() < first ? 0 : x.count() - first));
  }
  size_t at = first;
  for (size_t k = 0; k < modes.size(); at += operands_of_look_up(modes[k]), ++k) {
    const Tensor &ids = x[at], &dy = x[at + 1];
    const bool weighted = operands_of_look_up(modes[k]) > 2;
    TESSERA_TRY_VOID(expect_look_up(modes[k], ids, dy, weighted ? &x[at + 2] : nullptr, width));
    std::string own;
    for (size_t d = 0; d + 1 < dy.dims.size(); ++d) own += fmt::format("id{}_{}^ ", k, d);
    const std::string spelled = ids.dims.size() == dy.dims.size() ? fmt::format("{}bag{}^", own, k)
                                : own.empty()                     ? "()"
                                                                  : own;
    annotation += fmt::format(", {}, {}{}", spelled, own, width.name);
    if (weighted) annotation += ", " + spelled;
  }
  return {};
}

// (p, states, ids, dy and weights of each look-up, lr[, step][, coefficient[, skip]]) ->
// p', states'
Result<Inferred> infer_row_update(const Operands& x, const OptimizerInfo& optimizer) {
  const Tensor& table = x[0];
  TESSERA_TRY_VOID(expect_rows(table, x.text("within")));
  if (const std::string& rounding = x.text("rounding");
      rounding != "nearest" && rounding != "stochastic") {
    return invalid_input(
        fmt::format("expected rounding \"nearest\" or \"stochastic\", found \"{}\"", rounding));
  }
  const Dim& rows = table.dims[0];
  const std::string whole = spell(table.dims) + (optimizer.state_a_row ? "^" : "");
  const std::string state = optimizer.state_a_row ? rows.name : whole;
  std::string annotation = whole, made = whole;
  std::vector<std::vector<Dim>> outputs{table.dims};
  std::vector<DType> dtypes{table.dtype};
  const size_t first = 1 + optimizer.states.size();
  for (size_t i = 1; i < first; ++i) {
    outputs.push_back(optimizer.state_a_row ? std::vector<Dim>{rows} : table.dims);
    TESSERA_TRY_VOID(expect_dims(x[i], optimizer.states[i - 1], outputs.back()));
    if (!is_floating(x[i].dtype)) {
      return invalid_input(fmt::format("expected {} of a floating dtype, found {}",
                                       optimizer.states[i - 1], describe(x[i])));
    }
    annotation += ", " + state;
    made += ", " + state;
    dtypes.push_back(x[i].dtype);
  }
  TESSERA_TRY_VOID(spell_look_ups(x, first, annotation));
  Names scalars;
  for (const Init::Kind scalar : optimizer.scalars)
    scalars.emplace_back(scalar == Init::Kind::kStep ? "step" : "lr");
  const size_t required = scalars.size();
  scalars.insert(scalars.end(), {"coefficient", "skip"});
  const size_t begin = first + look_up_operands(words(x.text("modes")));
  if (x.count() < begin + required || x.count() > begin + scalars.size()) {
    return invalid_input(fmt::format("expected {} to {} scalars behind the look-ups, found {}",
                                     required, scalars.size(), x.count() - begin));
  }
  for (size_t i = begin; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], scalars[i - begin], {}));
    TESSERA_TRY_VOID(expect_dtype(x[i], scalars[i - begin], statistics_dtype(table.dtype)));
    annotation += ", ()";
  }
  return conclude(x, annotation + " -> " + made, std::move(outputs), std::move(dtypes));
}

Result<Inferred> infer_row_sgd(const Operands& x) { return infer_row_update(x, row_sgd); }
Result<Inferred> infer_row_adagrad(const Operands& x) { return infer_row_update(x, row_adagrad); }
Result<Inferred> infer_rowwise_adagrad(const Operands& x) {
  return infer_row_update(x, rowwise_adagrad);
}
Result<Inferred> infer_row_adam(const Operands& x) { return infer_row_update(x, row_adam); }

// (p, ids, dy and weights of each look-up) -> the sum of squares of the rows of p's gradient. The
// op's dims that are not frozen are those of p, so that a plan cuts the op as it cuts the table.
Result<Inferred> infer_row_sum_squares(const Operands& x) {
  TESSERA_TRY_VOID(expect_rows(x[0], x.text("within")));
  std::string annotation = spell(x[0].dims);
  TESSERA_TRY_VOID(spell_look_ups(x, 1, annotation));
  if (const size_t wanted = 1 + look_up_operands(words(x.text("modes"))); x.count() != wanted)
    return invalid_input(fmt::format("expected {} operands, found {}", wanted, x.count()));
  return conclude(x, annotation + " -> ()", {{}}, {statistics_dtype(x[0].dtype)});
}

// ---- updates in pieces of the width, for kinds that need a number of each whole row
// (docs/adr/0036-gradients-by-rows.md)
//
// Counts the ids of all look-ups. The kind row_squares makes a number for each id, in their
// order. For the first id that names a row this is the sum of squares of the whole gradient of
// the row, and for all later ids of that row 0. A piece of the rows or of the width makes a part
// of the number.
int64_t ids_of_look_ups(const Operands& x, size_t first) {
  int64_t count = 0;
  size_t at = first;
  for (const std::string& mode : words(x.text("modes"))) {
    int64_t ids = 1;
    for (const Dim& dim : x[at].dims) ids *= dim.size;
    count += ids;
    at += operands_of_look_up(mode);
  }
  return count;
}

Result<Inferred> infer_row_squares(const Operands& x) {
  TESSERA_TRY_VOID(expect_rows(x[0], x.text("within")));
  std::string annotation = spell(x[0].dims);
  TESSERA_TRY_VOID(spell_look_ups(x, 1, annotation));
  if (const size_t wanted = 1 + look_up_operands(words(x.text("modes"))); x.count() != wanted)
    return invalid_input(fmt::format("expected {} operands, found {}", wanted, x.count()));
  return conclude(x, annotation + " -> all_ids^", {{{"all_ids", ids_of_look_ups(x, 1)}}},
                  {statistics_dtype(x[0].dtype)});
}

// (sum, ids of each look-up, squares[, coefficient[, skip]]; modes, width) -> sum'
Result<Inferred> infer_row_sums(const Operands& x) {
  const Tensor& sum = x[0];
  if (sum.dims.size() != 1 || !is_floating(sum.dtype)) {
    return invalid_input(
        fmt::format("expected a floating sum with one dim (rows), found {}", describe(sum)));
  }
  TESSERA_TRY_VOID(check_rows_within(x.text("within"), sum.dims[0]));
  const Names modes = words(x.text("modes"));
  const size_t squares = 1 + modes.size();
  if (modes.empty() || x.count() <= squares || x.count() > squares + 3) {
    return invalid_input(fmt::format(
        "expected ids of each of {} look-up(s) (attribute modes), squares and up to 2 scalars, "
        "found {} operand(s)",
        modes.size(), x.count() - 1));
  }
  std::string annotation = spell(sum.dims);
  for (size_t k = 0; k < modes.size(); ++k) {
    TESSERA_TRY_VOID(expect_dtype(x[1 + k], "ids", DType::kInt64));
    if (modes[k] != kIdsAlone)
      return invalid_input(fmt::format("expected mode \"{}\", found \"{}\"", kIdsAlone, modes[k]));
    std::string own;
    for (size_t d = 0; d < x[1 + k].dims.size(); ++d) own += fmt::format("id{}_{}^ ", k, d);
    annotation += ", " + (own.empty() ? "()" : own);
  }
  TESSERA_TRY_VOID(expect_dims(x[squares], "squares", {{"all_ids", ids_of_look_ups(x, 1)}}));
  annotation += ", all_ids^";
  for (size_t i = squares + 1; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], i == squares + 1 ? "coefficient" : "skip", {}));
    annotation += ", ()";
  }
  return conclude(x, annotation + " -> " + spell(sum.dims), {sum.dims}, {sum.dtype});
}

// (p, sum', look-ups, lr[, coefficient[, skip]]) -> p', where sum' are the sums of the rows after
// this step
Result<Inferred> infer_row_step(const Operands& x) {
  TESSERA_TRY_VOID(expect_rows(x[0], x.text("within")));
  TESSERA_TRY_VOID(expect_dims(x[1], "sum", {x[0].dims[0]}));
  std::string annotation = spell(x[0].dims) + ", " + x[0].dims[0].name;
  TESSERA_TRY_VOID(spell_look_ups(x, 2, annotation));
  const size_t begin = 2 + look_up_operands(words(x.text("modes")));
  if (x.count() <= begin || x.count() > begin + 3) {
    return invalid_input(
        fmt::format("expected 1 to 3 scalars behind the look-ups, found {}", x.count() - begin));
  }
  for (size_t i = begin; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], "scalar", {}));
    annotation += ", ()";
  }
  return conclude(x, annotation + " -> " + spell(x[0].dims), {x[0].dims}, {x[0].dtype});
}

Names width_of_table(const Op& op) {
  const auto dim = static_cast<size_t>(op.annotation.inputs[0].dims[1][0]);
  return {op.annotation.dims[dim].name};
}

std::vector<TensorId> expand_rowwise_adagrad(GraphBuilder& builder, const Op& op) {
  builder.set_role(Role::kActivation);
  const std::vector<TensorId>& x = op.inputs;
  const std::string within = op.text("within"), stream = op.text("stream");
  const auto tables = static_cast<std::ptrdiff_t>(1 + rowwise_adagrad.states.size());
  const Names modes = words(op.text("modes"));
  const auto look_ups = static_cast<std::ptrdiff_t>(look_up_operands(modes));
  std::vector<TensorId> added(x.begin() + tables, x.begin() + tables + look_ups),
      scalars(x.begin() + tables + look_ups, x.end());
  const auto joined = [](std::initializer_list<TensorId> first, const std::vector<TensorId>& then) {
    std::vector<TensorId> all = first;
    all.insert(all.end(), then.begin(), then.end());
    return all;
  };
  const TensorId squares = builder.op1(op.path + ".squares", "row_squares", joined({x[0]}, added),
                                       {{"modes", op.text("modes")}, {"within", within}});
  std::vector<TensorId> of_sums = {x[1]};
  std::string ids;
  size_t at = 0;
  for (const std::string& mode : modes) {
    of_sums.push_back(added[at]);
    ids += (ids.empty() ? "" : " ") + std::string(kIdsAlone);
    at += operands_of_look_up(mode);
  }
  of_sums.push_back(squares);
  // All scalars except the learning rate.
  of_sums.insert(of_sums.end(), scalars.begin() + 1, scalars.end());
  const TensorId sum = builder.op1(
      op.path + ".sums", "row_sums", of_sums,
      {{"modes", ids}, {"width", builder.tensor(x[0]).dims[1].size}, {"within", within}});
  const TensorId p = builder.op1(op.path + ".step", "rowwise_step",
                                 joined({x[0], sum},
                                        [&] {
                                          std::vector<TensorId> rest = added;
                                          rest.insert(rest.end(), scalars.begin(), scalars.end());
                                          return rest;
                                        }()),
                                 {{"modes", op.text("modes")},
                                  {"within", within},
                                  {"rounding", op.text("rounding")},
                                  {"stream", stream.empty() ? op.path : stream},
                                  {"eps", op.number("eps")}});
  return {p, sum};
}

// Returns the number of elements that all ids look up: one row for each id.
int64_t elements_looked_up(const Op& op) {
  const Annotation& annotation = op.annotation;
  const auto size = [&](const DimGroup& group) {
    return annotation.dims[static_cast<size_t>(group[0])].size;
  };
  const int64_t width =
      annotation.inputs[0].dims.size() > 1 ? size(annotation.inputs[0].dims[1]) : 1;
  int64_t out = 0;
  size_t at = tables_of_rows(op);
  for (const std::string& mode : words(op.text("modes"))) {
    int64_t ids = 1;
    for (const DimGroup& group : annotation.inputs[at].dims) ids *= size(group);
    out += ids * width;
    at += operands_of_look_up(mode);
  }
  return out;
}
template <int64_t flops>
int64_t per_element(const Op& op) {
  return flops * elements_looked_up(op);
}

PositionRule place(const Op& op, int dim) {
  return op.annotation.inputs[0].dims[0] == DimGroup{dim} ? PositionRule::kIndex
                                                          : PositionRule::kFree;
}

// Returns the position rule of a dim. Stochastic rounding of an element also depends on its column.
PositionRule place_of_update(const Op& op, int dim) {
  const std::vector<DimGroup>& table = op.annotation.inputs[0].dims;
  const bool column = table.size() > 1 && table[1] == DimGroup{dim};
  return column && op.text("rounding") != "nearest" ? PositionRule::kIndex : place(op, dim);
}

KindInfo row_kind(std::string name, std::string summary, InferFunction infer) {
  KindInfo kind{.name = std::move(name), .summary = std::move(summary)};
  kind.max_inputs = SIZE_MAX;
  kind.attributes = {text_attribute("modes"), text_attribute("within", "")};
  kind.infer = infer_by(infer);
  kind.work = WorkClass::kOptimizer;
  kind.bytes = ByteRule::kRows;
  kind.family = FamilyRule::kTable;
  kind.position = place;
  return kind;
}

KindInfo update_kind(std::string name, std::string summary, InferFunction infer,
                     const OptimizerInfo& optimizer) {
  KindInfo kind = row_kind(std::move(name), std::move(summary), infer);
  kind.min_inputs = 3 + optimizer.states.size() + optimizer.scalars.size();
  kind.outputs = 1 + optimizer.states.size();
  if (kind.outputs > 1) kind.output_names = {"p"};
  for (const std::string& state : optimizer.states) kind.output_names.push_back(state);
  kind.optimizer = optimizer;
  kind.attributes.push_back(text_attribute("rounding", "nearest"));
  // The name from which stochastic rounding derives its random bits; "": the op's path.
  kind.attributes.push_back(text_attribute("stream", ""));
  kind.position = place_of_update;
  return kind;
}

}  // namespace

std::vector<KindInfo> row_update_kinds() {
  KindInfo sgd =
      update_kind("row_sgd", "gradient descent of the rows of a table that were looked up",
                  infer_row_sgd, row_sgd);
  sgd.flops = per_element<3>;
  KindInfo adagrad =
      update_kind("row_adagrad", "Adagrad of the rows of a table that were looked up",
                  infer_row_adagrad, row_adagrad);
  adagrad.flops = per_element<6>;
  adagrad.attributes.push_back(optimizer_attribute("eps", 1e-8));
  KindInfo rowwise = update_kind("rowwise_adagrad", "the same with one sum of squares for each row",
                                 infer_rowwise_adagrad, rowwise_adagrad);
  rowwise.flops = per_element<5>;
  rowwise.attributes.push_back(optimizer_attribute("eps", 1e-8));
  rowwise.expandable = width_of_table;
  rowwise.expand = expand_rowwise_adagrad;
  KindInfo row_squares = row_kind(
      "row_squares", "sums of squares of the rows of a table's gradient", infer_row_squares);
  row_squares.min_inputs = 3;
  row_squares.flops = per_element<3>;
  row_squares.accumulates = true;
  KindInfo row_sums =
      row_kind("row_sums", "the sums of rowwise_adagrad, from squares of rows", infer_row_sums);
  row_sums.min_inputs = 3;
  row_sums.flops = per_element<3>;
  row_sums.attributes.push_back(integer_attribute("width"));
  KindInfo step = row_kind(
      "rowwise_step", "the step of rowwise_adagrad, with the sums as they are now", infer_row_step);
  step.min_inputs = 5;
  step.flops = per_element<3>;
  step.attributes.push_back(text_attribute("rounding", "nearest"));
  step.attributes.push_back(text_attribute("stream", ""));
  step.attributes.push_back(optimizer_attribute("eps", 1e-8));
  step.position = place_of_update;
  KindInfo adam = update_kind("row_adam", "Adam of the rows of a table that were looked up",
                              infer_row_adam, row_adam);
  adam.flops = per_element<13>;
  adam.attributes.insert(adam.attributes.end(),
                         {optimizer_attribute("beta1", 0.9), optimizer_attribute("beta2", 0.95),
                          optimizer_attribute("eps", 1e-8)});
  KindInfo squares = row_kind("row_sum_squares", "sum of squares of the rows of a table's gradient",
                              infer_row_sum_squares);
  squares.min_inputs = 3;
  squares.flops = per_element<3>;
  squares.accumulates = true;
  return {std::move(sgd),     std::move(adagrad),     std::move(rowwise),  std::move(adam),
          std::move(squares), std::move(row_squares), std::move(row_sums), std::move(step)};
}

}  // namespace tessera::kinds
