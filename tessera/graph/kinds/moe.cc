// Mixture of experts: routing, dispatch to slots of experts, combination, load balance.
//
// All work is done for each sequence by itself: an expert has `capacity` slots for each sequence,
// so that the result of a sequence depends neither on other sequences nor on how the batch is cut.
// Op dims have fixed names: batch, seq, experts, choice (the top_k experts of a token), capacity,
// hidden. A slot number is expert * capacity + position, or -1 if the token was dropped because the
// expert had no free slot.
#include <fmt/format.h>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

Status expect_floating_rank(const Tensor& tensor, std::string_view what, size_t rank,
                            std::string_view dims) {
  if (tensor.dims.size() == rank && is_floating(tensor.dtype)) return {};
  return invalid_input(
      fmt::format("expected floating {} with dims ({}), found {}", what, dims, describe(tensor)));
}

// Checks that `tensor` (slot or weight) is [batch, seq, choice] for tokens [batch, seq, ..].
Status expect_choices(const Tensor& tensor, std::string_view what, const Tensor& tokens) {
  if (tensor.dims.size() == 3 && tensor.dims[0].size == tokens.dims[0].size &&
      tensor.dims[1].size == tokens.dims[1].size) {
    return {};
  }
  return invalid_input(
      fmt::format("expected {} with dims (batch seq choice) for tokens {}, found {}", what,
                  describe(tokens), describe(tensor)));
}

Status expect_slots_and_weight(const Operands& x, const Tensor& tokens) {
  TESSERA_TRY_VOID(expect_choices(x[1], "slot", tokens));
  TESSERA_TRY_VOID(expect_dtype(x[1], "slot", DType::kInt64));
  if (x.count() < 3) return {};
  TESSERA_TRY_VOID(expect_dims(x[2], "weight", x[1].dims));
  return expect_dtype(x[2], "weight", x[0].dtype);
}

Result<Dim> read_choice(const Operands& x, int64_t experts) {
  const int64_t top_k = x.integer("top_k");
  if (top_k >= 1 && top_k <= experts) return Dim{"choice", top_k};
  return invalid_input(
      fmt::format("expected top_k from 1 to the number of experts {}, found {}", experts, top_k));
}

Status check_normalize(const Operands& x) {
  const int64_t normalize = x.integer("normalize");
  if (normalize == 0 || normalize == 1) return {};
  return invalid_input(fmt::format("expected normalize of 0 or 1, found {}", normalize));
}

// Checks the settings of a choice among groups of experts (DeepSeek-V2, V3): `groups` groups of
// experts that follow each other, of which the `top_groups` groups count whose `group_best` best
// experts have the largest sum.
Status check_groups(const Operands& x, int64_t experts) {
  const int64_t groups = x.integer("groups"), top = x.integer("top_groups"),
                best = x.integer("group_best");
  if (groups < 1 || experts % groups != 0) {
    return invalid_input(
        fmt::format("expected groups that divide the {} experts, found {}", experts, groups));
  }
  if (top < 1 || top > groups) {
    return invalid_input(
        fmt::format("expected top_groups from 1 to the {} groups, found {}", groups, top));
  }
  if (best < 1 || best > experts / groups) {
    return invalid_input(
        fmt::format("expected group_best from 1 to the {} experts of a group, "
                    "found {}",
                    experts / groups, best));
  }
  if (x.integer("top_k") > top * (experts / groups)) {
    return invalid_input(
        fmt::format("expected top_k of at most the {} experts of the chosen "
                    "groups, found {}",
                    top * (experts / groups), x.integer("top_k")));
  }
  return {};
}

// Checks input `i`, the bias that is added to probabilities [.., experts] before experts are chosen.
Status check_choice_bias(const Operands& x, size_t i, const Tensor& probs) {
  if (x.count() <= i) return {};
  TESSERA_TRY_VOID(expect_dims(x[i], "bias", {probs.dims.back()}));
  return expect_dtype(x[i], "bias", probs.dtype);
}

