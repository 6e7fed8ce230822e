// Recurrences along a sequence and their gradients: state_scan, that of a state space block
// (Mamba-2; Dao and Gu, 2024, arXiv 2405.21060), and gated_delta_rule, that of a gated DeltaNet (Yang
// et al., 2024, arXiv 2412.06464); and causal_conv, which such blocks apply before the recurrence.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {
namespace {

// ---- state_scan
// x, y [batch, seq, heads, group, head_dim]; dt [batch, seq, heads, group]; A, D [heads, group]; B,
// C [batch, seq, heads, state]. As in attention, `heads` counts the heads of B and C, and `group`
// counts the heads of x that share a head of B and C. The recurrence runs along the sequence, and
// the state is its memory, so neither dim is split.
constexpr std::string_view kValues = "batch seq^ heads group head_dim";
constexpr std::string_view kSteps = "batch seq heads group";
constexpr std::string_view kHeads = "heads group";
constexpr std::string_view kKeys = "batch seq heads state^";
constexpr std::string_view kKeyDims = "batch seq heads state";

std::string scan_operands() {  // x, dt, A, B, C, D
  return fmt::format("{0}, {1}, {2}, {3}, {3}, {2}", kValues, kSteps, kHeads, kKeys);
}

struct ScanOperands {
  const Tensor &x, &dt, &a, &b, &c, &d;
};
ScanOperands scan_from(const Operands& x, size_t first) {
  return {x[first], x[first + 1], x[first + 2], x[first + 3], x[first + 4], x[first + 5]};
}

bool has_sizes(const Tensor& tensor, const std::vector<int64_t>& sizes) {
  return tensor.shape() == sizes;
}

// Checks the sizes of an operand, which follow from those of the operand called `of`.
Status expect_sizes(const Tensor& tensor, std::string_view what, std::string_view dims,
                    const std::vector<int64_t>& sizes, std::string_view of, const Tensor& x) {
  if (has_sizes(tensor, sizes)) return {};
  return invalid_input(fmt::format("expected {} with dims ({}) of {} {}, found {}", what, dims, of,
                                   describe(x), describe(tensor)));
}

Status expect_values(const Tensor& x, std::string_view what) {
  if (x.dims.size() == 5) return {};
  return invalid_input(fmt::format(
      "expected {} with dims (batch seq heads group head_dim), found {}", what, describe(x)));
}

Status check_scan(const ScanOperands& in) {
  TESSERA_TRY_VOID(expect_values(in.x, "x"));
  const std::vector<int64_t> x = in.x.shape();
  const int64_t state = in.b.dims.empty() ? 0 : in.b.dims.back().size;
  const auto expect = [&](const Tensor& tensor, std::string_view what, std::string_view dims,
                          const std::vector<int64_t>& sizes) {
    return expect_sizes(tensor, what, dims, sizes, "x", in.x);
  };
  TESSERA_TRY_VOID(expect(in.dt, "dt", kSteps, {x[0], x[1], x[2], x[3]}));
  TESSERA_TRY_VOID(expect(in.a, "A", kHeads, {x[2], x[3]}));
  TESSERA_TRY_VOID(expect(in.b, "B", kKeyDims, {x[0], x[1], x[2], state}));
  TESSERA_TRY_VOID(expect(in.c, "C", kKeyDims, {x[0], x[1], x[2], state}));
  return expect(in.d, "D", kHeads, {x[2], x[3]});
}

Status check_chunk(const Operands& x) {
  if (x.integer("chunk") >= 1) return {};
  return invalid_input(fmt::format("expected chunk of at least 1, found {}", x.integer("chunk")));
}

Result<Inferred> infer_scan(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(check_chunk(x));
  TESSERA_TRY_VOID(check_scan(scan_from(x, 0)));
  return conclude(x, fmt::format("{} -> {}", scan_operands(), kValues), {x[0].dims}, {x[0].dtype});
}

InputGradients differentiate_scan(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                  const std::vector<bool>&) {
  std::vector<TensorId> inputs = {dy[0]};
  inputs.insert(inputs.end(), op.inputs.begin(), op.inputs.end());
  return builder.op(op.path + ".backward", "state_scan_grad", inputs, op.attributes);
}

// (dy, x, dt, A, B, C, D; chunk) -> (dx, ddt, dA, dB, dC, dD). The op computes the states again.
Result<Inferred> infer_scan_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(check_chunk(x));
  TESSERA_TRY_VOID(check_scan(scan_from(x, 1)));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", x[1].dims));
  std::vector<std::vector<Dim>> outputs;
  for (size_t i = 1; i < x.count(); ++i) outputs.push_back(x[i].dims);
  return conclude(x, fmt::format("{}, {} -> {}", kValues, scan_operands(), scan_operands()),
                  std::move(outputs), std::vector<DType>(6, x[0].dtype));
}

