// layer_norm, rms_norm, softmax: the forward kinds, their derivative rules and expansions. The
// normalised dim is frozen. An expansion computes the same function by the kinds of
// normalisation_part.cc, in which the dim can be split.
#include "tessera/graph/kinds/normalisation.h"

#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {

// Returns the last dim of the first output, which every norm freezes.
std::vector<std::string> last_dim(const Op& op) {
  const int dim = op.annotation.outputs[0].dims.back()[0];
  return {op.annotation.dims[static_cast<size_t>(dim)].name};
}

std::vector<std::string> dim_attribute(const Op& op) { return {op.text("dim")}; }

void begin_expansion(GraphBuilder& builder, const Op& op) {
  builder.set_phase(op.phase);
  builder.set_mirror(op.mirror);
  builder.set_role(builder.tensor(op.outputs[0]).role);
}

int64_t normalised_size(const GraphBuilder& builder, TensorId x) {
  return builder.tensor(x).dims.back().size;
}

Status check_norm_operands(const Tensor& x, NamedTensors vectors) {
  TESSERA_TRY_VOID(expect_rank(x, "x", 1));
  if (!is_floating(x.dtype)) {
    return invalid_input(fmt::format("expected a floating dtype, found {}", describe(x)));
  }
  for (const auto& [name, tensor] : vectors) {
    TESSERA_TRY_VOID(expect_dims(*tensor, name, {x.dims.back()}));
    TESSERA_TRY_VOID(expect_dtype(*tensor, name, x.dtype));
  }
  return {};
}

Status check_statistics(const Tensor& x, NamedTensors statistics) {
  for (const auto& [name, tensor] : statistics) {
    TESSERA_TRY_VOID(expect_dims(*tensor, name, without_last(x.dims)));
    TESSERA_TRY_VOID(expect_dtype(*tensor, name, statistics_dtype(x.dtype)));
  }
  return {};
}

namespace {

// ---- layer_norm
// ----------------------------------------------------------------------------------
Result<Inferred> infer_layer_norm(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[0], {{"gamma", &x[1]}, {"beta", &x[2]}}));
  const std::vector<Dim> lead = without_last(x[0].dims);
  const std::string h = x[0].dims.back().name;
  const std::string all = spell(names_of(lead), h + "^");
  const DType dtype = statistics_dtype(x[0].dtype);
  return conclude(x,
                  fmt::format("{}, {}, {} -> {}, {}, {}", all, h, h, all, spell(lead), spell(lead)),
                  {x[0].dims, lead, lead}, {x[0].dtype, dtype, dtype});
}

InputGradients differentiate_layer_norm(GraphBuilder& builder, const Op& op,
                                        const OutputGradients& dy,
                                        const std::vector<bool>& wanted) {
  if (dy[1].valid() || dy[2].valid() || !dy[0].valid()) {
    builder.fail(fmt::format("op '{}' (layer_norm): only the output y has a derivative", op.path));
  }
  InputGradients out =
      builder.op(op.path + ".grad", "layer_norm_grad",
                 {dy[0], op.inputs[0], op.inputs[1], op.outputs[1], op.outputs[2]});
  for (size_t i = 0; i < out.size(); ++i) {
    if (!wanted[i]) out[i] = {};
  }
  return out;
}

std::vector<TensorId> expand_layer_norm(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId stats = builder.op1(op.path + ".moments", "norm_moments", {op.inputs[0]});
  const auto finished =
      builder.op(op.path + ".finish", "norm_finish", {stats}, {{"eps", op.number("eps")}});
  const TensorId y =
      builder.op1(op.path + ".apply", "norm_apply",
                  {op.inputs[0], finished[0], finished.back(), op.inputs[1], op.inputs[2]});
  return {y, finished[0], finished.back()};
}

// ---- rms_norm
// ------------------------------------------------------------------------------------
Result<Inferred> infer_rms_norm(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[0], {{"gamma", &x[1]}}));
  const std::vector<Dim> lead = without_last(x[0].dims);
  const std::string h = x[0].dims.back().name;
  const std::string all = spell(names_of(lead), h + "^");
  return conclude(x, fmt::format("{}, {} -> {}, {}", all, h, all, spell(lead)), {x[0].dims, lead},
                  {x[0].dtype, statistics_dtype(x[0].dtype)});
}

