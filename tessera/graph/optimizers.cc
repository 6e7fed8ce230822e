#include "tessera/graph/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

std::string words_of(const Names& names, const std::string& summed = "") {
  std::string out;
  for (const std::string& name : names)
    out += (out.empty() ? "" : " ") + name + (name == summed ? "+" : "");
  return out.empty() ? "()" : out;
}

Names without(Names names, const std::string& one) {
  std::erase(names, one);
  return names;
}

// The sum of squares of all elements.
TensorId squares(ParameterUpdate& u, const std::string& suffix, TensorId of) {
  return u.op1(suffix, "sum_squares", {of});
}

// p - rate u, with decay by the learning rate.
void apply(ParameterUpdate& u, TensorId direction, TensorId rate, Attributes attributes = {}) {
  std::vector<TensorId> inputs = {u.parameter(), direction, rate, u.scalars().lr};
  if (u.scalars().skip.valid()) inputs.push_back(u.scalars().skip);
  u.becomes(u.parameter(), u.op1("", "apply_update", inputs, std::move(attributes)));
}

// ---- lamb, lars: vectors (biases, gains) take the learning rate as it is
bool is_vector(const ParameterUpdate& u) { return u.tensor(u.parameter()).dims.size() < 2; }

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
  apply(u, made[0], rate, {{"weight_decay", 0.0}});  // the direction has it
}