// The sizes that the flops of the chunked algorithm depend on. A multiplication and an addition
// count as two flops. With chunks of Q tokens, heads of P numbers and states of N numbers, a token
// needs, for each head of x, Q P flops for the values of its own chunk (in half of the pairs the
// key is after the query, as in causal attention, and these are no work), 2 P N for the states that
// chunks make, and 2 P N for the outputs that states give. For each head of B and C it needs Q N
// flops for the scores of the pairs.
struct ScanSizes {
  int64_t tokens = 0, heads = 0, keys = 0;  // heads: of x; keys: of B and C
  int64_t chunk = 0, head_dim = 0, state = 0;
};
ScanSizes scan_sizes(const Op& op) {
  const auto size = [&](std::string_view name) {
    return op.annotation.dims[static_cast<size_t>(op.annotation.find(name))].size;
  };
  return {size("batch") * size("seq"),
          size("heads") * size("group"),
          size("heads"),
          std::min(op.integer("chunk"), size("seq")),
          size("head_dim"),
          size("state")};
}
int64_t scan_flops(const Op& op) {
  const ScanSizes s = scan_sizes(op);
  return s.tokens * (s.heads * s.head_dim * (s.chunk + 4 * s.state) + s.keys * s.chunk * s.state);
}
// Counts the flops of the gradient. Values: three products over the pairs (dx, the gradient of the
// scores, the gradient of the decays). States: the states are made again, then their gradients,
// and from these dx, dB and dC. Scores: the scores are made again, and dB and dC are made from
// their gradients.
int64_t scan_grad_flops(const Op& op) {
  const ScanSizes s = scan_sizes(op);
  return s.tokens *
         (s.heads * s.head_dim * (3 * s.chunk + 10 * s.state) + 3 * s.keys * s.chunk * s.state);
}

// ---- gated_delta_rule
// q, k [batch, seq, heads, state]; v, y [batch, seq, heads, group, head_dim]; g, beta [batch, seq,
// heads, group]. The dims are those of state_scan: `heads` counts the heads of q and k, `group` the
// heads of v that share one, and the state of a head of v is a matrix [state, head_dim].
std::string delta_operands() {  // q, k, v, g, beta
  return fmt::format("{0}, {0}, {1}, {2}, {2}", kKeys, kValues, kSteps);
}

Status check_delta(const Operands& x, size_t first) {
  TESSERA_TRY_VOID(check_chunk(x));
  const Tensor &q = x[first], &v = x[first + 2];
  TESSERA_TRY_VOID(expect_values(v, "v"));
  std::vector<int64_t> sizes = v.shape();
  sizes.pop_back();
  TESSERA_TRY_VOID(expect_sizes(x[first + 3], "g", kSteps, sizes, "v", v));
  TESSERA_TRY_VOID(expect_sizes(x[first + 4], "beta", kSteps, sizes, "v", v));
  sizes.back() = q.dims.empty() ? 0 : q.dims.back().size;
  TESSERA_TRY_VOID(expect_sizes(q, "q", kKeyDims, sizes, "v", v));
  return expect_sizes(x[first + 1], "k", kKeyDims, sizes, "v", v);
}

Result<Inferred> infer_delta(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(check_delta(x, 0));
  return conclude(x, fmt::format("{} -> {}", delta_operands(), kValues), {x[2].dims}, {x[2].dtype});
}

