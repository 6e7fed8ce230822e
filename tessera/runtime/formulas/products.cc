// Formulas of products and of attention.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/runtime/formulas/call.h"
#include "tessera/runtime/formulas/masks.h"
#include "tessera/runtime/formulas/random.h"
#include "tessera/runtime/kernels/attention/attention_form.h"
#include "tessera/runtime/kernels/family.h"

namespace tessera::kernels {
namespace {

// Returns the letters of dims for libtorch's einsum.
std::string letters(const std::vector<int>& dims) {
  std::string text;
  for (const int dim : dims) {
    TESSERA_CHECK(dim < 52, "einsum of {} dims", dim);
    text += static_cast<char>(dim < 26 ? 'a' + dim : 'A' + dim - 26);
  }
  return text;
}

Values einsum(const Call& c) {
  const Annotation& annotation = c.op().annotation;
  const size_t factors = std::min<size_t>(c.inputs(), 2);
  std::string spec;
  std::vector<at::Tensor> operands;
  for (size_t i = 0; i < factors; ++i) {
    spec += (i == 0 ? "" : ",") + letters(op_dims(annotation.inputs[i]));
    operands.push_back(c.stored(i));  // narrow products are summed in float32 by the libraries
  }
  spec += "->" + letters(c.dims_of_output(0));
  at::Tensor y = at::einsum(spec, operands);
  // The piece of a sum that begins all dims that are summed adds the bias.
  bool first = true;
  for (size_t d = 0; d < annotation.dims.size(); ++d)
    first = first && !(annotation.reduces(static_cast<int>(d), 0) && c.box().dims[d].begin != 0);
  if (c.has(2) && first) y = y + c.aligned(2);
  return {y};
}

// The scores of a box [batch, heads, group, seq, kv], which attention and its derivative share.
struct Scores {
  at::Tensor q, k, v;  // [b, h, g, q, d], [b, h, 1, kv, d], [b, h, 1, kv, d of values]
  at::Tensor values;   // scores, -inf where a query does not see a key
  at::Tensor slope;    // derivative of the cap; undefined without one
  at::Tensor kept;     // which weights are not dropped; undefined: all
  double scale = 1;
};

// Returns which keys the queries of the call's box see, [q, kv] of truths; undefined: all.
at::Tensor visible(const Call& c, const AttentionOperands& at, const at::Tensor& like) {
  const Interval keys = {c.interval("kv").begin, c.input(at.q + 1).shape[1]};
  return visible_pairs(c.op(), c.interval("seq"), keys, c.whole("kv") - c.whole("seq"), like);
}

// Returns which weights are kept, [b, h, g, q, kv]; undefined: all.
at::Tensor kept_weights(const Call& c, const at::Tensor& like, int64_t keys) {
  const Keep keep(c.op());
  if (keep.p == 0) return {};
  std::vector<int> dims;
  for (const char* name : {"batch", "seq", "heads", "group", "kv"})
    dims.push_back(c.op().annotation.find(name));
  return kept(c, keep, first_indices(c, dims, like).permute({0, 2, 3, 1}), keys);
}

Scores scores_of(const Call& c, const AttentionOperands& operands) {
  const Op& op = c.op();
  const auto dim = [&](const char* name) { return op.annotation.find(name); };
  const int batch = dim("batch"), heads = dim("heads"), group = dim("group"), seq = dim("seq"),
            kv = dim("kv");
  Scores made;
  made.q = c.in(operands.q).permute({0, 2, 3, 1, 4});
  made.k = c.in(operands.q + 1).permute({0, 2, 1, 3}).unsqueeze(2);
  made.v = c.in(operands.q + 2).permute({0, 2, 1, 3}).unsqueeze(2);
  const double stated = op.number("scale");
  made.scale = stated == 0 ? 1 / std::sqrt(static_cast<double>(made.q.size(-1))) : stated;
  made.values = at::matmul(made.q, made.k.transpose(-1, -2)) * made.scale;
  if (const double cap = op.number("softcap"); cap > 0) {
    const at::Tensor bent = at::tanh(made.values / cap);
    made.slope = 1 - bent * bent;
    made.values = cap * bent;
  }
  const std::vector<int> order = {batch, heads, group, seq, kv};
  // The keys may end at the last query; bias and segments have all of the box.
  const auto of_keys = [&](int input) {
    const at::Tensor all = c.along(static_cast<size_t>(input), order);
    return all.size(-1) == 1 ? all : all.narrow(-1, 0, made.k.size(-2));
  };
  if (operands.bias >= 0) made.values = made.values + of_keys(operands.bias);
  const at::Tensor never =
      at::full({}, -std::numeric_limits<double>::infinity(), made.values.options());
  if (const at::Tensor seen = visible(c, operands, made.values); seen.defined())
    made.values = at::where(seen, made.values, never);
  if (operands.query_segments >= 0) {
    const at::Tensor own = of_keys(operands.query_segments), other = of_keys(operands.key_segments);
    made.values = at::where(own == other, made.values, never);
  }
  made.kept = kept_weights(c, made.values, made.k.size(-2));
  return made;
}

// Returns the weights, or their gradients, without those that are dropped.
at::Tensor dropped(const Call& c, const Scores& scores, const at::Tensor& weights) {
  if (!scores.kept.defined()) return weights;
  return at::where(scores.kept, weights * Keep(c.op()).factor, at::zeros({}, weights.options()));
}

// Returns exp(scores - lse), 0 where a query sees no key.
at::Tensor weights_of(const Scores& scores, const at::Tensor& lse) {
  const at::Tensor safe = at::where(at::isinf(lse), at::zeros_like(lse), lse);
  return at::exp(scores.values - safe.unsqueeze(-1));
}

// Attention by a fused function of libtorch, which never has all scores in memory.
struct Fused {
  at::Tensor q, k, v;  // [b, heads of queries, q, d], [b, heads, kv, d] twice
  bool causal = false;
  double scale = 1;
};

// Returns how the call can be computed by the fused function that libtorch chooses for its device,
// dtype and sizes; nothing if it cannot. There is none for the processor, whose kernels are faster.
std::optional<Fused> fused(const Call& c, const AttentionOperands& operands) {
  const Op& op = c.op();
  const at::Tensor q = c.stored(operands.q), k = c.stored(operands.q + 1),
                   v = c.stored(operands.q + 2);
  const bool plain = operands.bias < 0 && operands.query_segments < 0 && operands.of_lse < 0 &&
                     op.number("softcap") == 0 && op.integer("window") == 0 &&
                     op.text("order").empty() && Keep(op).p == 0;
  if (q.is_cpu() || !plain || q.size(-1) != v.size(-1)) return std::nullopt;
  Fused made{q.permute({0, 2, 3, 1, 4}).flatten(1, 2), k.permute({0, 2, 1, 3}),
             v.permute({0, 2, 1, 3})};
  if (op.integer("causal") != 0) {
    const int64_t first = c.interval("seq").begin + c.whole("kv") - c.whole("seq"),
                  key = c.interval("kv").begin, keys = k.size(1);
    made.causal = key + keys > first + 1;  // else every query sees all keys
    if (made.causal && (first != key || q.size(1) != keys)) return std::nullopt;
  }
  const double stated = op.number("scale");
  made.scale = stated == 0 ? 1 / std::sqrt(static_cast<double>(q.size(-1))) : stated;
  constexpr int64_t kFlash = 1;  // at::SDPBackend
  const bool grouped = made.q.size(1) != made.k.size(1);
  const int64_t choice =
      at::_fused_sdp_choice(made.q, made.k, made.v, {}, 0, made.causal, made.scale, grouped);
  return choice == kFlash ? std::optional(made) : std::nullopt;
}

// Returns [b, heads of queries, q, ..] with the dims of q.
at::Tensor of_heads(const at::Tensor& value, int64_t group) {
  const at::Tensor split = value.unflatten(1, {value.size(1) / group, group});
  return split.dim() == 5 ? split.permute({0, 3, 1, 2, 4}) : split.permute({0, 3, 1, 2});
}

// Returns the gradient of keys or values for the whole box, of which only the first keys are seen.
at::Tensor of_box(const Call& c, const at::Tensor& made, size_t output) {
  const int64_t missing = c.output_size(output, 1) - made.size(2);
  const at::Tensor natural = made.permute({0, 2, 1, 3});
  return missing > 0 ? at::constant_pad_nd(natural, {0, 0, 0, 0, 0, missing}) : natural;
}

Values fused_attention(const Fused& by, int64_t group) {
  const auto made =
      at::_scaled_dot_product_flash_attention(by.q, by.k, by.v, 0, by.causal, false, by.scale);
  return {of_heads(std::get<0>(made), group), of_heads(std::get<1>(made), group)};
}

Values fused_attention_grad(const Call& c, const AttentionOperands& operands, const Fused& by) {
  const int64_t group = c.input(operands.q).shape[3];
  const auto result = [&](const at::Tensor& x) {
    return x.dim() == 5 ? x.permute({0, 2, 3, 1, 4}).flatten(1, 2)
                        : x.permute({0, 2, 3, 1}).flatten(1, 2).contiguous();
  };
  const at::Tensor unused = at::zeros({}, by.q.options().dtype(at::kLong));  // dropout's seed
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      result(c.stored(0)), by.q, by.k, by.v, result(c.stored(operands.q + 3)),
      result(c.stored(operands.q + 4)), {}, {}, by.q.size(2), by.k.size(2), 0, by.causal, unused,
      unused, by.scale);
  return {of_heads(dq, group), of_box(c, dk, 1), of_box(c, dv, 2)};
}

Values attention(const Call& c) {
  const AttentionOperands operands(c.op());
  if (const auto by = fused(c, operands)) return fused_attention(*by, c.input(operands.q).shape[3]);
  const Scores scores = scores_of(c, operands);
  const at::Tensor lse = at::logsumexp(scores.values, {-1});
  const at::Tensor o = at::matmul(dropped(c, scores, weights_of(scores, lse)), scores.v);
  return {o.permute({0, 3, 1, 2, 4}), lse.permute({0, 3, 1, 2})};
}

Values attention_grad(const Call& c) {
  const AttentionOperands operands(c.op());
  if (const auto by = fused(c, operands)) return fused_attention_grad(c, operands, *by);
  const Scores scores = scores_of(c, operands);
  const auto result = [&](size_t i) { return c.in(i).permute({0, 2, 3, 1, 4}); };
  const at::Tensor dy = result(0), o = result(operands.q + 3);
  const auto of_query = [&](size_t i) { return c.in(i).permute({0, 2, 3, 1}); };
  const at::Tensor p = weights_of(scores, of_query(operands.q + 4).to(scores.values.scalar_type()));
  at::Tensor base = (dy * o).sum(-1, true);
  if (operands.of_lse >= 0)
    base = base - of_query(static_cast<size_t>(operands.of_lse)).unsqueeze(-1);
  const at::Tensor dp = dropped(c, scores, at::matmul(dy, scores.v.transpose(-1, -2)));
  at::Tensor ds = p * (dp - base);
  const at::Tensor of_bias = ds;
  if (scores.slope.defined()) ds = ds * scores.slope;
  ds = ds * scores.scale;
  const at::Tensor dq = at::matmul(ds, scores.k);
  const at::Tensor dk = at::matmul(ds.transpose(-1, -2), scores.q).sum(2),
                   dv = at::matmul(dropped(c, scores, p).transpose(-1, -2), dy).sum(2);
  Values made = {dq.permute({0, 3, 1, 2, 4}), of_box(c, dk, 1), of_box(c, dv, 2)};
  if (c.op().outputs.size() > 3) {
    std::vector<int> order;
    for (const char* name : {"batch", "heads", "group", "seq", "kv"})
      order.push_back(c.op().annotation.find(name));
    made.push_back(c.summed(of_bias, order, 3));
  }
  return made;
}

}  // namespace

std::span<const Formula> product_formulas() {
  static const std::vector<Formula> formulas = {
      {"einsum", einsum},
      {"attention", attention},
      {"attention_grad", attention_grad},
      {"attention_bias_grad", attention_grad},
  };
  return formulas;
}

}  // namespace tessera::kernels
