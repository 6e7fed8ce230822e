// state_scan, causal_conv and their gradients, in float (double for float64). The scan is computed
// chunk by chunk: inside a chunk of Q tokens it consists of two products, C B^T, whose results are
// Q x Q scores, and scores times inputs. From chunk to chunk the state is passed on (Dao and Gu,
// 2024, arXiv 2405.21060, section 6).
//
// Letters: G heads of B and C, R heads of x for each, Q tokens of the chunk, P head_dim, N state.
// With a = dt A and s its running sum in the chunk, h the state before it:
//   L[i, j] = exp(s_i - s_j) for j <= i, else 0;  M = (C B^T) * L;  u = dt x
//   y = M u + exp(s) (C h^T) + D x
//   h' = exp(s_Q) h + sum over j of exp(s_Q - s_j) u_j B_j^T
#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "tessera/runtime/kernels/maps.h"
#include "tessera/runtime/kernels/recurrences.h"

namespace tessera::kernels {
namespace {

// ---- state_scan
// The operands of a scan, with the dim of the sequence (S) moved after the dims of the heads.
struct Scan {
  at::Tensor x, dt, a, b, c, d;  // [b,G,R,S,P], [b,G,R,S], [G,R,1], [b,G,1,S,N] twice, [G,R,1,1]
  int64_t chunk = 1, seq = 0;
  at::Tensor s;  // [b,G,R,S]

  Scan(const Tensors& inputs, size_t first, int64_t chunk_size)
      : x(inputs[first].permute({0, 2, 3, 1, 4})),
        dt(inputs[first + 1].permute({0, 2, 3, 1})),
        a(inputs[first + 2].unsqueeze(-1)),
        b(inputs[first + 3].permute({0, 2, 1, 3}).unsqueeze(2)),
        c(inputs[first + 4].permute({0, 2, 1, 3}).unsqueeze(2)),
        d(inputs[first + 5].unsqueeze(-1).unsqueeze(-1)),
        chunk(std::min(chunk_size, x.size(3))),
        seq(x.size(3)),
        s(sums_in_chunks(dt * a, chunk)) {}

  at::Tensor first_state() const {
    return at::zeros({x.size(0), x.size(1), x.size(2), x.size(4), b.size(4)}, x.options());
  }
};

// One chunk of the scan.
struct Chunk {
  at::Tensor x, dt, b, c;    // operands of the chunk's tokens, with dims as in Scan
  at::Tensor u;              // dt x
  at::Tensor decay, scores;  // L, M [b,G,R,Q,Q]
  at::Tensor since, until;   // exp(s), exp(s_Q - s) [b,G,R,Q,1]
  at::Tensor whole;          // exp(s_Q) [b,G,R,1,1]

  Chunk(const Scan& scan, int64_t begin, int64_t size)
      : x(scan.x.narrow(3, begin, size)),
        dt(scan.dt.narrow(3, begin, size)),
        b(scan.b.narrow(3, begin, size)),
        c(scan.c.narrow(3, begin, size)),
        u(x * dt.unsqueeze(-1)) {
    const at::Tensor s = scan.s.narrow(3, begin, size), last = s.narrow(3, size - 1, 1);
    const at::Tensor ahead = at::triu(at::ones({size, size}, s.options().dtype(at::kBool)), 1);
    decay = at::exp((s.unsqueeze(-1) - s.unsqueeze(-2))
                        .masked_fill_(ahead, -std::numeric_limits<double>::infinity()));
    scores = at::matmul(c, b.transpose(-1, -2)) * decay;
    since = at::exp(s).unsqueeze(-1);
    until = at::exp(last - s).unsqueeze(-1);
    whole = at::exp(last).unsqueeze(-1);
  }

