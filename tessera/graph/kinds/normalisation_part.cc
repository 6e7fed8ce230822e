// The kinds that the expansions of layer_norm, rms_norm and softmax use: reductions over the
// normalised dim, whose parts can be merged, and ops that are spatial in all dims.
#include <fmt/format.h>

#include "tessera/graph/kinds/normalisation.h"

namespace tessera::kinds {
namespace {

// Spells all dims of x (first function), the dims without the normalised dim (second), and the
// normalised dim (third).
std::string all_of(const Tensor& x) { return spell(x.dims); }
std::string rows_of(const Tensor& x) { return spell(without_last(x.dims)); }
const std::string& feature_of(const Tensor& x) { return x.dims.back().name; }

Status check_features(const Operands& operands, const Tensor& x) {
  const int64_t features = operands.integer("features");
  if (features == x.dims.back().size) return {};
  return invalid_input(fmt::format("expected features {}, found {}", x.dims.back().size, features));
}

// Returns the dims of a statistic: those of x without the last one, then a dim `name` of fixed
// size, for (count, mean, M2) or for two sums.
std::vector<Dim> dims_of_statistic(const Tensor& x, const char* name, int64_t size) {
  std::vector<Dim> dims = without_last(x.dims);
  dims.push_back({name, size});
  return dims;
}

// ---- layer norm
// ----------------------------------------------------------------------------------
Result<Inferred> infer_norm_moments(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[0], {}));
  const std::vector<Dim> output = dims_of_statistic(x[0], "moments", 3);
  const std::string spelled = spell(names_of(without_last(output)), "moments^");
  return conclude(x, fmt::format("{} -> {} {{moments}}", all_of(x[0]), spelled), {output},
                  {statistics_dtype(x[0].dtype)});
}

Result<Inferred> infer_norm_finish(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  if (x[0].dims.empty() || x[0].dims.back() != Dim{"moments", 3}) {
    return invalid_input(
        fmt::format("expected stats with the last dim moments=3, found {}", describe(x[0])));
  }
  const std::vector<Dim> rows = without_last(x[0].dims);
  const std::string row = spell(rows);
  return conclude(x, fmt::format("{} -> {}, {}", spell(names_of(rows), "moments^"), row, row),
                  {rows, rows}, {x[0].dtype, x[0].dtype});
}

Result<Inferred> infer_norm_apply(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[0], {{"gamma", &x[3]}, {"beta", &x[4]}}));
  TESSERA_TRY_VOID(check_statistics(x[0], {{"mean", &x[1]}, {"rstd", &x[2]}}));
  const std::string all = all_of(x[0]);
  const std::string row = rows_of(x[0]);
  const std::string& h = feature_of(x[0]);
  return conclude(x, fmt::format("{}, {}, {}, {}, {} -> {}", all, row, row, h, h, all), {x[0].dims},
                  {x[0].dtype});
}

Result<Inferred> infer_norm_grad_sums(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {{"gamma", &x[2]}}));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"mean", &x[3]}, {"rstd", &x[4]}}));
  const std::vector<Dim> output = dims_of_statistic(x[1], "sums", 2);
  const std::string all = all_of(x[1]);
  const std::string row = rows_of(x[1]);
  return conclude(x,
                  fmt::format("{}, {}, {}, {}, {} -> {}", all, all, feature_of(x[1]), row, row,
                              spell(names_of(without_last(output)), "sums^")),
                  {output}, {statistics_dtype(x[1].dtype)});
}

Result<Inferred> infer_norm_grad_apply(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {{"gamma", &x[2]}}));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"mean", &x[3]}, {"rstd", &x[4]}}));
  TESSERA_TRY_VOID(expect_dims(x[5], "sums", dims_of_statistic(x[1], "sums", 2)));
  TESSERA_TRY_VOID(expect_dtype(x[5], "sums", statistics_dtype(x[1].dtype)));
  TESSERA_TRY_VOID(check_features(x, x[1]));
  const std::string all = all_of(x[1]);
  const std::string row = rows_of(x[1]);
  const std::string sums = spell(names_of(without_last(x[1].dims)), "sums^");
  return conclude(
      x,
      fmt::format("{}, {}, {}, {}, {}, {} -> {}", all, all, feature_of(x[1]), row, row, sums, all),
      {x[1].dims}, {x[1].dtype});
}

Result<Inferred> infer_norm_grad_params(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {}));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"mean", &x[2]}, {"rstd", &x[3]}}));
  const std::string all = all_of(x[1]);
  const std::string row = rows_of(x[1]);
  const std::string& h = feature_of(x[1]);
  const std::vector<Dim> output = {x[1].dims.back()};
  return conclude(x, fmt::format("{}, {}, {}, {} -> {}, {}", all, all, row, row, h, h),
                  {output, output}, {x[1].dtype, x[1].dtype});
}

