// attention, its gradients, rotary position encoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/graph/kinds/common.h"
#include "tessera/graph/order.h"
#include "tessera/graph/within.h"

namespace tessera::kinds {
namespace {

constexpr std::string_view kQuery = "batch seq heads group head_dim^";
constexpr std::string_view kRows = "batch seq heads group";

// Returns whether the heads of the values have another width than those of queries and keys.
bool own_width(const Tensor& q, const Tensor& v) {
  return v.dims.back().size != q.dims.back().size;
}
// Returns the name of the op dim that counts the elements of a value, frozen.
std::string_view value_dim(const Tensor& q, const Tensor& v) {
  return own_width(q, v) ? "value_dim^" : "head_dim^";
}
std::string output_dims(const Tensor& q, const Tensor& v) {
  return fmt::format("{} {}", kRows, value_dim(q, v));
}
std::vector<Dim> dims_of_output(const Tensor& q, const Tensor& v) {
  std::vector<Dim> dims = q.dims;
  if (own_width(q, v)) dims.back() = v.dims.back();
  return dims;
}

// Checks q [batch, seq, heads, group, head_dim], k [batch, seq, heads, head_dim] and v, which has
// the dims of k or, in place of the last one, a dim of another name (value_dim). The op dims have
// these fixed names, except that the sequence of the keys is `kv`. o and lse are reductions over
// `kv`: the parts are softmax results over some of the keys with the logarithms of their
// denominators, and a loop over time can merge them.
Status check_query_key_value(const Tensor& q, const Tensor& k, const Tensor& v) {
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
        (tensor->dims[3].size == q.dims[4].size || (tensor == &v && own_width(q, v))) &&
        tensor->dims[1].size == k.dims[1].size;
    if (!fits) {
      return invalid_input(
          fmt::format("expected {} to fit q {}, found {}", name, describe(q), describe(*tensor)));
    }
  }
  return {};
}

// The values of the attributes of attention.
struct Settings {
  bool causal = false;
  int64_t window = 0;
  double p = 0;
  Order order;
};

Result<Settings> read_settings(const Operands& x, const Tensor& q, const Tensor& k) {
  const int64_t causal = x.integer("causal");
  if (causal != 0 && causal != 1) {
    return invalid_input(fmt::format("expected causal 0 or 1, found {}", causal));
  }
  Settings out{causal == 1, x.integer("window"), x.number("p"), {}};
  if (out.window < 0) {
    return invalid_input(
        fmt::format("expected a window of at least 1 (0: none), found {}", out.window));
  }
  if (x.number("softcap") < 0) {
    return invalid_input(
        fmt::format("expected a softcap above 0 (0: none), found {}", x.number("softcap")));
  }
  if (!(out.p >= 0 && out.p < 1)) {
    return invalid_input(fmt::format("expected 0 <= p < 1, found {}", out.p));
  }
  if (out.p > 0 && x.text("key").empty()) {
    return invalid_input("expected a key of the weights that are dropped, found none");
  }
  TESSERA_TRY_VOID(check_within(x.text("within"), q));
  const int64_t queries = q.dims[1].size, keys = k.dims[1].size;
  if (queries > keys && (out.causal || out.window > 0)) {
    return invalid_input(
        fmt::format("expected at least as many keys as queries in {}, found {} and {}",
                    out.causal ? "causal attention" : "attention with a window", keys, queries));
  }
  TESSERA_TRY(out.order, parse_order(x.text("order")));
  const bool natural = out.order.kind == Order::Kind::kNone;
  if (!natural && queries != keys) {
    return invalid_input(
        fmt::format("expected as many keys as queries in the order '{}', found {} and {}",
                    x.text("order"), keys, queries));
  }
  if (!natural && out.p > 0) {
    return invalid_input(
        fmt::format("expected no order where weights are dropped by their indices (p = {}), found "
                    "'{}'",
                    out.p, x.text("order")));
  }
  return out;
}

// Returns the index of the first optional input. The optional inputs follow q, k, v (in a
// derivative: lse). They are a floating bias that is added to the scores, and the numbers of the
// queries' and the keys' segments. Behind these a derivative may have the gradient of lse, which
// its attribute of_lse says.
size_t first_extra(const KindInfo& kind) { return kind.gradient ? 6 : 3; }
bool has_bias(const Op& op) {
  const KindInfo& kind = info_of(op);
  const auto of_lse = static_cast<size_t>(kind.gradient ? op.integer("of_lse") : 0);
  return (op.inputs.size() - of_lse - first_extra(kind)) % 2 == 1;
}

// Returns the annotation of an optional input. Its dims must be among `known`, with the sizes given
// there, and must contain `required`, if that is not empty.
Result<std::string> fit_extra(const Tensor& tensor, std::string_view what,
                              const std::vector<Dim>& known, std::string_view required) {
  std::string text;
  bool found = required.empty();
  for (const Dim& dim : tensor.dims) {
    // One tensor often holds the segment numbers of queries and keys. Its dim `seq` is then that of
    // the keys.
    const std::string name = required == "kv" && dim.name == "seq" ? "kv" : dim.name;
    const int at = find_dim(known, name);
    if (at < 0 || known[static_cast<size_t>(at)].size != dim.size) {
      return invalid_input(fmt::format("expected {} with dims among {}, found {}", what,
                                       describe(known), describe(tensor)));
    }
    found = found || name == required;
    text += (text.empty() ? "" : " ") + name;
  }
  if (!found) {
    return invalid_input(fmt::format("expected {} with the dim '{}', found {}", what,
                                     required == "kv" ? "seq" : required, describe(tensor)));
  }
  return text.empty() ? "()" : text;
}

struct Extras {
  // `bias`: annotation of the bias, "" if there is none; `all`: the annotations of all optional
  // inputs, each after ", "
  std::string bias, all;
};

// `last`: the number of the inputs that end the optional ones.
Result<Extras> read_extras(const Operands& x, size_t first, size_t last, const Tensor& q,
                           const Tensor& k) {
  Extras out;
  const Dim batch{"batch", q.dims[0].size}, seq{"seq", q.dims[1].size},
      heads{"heads", q.dims[2].size}, group{"group", q.dims[3].size}, kv{"kv", k.dims[1].size};
  size_t next = first;
  if ((last - first) % 2 == 1) {
    TESSERA_TRY_VOID(expect_dtype(x[next], "bias", q.dtype));
    TESSERA_TRY(out.bias, fit_extra(x[next++], "bias", {batch, seq, heads, group, kv}, ""));
    out.all = ", " + out.bias;
  }
  if (next == last) return out;
  for (const bool of_keys : {false, true}) {
    const char* what = of_keys ? "segments of the keys" : "segments of the queries";
    TESSERA_TRY_VOID(expect_dtype(x[next], what, DType::kInt64));
    TESSERA_TRY(
        const std::string dims,
        fit_extra(x[next++], what, {batch, of_keys ? kv : seq, heads}, of_keys ? "kv" : "seq"));
    out.all += ", " + dims;
  }
  return out;
}

// Returns the annotation of k and v. Queries and keys are a causal pair only in the order of
// indices, because in another order every box may have work. They are no pair either if there are
// more keys than queries: the queries then have the last positions, and query i sees more keys than
// i + 1.
std::string key_dims(const Settings& settings, const Tensor& q, const Tensor& k, bool may_pair,
                     std::string_view last = "head_dim^") {
  const bool pair = settings.causal && settings.order.kind == Order::Kind::kNone &&
                    q.dims[1].size == k.dims[1].size && may_pair;
  return fmt::format("batch kv{} heads {}", pair ? "<seq" : "", last);
}

Result<Inferred> infer_attention(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x, 3));
  TESSERA_TRY_VOID(check_query_key_value(x[0], x[1], x[2]));
  TESSERA_TRY(const Settings settings, read_settings(x, x[0], x[1]));
  TESSERA_TRY(const Extras extras, read_extras(x, 3, x.count(), x[0], x[1]));
  return conclude(x,
                  fmt::format("{}, {}, {}{} -> {} {{weighted}}, {} {{logsumexp}}", kQuery,
                              key_dims(settings, x[0], x[1], true),
                              key_dims(settings, x[0], x[1], true, value_dim(x[0], x[2])),
                              extras.all, output_dims(x[0], x[2]), kRows),
                  {dims_of_output(x[0], x[2]), without_last(x[0].dims)},
                  {x[0].dtype, statistics_dtype(x[0].dtype)});
}