// ---- routing
// -------------------------------------------------------------------------------------
Result<Inferred> infer_route(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[0], "probabilities", 3, "batch seq experts"));
  const std::vector<Dim>& dims = x[0].dims;
  TESSERA_TRY(const Dim choice, read_choice(x, dims[2].size));
  const int64_t capacity = x.integer("capacity");
  if (capacity < 1) {
    return invalid_input(fmt::format("expected a capacity of at least 1, found {}", capacity));
  }
  TESSERA_TRY_VOID(check_normalize(x));
  TESSERA_TRY_VOID(check_groups(x, dims[2].size));
  TESSERA_TRY_VOID(check_choice_bias(x, 1, x[0]));
  const std::vector<Dim> choices = {dims[0], dims[1], choice};
  return conclude(
      x,
      fmt::format("batch seq^ experts^{} -> batch seq choice^, batch seq choice, batch experts, "
                  "batch",
                  x.count() > 1 ? ", experts" : ""),
      {choices, choices, {dims[0], dims[2]}, {dims[0]}},
      {DType::kInt64, x[0].dtype, DType::kInt64, DType::kInt64});
}

// Adds the gradient of the scores. The bias has none, because it changes the weights only by what is
// chosen.
InputGradients differentiate_route(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  std::vector<TensorId> operands = {dy[1]};
  operands.insert(operands.end(), op.inputs.begin(), op.inputs.end());
  Attributes attributes;
  for (const char* name : {"top_k", "normalize", "groups", "top_groups", "group_best"})
    attributes[name] = op.integer(name);
  InputGradients out(op.inputs.size());
  out[0] = builder.op1(op.path + ".dx", "moe_route_grad", operands, attributes);
  return out;
}

Result<Inferred> infer_route_grad(const Operands& x) {
  TESSERA_TRY_VOID(check_normalize(x));
  TESSERA_TRY_VOID(expect_equal_dtypes(x, 2));
  TESSERA_TRY_VOID(expect_floating_rank(x[1], "probabilities", 3, "batch seq experts"));
  TESSERA_TRY_VOID(expect_choices(x[0], "dweight", x[1]));
  TESSERA_TRY(const Dim choice, read_choice(x, x[1].dims[2].size));
  if (x[0].dims[2].size != choice.size) {
    return invalid_input(
        fmt::format("expected dweight with {} choices, found {}", choice.size, describe(x[0])));
  }
  TESSERA_TRY_VOID(check_groups(x, x[1].dims[2].size));
  TESSERA_TRY_VOID(check_choice_bias(x, 2, x[1]));
  return conclude(x,
                  fmt::format("batch seq choice^, batch seq experts^{} -> batch seq experts",
                              x.count() > 2 ? ", experts" : ""),
                  {x[1].dims}, {x[1].dtype});
}

// ---- dispatch and combine: each is the other's derivative
// -----------------------------------------
constexpr std::string_view kTokens = "batch seq hidden";
constexpr std::string_view kSlots = "experts batch capacity hidden";
constexpr std::string_view kChoices = "batch seq choice";

// Returns the dims experts and capacity, with the sizes that the attributes give.
Result<std::vector<Dim>> read_slots(const Operands& x) {
  const int64_t experts = x.integer("experts"), capacity = x.integer("capacity");
  if (experts >= 1 && capacity >= 1)
    return std::vector<Dim>{{"experts", experts}, {"capacity", capacity}};
  return invalid_input(fmt::format("expected experts and capacity of at least 1, found {} and {}",
                                   experts, capacity));
}

Result<Inferred> infer_dispatch(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[0], "tokens", 3, kTokens));
  TESSERA_TRY_VOID(expect_slots_and_weight(x, x[0]));
  TESSERA_TRY(const std::vector<Dim> slots, read_slots(x));
  const std::string weight = x.count() < 3 ? "" : fmt::format(", {}", kChoices);
  return conclude(x, fmt::format("{}, {}{} -> {}", kTokens, kChoices, weight, kSlots),
                  {{slots[0], x[0].dims[0], slots[1], x[0].dims[2]}}, {x[0].dtype});
}