// ---- rms norm
// ------------------------------------------------------------------------------------
Result<Inferred> infer_rms_square(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[0], {}));
  return conclude(x, fmt::format("{} -> {}", all_of(x[0]), rows_of(x[0])),
                  {without_last(x[0].dims)}, {statistics_dtype(x[0].dtype)});
}

Result<Inferred> infer_rms_finish(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  if (x.integer("features") < 1) {
    return invalid_input(
        fmt::format("expected features of at least 1, found {}", x.integer("features")));
  }
  return conclude(x, fmt::format("{} -> {}", all_of(x[0]), all_of(x[0])), {x[0].dims},
                  {x[0].dtype});
}

Result<Inferred> infer_rms_apply(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[0], {{"gamma", &x[2]}}));
  TESSERA_TRY_VOID(check_statistics(x[0], {{"rstd", &x[1]}}));
  const std::string all = all_of(x[0]);
  return conclude(x, fmt::format("{}, {}, {} -> {}", all, rows_of(x[0]), feature_of(x[0]), all),
                  {x[0].dims}, {x[0].dtype});
}

Status check_rms_grad(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {{"gamma", &x[2]}}));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  return check_statistics(x[1], {{"rstd", &x[3]}});
}

Result<Inferred> infer_rms_grad_sum(const Operands& x) {
  TESSERA_TRY_VOID(check_rms_grad(x));
  const std::string all = all_of(x[1]);
  const std::string row = rows_of(x[1]);
  return conclude(x, fmt::format("{}, {}, {}, {} -> {}", all, all, feature_of(x[1]), row, row),
                  {without_last(x[1].dims)}, {statistics_dtype(x[1].dtype)});
}

Result<Inferred> infer_rms_grad_apply(const Operands& x) {
  TESSERA_TRY_VOID(check_rms_grad(x));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"sum", &x[4]}}));
  TESSERA_TRY_VOID(check_features(x, x[1]));
  const std::string all = all_of(x[1]);
  const std::string row = rows_of(x[1]);
  return conclude(
      x, fmt::format("{}, {}, {}, {}, {} -> {}", all, all, feature_of(x[1]), row, row, all),
      {x[1].dims}, {x[1].dtype});
}

Result<Inferred> infer_rms_grad_params(const Operands& x) {
  TESSERA_TRY_VOID(check_norm_operands(x[1], {}));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_statistics(x[1], {{"rstd", &x[2]}}));
  const std::string all = all_of(x[1]);
  return conclude(x, fmt::format("{}, {}, {} -> {}", all, all, rows_of(x[1]), feature_of(x[1])),
                  {{x[1].dims.back()}}, {x[1].dtype});
}

// ---- softmax
// -------------------------------------------------------------------------------------
Result<Inferred> infer_logsumexp_reduce(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  const int position = find_dim(x[0].dims, x.text("dim"));
  if (position < 0) {
    return invalid_input(fmt::format("expected a dim of the input, found '{}' for {}",
                                     x.text("dim"), describe(x[0])));
  }
  std::vector<Dim> output = x[0].dims;
  output.erase(output.begin() + position);
  return conclude(x, fmt::format("{} -> {} {{logsumexp}}", all_of(x[0]), spell(output)), {output},
                  {statistics_dtype(x[0].dtype)});
}

// Checks that the statistic has all dims of x except one, in order.
Status check_row_statistic(const Tensor& tensor, std::string_view what, const Tensor& x,
                           DType dtype) {
  if (tensor.dims.size() + 1 != x.dims.size() || !is_subsequence(tensor.dims, x.dims)) {
    return invalid_input(fmt::format("expected {} with the dims of {} but one, found {}", what,
                                     describe(x), describe(tensor)));
  }
  return expect_dtype(tensor, what, dtype);
}

Result<Inferred> infer_softmax_apply(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  TESSERA_TRY_VOID(check_row_statistic(x[1], "lse", x[0], statistics_dtype(x[0].dtype)));
  const std::string all = all_of(x[0]);
  return conclude(x, fmt::format("{}, {} -> {}", all, all_of(x[1]), all), {x[0].dims},
                  {x[0].dtype});
}

Result<Inferred> infer_softmax_grad_apply(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(expect_like(x[0], "dy", x[1]));
  TESSERA_TRY_VOID(check_row_statistic(x[2], "dot", x[1], x[1].dtype));
  const std::string all = all_of(x[1]);
  return conclude(x, fmt::format("{}, {}, {} -> {}", all, all, all_of(x[2]), all), {x[1].dims},
                  {x[1].dtype});
}

