// Attention by blocks of queries and heads: scores of a block against all keys that it sees,
// softmax by rows, product with the values; the backward pass makes the weights again from the
// log-sum-exp. A block's scores stay in the second level cache. Causal: keys after the block's last
// query are not touched, so about half of the work is left out when there are several blocks. A box
// may hold any interval of queries and keys.
//
// This is libtorch's flash kernel with another library under its products: that kernel calls MKL
// (see product.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/product.h"
#include "tessera/runtime/kernels/rows.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

using A = float;

constexpr int64_t kQueries = 128;              // of a block
constexpr int64_t kScores = int64_t{1} << 18;  // of a block: 1 MiB

// Where queries and keys lie, and how far query i sees: keys [0, visible(i)) in local indices.
struct Extents {
  int64_t queries = 0, keys = 0, shift = 0;  // shift: position of query 0 minus that of key 0
  bool causal = false;
  int64_t visible(int64_t query) const {
    return causal ? std::clamp<int64_t>(query + shift + 1, 0, keys) : keys;
  }
};

Extents extents_of(const KernelCall& call, size_t q_index) {
  const Annotation& annotation = call.op->annotation;
  const auto q = static_cast<size_t>(op_dims(annotation.inputs[q_index])[1]);
  const auto kv = static_cast<size_t>(op_dims(annotation.inputs[q_index + 1])[1]);
  return {call.box.dims[q].size, call.inputs[q_index + 1].shape[1],
          call.box.dims[q].begin - call.box.dims[kv].begin + annotation.dims[kv].size -
              annotation.dims[q].size,
          call.op->integer("causal") != 0};
}

float scale_of(const KernelCall& call, const Array& q) {
  const double scale = call.op->number("scale");
  return static_cast<float>(scale == 0 ? 1.0 / std::sqrt(static_cast<double>(q.shape.back()))
                                       : scale);
}

// Element (batch, seq, head, group, 0) of [batch, seq, heads, (group,) ..].
std::byte* element(const Array& x, int64_t batch, int64_t seq, int64_t head, int64_t group) {
  int64_t offset = batch * x.strides[0] + seq * x.strides[1] + head * x.strides[2];
  if (x.shape.size() == 5) offset += group * x.strides[3];
  return x.data + offset * dtype_bytes(x.dtype);
}

// One block: some heads, some queries, the keys that the last of them sees.
struct Block {
  int64_t batch, group, head, heads, query, queries, keys;
};

// [heads, rows, head_dim] of the block's heads.
at::Tensor rows_view(const Array& x, const Block& b, int64_t seq, int64_t rows) {
  return tensor_of(element(x, b.batch, seq, b.head, b.group), x.dtype,
                   {b.heads, rows, x.shape.back()}, {x.strides[2], x.strides[1], x.strides.back()});
}
at::Tensor scores_view(std::byte* memory, const Block& b) {
  return tensor_of(memory, DType::kFloat32, {b.heads, b.queries, b.keys},
                   {b.queries * b.keys, b.keys, 1});
}
at::Tensor transposed(const at::Tensor& x) { return x.transpose(1, 2); }

// Blocks of one batch element and group lie together, those with the most keys first.
std::vector<Block> blocks_of(const Array& q, const Extents& extents) {
  std::vector<Block> blocks;
  const int64_t heads_in_all = q.shape[2];
  const int64_t last = (extents.queries - 1) / kQueries * kQueries;
  for (int64_t batch = 0; batch < q.shape[0]; ++batch) {
    for (int64_t group = 0; group < q.shape[3]; ++group) {
      for (int64_t query = last; query >= 0; query -= kQueries) {
        const int64_t queries = std::min(kQueries, extents.queries - query);
        const int64_t keys = extents.visible(query + queries - 1);
        const int64_t step =
            std::clamp<int64_t>(kScores / std::max<int64_t>(queries * keys, 1), 1, heads_in_all);
        for (int64_t head = 0; head < heads_in_all; head += step) {
          blocks.push_back(
              {batch, group, head, std::min(step, heads_in_all - head), query, queries, keys});
        }
      }
    }
  }
  return blocks;
}

int64_t scores_bytes(const std::vector<Block>& blocks) {
  int64_t most = 0;
  for (const Block& b : blocks) most = std::max(most, b.heads * b.queries * b.keys);
  return (most * static_cast<int64_t>(sizeof(A)) + 63) / 64 * 64;
}