InputGradients differentiate_delta(GraphBuilder& builder, const Op& op, const OutputGradients& dy,
                                   const std::vector<bool>&) {
  std::vector<TensorId> inputs = {dy[0]};
  inputs.insert(inputs.end(), op.inputs.begin(), op.inputs.end());
  return builder.op(op.path + ".backward", "gated_delta_rule_grad", inputs, op.attributes);
}

// (dy, q, k, v, g, beta; chunk) -> (dq, dk, dv, dg, dbeta). The op computes the states again.
Result<Inferred> infer_delta_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY_VOID(check_delta(x, 1));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", x[3].dims));
  std::vector<std::vector<Dim>> outputs;
  for (size_t i = 1; i < x.count(); ++i) outputs.push_back(x[i].dims);
  return conclude(x, fmt::format("{}, {} -> {}", kValues, delta_operands(), delta_operands()),
                  std::move(outputs), std::vector<DType>(5, x[0].dtype));
}

// Counts the flops of the chunked algorithm. With chunks of Q tokens, values of P numbers and keys of
// N numbers, a token needs, for each head of v, Q P flops for the triangular system and Q P for the
// values of its own chunk (half of the pairs count, as above), and 2 P N each for what the state
// says of its key, for what it says of its query, and for its part of the next state. For each head
// of q and k it needs 2 Q N flops for the scores of the pairs: keys with keys, queries with keys.
int64_t delta_flops(const Op& op) {
  const ScanSizes s = scan_sizes(op);
  return s.tokens *
         (s.heads * s.head_dim * (2 * s.chunk + 6 * s.state) + 2 * s.keys * s.chunk * s.state);
}
// Counts the flops of the gradient. Values: the system once more, then transposed, and three
// products over the pairs. States: they are made again (two products), then there are seven
// products with states or their gradients. Scores: both are made again, and dq and dk are made
// from their gradients by four products.
int64_t delta_grad_flops(const Op& op) {
  const ScanSizes s = scan_sizes(op);
  return s.tokens *
         (s.heads * s.head_dim * (5 * s.chunk + 18 * s.state) + 6 * s.keys * s.chunk * s.state);
}

// ---- causal_conv
// x, y [batch.., seq, channels..]; w [channels.., width]; b [channels..], which may be left out:
// y[t] = b + sum over k of w[k] x[t - (width - 1 - k)], of each channel by itself.
struct CausalConv {
  std::string x, w, b;
};
Result<CausalConv> causal_operands(const Tensor& x, const Tensor& w) {
  const size_t channels = w.dims.empty() ? 0 : w.dims.size() - 1;
  bool fits = channels >= 1 && x.dims.size() > channels;
  const size_t first = fits ? x.dims.size() - channels : 0;
  for (size_t i = 0; fits && i < channels; ++i) fits = x.dims[first + i] == w.dims[i];
  if (!fits) {
    return invalid_input(
        fmt::format("expected x with a sequence and the channels of w as its last dims, found {} "
                    "for w {}",
                    describe(x), describe(w)));
  }
  Names names = names_of(x.dims);
  CausalConv out;
  out.b = spell(Names(names.begin() + static_cast<std::ptrdiff_t>(first), names.end()));
  out.w = fmt::format("{} {}", out.b, w.dims.back().size);
  names[first - 1] += '^';
  out.x = spell(names);
  return out;
}

Result<Inferred> infer_causal_conv(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(const CausalConv c, causal_operands(x[0], x[1]));
  const bool biased = x.count() > 2;
  if (biased) TESSERA_TRY_VOID(expect_dims(x[2], "b", without_last(x[1].dims)));
  return conclude(x, fmt::format("{}, {}{} -> {}", c.x, c.w, biased ? ", " + c.b : "", c.x),
                  {x[0].dims}, {x[0].dtype});
}

InputGradients differentiate_causal_conv(GraphBuilder& builder, const Op& op,
                                         const OutputGradients& dy, const std::vector<bool>&) {
  InputGradients gradients =
      builder.op(op.path + ".backward", "causal_conv_grad", {dy[0], op.inputs[0], op.inputs[1]});
  gradients.resize(std::min(gradients.size(), op.inputs.size()));
  return gradients;
}

