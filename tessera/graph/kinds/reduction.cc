// reduce_sum, reduce_max.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

Result<Inferred> infer_reduce(const Operands& x, std::string_view combiner) {
  std::vector<Dim> output = x[0].dims;
  for (const std::string& name : words(x.text("dims"))) {
    const int position = find_dim(output, name);
    if (position < 0) {
      return invalid_input(fmt::format("expected dims of the input, each once, found '{}' for {}",
                                       name, describe(x[0])));
    }
    output.erase(output.begin() + position);
  }
  return conclude(x, fmt::format("{} -> {}{}", spell(x[0].dims), spell(output), combiner), {output},
                  {x[0].dtype});
}

Result<Inferred> infer_reduce_sum(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating(x));
  return infer_reduce(x, "");
}

Result<Inferred> infer_reduce_max(const Operands& x) {
  TESSERA_TRY_VOID(expect_numbers(x));
  return infer_reduce(x, " {max}");
}

InputGradients differentiate_reduce_sum(GraphBuilder& builder, const Op& op,
                                        const OutputGradients& dy, const std::vector<bool>&) {
  const std::string path = op.path + ".dx";
  const double factor = op.number("factor");
  TensorId gradient = dy[0];
  // Scales dy before it is broadcast, while it is small.
  if (factor != 1.0)
    gradient = builder.op1(path + ".scale", "scale", {gradient}, {{"factor", factor}});
  const std::string dims = dims_text(builder.tensor(op.inputs[0]).dims);
  return {builder.op1(path, "broadcast_to", {gradient}, {{"dims", dims}})};
}

// Shares the gradient equally among all elements that equal the maximum.
InputGradients differentiate_reduce_max(GraphBuilder& builder, const Op& op,
                                        const OutputGradients& dy, const std::vector<bool>&) {
  const std::string path = op.path + ".dx";
  const TensorId largest = builder.op1(path + ".largest", "equal", {op.inputs[0], op.outputs[0]});
  const TensorId count =
      builder.op1(path + ".count", "reduce_sum", {largest}, {{"dims", op.text("dims")}});
  const TensorId share = builder.op1(path + ".share", "div", {dy[0], count});
  return {builder.op1(path, "mul", {largest, share})};
}

}  // namespace

std::vector<KindInfo> reduction_kinds() {
  return {
      {.name = "reduce_sum",
       .summary = "factor * sum over the named dims",
       .attributes = {text_attribute("dims"), number_attribute("factor", 1.0)},
       .infer = infer_by(infer_reduce_sum),
       .differentiate = differentiate_reduce_sum,
       .flops = flops_per_point(1),
       .work = WorkClass::kElementwise,
       .family = FamilyRule::kRows,
       .position = position_free,
       .accumulates = true},
      {.name = "reduce_max",
       .summary = "largest element over the named dims",
       .attributes = {text_attribute("dims")},
       .infer = infer_by(infer_reduce_max),
       .differentiate = differentiate_reduce_max,
       .flops = flops_per_point(1),
       .work = WorkClass::kElementwise,
       .position = position_free},
  };
}

}  // namespace tessera::kinds