InputGradients differentiate_attention(GraphBuilder& builder, const Op& op,
                                       const OutputGradients& dy, const std::vector<bool>& wanted) {
  if (!dy[0].valid()) {
    builder.fail(fmt::format("op '{}' (attention): only the log-sum-exp is used", op.path));
    return InputGradients(op.inputs.size());
  }
  const bool of_bias = has_bias(op) && wanted[3];
  std::vector<TensorId> inputs = {dy[0],        op.inputs[0],  op.inputs[1],
                                  op.inputs[2], op.outputs[0], op.outputs[1]};
  inputs.insert(inputs.end(), op.inputs.begin() + 3, op.inputs.end());
  Attributes attributes = op.attributes;
  if (dy[1].valid()) {
    inputs.push_back(dy[1]);
    attributes["of_lse"] = int64_t{1};
  }
  InputGradients out = builder.op(
      op.path + ".grad", of_bias ? "attention_bias_grad" : "attention_grad", inputs, attributes);
  out.resize(op.inputs.size());
  return out;
}

// Infers the gradients. If the bias's gradient is an output, which has an element for each query
// and key, there is no causal pair, because the elements that a pair leaves out would not be made.
Result<Inferred> infer_attention_grads(const Operands& x, bool of_bias) {
  TESSERA_TRY_VOID(check_query_key_value(x[1], x[2], x[3]));
  for (size_t i = 0; i < 5; ++i) {
    if (!is_floating(x[i].dtype)) {
      return invalid_input(fmt::format("expected a floating dtype, found {}", describe(x[i])));
    }
    TESSERA_TRY_VOID(expect_dtype(x[i], fmt::format("input {}", i), x[1].dtype));
  }
  const std::vector<Dim> output = dims_of_output(x[1], x[3]);
  TESSERA_TRY_VOID(expect_dims(x[0], "do", output));
  TESSERA_TRY_VOID(expect_dims(x[4], "o", output));
  TESSERA_TRY_VOID(expect_dims(x[5], "lse", without_last(x[1].dims)));
  TESSERA_TRY_VOID(expect_dtype(x[5], "lse", statistics_dtype(x[1].dtype)));
  TESSERA_TRY(const Settings settings, read_settings(x, x[1], x[2]));
  const int64_t of_lse = x.integer("of_lse");
  if (of_lse != 0 && of_lse != 1)
    return invalid_input(fmt::format("expected of_lse 0 or 1, found {}", of_lse));
  const size_t last = x.count() - static_cast<size_t>(of_lse);
  TESSERA_TRY(const Extras extras, read_extras(x, 6, last, x[1], x[2]));
  const std::string key = key_dims(settings, x[1], x[2], !of_bias), rows(kRows),
                    value = key_dims(settings, x[1], x[2], !of_bias, value_dim(x[1], x[3])),
                    result = output_dims(x[1], x[3]);
  std::string annotation =
      fmt::format("{}, {}, {}, {}, {}, {}{}{} -> {}, {}, {}", result, kQuery, key, value, result,
                  rows, extras.all, of_lse == 1 ? ", " + rows : "", kQuery, key, value);
  if (of_lse == 1) {
    TESSERA_TRY_VOID(expect_dims(x[last], "dlse", without_last(x[1].dims)));
    TESSERA_TRY_VOID(expect_dtype(x[last], "dlse", x[5].dtype));
  }
  std::vector<std::vector<Dim>> outputs = {x[1].dims, x[2].dims, x[3].dims};
  if (of_bias) {
    if (extras.bias.empty()) {
      return invalid_input(fmt::format("expected a bias behind lse, found {} inputs", x.count()));
    }
    annotation += ", " + extras.bias;
    outputs.push_back(x[6].dims);
  }
  return conclude(x, annotation, outputs, std::vector<DType>(outputs.size(), x[1].dtype));
}
Result<Inferred> infer_attention_grad(const Operands& x) { return infer_attention_grads(x, false); }
Result<Inferred> infer_attention_bias_grad(const Operands& x) {
  return infer_attention_grads(x, true);
}