InputGradients differentiate_dispatch(GraphBuilder& builder, const Op& op,
                                      const OutputGradients& dy, const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  std::vector<TensorId> operands = {dy[0], op.inputs[1]};
  if (op.inputs.size() == 3) operands.push_back(op.inputs[2]);
  if (wanted[0]) out[0] = builder.op1(op.path + ".dx", "moe_combine", operands);
  if (op.inputs.size() == 3 && wanted[2]) {
    out[2] = builder.op1(op.path + ".dw", "moe_weight_grad", {op.inputs[0], dy[0], op.inputs[1]});
  }
  return out;
}

Status expect_slot_values(const Tensor& y) { return expect_floating_rank(y, "slots", 4, kSlots); }

Result<Inferred> infer_combine(const Operands& x) {
  TESSERA_TRY_VOID(expect_slot_values(x[0]));
  if (x[1].dims.size() != 3 || x[1].dims[0].size != x[0].dims[1].size) {
    return invalid_input(fmt::format("expected slot with dims ({}) for slots {}, found {}",
                                     kChoices, describe(x[0]), describe(x[1])));
  }
  TESSERA_TRY_VOID(expect_slots_and_weight(x, x[1]));
  const std::string weight = x.count() < 3 ? "" : fmt::format(", {}", kChoices);
  return conclude(x, fmt::format("{}, {}{} -> {}", kSlots, kChoices, weight, kTokens),
                  {{x[1].dims[0], x[1].dims[1], x[0].dims[3]}}, {x[0].dtype});
}

InputGradients differentiate_combine(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>& wanted) {
  InputGradients out(op.inputs.size());
  const std::vector<Dim> slots = builder.tensor(op.inputs[0]).dims;
  std::vector<TensorId> operands = {dy[0], op.inputs[1]};
  if (op.inputs.size() == 3) operands.push_back(op.inputs[2]);
  if (wanted[0]) {
    out[0] = builder.op1(op.path + ".dx", "moe_dispatch", operands,
                         {{"experts", slots[0].size}, {"capacity", slots[2].size}});
  }
  if (op.inputs.size() == 3 && wanted[2]) {
    out[2] = builder.op1(op.path + ".dw", "moe_weight_grad", {dy[0], op.inputs[0], op.inputs[1]});
  }
  return out;
}

// (tokens, slots, slot) -> the inner product of each token with the values at each of its slots
Result<Inferred> infer_weight_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[0], "tokens", 3, kTokens));
  TESSERA_TRY_VOID(expect_slot_values(x[1]));
  TESSERA_TRY_VOID(expect_dtype(x[1], "slots", x[0].dtype));
  TESSERA_TRY_VOID(expect_choices(x[2], "slot", x[0]));
  TESSERA_TRY_VOID(expect_dtype(x[2], "slot", DType::kInt64));
  return conclude(x, fmt::format("{}, {}, {} -> {}", kTokens, kSlots, kChoices, kChoices),
                  {x[2].dims}, {x[0].dtype});
}

// Infers a tensor that has, for each slot, the weight of the choice which the slot serves.
Result<Inferred> infer_slot_weight(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[0], "weight", 3, kChoices));
  TESSERA_TRY_VOID(expect_dims(x[1], "slot", x[0].dims));
  TESSERA_TRY_VOID(expect_dtype(x[1], "slot", DType::kInt64));
  TESSERA_TRY(const std::vector<Dim> slots, read_slots(x));
  return conclude(x, fmt::format("{0}, {0} -> experts batch capacity", kChoices),
                  {{slots[0], x[0].dims[0], slots[1]}}, {x[0].dtype});
}

InputGradients differentiate_slot_weight(GraphBuilder& builder, const Op& op,
                                         const OutputGradients& dy, const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "moe_slot_weight_grad", {dy[0], op.inputs[1]}), TensorId{}};
}

Result<Inferred> infer_slot_weight_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[0], "dvalues", 3, "experts batch capacity"));
  if (x[1].dims.size() != 3 || x[1].dims[0].size != x[0].dims[1].size) {
    return invalid_input(fmt::format("expected slot with dims ({}) for values {}, found {}",
                                     kChoices, describe(x[0]), describe(x[1])));
  }
  TESSERA_TRY_VOID(expect_dtype(x[1], "slot", DType::kInt64));
  return conclude(x, fmt::format("experts batch capacity, {0} -> {0}", kChoices), {x[1].dims},
                  {x[0].dtype});
}

