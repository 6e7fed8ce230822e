// gated_delta_rule and its gradient, in float (double for float64), chunk by chunk. Token by token the
// rule is, for each head of v, with a state h [state, head_dim]:
//   h = e^g h;  h = h + beta k (v - k^T h)^T;  y = q^T h
// A chunk of Q tokens needs no such steps (Yang et al., 2024, arXiv 2406.06484, section 3, and arXiv
// 2412.06464, section 3.3): what its tokens write into the state solves a triangular system.
//
// Letters: G heads of q and k, R heads of v for each, Q tokens of the chunk, P head_dim, N state. With
// s the running sum of g in the chunk, h the state before it:
//   L[i, j] = exp(s_i - s_j) for j <= i, else 0;  A = beta (K K^T) * L, below the diagonal
//   (I + A) W = beta (V - exp(s) K h);  Y = ((Q K^T) * L) W + exp(s) Q h
//   h' = exp(s_Q) h + sum over j of exp(s_Q - s_j) k_j w_j^T
#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/runtime/kernels/recurrences.h"

namespace tessera::kernels {
namespace {

// Solves (I + A) X = B for X, where A counts below the diagonal only; or its transpose.
at::Tensor solved(const at::Tensor& a, const at::Tensor& b, bool transpose) {
  return at::linalg_solve_triangular(transpose ? a.mT() : a, b, /*upper=*/transpose,
                                     /*left=*/true, /*unitriangular=*/true);
}

// Returns e^x, and zero where e^x is so small that its products would not be normal numbers. Such
// numbers make a processor slow, and they change no sum: the least that is kept is 5e-31 in float.
at::Tensor decays(const at::Tensor& x) {
  const double normal = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::min()
                                                       : std::numeric_limits<float>::min();
  return at::exp(
      x.masked_fill(x < 0.8 * std::log(normal), -std::numeric_limits<double>::infinity()));
}

// The operands, with the dim of the sequence (S) moved after the dims of the heads.
struct DeltaRule {
  at::Tensor q, k, v, g, beta;  // [b,G,1,S,N] twice, [b,G,R,S,P], [b,G,R,S], [b,G,R,S,1]
  int64_t chunk = 1, seq = 0;
  at::Tensor s;  // [b,G,R,S]

  DeltaRule(const Tensors& inputs, size_t first, int64_t chunk_size)
      : q(inputs[first].permute({0, 2, 1, 3}).unsqueeze(2)),
        k(inputs[first + 1].permute({0, 2, 1, 3}).unsqueeze(2)),
        v(inputs[first + 2].permute({0, 2, 3, 1, 4})),
        g(inputs[first + 3].permute({0, 2, 3, 1})),
        beta(inputs[first + 4].permute({0, 2, 3, 1}).unsqueeze(-1)),
        chunk(std::min(chunk_size, v.size(3))),
        seq(v.size(3)),
        s(sums_in_chunks(g, chunk)) {}

  at::Tensor first_state() const {
    return at::zeros({v.size(0), v.size(1), v.size(2), q.size(4), v.size(4)}, v.options());
  }
};

// One chunk.
struct DeltaChunk {
  at::Tensor q, k, v, beta;  // operands of the chunk's tokens, with dims as in DeltaRule
  at::Tensor decay;          // L [b,G,R,Q,Q]
  at::Tensor keys, system;   // (K K^T) * L and beta times that, A on and below the diagonal
  at::Tensor since, until;   // exp(s), exp(s_Q - s) [b,G,R,Q,1]
  at::Tensor whole;          // exp(s_Q) [b,G,R,1,1]

  DeltaChunk(const DeltaRule& rule, int64_t begin, int64_t size)
      : q(rule.q.narrow(3, begin, size)),
        k(rule.k.narrow(3, begin, size)),
        v(rule.v.narrow(3, begin, size)),
        beta(rule.beta.narrow(3, begin, size)) {
    const at::Tensor s = rule.s.narrow(3, begin, size), last = s.narrow(3, size - 1, 1);
    const at::Tensor ahead = at::triu(at::ones({size, size}, s.options().dtype(at::kBool)), 1);
    decay = decays((s.unsqueeze(-1) - s.unsqueeze(-2))
                       .masked_fill_(ahead, -std::numeric_limits<double>::infinity()));
    keys = at::matmul(k, k.mT()) * decay;
    system = beta * keys;
    since = decays(s).unsqueeze(-1);
    until = decays(last - s).unsqueeze(-1);
    whole = decays(last).unsqueeze(-1);
  }