// Returns the dims of queries and keys. A query sees the keys less than `window` positions before
// its own position, and its own; if the op is not causal, also those less than `window` positions
// after it.
std::optional<QueryKey> query_key(const Op& op) {
  return QueryKey{op.annotation.find("seq"), op.annotation.find("kv"), op.integer("causal") == 1,
                  op.integer("window")};
}

// Adds the bias to the scores. The dims of the bias are first put in the order of the scores' dims.
TensorId expand_bias(GraphBuilder& builder, const Op& op, TensorId scores, TensorId bias) {
  Names ordered;
  const Names own = names_of(builder.tensor(bias).dims);
  for (const Dim& dim : builder.tensor(scores).dims) {
    if (std::find(own.begin(), own.end(), dim.name) != own.end()) ordered.push_back(dim.name);
  }
  if (ordered != own) {
    bias = builder.op1(op.path + ".bias", "einsum", {bias},
                       {{"spec", fmt::format("{} -> {}", spell(own), spell(ordered))}});
  }
  return builder.op1(op.path + ".biased", "add", {scores, bias});
}

// Makes two products and, between them, the softmax of the scores over all keys at once. It makes
// no log-sum-exp, because only the fused derivative reads it.
std::vector<TensorId> expand_attention(GraphBuilder& builder, const Op& op) {
  const double given = op.number("scale");
  const auto head_dim = static_cast<double>(builder.tensor(op.inputs[0]).dims.back().size);
  const std::string key = "batch kv heads head_dim", scores = std::string(kRows) + " kv";
  const std::string query = std::string(kRows) + " head_dim";
  const bool own = own_width(builder.tensor(op.inputs[0]), builder.tensor(op.inputs[2]));
  const std::string width =
      own ? builder.tensor(op.inputs[2]).dims.back().name : std::string("head_dim");
  const TensorId q = builder.op1(op.path + ".scale", "scale", {op.inputs[0]},
                                 {{"factor", given == 0 ? 1.0 / std::sqrt(head_dim) : given}});
  TensorId s = builder.op1(op.path + ".scores", "einsum", {q, op.inputs[1]},
                           {{"spec", fmt::format("{}+, {} -> {}", query, key, scores)}});
  if (const double cap = op.number("softcap"); cap > 0) {
    s = builder.op1(op.path + ".divided", "scale", {s}, {{"factor", 1 / cap}});
    s = builder.op1(op.path + ".bent", "tanh", {s});
    s = builder.op1(op.path + ".capped", "scale", {s}, {{"factor", cap}});
  }
  size_t next = 3;
  if (has_bias(op)) s = expand_bias(builder, op, s, op.inputs[next++]);
  if (next < op.inputs.size()) {
    s = builder.op1(op.path + ".segments", "segment_mask",
                    {s, op.inputs[next], op.inputs[next + 1]});
  }
  const QueryKey dims = *query_key(op);
  if (dims.skips || dims.window > 0) {
    s = builder.op1(op.path + ".mask", "causal_mask", {s},
                    {{"order", op.text("order")},
                     {"causal", op.integer("causal")},
                     {"window", op.integer("window")}});
  }
  s = builder.op1(op.path + ".softmax", "softmax", {s}, {{"dim", std::string("kv")}});
  if (op.number("p") > 0) {
    s = builder.op1(
        op.path + ".dropout", "dropout", {s},
        {{"p", op.number("p")}, {"key", op.text("key")}, {"within", op.text("within")}});
  }
  const TensorId o = builder.op1(
      op.path + ".values", "einsum", {s, op.inputs[2]},
      {{"spec", fmt::format("{}+, batch kv heads {} -> {} {}", scores, width, kRows, width)}});
  return {o, TensorId()};
}