// Rows of the block, with the number of keys that each sees.
template <class F>
void each_row(const Block& b, const Extents& extents, F&& f) {
  for (int64_t h = 0; h < b.heads; ++h) {
    for (int64_t i = 0; i < b.queries; ++i) f(h, i, std::min(extents.visible(b.query + i), b.keys));
  }
}

A* row_of(std::byte* scores, const Block& b, int64_t h, int64_t i) {
  return reinterpret_cast<A*>(scores) + (h * b.queries + i) * b.keys;
}

struct ForwardBlock {
  Block block;
  Product scores, output;
};

struct BackwardBlock {
  Block block;
  Product scores, weights_grad, dv, dq, dk;
};

A* statistic(const Array& x, const Block& b, int64_t h, int64_t i) {
  return reinterpret_cast<A*>(x.data) + b.batch * x.strides[0] + (b.query + i) * x.strides[1] +
         (b.head + h) * x.strides[2] + b.group * x.strides[3];
}

// One block's o, contiguous [heads, queries, head_dim], and lse merged into the totals.
void merge_row(A* o, int64_t step, A* lse, const A* term, A term_lse, int64_t size) {
  if (std::isinf(term_lse)) return;
  const A top = std::max(*lse, term_lse);
  const A sum = top + std::log(std::exp(*lse - top) + std::exp(term_lse - top));
  const A own = std::exp(*lse - sum), other = std::exp(term_lse - sum);
  for (int64_t d = 0; d < size; ++d) o[d * step] = o[d * step] * own + term[d] * other;
  *lse = sum;
}

// Blocks that see no key: o = 0, lse = -inf.
void clear_rows(const Block& b, const Array& o, const Array* lse) {
  for (int64_t h = 0; h < b.heads; ++h) {
    for (int64_t i = 0; i < b.queries; ++i) {
      A* out = reinterpret_cast<A*>(element(o, b.batch, b.query + i, b.head + h, b.group));
      for (int64_t d = 0; d < o.shape.back(); ++d) out[d * o.strides.back()] = 0;
      if (lse != nullptr) *statistic(*lse, b, h, i) = -std::numeric_limits<A>::infinity();
    }
  }
}

void clear_keys(const Array& x, int64_t begin) {
  for (int64_t batch = 0; batch < x.shape[0]; ++batch) {
    for (int64_t key = begin; key < x.shape[1]; ++key) {
      for (int64_t head = 0; head < x.shape[2]; ++head) {
        A* out = reinterpret_cast<A*>(element(x, batch, key, head, 0));
        for (int64_t d = 0; d < x.shape[3]; ++d) out[d * x.strides[3]] = 0;
      }
    }
  }
}

}  // namespace

bool blocked_attention_is_faster(DType dtype) {
  return dtype == DType::kFloat32 && onednn_is_faster();
}

// (q, k, v) -> (o, lse)
Kernel blocked_attention(const KernelCall& call) {
  const Array &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2], &o = call.outputs[0];
  const Array lse = call.outputs[1];
  const Extents extents = extents_of(call, 0);
  const std::vector<Block> blocks = blocks_of(q, extents);
  const bool add = call.add[0];  // merge into the o and lse of other keys
  const int64_t width = o.shape.back();
  int64_t rows = 0;  // of a block, with all its heads
  for (const Block& b : blocks) rows = std::max(rows, b.heads * b.queries);
  const int64_t bytes = scores_bytes(blocks);
  std::byte* scores = call.context->scratch.take(
      bytes + (add ? rows * (width + 1) * static_cast<int64_t>(sizeof(A)) : 0));
  A* const terms = reinterpret_cast<A*>(scores + bytes);  // o of a block, then its lse
  A* const terms_lse = terms + rows * width;
  std::vector<ForwardBlock> steps;
  for (const Block& b : blocks) {
    ForwardBlock step{b, {}, {}};
    if (b.keys > 0) {
      const at::Tensor s = scores_view(scores, b);
      step.scores = prepare_product(s, rows_view(q, b, b.query, b.queries),
                                    transposed(rows_view(k, b, 0, b.keys)), false);
      const at::Tensor out =
          add ? tensor_of(reinterpret_cast<std::byte*>(terms), DType::kFloat32,
                          {b.heads, b.queries, width}, {b.queries * width, width, 1})
              : rows_view(o, b, b.query, b.queries);
      step.output = prepare_product(out, s, rows_view(v, b, 0, b.keys), false);
    }
    steps.push_back(std::move(step));
  }
  const float scale = scale_of(call, q);
  const RowOps<A>& ops = row_ops<A>();
  return [=, &ops, steps = std::move(steps), o = o]() mutable {
    for (ForwardBlock& step : steps) {
      const Block& b = step.block;
      if (b.keys == 0) {
        if (!add) clear_rows(b, o, &lse);
        continue;
      }
      run_product(step.scores);
      each_row(b, extents, [&](int64_t h, int64_t i, int64_t seen) {
        A* row = row_of(scores, b, h, i);
        std::fill(row + seen, row + b.keys, A{0});
        *(add ? terms_lse + h * b.queries + i : statistic(lse, b, h, i)) =
            seen > 0 ? ops.softmax_scaled(row, scale, seen) : -std::numeric_limits<A>::infinity();
      });
      run_product(step.output);
      if (!add) continue;
      each_row(b, extents, [&](int64_t h, int64_t i, int64_t) {
        const int64_t at = h * b.queries + i;
        merge_row(reinterpret_cast<A*>(element(o, b.batch, b.query + i, b.head + h, b.group)),
                  o.strides.back(), statistic(lse, b, h, i), terms + at * width, terms_lse[at],
                  width);
      });
    }
  };
}

