// batch_norm and its gradient keep statistics of each channel over the named dims, which are
// frozen. If a plan splits these dims (synchronized batch norm), the expansion computes the same,
// because the moments of the pieces are merged. Each index of a dim that is neither named nor the
// channels has statistics of its own.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds/normalisation.h"

namespace tessera::kinds {
namespace {

// The dims of x for each purpose, as text of the annotation and as dims.
struct Norm {
  std::string frozen;     // all dims of x; those over which statistics are taken are frozen
  std::string all;        // all dims
  std::string rest;       // dims of a statistic
  std::string channel;    // the dim of gamma and beta
  std::vector<Dim> kept;  // dims of a statistic
  int64_t count = 1;      // number of elements from which one statistic is made
};

Result<Norm> read_norm(const Operands& operands, const Tensor& x) {
  if (!is_floating(x.dtype)) {
    return invalid_input(fmt::format("expected a floating dtype, found {}", describe(x)));
  }
  Norm norm;
  const std::vector<std::string> over = words(operands.text("dims"));
  Names frozen;
  for (const Dim& dim : x.dims) {
    const bool reduced = std::find(over.begin(), over.end(), dim.name) != over.end();
    frozen.push_back(dim.name + (reduced ? "^" : ""));
    if (reduced) norm.count *= dim.size;
    if (!reduced) norm.kept.push_back(dim);
  }
  if (over.empty() || norm.kept.size() + over.size() != x.dims.size()) {
    return invalid_input(fmt::format("expected dims of x, each once, found \"{}\" for {}",
                                     operands.text("dims"), describe(x)));
  }
  norm.frozen = spell(frozen);
  norm.all = spell(x.dims);
  norm.rest = spell(norm.kept);
  return norm;
}

// Checks that gamma or beta has exactly one dim, which is a dim of the statistics, and the dtype
// of x.
Status read_channel(const Tensor& vector, std::string_view what, const Tensor& x, Norm& norm) {
  const bool fits =
      vector.dims.size() == 1 &&
      std::find(norm.kept.begin(), norm.kept.end(), vector.dims[0]) != norm.kept.end() &&
      (norm.channel.empty() || norm.channel == vector.dims[0].name);
  if (!fits) {
    return invalid_input(fmt::format("expected {} with one of the dims {}, found {}", what,
                                     describe(norm.kept), describe(vector)));
  }
  norm.channel = vector.dims[0].name;
  return expect_dtype(vector, what, x.dtype);
}

Status check_kept(const Tensor& tensor, std::string_view what, const Tensor& x, const Norm& norm) {
  TESSERA_TRY_VOID(expect_dims(tensor, what, norm.kept));
  return expect_dtype(tensor, what, statistics_dtype(x.dtype));
}

std::vector<Dim> with(std::vector<Dim> dims, const char* name, int64_t size) {
  dims.push_back({name, size});
  return dims;
}

// (x, gamma, beta[, running mean, running variance]; dims, eps) -> (y, mean, rstd)
Result<Inferred> infer_batch_norm(const Operands& x) {
  TESSERA_TRY(Norm n, read_norm(x, x[0]));
  TESSERA_TRY_VOID(read_channel(x[1], "gamma", x[0], n));
  TESSERA_TRY_VOID(read_channel(x[2], "beta", x[0], n));
  const DType dtype = statistics_dtype(x[0].dtype);
  std::string running;
  if (x.count() == 4) {
    return invalid_input("expected a running mean and a running variance, found one of them");
  }
  for (size_t i = 3; i < x.count(); ++i) {
    TESSERA_TRY_VOID(expect_dims(x[i], i == 3 ? "running mean" : "running variance", x[1].dims));
    if (!is_floating(x[i].dtype)) {
      return invalid_input(
          fmt::format("expected running statistics of a floating dtype, found {}", describe(x[i])));
    }
    running += ", " + n.channel;
  }
  return conclude(
      x,
      fmt::format("{0}, {1}, {1}{4} -> {2}, {3}, {3}", n.frozen, n.channel, n.all, n.rest, running),
      {x[0].dims, n.kept, n.kept}, {x[0].dtype, dtype, dtype});
}

// (dy, x, gamma, mean, rstd; dims) -> (dx, dgamma, dbeta)
Result<Inferred> infer_batch_norm_grad(const Operands& x) {
  TESSERA_TRY(Norm n, read_norm(x, x[1]));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(read_channel(x[2], "gamma", x[1], n));
  TESSERA_TRY_VOID(check_kept(x[3], "mean", x[1], n));
  TESSERA_TRY_VOID(check_kept(x[4], "rstd", x[1], n));
  return conclude(
      x,
      fmt::format("{0}, {1}, {2}, {3}, {3} -> {1}, {2}, {2}", n.frozen, n.all, n.channel, n.rest),
      {x[1].dims, x[2].dims, x[2].dims}, {x[1].dtype, x[1].dtype, x[1].dtype});
}

// ---- parts
// (x; dims) -> stats
Result<Inferred> infer_moments(const Operands& x) {
  TESSERA_TRY(const Norm n, read_norm(x, x[0]));
  return conclude(x,
                  fmt::format("{} -> {} {{moments}}", n.all, spell(names_of(n.kept), "moments^")),
                  {with(n.kept, "moments", 3)}, {statistics_dtype(x[0].dtype)});
}

// (x, mean, rstd, gamma, beta; dims) -> y
Result<Inferred> infer_apply(const Operands& x) {
  TESSERA_TRY(Norm n, read_norm(x, x[0]));
  TESSERA_TRY_VOID(check_kept(x[1], "mean", x[0], n));
  TESSERA_TRY_VOID(check_kept(x[2], "rstd", x[0], n));
  TESSERA_TRY_VOID(read_channel(x[3], "gamma", x[0], n));
  TESSERA_TRY_VOID(read_channel(x[4], "beta", x[0], n));
  return conclude(x, fmt::format("{0}, {1}, {1}, {2}, {2} -> {0}", n.all, n.rest, n.channel),
                  {x[0].dims}, {x[0].dtype});
}

// (dy, x, mean, rstd; dims) -> sums of dy and of dy * xhat
Result<Inferred> infer_grad_sums(const Operands& x) {
  TESSERA_TRY(const Norm n, read_norm(x, x[1]));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_kept(x[2], "mean", x[1], n));
  TESSERA_TRY_VOID(check_kept(x[3], "rstd", x[1], n));
  return conclude(
      x, fmt::format("{0}, {0}, {1}, {1} -> {2}", n.all, n.rest, spell(names_of(n.kept), "sums^")),
      {with(n.kept, "sums", 2)}, {statistics_dtype(x[1].dtype)});
}

// (dy, x, gamma, mean, rstd, sums; dims, count) -> dx
Result<Inferred> infer_grad_apply(const Operands& x) {
  TESSERA_TRY(Norm n, read_norm(x, x[1]));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(read_channel(x[2], "gamma", x[1], n));
  TESSERA_TRY_VOID(check_kept(x[3], "mean", x[1], n));
  TESSERA_TRY_VOID(check_kept(x[4], "rstd", x[1], n));
  TESSERA_TRY_VOID(expect_dims(x[5], "sums", with(n.kept, "sums", 2)));
  TESSERA_TRY_VOID(expect_dtype(x[5], "sums", statistics_dtype(x[1].dtype)));
  if (x.integer("count") != n.count) {
    return invalid_input(fmt::format("expected count {}, found {}", n.count, x.integer("count")));
  }
  return conclude(x,
                  fmt::format("{0}, {0}, {1}, {2}, {2}, {3} -> {0}", n.all, n.channel, n.rest,
                              spell(names_of(n.kept), "sums^")),
                  {x[1].dims}, {x[1].dtype});
}

// (dy, x, mean, rstd; dims, channel) -> (dgamma, dbeta)
Result<Inferred> infer_grad_params(const Operands& x) {
  TESSERA_TRY(const Norm n, read_norm(x, x[1]));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_kept(x[2], "mean", x[1], n));
  TESSERA_TRY_VOID(check_kept(x[3], "rstd", x[1], n));
  const std::string& channel = x.text("channel");
  const int position = find_dim(n.kept, channel);
  if (position < 0) {
    return invalid_input(
        fmt::format("expected a channel among the dims {}, found '{}'", describe(n.kept), channel));
  }
  const std::vector<Dim> vector = {n.kept[static_cast<size_t>(position)]};
  return conclude(x, fmt::format("{0}, {0}, {1}, {1} -> {2}, {2}", n.all, n.rest, channel),
                  {vector, vector}, {x[1].dtype, x[1].dtype});
}