// Counts two flops for each choice of a token, or, if the op has the dim hidden, for each element
// of the token in each choice.
int64_t slot_flops(const Op& op) {
  int64_t flops = 2;
  for (const char* name : {"batch", "seq", "choice", "hidden"}) {
    const int dim = op.annotation.find(name);
    if (dim >= 0) flops *= op.annotation.dims[static_cast<size_t>(dim)].size;
  }
  return flops;
}

// ---- load balance
// --------------------------------------------------------------------------------
Status expect_load(const Tensor& load, const Tensor& probabilities) {
  TESSERA_TRY_VOID(expect_floating_rank(probabilities, "probabilities", 3, "batch seq experts"));
  TESSERA_TRY_VOID(expect_dims(load, "load", {probabilities.dims[0], probabilities.dims[2]}));
  return expect_dtype(load, "load", DType::kInt64);
}

Result<Inferred> infer_balance(const Operands& x) {
  TESSERA_TRY_VOID(expect_load(x[1], x[0]));
  TESSERA_TRY_VOID(read_choice(x, x[0].dims[2].size));
  return conclude(x, "batch seq experts, batch experts -> batch", {{x[0].dims[0]}},
                  {statistics_dtype(x[0].dtype)});
}

InputGradients differentiate_balance(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                     const std::vector<bool>& wanted) {
  InputGradients out(2);
  if (!wanted[0]) return out;
  out[0] = builder.op1(op.path + ".dx", "moe_balance_grad", {dy[0], op.inputs[0], op.inputs[1]},
                       op.attributes);
  return out;
}

Result<Inferred> infer_balance_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_load(x[2], x[1]));
  TESSERA_TRY_VOID(expect_dims(x[0], "dvalue", {x[1].dims[0]}));
  TESSERA_TRY_VOID(expect_dtype(x[0], "dvalue", statistics_dtype(x[1].dtype)));
  TESSERA_TRY_VOID(read_choice(x, x[1].dims[2].size));
  return conclude(x, "batch, batch seq experts, batch experts -> batch seq experts", {x[1].dims},
                  {x[1].dtype});
}

// ---- the router's z-loss
// --------------------------------------------------------------------------
Result<Inferred> infer_z_loss(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[0], "logits", 3, "batch seq experts"));
  return conclude(x, "batch seq experts^ -> batch", {{x[0].dims[0]}},
                  {statistics_dtype(x[0].dtype)});
}

InputGradients differentiate_z_loss(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>&) {
  return {builder.op1(op.path + ".dx", "moe_z_loss_grad", {dy[0], op.inputs[0]})};
}

Result<Inferred> infer_z_loss_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_floating_rank(x[1], "logits", 3, "batch seq experts"));
  TESSERA_TRY_VOID(expect_dims(x[0], "dvalue", {x[1].dims[0]}));
  TESSERA_TRY_VOID(expect_dtype(x[0], "dvalue", statistics_dtype(x[1].dtype)));
  return conclude(x, "batch, batch seq experts^ -> batch seq experts", {x[1].dims}, {x[1].dtype});
}

// Returns kIndex for experts and capacity, because slots are numbered through all experts,
// else kFree.
PositionRule place_in_slots(const Op& op, int dim) {
  const std::string& name = op.annotation.dims[static_cast<size_t>(dim)].name;
  return name == "experts" || name == "capacity" ? PositionRule::kIndex : PositionRule::kFree;
}

// Returns kSize for the sequence and the experts, over which a mean is taken, else kFree.
PositionRule place_in_mean(const Op& op, int dim) {
  const std::string& name = op.annotation.dims[static_cast<size_t>(dim)].name;
  return name == "experts" || name == "seq" ? PositionRule::kSize : PositionRule::kFree;
}

}  // namespace