InputGradients differentiate_rms_norm(GraphBuilder& builder, const Op& op,
                                      const OutputGradients& dy, const std::vector<bool>& wanted) {
  if (dy[1].valid() || !dy[0].valid()) {
    builder.fail(fmt::format("op '{}' (rms_norm): only the output y has a derivative", op.path));
  }
  InputGradients out = builder.op(op.path + ".grad", "rms_norm_grad",
                                  {dy[0], op.inputs[0], op.inputs[1], op.outputs[1]});
  for (size_t i = 0; i < out.size(); ++i) {
    if (!wanted[i]) out[i] = {};
  }
  return out;
}

std::vector<TensorId> expand_rms_norm(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId square = builder.op1(op.path + ".square", "rms_square", {op.inputs[0]});
  const TensorId rstd = builder.op1(
      op.path + ".finish", "rms_finish", {square},
      {{"features", normalised_size(builder, op.inputs[0])}, {"eps", op.number("eps")}});
  const TensorId y =
      builder.op1(op.path + ".apply", "rms_apply", {op.inputs[0], rstd, op.inputs[1]});
  return {y, rstd};
}

// ---- softmax
// -------------------------------------------------------------------------------------
Result<Inferred> infer_softmax(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY(const std::string all, spell_with_frozen(x[0], x.text("dim")));
  return conclude(x, fmt::format("{} -> {}", all, all), {x[0].dims}, {x[0].dtype});
}

InputGradients differentiate_softmax(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "softmax_grad", {dy[0], op.outputs[0]}, op.attributes)};
}

std::vector<TensorId> expand_softmax(GraphBuilder& builder, const Op& op) {
  begin_expansion(builder, op);
  const TensorId lse =
      builder.op1(op.path + ".lse", "logsumexp_reduce", {op.inputs[0]}, op.attributes);
  return {builder.op1(op.path + ".apply", "softmax_apply", {op.inputs[0], lse})};
}

}  // namespace

Result<std::string> spell_with_frozen(const Tensor& x, const std::string& dim) {
  const int position = find_dim(x.dims, dim);
  if (position < 0) {
    return invalid_input(
        fmt::format("expected a dim of the input, found '{}' for {}", dim, describe(x)));
  }
  Names names = names_of(x.dims);
  names[static_cast<size_t>(position)] += '^';
  return spell(names);
}

std::vector<KindInfo> normalisation_kinds() {
  return {
      {.name = "layer_norm",
       .summary = "(x - mean) * rstd * gamma + beta over the last dim",
       .min_inputs = 3,
       .max_inputs = 3,
       .output_names = {"y", "mean", "rstd"},
       .outputs = 3,
       .attributes = {number_attribute("eps", 1e-5)},
       .infer = infer_by(infer_layer_norm),
       .differentiate = differentiate_layer_norm,
       .flops = flops_per_point(8),
       .work = WorkClass::kNorm,
       .position = position_free,
       .expandable = last_dim,
       .expand = expand_layer_norm},
      {.name = "rms_norm",
       .summary = "x * rstd * gamma over the last dim, rstd = 1 / sqrt(mean(x^2) + eps)",
       .min_inputs = 2,
       .max_inputs = 2,
       .output_names = {"y", "rstd"},
       .outputs = 2,
       .attributes = {number_attribute("eps", 1e-5)},
       .infer = infer_by(infer_rms_norm),
       .differentiate = differentiate_rms_norm,
       .flops = flops_per_point(4),
       .work = WorkClass::kNorm,
       .position = position_free,
       .expandable = last_dim,
       .expand = expand_rms_norm},
      {.name = "softmax",
       .summary = "exp(x) / sum(exp(x)) over one dim",
       .attributes = {text_attribute("dim")},
       .infer = infer_by(infer_softmax),
       .differentiate = differentiate_softmax,
       .flops = flops_per_point(5),
       .work = WorkClass::kNorm,
       .position = position_free,
       .in_place = true,
       .expandable = dim_attribute,
       .expand = expand_softmax},
  };
}

}  // namespace tessera::kinds