// ---- derivative and expansions
InputGradients differentiate_batch_norm(GraphBuilder& builder, const Op& op,
                                        const OutputGradients& dy,
                                        const std::vector<bool>& wanted) {
  if (dy[1].valid() || dy[2].valid() || !dy[0].valid()) {
    builder.fail(fmt::format("op '{}' (batch_norm): only the output y has a derivative", op.path));
  }
  InputGradients out = builder.op(op.path + ".grad", "batch_norm_grad",
                                  {dy[0], op.inputs[0], op.inputs[1], op.outputs[1], op.outputs[2]},
                                  {{"dims", op.text("dims")}});
  out.resize(op.inputs.size());  // running statistics have no gradient
  for (size_t i = 0; i < out.size(); ++i) {
    if (!wanted[i]) out[i] = {};
  }
  return out;
}

std::vector<std::string> statistics_dims(const Op& op) { return words(op.text("dims")); }

// Converts the tensor to the dtype of the statistics, if it has another dtype.
TensorId as_statistic(GraphBuilder& builder, const std::string& path, TensorId id, DType dtype) {
  if (builder.tensor(id).dtype == dtype) return id;
  return builder.op1(path, "cast", {id}, {{"dtype", std::string(dtype_name(dtype))}});
}

// Returns the statistics by which an evaluation normalises: the mean, and (variance + eps)^(-1/2).
std::vector<TensorId> running_statistics(GraphBuilder& builder, const Op& op, DType dtype) {
  const std::string path = op.path + ".running";
  const std::string name(dtype_name(dtype));
  const TensorId mean = as_statistic(builder, path + ".mean", op.inputs[3], dtype);
  const TensorId variance = as_statistic(builder, path + ".variance", op.inputs[4], dtype);
  const TensorId eps = builder.op1(path + ".eps", "fill", {},
                                   {{"value", op.number("eps")}, {"dims", ""}, {"dtype", name}});
  const TensorId sum = builder.op1(path + ".sum", "add", {variance, eps});
  return {mean, builder.op1(path + ".rstd", "power", {sum}, {{"exponent", -0.5}})};
}