void lars(ParameterUpdate& u) {
  if (is_vector(u)) return u.by_one_op("sgd");
  const TensorId momentum = u.state("momentum");
  constexpr double kTrust = 1e-3;  // of the paper
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
// The running mean of x, which is kept in a state.
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

// Second moments are kept by row and by column of the last two dims, and multiplied.
void adafactor(ParameterUpdate& u) {
  const Tensor parameter = u.tensor(u.parameter());
  const DType wide = u.tensor(u.scalars().lr).dtype;
  const double least = wide == DType::kFloat64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
  TensorId g = u.in_dtype("gradient", u.gradient(), wide);
  if (u.scalars().coefficient.valid()) g = u.op1("clipped", "mul", {g, u.scalars().coefficient});
  TensorId square;
  Names all;
  for (const Dim& dim : parameter.dims) all.push_back(dim.name);
  if (is_vector(u)) {
    square = decayed(u, "v", parameter.dims, u.op1("square", "mul", {g, g}));
  } else {
    const Dim row = parameter.dims[parameter.dims.size() - 2], column = parameter.dims.back();
    const auto mean_over = [&](const std::string& name, const Dim& summed) {
      std::vector<Dim> dims;
      for (const Dim& dim : parameter.dims) {
        if (dim != summed) dims.push_back(dim);
      }
      const TensorId sum = u.op1(name + ".sum", "einsum", {g, g},
                                 {{"spec", words_of(all, summed.name) + ", " + words_of(all) +
                                               " -> " + words_of(without(all, summed.name))}});
      const TensorId mean = u.op1(name + ".mean", "scale", {sum},
                                  {{"factor", 1.0 / static_cast<double>(summed.size)}});
      return decayed(u, name, dims, mean);
    };
    const TensorId rows = mean_over("row", column), columns = mean_over("column", row);
    const TensorId mean =
        u.op1("mean", "reduce_sum", {rows},
              {{"dims", row.name}, {"factor", 1.0 / static_cast<double>(row.size)}});
    const TensorId positive = u.op1("positive", "clamp", {mean}, {{"min", least}});
    const TensorId relative = u.op1("relative", "div", {rows, positive});
    square = u.op1("second_moment", "einsum", {relative, columns},
                   {{"spec", words_of(without(all, column.name)) + ", " +
                                 words_of(without(all, row.name)) + " -> " + words_of(all)}});
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
// The first dims of a matrix: of all places to cut the dims in two, that which makes it most square.
size_t rows_of(const std::vector<Dim>& dims) {
  size_t best = 1;
  int64_t side = 0;
  for (size_t cut = 1; cut < dims.size(); ++cut) {
    int64_t rows = 1, columns = 1;
    for (size_t i = 0; i < dims.size(); ++i) (i < cut ? rows : columns) *= dims[i].size;
    if (std::min(rows, columns) <= side) continue;
    side = std::min(rows, columns);
    best = cut;
  }
  return best;
}

// x times (a + b y + c y^2) with y = x x^T (or x^T x, if that is smaller), five times: a polynomial
// that drives all singular values of x, which are at most 1, to about 1.
TensorId orthogonalised(ParameterUpdate& u, TensorId x) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // of the paper
  if (!x.valid()) return x;
  const Dim row = u.tensor(x).dims.at(0), column = u.tensor(x).dims.at(1);
  const bool wide = row.size <= column.size;
  const std::string side = wide ? row.name : column.name, other = wide ? column.name : row.name,
                    again = side + ".o", middle = side + ".k",
                    matrix = row.name + " " + column.name;
  const auto oriented = [&](const std::string& name, const std::string& mark = "") {
    return wide ? name + " " + other + mark : other + mark + " " + name;
  };
  const std::string gram_spec =
      oriented(side, "+") + ", " + oriented(again) + " -> " + side + " " + again;
  const std::string square_spec =
      side + " " + middle + "+, " + middle + " " + again + " -> " + side + " " + again;
  const std::string step_spec = side + " " + middle + "+, " + oriented(middle) + " -> " + matrix;
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
    const TensorId product = op1("product", "einsum", {polynomial, x}, {{"spec", step_spec}});
    const TensorId same = op1("same", "scale", {x}, {{"factor", kA}});
    x = op1("step", "add", {same, product});
  }
  return x;
}

// Matrices by the orthogonalised momentum; vectors, and tables that are looked up, by AdamW.
void muon(ParameterUpdate& u) {
  const std::vector<Dim> dims = u.tensor(u.parameter()).dims;
  if (is_vector(u) || u.is_looked_up()) return u.by_one_op("adamw");
  const TensorId momentum = u.state("momentum");
  std::vector<TensorId> inputs = {u.parameter(), u.gradient(), momentum};
  u.add_flags(inputs);
  const std::vector<TensorId> made = u.op("mean", "momentum_direction", inputs);
  if (made.empty()) return;
  u.becomes(momentum, made[1]);
  const DType wide = u.tensor(u.scalars().lr).dtype;
  const TensorId direction = u.in_dtype("wide", made[0], wide);
  // Divided by its norm, no singular value is above 1.
  const TensorId norm =
      u.op1("positive", "clamp", {squares(u, "length", direction)}, {{"min", 1e-14}});
  const TensorId inverse = u.op1("inverse", "power", {norm}, {{"exponent", -0.5}});
  TensorId x = u.op1("unit", "mul", {direction, inverse});
  const size_t cut = rows_of(dims);
  const auto join = [&](size_t first, size_t count) {
    if (count < 2) return;
    x = u.op1(fmt::format("join.{}", first), "group", {x},
              {{"first", static_cast<int64_t>(first)},
               {"count", static_cast<int64_t>(count)},
               {"name", dims[first == 0 ? 0 : cut].name}});
  };
  join(0, cut);
  join(1, dims.size() - cut);
  x = orthogonalised(u, x);
  int64_t rows = 1, columns = 1;
  const auto part = [&](size_t begin, size_t end, int64_t& size) {
    std::string names;
    for (size_t i = begin; i < end; ++i) {
      names += fmt::format("{}{}={}", i == begin ? "" : " ", dims[i].name, dims[i].size);
      size *= dims[i].size;
    }
    if (end - begin < 2) return;
    x = u.op1(fmt::format("part.{}", begin), "ungroup", {x},
              {{"dim", dims[begin].name}, {"names", names}});
  };
  part(cut, dims.size(), columns);
  part(0, cut, rows);
  // A step changes each element by about the learning rate, whatever the matrix's form.
  const double factor =
      std::sqrt(std::max(1.0, static_cast<double>(columns) / static_cast<double>(rows)));
  apply(u, x, u.scalars().lr, {{"factor", factor}});
}

const std::vector<Optimizer>& table() {
  static const std::vector<Optimizer> all = {
      {"adafactor", "second moments by row and column, steps relative to the weights", adafactor},
      {"adamw", "Adam with decoupled weight decay",
       [](ParameterUpdate& u) { u.by_one_op("adamw"); }},
      {"lamb", "Adam, each tensor's step relative to its weights", lamb},
      {"lars", "sgd, each tensor's step relative to its weights", lars},
      {"lion", "the sign of a mean of gradients", [](ParameterUpdate& u) { u.by_one_op("lion"); }},
      {"muon", "momentum, orthogonalised; vectors and tables by adamw", muon},
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
  return tensor(parameter_).dims.size() >= 2 ? spec_.weight_decay : 0.0;
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

bool ParameterUpdate::is_looked_up() const {
  const std::vector<Op>& ops = builder_.graph().ops();
  return std::any_of(ops.begin(), ops.end(), [&](const Op& op) {
    return op.phase == Phase::kForward && info_of(op).work == WorkClass::kLookup &&
           std::find(op.inputs.begin(), op.inputs.end(), parameter_) != op.inputs.end();
  });
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
  inputs.insert(inputs.begin() + 1, gradient_);
  for (const Init::Kind scalar : info.scalars)
    inputs.push_back(scalar == Init::Kind::kStep ? scalars_.step : scalars_.lr);
  add_flags(inputs);
  const std::vector<TensorId> outputs = op("", kind, std::move(inputs));
  if (!builder_.ok()) return;
  for (size_t i = 0; i < outputs.size(); ++i) becomes(updated[i], outputs[i]);
}

const std::vector<Optimizer>& all_optimizers() { return table(); }

const Optimizer* find_optimizer(std::string_view name) {
  const auto& all = table();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Optimizer& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Optimizer& one : table()) names.push_back(one.name);
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
      if (one.valid()) {  // of several
        one = {};
        break;
      }
      one = parameter;
    }
  }
  return served;
}

}  // namespace tessera