  at::Tensor next(const at::Tensor& h) const {
    return whole * h + at::matmul((until * u).transpose(-1, -2), b);
  }
};

struct ScanGradients {
  at::Tensor dx, ddt, db, dc, ds;  // of all tokens, with dims as in Scan; ddt without what s gives
  at::Tensor dd;                   // [G, R]
};

// Computes the gradients of one chunk. `dy` is the gradient of the chunk's values, and `dh` that of
// the state after the chunk; `dh` is replaced by the gradient of the state before the chunk.
void differentiate_chunk(const Scan& scan, const Chunk& one, int64_t begin, const at::Tensor& dy,
                         const at::Tensor& h, at::Tensor& dh, ScanGradients& out) {
  const int64_t size = dy.size(3);
  const auto part = [&](const at::Tensor& whole) { return whole.narrow(3, begin, size); };
  const at::Tensor d_scores = at::matmul(dy, one.u.transpose(-1, -2));
  const at::Tensor from_state = one.until * at::matmul(one.b, dh.transpose(-1, -2));
  const at::Tensor du = at::matmul(one.scores.transpose(-1, -2), dy) + from_state;
  part(out.dx).copy_(du * one.dt.unsqueeze(-1) + scan.d * dy);
  // R heads share C B^T, so the gradients of B and C are summed over them.
  const at::Tensor pairs = at::sum(d_scores * one.decay, {2}, true);
  const at::Tensor scaled = one.since * dy;
  part(out.dc).copy_(at::matmul(pairs, one.b) + at::sum(at::matmul(scaled, h), {2}, true));
  part(out.db).copy_(at::matmul(pairs.transpose(-1, -2), one.c) +
                     at::sum(at::matmul(one.until * one.u, dh), {2}, true));
  // s occurs in four places: in L, as s_i and as -s_j; in exp(s), the factor of what the state
  // gives to y; in exp(s_Q - s), the factor of what a token adds to the next state; and in
  // exp(s_Q), the factor of the state that stays. The gradient of s is the sum of the four parts.
  const at::Tensor weights = d_scores * one.scores;
  const at::Tensor given = at::sum(scaled * at::matmul(one.c, h.transpose(-1, -2)), {-1});
  const at::Tensor taken = at::sum(one.u * from_state, {-1});
  const at::Tensor ds = part(out.ds);
  ds.copy_(at::sum(weights, {-1}) - at::sum(weights, {-2}) + given - taken);
  const at::Tensor stays = one.whole.squeeze(-1) * at::sum(dh * h, {-2, -1}).unsqueeze(-1);
  ds.narrow(3, size - 1, 1).add_(at::sum(taken, {-1}, true) + stays);
  part(out.ddt).copy_(at::sum(du * one.x, {-1}));
  out.dd.add_(at::sum(dy * one.x, {0, 3, 4}));
  dh = one.whole * dh + at::matmul(scaled.transpose(-1, -2), one.c);
}

// ---- causal_conv
// Returns x [lead.., seq, channels..] as [lead, seq, channels]; w [channels.., width] says how many
// dims are channels.
at::Tensor rows_of_channels(const at::Tensor& x, const at::Tensor& w) {
  return x.reshape({-1, x.size(x.dim() - w.dim()), w.numel() / w.size(-1)});
}

// Prepares the kernel of a kind by a function of tensors.
template <Tensors (*compute)(const Op&, const Tensors&)>
Kernel prepare_by_tensors(const KernelCall& call) {
  return [op = call.op, inputs = call.inputs, outputs = call.outputs, add = call.add] {
    Tensors operands;
    for (const Array& input : inputs) operands.push_back(at_least_float(input));
    const Tensors made = compute(*op, operands);
    for (size_t i = 0; i < made.size(); ++i) put(outputs[i], made[i], add[i]);
  };
}

constexpr KernelInfo kScanKernels[] = {
    {"state_scan", prepare_by_tensors<state_scan>, 0b1},
    {"state_scan_grad", prepare_by_tensors<state_scan_grad>, 0b111111},
    {"gated_delta_rule", prepare_by_tensors<gated_delta_rule>, 0b1},
    {"gated_delta_rule_grad", prepare_by_tensors<gated_delta_rule_grad>, 0b11111},
    {"causal_conv", prepare_by_tensors<causal_conv>, 0b1},
    {"causal_conv_grad", prepare_by_tensors<causal_conv_grad>, 0b111},
};

}  // namespace

at::Tensor sums_in_chunks(const at::Tensor& x, int64_t chunk, bool from_the_end) {
  const int64_t size = x.size(-1), missing = (chunk - size % chunk) % chunk;
  const at::Tensor padded = missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
  at::Tensor sums = padded.unflatten(-1, {-1, chunk});
  if (x.is_cpu()) {  // the running sum of processors has a fixed order, and is faster
    sums =
        from_the_end ? at::flip(at::cumsum(at::flip(sums, {-1}), -1), {-1}) : at::cumsum(sums, -1);
    return sums.flatten(-2).narrow(-1, 0, size);
  }
  for (int64_t step = 1; step < chunk; step *= 2) {
    const int64_t before = from_the_end ? -step : step;
    sums = sums + at::constant_pad_nd(sums, {before, -before});
  }
  return sums.flatten(-2).narrow(-1, 0, size);
}

Tensors state_scan(const Op& op, const Tensors& inputs) {
  const Scan scan(inputs, 0, op.integer("chunk"));
  at::Tensor h = scan.first_state(), out = at::empty_like(scan.x);
  for (int64_t begin = 0; begin < scan.seq; begin += scan.chunk) {
    const int64_t size = std::min(scan.chunk, scan.seq - begin);
    const Chunk one(scan, begin, size);
    out.narrow(3, begin, size)
        .copy_(at::matmul(one.scores, one.u) + one.since * at::matmul(one.c, h.transpose(-1, -2)) +
               scan.d * one.x);
    h = one.next(h);
  }
  return {out.permute({0, 3, 1, 2, 4})};
}

Tensors state_scan_grad(const Op& op, const Tensors& inputs) {
  const Scan scan(inputs, 1, op.integer("chunk"));
  const at::Tensor dy = inputs[0].permute({0, 2, 3, 1, 4});
  Tensors states = {scan.first_state()};  // the states before each chunk
  for (int64_t begin = scan.chunk; begin < scan.seq; begin += scan.chunk)
    states.push_back(Chunk(scan, begin - scan.chunk, scan.chunk).next(states.back()));
  ScanGradients out{at::empty_like(scan.x),  at::empty_like(scan.dt),
                    at::empty_like(scan.b),  at::empty_like(scan.c),
                    at::empty_like(scan.dt), at::zeros_like(scan.a.squeeze(-1))};
  at::Tensor dh = scan.first_state();
  for (size_t i = states.size(); i-- > 0;) {
    const int64_t begin = static_cast<int64_t>(i) * scan.chunk;
    const int64_t size = std::min(scan.chunk, scan.seq - begin);
    differentiate_chunk(scan, Chunk(scan, begin, size), begin, dy.narrow(3, begin, size), states[i],
                        dh, out);
  }
  const at::Tensor d_log = sums_in_chunks(out.ds, scan.chunk, /*from_the_end=*/true);  // of dt A
  const at::Tensor ddt = out.ddt + d_log * scan.a, da = at::sum(d_log * scan.dt, {0, 3});
  return {out.dx.permute({0, 3, 1, 2, 4}),
          ddt.permute({0, 3, 1, 2}),
          da,
          out.db.squeeze(2).permute({0, 2, 1, 3}),
          out.dc.squeeze(2).permute({0, 2, 1, 3}),
          out.dd};
}

Tensors causal_conv(const Op&, const Tensors& inputs) {
  const at::Tensor& w = inputs[1];
  const at::Tensor taps = w.reshape({-1, w.size(-1)});
  const at::Tensor x = rows_of_channels(inputs[0], w);
  at::Tensor y =
      inputs.size() > 2 ? inputs[2].reshape({-1}).expand_as(x).clone() : at::zeros_like(x);
  for (int64_t k = 0; k < taps.size(1); ++k) {
    const int64_t back = taps.size(1) - 1 - k, size = x.size(1) - back;
    if (size <= 0) continue;
    y.narrow(1, back, size).addcmul_(x.narrow(1, 0, size), taps.select(1, k));
  }
  return {y.reshape(inputs[0].sizes())};
}

Tensors causal_conv_grad(const Op&, const Tensors& inputs) {
  const at::Tensor& w = inputs[2];
  const at::Tensor taps = w.reshape({-1, w.size(-1)});
  const at::Tensor dy = rows_of_channels(inputs[0], w), x = rows_of_channels(inputs[1], w);
  at::Tensor dx = at::zeros_like(x), dw = at::zeros_like(taps);
  for (int64_t k = 0; k < taps.size(1); ++k) {
    const int64_t back = taps.size(1) - 1 - k, size = x.size(1) - back;
    if (size <= 0) continue;
    const at::Tensor later = dy.narrow(1, back, size);
    dx.narrow(1, 0, size).addcmul_(later, taps.select(1, k));
    dw.select(1, k).copy_(at::sum(later * x.narrow(1, 0, size), {0, 1}));
  }
  return {dx.reshape(inputs[1].sizes()), dw.reshape(w.sizes()),
          at::sum(dy, {0, 1}).reshape(w.sizes().slice(0, static_cast<size_t>(w.dim()) - 1))};
}

std::span<const KernelInfo> scan_kernels() { return kScanKernels; }

}  // namespace tessera::kernels