// Returns kSize for the last dim, because attribute `features` holds its size, else kFree.
PositionRule place_in_features(const Op& op, int dim) {
  return op.annotation.outputs[0].dims.back() == DimGroup{dim} ? PositionRule::kSize
                                                               : PositionRule::kFree;
}

KindInfo part_kind(std::string name, std::string summary, size_t inputs, InferFunction infer,
                   int64_t flops) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .infer = infer_by(infer),
          .flops = flops_per_point(flops),
          .work = WorkClass::kNorm,
          .position = position_free};
}

std::vector<KindInfo> layer_norm_parts() {
  KindInfo finish = part_kind("norm_finish", "moments -> (mean, rstd)", 1, infer_norm_finish, 1);
  finish.outputs = 2;
  finish.output_names = {"mean", "rstd"};
  finish.attributes = {number_attribute("eps", 1e-5)};
  KindInfo apply =
      part_kind("norm_apply", "(x - mean) * rstd * gamma + beta", 5, infer_norm_apply, 4);
  apply.in_place = true;
  KindInfo grad_apply = part_kind("norm_grad_apply", "dx of layer_norm from the two sums", 6,
                                  infer_norm_grad_apply, 4);
  grad_apply.in_place = true;
  grad_apply.attributes = {integer_attribute("features")};
  grad_apply.position = place_in_features;
  KindInfo grad_params =
      part_kind("norm_grad_params", "dgamma and dbeta of layer_norm", 4, infer_norm_grad_params, 5);
  grad_params.outputs = 2;
  grad_params.output_names = {"dgamma", "dbeta"};
  grad_params.accumulates = true;
  return {
      part_kind("norm_moments", "(count, mean, M2) over the last dim", 1, infer_norm_moments, 1),
      finish,
      apply,
      part_kind("norm_grad_sums", "(sum g, sum g * xhat) over the last dim, g = dy * gamma", 5,
                infer_norm_grad_sums, 3),
      grad_apply,
      grad_params};
}

std::vector<KindInfo> rms_norm_parts() {
  KindInfo finish =
      part_kind("rms_finish", "1 / sqrt(square / features + eps)", 1, infer_rms_finish, 3);
  finish.attributes = {integer_attribute("features"), number_attribute("eps", 1e-5)};
  finish.in_place = true;
  KindInfo apply = part_kind("rms_apply", "x * rstd * gamma", 3, infer_rms_apply, 2);
  apply.in_place = true;
  KindInfo grad_apply =
      part_kind("rms_grad_apply", "dx of rms_norm from the sum", 5, infer_rms_grad_apply, 5);
  grad_apply.attributes = {integer_attribute("features")};
  grad_apply.position = place_in_features;
  grad_apply.in_place = true;
  KindInfo grad_params =
      part_kind("rms_grad_params", "dgamma of rms_norm", 3, infer_rms_grad_params, 3);
  grad_params.accumulates = true;
  return {part_kind("rms_square", "sum of squares over the last dim", 1, infer_rms_square, 2),
          finish,
          apply,
          part_kind("rms_grad_sum", "sum of g * x over the last dim, g = dy * gamma", 4,
                    infer_rms_grad_sum, 3),
          grad_apply,
          grad_params};
}

std::vector<KindInfo> softmax_parts() {
  KindInfo reduce =
      part_kind("logsumexp_reduce", "log(sum(exp(x))) over one dim", 1, infer_logsumexp_reduce, 3);
  reduce.attributes = {text_attribute("dim")};
  KindInfo apply = part_kind("softmax_apply", "exp(x - lse)", 2, infer_softmax_apply, 2);
  apply.work = WorkClass::kElementwise;
  apply.in_place = true;
  KindInfo grad_apply =
      part_kind("softmax_grad_apply", "y * (dy - dot)", 3, infer_softmax_grad_apply, 2);
  grad_apply.work = WorkClass::kElementwise;
  grad_apply.in_place = true;
  return {reduce, apply, grad_apply};
}

}  // namespace

std::vector<KindInfo> normalisation_part_kinds() {
  std::vector<KindInfo> kinds = layer_norm_parts();
  for (auto family : {rms_norm_parts, softmax_parts}) {
    for (KindInfo& info : family()) kinds.push_back(std::move(info));
  }
  // The flops of an element include the dim of the statistics (3 moments, 2 sums). Its size is not
  // counted again.
  for (KindInfo& info : kinds) {
    info.flops = [per_point = info.flops](const Op& op) {
      int64_t flops = per_point(op);
      for (const OpDim& dim : op.annotation.dims) {
        if (dim.name == "sums" || (dim.name == "moments" && op.kind == "norm_moments"))
          flops /= dim.size;
      }
      return flops;
    };
  }
  return kinds;
}

}  // namespace tessera::kinds