std::vector<TensorId> expand_batch_norm(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const Attributes dims = {{"dims", op.text("dims")}};
  const TensorId stats = builder.op1(op.path + ".moments", "batch_moments", {op.inputs[0]}, dims);
  const auto finished =
      builder.op(op.path + ".finish", "norm_finish", {stats}, {{"eps", op.number("eps")}});
  TensorId mean = finished[0], rstd = finished.back();
  if (op.inputs.size() > 3 && builder.ok()) {
    const auto running = running_statistics(builder, op, builder.tensor(mean).dtype);
    mean = builder.op1(op.path + ".mean_or_running", "in_evaluation", {mean, running[0]});
    rstd = builder.op1(op.path + ".rstd_or_running", "in_evaluation", {rstd, running[1]});
  }
  const TensorId y = builder.op1(op.path + ".apply", "batch_apply",
                                 {op.inputs[0], mean, rstd, op.inputs[1], op.inputs[2]}, dims);
  return {y, finished[0], finished.back()};
}

std::vector<TensorId> expand_batch_norm_grad(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId dy = op.inputs[0], x = op.inputs[1], gamma = op.inputs[2], mean = op.inputs[3],
                 rstd = op.inputs[4];
  const std::string dims = op.text("dims"), channel = builder.tensor(gamma).dims.at(0).name;
  int64_t count = 1;
  for (const std::string& name : words(dims)) {
    const std::vector<Dim>& all = builder.tensor(x).dims;
    count *= all[static_cast<size_t>(find_dim(all, name))].size;
  }
  const TensorId sums =
      builder.op1(op.path + ".sums", "batch_grad_sums", {dy, x, mean, rstd}, {{"dims", dims}});
  const TensorId dx =
      builder.op1(op.path + ".apply", "batch_grad_apply", {dy, x, gamma, mean, rstd, sums},
                  {{"dims", dims}, {"count", count}});
  const auto parameters = builder.op(op.path + ".params", "batch_grad_params", {dy, x, mean, rstd},
                                     {{"dims", dims}, {"channel", channel}});
  return {dx, parameters[0], parameters.back()};
}