// (do, q, k, v, o, lse) -> (dq, dk, dv)
Kernel blocked_attention_grad(const KernelCall& call) {
  const Array d_o = call.inputs[0], q = call.inputs[1], k = call.inputs[2], v = call.inputs[3],
              o = call.inputs[4], lse = call.inputs[5];
  const Array dq = call.outputs[0], dk = call.outputs[1], dv = call.outputs[2];
  const Extents extents = extents_of(call, 1);
  const std::vector<Block> blocks = blocks_of(q, extents);
  const int64_t bytes = scores_bytes(blocks);
  std::byte* weights = call.context->scratch.take(2 * bytes);
  std::byte* gradients = weights + bytes;
  const int64_t seen_keys = extents.visible(extents.queries - 1);
  std::vector<BackwardBlock> steps;
  for (const Block& b : blocks) {
    BackwardBlock step{b, {}, {}, {}, {}, {}};
    if (b.keys > 0) {
      const at::Tensor p = scores_view(weights, b), dp = scores_view(gradients, b);
      const at::Tensor q_rows = rows_view(q, b, b.query, b.queries),
                       do_rows = rows_view(d_o, b, b.query, b.queries);
      const at::Tensor k_rows = rows_view(k, b, 0, b.keys), v_rows = rows_view(v, b, 0, b.keys);
      // The first block of a head sees all keys that any sees: it sets, the others add.
      const bool later = b.group > 0 || b.query + b.queries < extents.queries;
      step.scores = prepare_product(p, q_rows, transposed(k_rows), false);
      step.weights_grad = prepare_product(dp, do_rows, transposed(v_rows), false);
      step.dv = prepare_product(rows_view(dv, b, 0, b.keys), transposed(p), do_rows,
                                later || call.add[2]);
      step.dq =
          prepare_product(rows_view(dq, b, b.query, b.queries), dp, k_rows, bool{call.add[0]});
      step.dk = prepare_product(rows_view(dk, b, 0, b.keys), transposed(dp), q_rows,
                                later || call.add[1]);
    }
    steps.push_back(std::move(step));
  }
  const float scale = scale_of(call, q);
  const Row<A> do_row(d_o), o_row(o);
  const RowOps<A>& ops = row_ops<A>();
  const std::vector<bool> added = call.add;
  return [=, &ops, steps = std::move(steps)]() mutable {
    if (!added[1]) clear_keys(dk, seen_keys);
    if (!added[2]) clear_keys(dv, seen_keys);
    for (BackwardBlock& step : steps) {
      const Block& b = step.block;
      if (b.keys == 0) {
        if (!added[0]) clear_rows(b, dq, nullptr);
        continue;
      }
      run_product(step.scores);
      run_product(step.weights_grad);
      each_row(b, extents, [&](int64_t h, int64_t i, int64_t seen) {
        A *p = row_of(weights, b, h, i), *dp = row_of(gradients, b, h, i);
        const A dot = ops.dot(do_row.read(element(d_o, b.batch, b.query + i, b.head + h, b.group)),
                              o_row.read(element(o, b.batch, b.query + i, b.head + h, b.group)),
                              do_row.size());
        ops.exp_scaled(p, scale, *statistic(lse, b, h, i), seen);
        ops.score_grad(dp, p, dot, scale, seen);
        std::fill(p + seen, p + b.keys, A{0});
        std::fill(dp + seen, dp + b.keys, A{0});
      });
      run_product(step.dv);
      run_product(step.dq);
      run_product(step.dk);
    }
  };
}

}  // namespace tessera::kernels