// Counts the two products, with 2 flops in each for each point that the op does not leave out. Where
// the values have a width of their own, one product runs over it and the other one over head_dim.
int64_t attention_flops(const Op& op) {
  int64_t flops = 4 * iteration_points(op);
  if (const int value = op.annotation.find("value_dim"); value >= 0) {
    const auto size = [&](int dim) { return op.annotation.dims[static_cast<size_t>(dim)].size; };
    const int64_t of_scores = size(op.annotation.find("head_dim")), of_values = size(value);
    flops = flops / (2 * of_scores * of_values) * (of_scores + of_values);
  }
  if (!leaves_out_points(op)) return flops;
  const QueryKey dims = *query_key(op);
  const int64_t points = op.annotation.dims[static_cast<size_t>(dims.query)].size *
                         op.annotation.dims[static_cast<size_t>(dims.key)].size;
  Box all;
  for (const OpDim& dim : op.annotation.dims) all.dims.push_back({0, dim.size});
  // Without remainder, because `points` is a product of some of the dims.
  const int64_t each = flops / points;
  return std::llround(static_cast<double>(each) * visible_points(op, all));
}

// Counts five products instead of two: the scores (made again), dv, dp, dq and dk.
int64_t attention_grad_flops(const Op& op) { return attention_flops(op) / 2 * 5; }