std::vector<KindInfo> moe_kinds() {
  const AttributeInfo top_k = integer_attribute("top_k"), capacity = integer_attribute("capacity"),
                      normalize = integer_attribute("normalize", 1),
                      groups = integer_attribute("groups", 1),
                      top_groups = integer_attribute("top_groups", 1),
                      group_best = integer_attribute("group_best", 1);
  return {
      {.name = "moe_route",
       .summary = "the top_k experts of each token, their slots and weights",
       .min_inputs = 1,
       .max_inputs = 2,
       .output_names = {"slot", "weight", "load", "dropped"},
       .outputs = 4,
       .attributes = {top_k, capacity, normalize, groups, top_groups, group_best},
       .infer = infer_by(infer_route),
       .differentiate = differentiate_route,
       .flops = flops_per_point(1),
       .work = WorkClass::kRouting,
       .position = position_free},
      {.name = "moe_route_grad",
       .summary = "gradient of the probabilities through the weights",
       .min_inputs = 2,
       .max_inputs = 3,
       .attributes = {top_k, normalize, groups, top_groups, group_best},
       .infer = infer_by(infer_route_grad),
       .flops = flops_per_point(1),
       .work = WorkClass::kRouting,
       .gradient = true,
       .position = position_free},
      {.name = "moe_dispatch",
       .summary = "tokens, times their weights if given, to their slots; empty slots are zero",
       .min_inputs = 2,
       .max_inputs = 3,
       .attributes = {integer_attribute("experts"), capacity},
       .infer = infer_by(infer_dispatch),
       .differentiate = differentiate_dispatch,
       .flops = slot_flops,
       .work = WorkClass::kRouting,
       .position = place_in_slots,
       .accumulates = true},
      {.name = "moe_combine",
       .summary = "for each token the sum of its slots, times the weights if given",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = infer_by(infer_combine),
       .differentiate = differentiate_combine,
       .flops = slot_flops,
       .work = WorkClass::kRouting,
       .position = place_in_slots,
       .accumulates = true},
      {.name = "moe_weight_grad",
       .summary = "the dot product of each token with each of its slots",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_by(infer_weight_grad),
       .flops = slot_flops,
       .work = WorkClass::kRouting,
       .gradient = true,
       .position = place_in_slots,
       .accumulates = true},
      {.name = "moe_slot_weight",
       .summary = "the weight of each slot, as it was chosen; of empty slots 0",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {integer_attribute("experts"), capacity},
       .infer = infer_by(infer_slot_weight),
       .differentiate = differentiate_slot_weight,
       .flops = slot_flops,
       .work = WorkClass::kRouting,
       .position = place_in_slots,
       .accumulates = true},
      {.name = "moe_slot_weight_grad",
       .summary = "for each choice the value of its slot",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_by(infer_slot_weight_grad),
       .flops = slot_flops,
       .work = WorkClass::kRouting,
       .gradient = true,
       .position = place_in_slots,
       .accumulates = true},
      {.name = "moe_balance",
       .summary = "load balance of each sequence: 1 if all experts get the same",
       .min_inputs = 2,
       .max_inputs = 2,
       .attributes = {top_k},
       .infer = infer_by(infer_balance),
       .differentiate = differentiate_balance,
       .flops = flops_per_point(2),
       .work = WorkClass::kRouting,
       .position = place_in_mean,
       .accumulates = true},
      {.name = "moe_balance_grad",
       .summary = "gradient of the probabilities through the load balance",
       .min_inputs = 3,
       .max_inputs = 3,
       .attributes = {top_k},
       .infer = infer_by(infer_balance_grad),
       .flops = flops_per_point(1),
       .work = WorkClass::kRouting,
       .bytes = ByteRule::kShape,
       .gradient = true,
       .position = place_in_mean},
      {.name = "moe_z_loss",
       .summary = "mean over a sequence of the squared log-sum-exp of the router's logits",
       .infer = infer_by(infer_z_loss),
       .differentiate = differentiate_z_loss,
       .flops = flops_per_point(2),
       .work = WorkClass::kRouting,
       .position = place_in_mean,
       .accumulates = true},
      {.name = "moe_z_loss_grad",
       .summary = "gradient of the router's logits through the z-loss",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_by(infer_z_loss_grad),
       .flops = flops_per_point(3),
       .work = WorkClass::kRouting,
       .gradient = true,
       .position = place_in_mean},
  };
}

}  // namespace tessera::kinds