  // Returns by how much the values differ from what the state before the chunk says of their keys.
  at::Tensor surprise(const at::Tensor& h) const { return v - since * at::matmul(k, h); }
  // Returns W, what the tokens write into the state.
  at::Tensor written(const at::Tensor& h) const {
    return solved(system, beta * surprise(h), /*transpose=*/false);
  }
  at::Tensor scores() const { return at::matmul(q, k.mT()) * decay; }
  at::Tensor next(const at::Tensor& h, const at::Tensor& w) const {
    return whole * h + at::matmul(k.mT(), until * w);
  }
};

struct DeltaGradients {
  at::Tensor dq, dk, dv, ds, dbeta;  // of all tokens, with dims as in DeltaRule
};

// Computes the gradients of one chunk. `dy` is the gradient of the chunk's values, `h` the state
// before the chunk, `w` what its tokens wrote, and `dh` the gradient of the state after it; `dh` is
// replaced by the gradient of the state before the chunk.
void differentiate_chunk(const DeltaChunk& one, int64_t begin, const at::Tensor& dy,
                         const at::Tensor& h, const at::Tensor& w, at::Tensor& dh,
                         DeltaGradients& out) {
  const int64_t size = dy.size(3);
  const auto part = [&](const at::Tensor& whole) { return whole.narrow(3, begin, size); };
  // R heads share the rows of q and k, so the gradients of these are summed over them.
  const auto shared = [](const at::Tensor& x) { return at::sum(x, {2}, true); };
  const auto over_last = [](const at::Tensor& x) { return at::sum(x, {-1}); };
  const at::Tensor scores = one.scores();
  const at::Tensor dw = at::matmul(scores.mT(), dy) + one.until * at::matmul(one.k, dh);
  const at::Tensor dr = solved(one.system, dw, /*transpose=*/true);  // of the right-hand side
  const at::Tensor dv = one.beta * dr;
  const at::Tensor d_scores = at::matmul(dy, w.mT());
  const at::Tensor d_system = at::tril(at::matmul(dr, w.mT()), -1).neg_();
  const at::Tensor read = one.since * dy, told = one.since * dv;  // at q's and k's products with h
  const at::Tensor from_read = at::matmul(read, h.mT()), from_told = at::matmul(told, h.mT()),
                   from_next = one.until * at::matmul(w, dh.mT());
  const at::Tensor queries = shared(d_scores * one.decay),
                   keys = shared(one.beta * d_system * one.decay);
  part(out.dq).copy_(at::matmul(queries, one.k) + shared(from_read));
  part(out.dk).copy_(at::matmul(queries.mT(), one.q) + at::matmul(keys + keys.mT(), one.k) +
                     shared(from_next - from_told));
  part(out.dv).copy_(dv);
  part(out.dbeta).copy_(at::sum(dr * one.surprise(h), {-1}, true) +
                        at::sum(d_system * one.keys, {-1}, true));
  // s occurs in L, as s_i and as -s_j, which both scores and the system have as a factor; in exp(s),
  // the factor of h at q and at k; in exp(s_Q - s), the factor of what a token adds to the next
  // state; and in exp(s_Q), the factor of the state that stays.
  const at::Tensor weights = d_scores * scores + d_system * one.system;
  const at::Tensor taken = over_last(one.k * from_next);
  const at::Tensor ds = part(out.ds);
  ds.copy_(over_last(weights) - at::sum(weights, {-2}) + over_last(one.q * from_read) -
           over_last(one.k * from_told) - taken);
  const at::Tensor stays = one.whole.squeeze(-1) * at::sum(dh * h, {-2, -1}).unsqueeze(-1);
  ds.narrow(3, size - 1, 1).add_(at::sum(taken, {-1}, true) + stays);
  dh = one.whole * dh + at::matmul(one.q.mT(), read) - at::matmul(one.k.mT(), told);
}

}  // namespace

Tensors gated_delta_rule(const Op& op, const Tensors& inputs) {
  const DeltaRule rule(inputs, 0, op.integer("chunk"));
  at::Tensor h = rule.first_state(), out = at::empty_like(rule.v);
  for (int64_t begin = 0; begin < rule.seq; begin += rule.chunk) {
    const int64_t size = std::min(rule.chunk, rule.seq - begin);
    const DeltaChunk one(rule, begin, size);
    const at::Tensor w = one.written(h);
    out.narrow(3, begin, size)
        .copy_(at::matmul(one.scores(), w) + one.since * at::matmul(one.q, h));
    h = one.next(h, w);
  }
  return {out.permute({0, 3, 1, 2, 4})};
}

Tensors gated_delta_rule_grad(const Op& op, const Tensors& inputs) {
  const DeltaRule rule(inputs, 1, op.integer("chunk"));
  const at::Tensor dy = inputs[0].permute({0, 2, 3, 1, 4});
  Tensors states = {rule.first_state()}, written;  // the states before each chunk
  for (int64_t begin = 0; begin < rule.seq; begin += rule.chunk) {
    const int64_t size = std::min(rule.chunk, rule.seq - begin);
    const DeltaChunk one(rule, begin, size);
    written.push_back(one.written(states.back()));
    if (begin + size < rule.seq) states.push_back(one.next(states.back(), written.back()));
  }
  DeltaGradients out{at::empty_like(rule.q), at::empty_like(rule.k), at::empty_like(rule.v),
                     at::empty_like(rule.g), at::empty_like(rule.beta)};
  at::Tensor dh = rule.first_state();
  for (size_t i = states.size(); i-- > 0;) {
    const int64_t begin = static_cast<int64_t>(i) * rule.chunk;
    const int64_t size = std::min(rule.chunk, rule.seq - begin);
    differentiate_chunk(DeltaChunk(rule, begin, size), begin, dy.narrow(3, begin, size), states[i],
                        written[i], dh, out);
  }
  return {out.dq.squeeze(2).permute({0, 2, 1, 3}), out.dk.squeeze(2).permute({0, 2, 1, 3}),
          out.dv.permute({0, 3, 1, 2, 4}),
          sums_in_chunks(out.ds, rule.chunk, /*from_the_end=*/true).permute({0, 3, 1, 2}),
          out.dbeta.squeeze(-1).permute({0, 3, 1, 2})};
}

}  // namespace tessera::kernels