// Returns the position rule of a dim. Dropout of the weights depends on the indices of query and
// key in the whole, so it makes them kIndex. Work that depends on the distance of query and key is
// kOrder, and kCausal for the queries of a causal pair. With a bias for each query and key the rule
// is not kCausal, because a loop cannot cut the bias to the keys up to a query.
PositionRule place_in_attention(const Op& op, int dim) {
  const QueryKey dims = *query_key(op);
  const bool drops = op.number("p") > 0;
  if (dim != dims.query && dim != dims.key) {
    return drops ? PositionRule::kWithin : PositionRule::kFree;
  }
  if (drops) return PositionRule::kIndex;
  if (!leaves_out_points(op)) return PositionRule::kFree;
  const auto size = [&](int d) { return op.annotation.dims[static_cast<size_t>(d)].size; };
  const bool pair = op.annotation.dims[static_cast<size_t>(dims.key)].causal_of == dims.query;
  if (pair && !has_bias(op)) {
    return dim == dims.query ? PositionRule::kCausal : PositionRule::kOrder;
  }
  // If there are more keys than queries, the queries have the last positions.
  return size(dims.query) != size(dims.key) ? PositionRule::kIndex : PositionRule::kOrder;
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
  const int64_t neighbours = x.integer("neighbours"), first = x.integer("first");
  if (neighbours != 0 && neighbours != 1)
    return invalid_input(fmt::format("expected neighbours 0 or 1, found {}", neighbours));
  if (first < 0) return invalid_input(fmt::format("expected first at least 0, found {}", first));
  const bool fits = table.size() == 2 && find_dim(x[0].dims, table[0].name) >= 0 &&
                    table[0].name != features.name && first + 2 * table[1].size <= features.size &&
                    find_dim(x[0].dims, table[1].name) < 0;
  if (!fits) {
    return invalid_input(fmt::format(
        "expected cos with dims (a dim of x, at most half of the last dim of x{}) for x {}, found "
        "{}",
        first > 0 ? fmt::format(" behind the first {}", first) : "", describe(x[0]),
        describe(x[1])));
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
                       {{"inverse", int64_t{1} - op.integer("inverse")},
                        {"neighbours", op.integer("neighbours")},
                        {"first", op.integer("first")}});
  return out;
}

// Counts four multiplications and two additions for each pair of features. The op's dims are the
// dims of x and the dim that counts half of the features.
int64_t rotary_flops(const Op& op) {
  const OpDim& features =
      op.annotation.dims[static_cast<size_t>(op.annotation.outputs[0].dims.back()[0])];
  return 6 * (iteration_points(op) / features.size);
}

}  // namespace

std::vector<KindInfo> attention_kinds() {
  AttributeInfo key = text_attribute("key", "");
  key.identity = true;
  KindInfo attention{
      .name = "attention",
      .summary = "softmax(scale * q k^T + bias) v, and the log-sum-exp of the scores",
      .min_inputs = 3,
      .max_inputs = 6,
      .output_names = {"o", "lse"},
      .outputs = 2,
      .attributes = {integer_attribute("causal", 0), number_attribute("scale", 0.0),
                     text_attribute("order", ""), integer_attribute("window", 0),
                     number_attribute("p", 0.0), key, text_attribute("within", ""),
                     number_attribute("softcap", 0.0)},
      .infer = infer_by(infer_attention),
      .differentiate = differentiate_attention,
      .flops = attention_flops,
      .work = WorkClass::kAttention,
      .family = FamilyRule::kNamed,
      .sizes = {{"heads", {"batch", "heads", "group"}},
                {"queries", {"seq"}},
                {"keys", {"kv"}},
                {"head_dim", {"head_dim"}}},
      .statistics = 1,
      .position = place_in_attention,
      .query_key = query_key,
      .expand = expand_attention};
  KindInfo grad = attention;
  grad.name = "attention_grad";
  grad.summary = "(do, q, k, v, o, lse) -> (dq, dk, dv)";
  grad.min_inputs = 6;
  grad.max_inputs = 10;
  grad.attributes.push_back(integer_attribute("of_lse", 0));
  grad.output_names = {"dq", "dk", "dv"};
  grad.outputs = 3;
  grad.infer = infer_by(infer_attention_grad);
  grad.differentiate = nullptr;
  grad.flops = attention_grad_flops;
  grad.gradient = true;
  grad.statistics = -1;
  grad.expand = nullptr;
  KindInfo bias_grad = grad;
  bias_grad.name = "attention_bias_grad";
  bias_grad.summary = "(do, q, k, v, o, lse, bias) -> (dq, dk, dv, dbias)";
  bias_grad.min_inputs = 7;
  bias_grad.output_names = {"dq", "dk", "dv", "dbias"};
  bias_grad.outputs = 4;
  bias_grad.infer = infer_by(infer_attention_bias_grad);
  return {
      attention,
      grad,
      bias_grad,
      {.name = "rotary",
       .summary = "rotates pairs of elements of the last dim by position",
       .min_inputs = 3,
       .max_inputs = 3,
       .attributes = {integer_attribute("inverse", 0), integer_attribute("neighbours", 0),
                      integer_attribute("first", 0)},
       .infer = infer_by(infer_rotary),
       .differentiate = differentiate_rotary,
       .flops = rotary_flops,
       .work = WorkClass::kElementwise,
       .position = position_free},
  };
}

}  // namespace tessera::kinds