// Counts `flops` for each element of the largest operand. The dims `sums` and `moments` of
// statistics, whose sizes are fixed, are not multiplied in.
std::function<int64_t(const Op&)> flops_an_element(int64_t flops) {
  return [flops](const Op& op) {
    int64_t points = flops * iteration_points(op);
    for (const OpDim& dim : op.annotation.dims) {
      if (dim.name == "sums" || dim.name == "moments") points /= dim.size;
    }
    return points;
  };
}

// Returns kSize for the named dims, because attribute `count` holds the number of their elements,
// else kFree.
PositionRule place_in_count(const Op& op, int dim) {
  const Names names = words(op.text("dims"));
  const std::string& name = op.annotation.dims[static_cast<size_t>(dim)].name;
  return std::find(names.begin(), names.end(), name) != names.end() ? PositionRule::kSize
                                                                    : PositionRule::kFree;
}

KindInfo norm_kind(std::string name, std::string summary, size_t inputs, InferFunction infer,
                   int64_t flops) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .attributes = {text_attribute("dims")},
          .infer = infer_by(infer),
          .flops = flops_an_element(flops),
          .work = WorkClass::kNorm,
          .position = position_free};
}

}  // namespace

std::vector<KindInfo> batch_norm_kinds() {
  KindInfo norm =
      norm_kind("batch_norm", "(x - mean) * rstd * gamma + beta, statistics over the named dims", 3,
                infer_batch_norm, 8);
  norm.max_inputs = 5;
  norm.output_names = {"y", "mean", "rstd"};
  norm.outputs = 3;
  norm.bytes = ByteRule::kTwice;
  norm.attributes.push_back(number_attribute("eps", 1e-5));
  norm.differentiate = differentiate_batch_norm;
  norm.expandable = statistics_dims;
  norm.expand = expand_batch_norm;
  KindInfo grad = norm_kind("batch_norm_grad", "(dy, x, gamma, mean, rstd) -> (dx, dgamma, dbeta)",
                            5, infer_batch_norm_grad, 14);
  grad.output_names = {"dx", "dgamma", "dbeta"};
  grad.outputs = 3;
  grad.bytes = ByteRule::kTwice;
  grad.gradient = true;
  grad.accumulates = true;
  grad.first_accumulating = 1;
  grad.expandable = statistics_dims;
  grad.expand = expand_batch_norm_grad;
  KindInfo apply = norm_kind("batch_apply", "(x - mean) * rstd * gamma + beta", 5, infer_apply, 4);
  apply.in_place = true;
  KindInfo grad_apply =
      norm_kind("batch_grad_apply", "dx of batch_norm from the two sums", 6, infer_grad_apply, 4);
  grad_apply.in_place = true;
  grad_apply.attributes.push_back(integer_attribute("count"));
  grad_apply.position = place_in_count;
  KindInfo grad_params =
      norm_kind("batch_grad_params", "dgamma and dbeta of batch_norm", 4, infer_grad_params, 5);
  grad_params.output_names = {"dgamma", "dbeta"};
  grad_params.outputs = 2;
  grad_params.attributes.push_back(text_attribute("channel"));
  grad_params.accumulates = true;
  return {norm,
          grad,
          norm_kind("batch_moments", "(count, mean, M2) over the named dims", 1, infer_moments, 1),
          apply,
          norm_kind("batch_grad_sums", "(sum dy, sum dy * xhat) over the named dims", 4,
                    infer_grad_sums, 3),
          grad_apply,
          grad_params};
}

}  // namespace tessera::kinds
