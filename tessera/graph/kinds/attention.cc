// attention, its gradient, rotary position encoding.
#include <fmt/format.h>

#include <cmath>

#include "tessera/graph/kinds/common.h"
#include "tessera/graph/order.h"

namespace tessera::kinds {
namespace {

constexpr std::string_view kQuery = "batch seq heads group head_dim^";
constexpr std::string_view kRows = "batch seq heads group";

// q [batch, seq, heads, group, head_dim]; k, v [batch, seq, heads, head_dim]. The op dims have
// these fixed names, the keys' sequence is `kv`: a reduction of o and lse, whose parts (softmax
// over some of the keys, and the logarithm of its denominator) are merged over time.
Status check_query_key_value(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  if (q.dims.size() != 5) {
    return invalid_input(fmt::format(
        "expected q with dims (batch seq heads group head_dim), found {}", describe(q)));
  }
  for (const Tensor* tensor : {&k, &v}) {
    const char* name = tensor == &k ? "k" : "v";
    if (tensor->dims.size() != 4) {
      return invalid_input(fmt::format("expected {} with dims (batch seq heads head_dim), found {}",
                                       name, describe(*tensor)));
    }
    const bool fits =
        tensor->dims[0].size == q.dims[0].size && tensor->dims[2].size == q.dims[2].size &&
        tensor->dims[3].size == q.dims[4].size && tensor->dims[1].size == k.dims[1].size;
    if (!fits) {
      return invalid_input(
          fmt::format("expected {} to fit q {}, found {}", name, describe(q), describe(*tensor)));
    }
  }
  if (causal && q.dims[1].size > k.dims[1].size) {
    return invalid_input(fmt::format(
        "expected at least as many keys as queries in causal attention, found {} and {}",
        k.dims[1].size, q.dims[1].size));
  }
  return {};
}

Result<bool> read_causal(const Operands& x) {
  const int64_t causal = x.integer("causal");
  if (causal != 0 && causal != 1) {
    return invalid_input(fmt::format("expected causal 0 or 1, found {}", causal));
  }
  return causal == 1;
}

// A causal pair is one in the order of indices: in another order any box may have work. With more
// keys than queries, the queries are those of the last positions, and all of them see the keys
// before: then the keys are no causal pair of the queries, index by index.
Result<std::string> key_dims(const Operands& x, const Tensor& q, const Tensor& k, bool causal) {
  TESSERA_TRY(const Order order, parse_order(x.text("order")));
  const bool as_many = q.dims[1].size == k.dims[1].size, natural = order.kind == Order::Kind::kNone;
  if (!natural && !as_many) {
    return invalid_input(
        fmt::format("expected as many keys as queries in the order '{}', found {} and {}",
                    x.text("order"), k.dims[1].size, q.dims[1].size));
  }
  return fmt::format("batch kv{} heads head_dim", causal && natural && as_many ? "<seq" : "");
}

Result<Inferred> infer_attention(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(const bool causal, read_causal(x));
  TESSERA_TRY_VOID(check_query_key_value(x[0], x[1], x[2], causal));
  TESSERA_TRY(const std::string key, key_dims(x, x[0], x[1], causal));
  return conclude(x,
                  fmt::format("{}, {}, {} -> {} {{weighted}}, {} {{logsumexp}}", kQuery, key, key,
                              kQuery, kRows),
                  {x[0].dims, without_last(x[0].dims)}, {x[0].dtype, statistics_dtype(x[0].dtype)});
}

InputGradients differentiate_attention(GraphBuilder& builder, const Op& op,
                                       const OutputGradients& dy, const std::vector<bool>&) {
  if (dy[1].valid()) {
    builder.fail(
        fmt::format("op '{}' (attention): the log-sum-exp output has no derivative", op.path));
  }
  return builder.op(op.path + ".grad", "attention_grad",
                    {dy[0], op.inputs[0], op.inputs[1], op.inputs[2], op.outputs[0], op.outputs[1]},
                    op.attributes);
}

Result<Inferred> infer_attention_grad(const Operands& x) {
  TESSERA_TRY(const bool causal, read_causal(x));
  TESSERA_TRY_VOID(check_query_key_value(x[1], x[2], x[3], causal));
  for (size_t i = 0; i < 5; ++i) {
    if (!is_floating(x[i].dtype)) {
      return invalid_input(fmt::format("expected a floating dtype, found {}", describe(x[i])));
    }
    TESSERA_TRY_VOID(expect_dtype(x[i], fmt::format("input {}", i), x[1].dtype));
  }
  TESSERA_TRY_VOID(expect_dims(x[0], "do", x[1].dims));
  TESSERA_TRY_VOID(expect_dims(x[4], "o", x[1].dims));
  TESSERA_TRY_VOID(expect_dims(x[5], "lse", without_last(x[1].dims)));
  TESSERA_TRY_VOID(expect_dtype(x[5], "lse", statistics_dtype(x[1].dtype)));
  TESSERA_TRY(const std::string key, key_dims(x, x[1], x[2], causal));
  const DType dtype = x[1].dtype;
  return conclude(x,
                  fmt::format("{}, {}, {}, {}, {}, {} -> {}, {}, {}", kQuery, kQuery, key, key,
                              kQuery, kRows, kQuery, key, key),
                  {x[1].dims, x[2].dims, x[3].dims}, {dtype, dtype, dtype});
}

// Two products, with the scores of all keys at once between them. Nothing gives the log-sum-exp,
// which only the fused derivative reads.
std::vector<TensorId> expand_attention(GraphBuilder& builder, const Op& op) {
  const double given = op.number("scale");
  const auto head_dim = static_cast<double>(builder.tensor(op.inputs[0]).dims.back().size);
  const std::string key = "batch kv heads head_dim", scores = std::string(kRows) + " kv";
  const std::string query = std::string(kRows) + " head_dim";
  const TensorId q = builder.op1(op.path + ".scale", "scale", {op.inputs[0]},
                                 {{"factor", given == 0 ? 1.0 / std::sqrt(head_dim) : given}});
  TensorId s = builder.op1(op.path + ".scores", "einsum", {q, op.inputs[1]},
                           {{"spec", fmt::format("{}+, {} -> {}", query, key, scores)}});
  if (op.integer("causal") == 1) {
    s = builder.op1(op.path + ".mask", "causal_mask", {s}, {{"order", op.text("order")}});
  }
  s = builder.op1(op.path + ".softmax", "softmax", {s}, {{"dim", std::string("kv")}});
  const TensorId o = builder.op1(op.path + ".values", "einsum", {s, op.inputs[2]},
                                 {{"spec", fmt::format("{}+, {} -> {}", scores, key, query)}});
  return {o, TensorId()};
}

// Two products of 2 flops a point; causal attention needs half of the points of as many keys as
// there are queries, and all of the keys before them.
int64_t attention_flops(const Op& op) {
  const int64_t flops = 4 * iteration_points(op);
  if (op.integer("causal") == 0) return flops;
  const int64_t queries = op.annotation.dims[static_cast<size_t>(op.annotation.find("seq"))].size;
  const int64_t keys = op.annotation.dims[static_cast<size_t>(op.annotation.find("kv"))].size;
  return flops / 2 / keys * (2 * keys - queries);
}

// Five products instead of two: the scores again, dv, dp, dq, dk.
int64_t attention_grad_flops(const Op& op) { return attention_flops(op) / 2 * 5; }

// The keys of a query are those of all positions up to its own.
std::optional<QueryKey> query_key(const Op& op) {
  return QueryKey{op.annotation.find("seq"), op.annotation.find("kv"), op.integer("causal") == 1};
}

PositionRule place_in_attention(const Op& op, int dim) {
  const QueryKey dims = *query_key(op);
  if (!dims.skips || (dim != dims.query && dim != dims.key)) return PositionRule::kFree;
  const bool pair = op.annotation.dims[static_cast<size_t>(dims.key)].causal_of == dims.query;
  if (pair) return dim == dims.query ? PositionRule::kCausal : PositionRule::kOrder;
  // More keys than queries, which stand at the last positions.
  return op.text("order").empty() ? PositionRule::kIndex : PositionRule::kOrder;
}

// ---- rotary
// --------------------------------------------------------------------------------------
Result<Inferred> infer_rotary(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(expect_rank(x[0], "x", 2));
  const int64_t inverse = x.integer("inverse");
  if (inverse != 0 && inverse != 1) {
    return invalid_input(fmt::format("expected inverse 0 or 1, found {}", inverse));
  }
  const Dim& features = x[0].dims.back();
  const std::vector<Dim>& table = x[1].dims;
  const bool fits = table.size() == 2 && find_dim(x[0].dims, table[0].name) >= 0 &&
                    table[0].name != features.name && 2 * table[1].size == features.size &&
                    find_dim(x[0].dims, table[1].name) < 0;
  if (!fits) {
    return invalid_input(fmt::format(
        "expected cos with dims (a dim of x, half of the last dim of x) for x {}, found {}",
        describe(x[0]), describe(x[1])));
  }
  TESSERA_TRY_VOID(expect_dims(x[2], "sin", table));
  const std::string all = spell(names_of(without_last(x[0].dims)), features.name + "^");
  const std::string half = fmt::format("{} {}^", table[0].name, table[1].name);
  return conclude(x, fmt::format("{}, {}, {} -> {}", all, half, half, all), {x[0].dims},
                  {x[0].dtype});
}

InputGradients differentiate_rotary(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                    const std::vector<bool>& wanted) {
  InputGradients out(3);
  if (wanted[1] || wanted[2])
    builder.fail(fmt::format("op '{}' (rotary): the tables have no derivative", op.path));
  out[0] = builder.op1(op.path + ".dx", "rotary", {dy[0], op.inputs[1], op.inputs[2]},
                       {{"inverse", int64_t{1} - op.integer("inverse")}});
  return out;
}

// Four multiplications and two additions for each pair of features. The op has the dims of x and
// the half dim.
int64_t rotary_flops(const Op& op) {
  const OpDim& features =
      op.annotation.dims[static_cast<size_t>(op.annotation.outputs[0].dims.back()[0])];
  return 6 * (iteration_points(op) / features.size);
}

}  // namespace

std::vector<KindInfo> attention_kinds() {
  const std::vector<NamedSize> sizes = {{"heads", {"batch", "heads", "group"}},
                                        {"queries", {"seq"}},
                                        {"keys", {"kv"}},
                                        {"head_dim", {"head_dim"}}};
  return {
      {.name = "attention",
       .summary = "softmax(scale * q k^T) v, and the log-sum-exp of the scores",
       .min_inputs = 3,
       .max_inputs = 3,
       .output_names = {"o", "lse"},
       .outputs = 2,
       .attributes = {integer_attribute("causal", 0), number_attribute("scale", 0.0),
                      text_attribute("order", "")},
       .infer = infer_by(infer_attention),
       .differentiate = differentiate_attention,
       .flops = attention_flops,
       .work = WorkClass::kAttention,
       .family = FamilyRule::kNamed,
       .sizes = sizes,
       .statistics = 1,
       .position = place_in_attention,
       .query_key = query_key,
       .expand = expand_attention},
      {.name = "attention_grad",
       .summary = "(do, q, k, v, o, lse) -> (dq, dk, dv)",
       .min_inputs = 6,
       .max_inputs = 6,
       .output_names = {"dq", "dk", "dv"},
       .outputs = 3,
       .attributes = {integer_attribute("causal", 0), number_attribute("scale", 0.0),
                      text_attribute("order", "")},
       .infer = infer_by(infer_attention_grad),
       .flops = attention_grad_flops,
       .work = WorkClass::kAttention,
       .family = FamilyRule::kNamed,
       .sizes = sizes,
       .gradient = true,
       .position = place_in_attention,
       .query_key = query_key},
      {.name = "rotary",
       .summary = "rotates pairs (i, i + d/2) of the last dim by position",
       .min_inputs = 3,
       .max_inputs = 3,
       .attributes = {integer_attribute("inverse", 0)},
       .infer = infer_by(infer_rotary),
       .differentiate = differentiate_rotary,
       .flops = rotary_flops,
       .work = WorkClass::kElementwise,
       .position = position_free},
  };
}

}  // namespace tessera::kinds