// (dy, x, w) -> (dx, dw, db)
Result<Inferred> infer_causal_conv_grad(const Operands& x) {
  TESSERA_TRY_VOID(expect_equal_dtypes(x));
  TESSERA_TRY(const CausalConv c, causal_operands(x[1], x[2]));
  TESSERA_TRY_VOID(expect_dims(x[0], "dy", x[1].dims));
  const DType dtype = x[0].dtype;
  return conclude(x, fmt::format("{}, {}, {} -> {}, {}, {}", c.x, c.x, c.w, c.x, c.w, c.b),
                  {x[1].dims, x[2].dims, without_last(x[2].dims)}, {dtype, dtype, dtype});
}

int64_t causal_conv_flops(const Op& op) { return 2 * iteration_points(op); }
int64_t causal_conv_grad_flops(const Op& op) { return 4 * iteration_points(op); }

}  // namespace

std::vector<KindInfo> scan_kinds() {
  return {
      {.name = "state_scan",
       .summary = "h = exp(dt A) h + dt x B^T along the sequence, y = C h + D x",
       .min_inputs = 6,
       .max_inputs = 6,
       .attributes = {integer_attribute("chunk", 128)},
       .infer = infer_by(infer_scan),
       .differentiate = differentiate_scan,
       .flops = scan_flops,
       .work = WorkClass::kScan,
       .position = position_free,
       .accumulates = true},
      {.name = "state_scan_grad",
       .summary = "(dy, x, dt, A, B, C, D) -> (dx, ddt, dA, dB, dC, dD) of state_scan",
       .min_inputs = 7,
       .max_inputs = 7,
       .output_names = {"dx", "ddt", "da", "db", "dc", "dd"},
       .outputs = 6,
       .attributes = {integer_attribute("chunk", 128)},
       .infer = infer_by(infer_scan_grad),
       .flops = scan_grad_flops,
       .work = WorkClass::kScan,
       .gradient = true,
       .position = position_free,
       .accumulates = true},
      {.name = "gated_delta_rule",
       .summary = "S = e^g S (I - beta k k^T) + beta v k^T along the sequence, y = S q",
       .min_inputs = 5,
       .max_inputs = 5,
       .attributes = {integer_attribute("chunk", 64)},
       .infer = infer_by(infer_delta),
       .differentiate = differentiate_delta,
       .flops = delta_flops,
       .work = WorkClass::kScan,
       .position = position_free,
       .accumulates = true},
      {.name = "gated_delta_rule_grad",
       .summary = "(dy, q, k, v, g, beta) -> (dq, dk, dv, dg, dbeta) of gated_delta_rule",
       .min_inputs = 6,
       .max_inputs = 6,
       .output_names = {"dq", "dk", "dv", "dg", "dbeta"},
       .outputs = 5,
       .attributes = {integer_attribute("chunk", 64)},
       .infer = infer_by(infer_delta_grad),
       .flops = delta_grad_flops,
       .work = WorkClass::kScan,
       .gradient = true,
       .position = position_free,
       .accumulates = true},
      {.name = "causal_conv",
       .summary = "convolution of each channel along the sequence with what lies before",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = infer_by(infer_causal_conv),
       .differentiate = differentiate_causal_conv,
       .flops = causal_conv_flops,
       .work = WorkClass::kElementwise,
       .position = position_free,
       .accumulates = true},
      {.name = "causal_conv_grad",
       .summary = "(dy, x, w) -> (dx, dw, db) of causal_conv",
       .min_inputs = 3,
       .max_inputs = 3,
       .output_names = {"dx", "dw", "db"},
       .outputs = 3,
       .infer = infer_by(infer_causal_conv_grad),
       .flops = causal_conv_grad_flops,
       .work = WorkClass::kElementwise,
       .gradient = true,
       .position = position_free,
       .accumulates = true},
  };
}

}  // namespace tessera::kinds
