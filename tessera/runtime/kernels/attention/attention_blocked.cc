// Attention by blocks of queries and heads. For each block the kernel computes the scores against
// the keys that the block's queries see, a softmax of each row, and the product with the values.
// The backward pass computes the weights again from the log-sum-exp. The scores of a block fit in
// the second-level cache. Keys that no query of a block sees are skipped, so with several blocks a
// causal op does only about half of the work. A box may hold any interval of queries and any
// interval of keys.
//
// Every form of attention is computed here: bias, segments, windows, dropped weights, capped scores,
// values of another width (attention_form.h). For the plain form the algorithm is that of libtorch's flash kernel, which
// calls MKL for its products; here product.h chooses the library.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/runtime/kernels/attention/attention_form.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/product.h"
#include "tessera/runtime/kernels/row_loops/rows.h"
#include "tessera/runtime/kernels/tensor.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kQueries = 128;              // queries of a block
constexpr int64_t kScores = int64_t{1} << 18;  // most scores of a block: 1 MiB in float32

template <class A>
constexpr DType kOwn = sizeof(A) == 8 ? DType::kFloat64 : DType::kFloat32;

// Divides one piece of scratch memory into parts: add() returns the offset of a new part.
class Parts {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = total_;
    total_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

// The operands of a call in the type of the computation. Inputs of a narrower type are converted
// into scratch memory before the computation, and outputs of a narrower type are converted back
// after it.
template <class A>
class Operands {
 public:
  Operands(const KernelCall& call, const std::vector<size_t>& inputs, Parts& parts) : call_(call) {
    for (const size_t i : inputs) inputs_.push_back({i, place(call.inputs[i], parts)});
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      outputs_.push_back({i, place(call.outputs[i], parts)});
    }
  }
  void take(std::byte* memory) {
    for (auto& [i, offset] : inputs_) {
      wide_inputs_.push_back(wide(call_.inputs[i], offset, memory));
      if (offset >= 0) before_.push_back(prepare_copy(call_.inputs[i], wide_inputs_.back()));
    }
    for (auto& [i, offset] : outputs_) {
      const Array& own = call_.outputs[i];
      wide_outputs_.push_back(wide(own, offset, memory));
      if (offset < 0) continue;
      if (call_.add[i]) before_.push_back(prepare_copy(own, wide_outputs_.back()));
      after_.push_back(prepare_copy(wide_outputs_.back(), own));
    }
  }
  const Array& in(size_t i) const {
    return wide_inputs_[i];
  }  // i: place in the constructor's list
     // of inputs
  const Array& out(size_t i) const { return wide_outputs_[i]; }
  const std::vector<Kernel>& before() const { return before_; }
  const std::vector<Kernel>& after() const { return after_; }

 private:
  static int64_t place(const Array& x, Parts& parts) {
    if (x.dtype == kOwn<A>) return -1;
    int64_t bytes = sizeof(A);
    for (const int64_t size : x.shape) bytes *= size;
    return parts.add(bytes);
  }
  static Array wide(const Array& x, int64_t offset, std::byte* memory) {
    return offset < 0 ? x : Array::contiguous(memory + offset, kOwn<A>, x.shape);
  }
  struct Placed {
    size_t operand;
    int64_t offset;  // -1: not copied
  };
  const KernelCall& call_;
  std::vector<Placed> inputs_, outputs_;
  std::vector<Array> wide_inputs_, wide_outputs_;
  std::vector<Kernel> before_, after_;
};

void run(const std::vector<Kernel>& kernels) {
  for (const Kernel& kernel : kernels) {
    if (kernel) kernel();
  }
}

double scale_of(const KernelCall& call, const Array& q) {
  const double scale = call.op->number("scale");
  return scale == 0 ? 1.0 / std::sqrt(static_cast<double>(q.shape.back())) : scale;
}

// Returns the address of element (batch, seq, head, group, 0) of [batch, seq, heads, (group,) ..].
std::byte* element(const Array& x, int64_t batch, int64_t seq, int64_t head, int64_t group) {
  int64_t offset = batch * x.strides[0] + seq * x.strides[1] + head * x.strides[2];
  if (x.shape.size() == 5) offset += group * x.strides[3];
  return x.data + offset * dtype_bytes(x.dtype);
}

// A block: an interval of heads, an interval of queries, and the interval of keys that these
// queries see.
struct Block {
  int64_t batch, group, head, heads, query, queries, key, keys;
  AttentionRow row(int64_t h, int64_t i) const { return {batch, head + h, group, query + i}; }
};

// Returns a view [heads, rows, head_dim] of an operand: the heads of the block and `rows` tokens
// from `seq` on.
at::Tensor rows_view(const Array& x, const Block& b, int64_t seq, int64_t rows) {
  return tensor_of(element(x, b.batch, seq, b.head, b.group), x.dtype,
                   {b.heads, rows, x.shape.back()}, {x.strides[2], x.strides[1], x.strides.back()});
}
at::Tensor scores_view(std::byte* memory, const Block& b, DType dtype) {
  return tensor_of(memory, dtype, {b.heads, b.queries, b.keys}, {b.queries * b.keys, b.keys, 1});
}
at::Tensor transposed(const at::Tensor& x) { return x.transpose(1, 2); }

// Returns the blocks of the box. The blocks of one batch element and group follow one another,
// those of the last queries first.
template <class A>
std::vector<Block> blocks_of(const Array& q, const AttentionForm<A>& form) {
  std::vector<Block> blocks;
  const int64_t heads_in_all = q.shape[2];
  const int64_t last = (form.queries() - 1) / kQueries * kQueries;
  for (int64_t batch = 0; batch < q.shape[0]; ++batch) {
    for (int64_t group = 0; group < q.shape[3]; ++group) {
      for (int64_t query = last; query >= 0; query -= kQueries) {
        const int64_t queries = std::min(kQueries, form.queries() - query);
        const Interval keys = form.seen(query, queries);
        const int64_t step = std::clamp<int64_t>(
            kScores / std::max<int64_t>(queries * keys.size, 1), 1, heads_in_all);
        for (int64_t head = 0; head < heads_in_all; head += step) {
          blocks.push_back({batch, group, head, std::min(step, heads_in_all - head), query, queries,
                            keys.begin, keys.size});
        }
      }
    }
  }
  return blocks;
}

template <class A>
int64_t scores_bytes(const std::vector<Block>& blocks) {
  int64_t most = 0;
  for (const Block& b : blocks) most = std::max(most, b.heads * b.queries * b.keys);
  return most * static_cast<int64_t>(sizeof(A));
}

// Calls f(head, query, keys) for each row of the block; `keys` are the keys of the block that the
// row may see.
template <class A, class F>
void each_row(const Block& b, const AttentionForm<A>& form, F&& f) {
  for (int64_t h = 0; h < b.heads; ++h) {
    for (int64_t i = 0; i < b.queries; ++i) {
      f(h, i, intersect(form.seen(b.query + i), {b.key, b.keys}));
    }
  }
}

template <class A>
A* row_of(std::byte* scores, const Block& b, int64_t h, int64_t i) {
  return reinterpret_cast<A*>(scores) + (h * b.queries + i) * b.keys;
}

// Sets the elements of a row to zero that belong to keys which the row does not see.
template <class A>
void clear_unseen(A* row, const Block& b, Interval seen) {
  std::fill(row, row + (seen.begin - b.key), A{0});
  std::fill(row + (seen.end() - b.key), row + b.keys, A{0});
}

struct ForwardBlock {
  Block block;
  Product scores, output;
};

struct BackwardBlock {
  Block block;
  Product scores, weights_grad, dv, dq, dk;
};

template <class A>
A* statistic(const Array& x, const Block& b, int64_t h, int64_t i) {
  return reinterpret_cast<A*>(x.data) + b.batch * x.strides[0] + (b.query + i) * x.strides[1] +
         (b.head + h) * x.strides[2] + b.group * x.strides[3];
}

// Merges the result of one row for the keys of a block (`term` and term_lse) into the result so far
// (o, whose elements are `step` apart, and lse).
template <class A>
void merge_row(A* o, int64_t step, A* lse, const A* term, A term_lse, int64_t size) {
  if (std::isinf(term_lse)) return;
  const A top = std::max(*lse, term_lse);
  const A sum = top + std::log(std::exp(*lse - top) + std::exp(term_lse - top));
  const A own = std::exp(*lse - sum), other = std::exp(term_lse - sum);
  for (int64_t d = 0; d < size; ++d) o[d * step] = o[d * step] * own + term[d] * other;
  *lse = sum;
}

// Sets the results of a block whose queries see no key: o = 0, lse = -inf.
template <class A>
void clear_rows(const Block& b, const Array& o, const Array* lse) {
  for (int64_t h = 0; h < b.heads; ++h) {
    for (int64_t i = 0; i < b.queries; ++i) {
      A* out = reinterpret_cast<A*>(element(o, b.batch, b.query + i, b.head + h, b.group));
      for (int64_t d = 0; d < o.shape.back(); ++d) out[d * o.strides.back()] = 0;
      if (lse != nullptr) *statistic<A>(*lse, b, h, i) = -std::numeric_limits<A>::infinity();
    }
  }
}

template <class A>
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

// Turns the scores of a row into weights. Returns the log-sum-exp of the scores, -inf if the row
// sees no key.
template <class A>
A make_weights(A* row, const AttentionRow& at, Interval seen, const AttentionForm<A>& form,
               A scale) {
  const RowOps<A>& ops = row_ops<A>();
  constexpr A kNone = -std::numeric_limits<A>::infinity();
  if (seen.empty()) return kNone;
  A lse = kNone;
  if (form.simple()) {
    lse = ops.softmax_scaled(row, scale, seen.size);
  } else if (form.shape(row, at, seen, scale)) {
    lse = ops.softmax_scaled(row, A{1}, seen.size);
  } else {
    std::fill_n(row, seen.size, A{0});
  }
  form.drop(row, at, seen);
  return lse;
}

template <class A>
Kernel forward(const KernelCall& call) {
  Parts parts;
  Operands<A> operands(call, {0, 1, 2}, parts);
  AttentionForm<A> form(call);
  const std::vector<Block> blocks = blocks_of(call.inputs[0], form);
  const bool add = call.add[0];  // whether to merge into the results for other keys
  const int64_t width = call.outputs[0].shape.back();
  int64_t rows = 0;  // most rows of a block: heads * queries
  for (const Block& b : blocks) rows = std::max(rows, b.heads * b.queries);
  const int64_t scores_at = parts.add(scores_bytes<A>(blocks)),
                terms_at =
                    parts.add(add ? rows * (width + 1) * static_cast<int64_t>(sizeof(A)) : 0);
  std::byte* const memory = call.context->scratch.take(parts.total());
  operands.take(memory);
  const Array q = operands.in(0), k = operands.in(1), v = operands.in(2), o = operands.out(0),
              lse = operands.out(1);
  std::byte* const scores = memory + scores_at;
  A* const terms = reinterpret_cast<A*>(memory + terms_at);  // memory for o of a block, then for
                                                             // its lse
  A* const terms_lse = terms + rows * width;
  std::vector<ForwardBlock> steps;
  for (const Block& b : blocks) {
    ForwardBlock step{b, {}, {}};
    if (b.keys > 0) {
      const at::Tensor s = scores_view(scores, b, kOwn<A>);
      step.scores = prepare_product(s, rows_view(q, b, b.query, b.queries),
                                    transposed(rows_view(k, b, b.key, b.keys)), false);
      const at::Tensor out =
          add ? tensor_of(reinterpret_cast<std::byte*>(terms), kOwn<A>, {b.heads, b.queries, width},
                          {b.queries * width, width, 1})
              : rows_view(o, b, b.query, b.queries);
      step.output = prepare_product(out, s, rows_view(v, b, b.key, b.keys), false);
    }
    steps.push_back(std::move(step));
  }
  const A scale = static_cast<A>(scale_of(call, q));
  const KernelContext* context = call.context;
  return [=, before = operands.before(), after = operands.after(), steps = std::move(steps),
          form = std::move(form)]() mutable {
    run(before);
    form.start(*context);
    for (ForwardBlock& step : steps) {
      const Block& b = step.block;
      if (b.keys == 0) {
        if (!add) clear_rows<A>(b, o, &lse);
        continue;
      }
      run_product(step.scores);
      each_row(b, form, [&](int64_t h, int64_t i, Interval seen) {
        A* row = row_of<A>(scores, b, h, i);
        clear_unseen(row, b, seen);
        *(add ? terms_lse + h * b.queries + i : statistic<A>(lse, b, h, i)) =
            make_weights(row + (seen.begin - b.key), b.row(h, i), seen, form, scale);
      });
      run_product(step.output);
      if (!add) continue;
      each_row(b, form, [&](int64_t h, int64_t i, Interval) {
        const int64_t at = h * b.queries + i;
        merge_row(reinterpret_cast<A*>(element(o, b.batch, b.query + i, b.head + h, b.group)),
                  o.strides.back(), statistic<A>(lse, b, h, i), terms + at * width, terms_lse[at],
                  width);
      });
    }
    run(after);
  };
}

// The gradient of the bias, to which the gradients of rows of scores are added. The dims of the
// array are (batch, heads, group, seq, kv).
template <class A>
struct BiasGradient {
  Array array;
  bool wanted = false;
  void clear() const {
    const Nest<1> nest({&array}, array.shape.size());
    nest.each([](const std::array<std::byte*, 1>& at) { *reinterpret_cast<A*>(at[0]) = 0; });
  }
  void add(const A* row, const AttentionRow& at, Interval keys) const {
    A* out = reinterpret_cast<A*>(array.data) + at.batch * array.strides[0] +
             at.head * array.strides[1] + at.group * array.strides[2] +
             at.query * array.strides[3] + keys.begin * array.strides[4];
    for (int64_t j = 0; j < keys.size; ++j) out[j * array.strides[4]] += row[j];
  }
};

// For one row: turns the scores p into the weights by which the values were multiplied (after
// dropout), and the gradients dp of these weights into gradients of the scores. `dot` is the product
// of the row of o and its gradient, less the gradient of the row's log-sum-exp.
template <class A>
struct RowGradient {
  const AttentionForm<A>& form;
  const BiasGradient<A>& bias;
  A scale;

  void operator()(A* p, A* dp, const AttentionRow& at, Interval seen, A dot, A lse) const {
    const RowOps<A>& ops = row_ops<A>();
    const int64_t n = seen.size;
    if (form.simple()) {
      ops.exp_scaled(p, scale, lse, n);
    } else if (form.shape(p, at, seen, scale)) {
      ops.exp_scaled(p, A{1}, lse, n);
    } else {
      std::fill_n(p, n, A{0});
    }
    form.drop(dp, at, seen);
    if (bias.wanted) {
      ops.score_grad(dp, p, dot, A{1}, n);
      bias.add(dp, at, seen);
      for (int64_t j = 0; j < n; ++j) dp[j] *= scale;
    } else {
      ops.score_grad(dp, p, dot, scale, n);
    }
    form.uncap(dp, n);
    form.drop(p, at, seen);
  }
};

template <class A>
Kernel backward(const KernelCall& call) {
  Parts parts;
  const int of_lse = AttentionOperands(*call.op).of_lse;
  std::vector<size_t> inputs = {0, 1, 2, 3, 4, 5};
  if (of_lse >= 0) inputs.push_back(static_cast<size_t>(of_lse));
  Operands<A> operands(call, inputs, parts);
  AttentionForm<A> form(call);
  const std::vector<Block> blocks = blocks_of(call.inputs[1], form);
  const int64_t weights_at = parts.add(scores_bytes<A>(blocks)),
                gradients_at = parts.add(scores_bytes<A>(blocks));
  std::byte* const memory = call.context->scratch.take(parts.total());
  operands.take(memory);
  const Array d_o = operands.in(0), q = operands.in(1), k = operands.in(2), v = operands.in(3),
              o = operands.in(4), lse = operands.in(5),
              dlse = of_lse >= 0 ? operands.in(6) : Array{};
  const Array dq = operands.out(0), dk = operands.out(1), dv = operands.out(2);
  BiasGradient<A> bias;
  if (call.outputs.size() > 3) {
    const Annotation& annotation = call.op->annotation;
    std::vector<int> dims;
    for (const char* name : {"batch", "heads", "group", "seq", "kv"})
      dims.push_back(annotation.find(name));
    bias = {align(operands.out(3), annotation.outputs[3], dims, call.box), true};
  }
  std::byte *const weights = memory + weights_at, *const gradients = memory + gradients_at;
  // If `nested`, the first block of a head sees all keys that any block of the head sees. So this
  // block sets the gradients of the keys, and the other blocks add to them.
  const bool nested = form.nested();
  const int64_t seen_keys = nested ? form.seen(form.queries() - 1).end() : 0;
  std::vector<BackwardBlock> steps;
  for (const Block& b : blocks) {
    BackwardBlock step{b, {}, {}, {}, {}, {}};
    if (b.keys > 0) {
      const at::Tensor p = scores_view(weights, b, kOwn<A>),
                       dp = scores_view(gradients, b, kOwn<A>);
      const at::Tensor q_rows = rows_view(q, b, b.query, b.queries),
                       do_rows = rows_view(d_o, b, b.query, b.queries);
      const at::Tensor k_rows = rows_view(k, b, b.key, b.keys),
                       v_rows = rows_view(v, b, b.key, b.keys);
      const bool later = !nested || b.group > 0 || b.query + b.queries < form.queries();
      step.scores = prepare_product(p, q_rows, transposed(k_rows), false);
      step.weights_grad = prepare_product(dp, do_rows, transposed(v_rows), false);
      step.dv = prepare_product(rows_view(dv, b, b.key, b.keys), transposed(p), do_rows,
                                later || call.add[2]);
      step.dq =
          prepare_product(rows_view(dq, b, b.query, b.queries), dp, k_rows, bool{call.add[0]});
      step.dk = prepare_product(rows_view(dk, b, b.key, b.keys), transposed(dp), q_rows,
                                later || call.add[1]);
    }
    steps.push_back(std::move(step));
  }
  const A scale = static_cast<A>(scale_of(call, q));
  const Row<A> do_row(d_o), o_row(o);
  const std::vector<bool> added = call.add;
  const KernelContext* context = call.context;
  return [=, before = operands.before(), after = operands.after(), steps = std::move(steps),
          form = std::move(form)]() mutable {
    run(before);
    form.start(*context);
    if (!added[1]) clear_keys<A>(dk, seen_keys);
    if (!added[2]) clear_keys<A>(dv, seen_keys);
    if (bias.wanted && !added[3]) bias.clear();
    const RowOps<A>& ops = row_ops<A>();
    const RowGradient<A> gradient{form, bias, scale};
    const auto at = [&](const Array& x, const Block& b, int64_t h, int64_t i) {
      return element(x, b.batch, b.query + i, b.head + h, b.group);
    };
    for (BackwardBlock& step : steps) {
      const Block& b = step.block;
      if (b.keys == 0) {
        if (!added[0]) clear_rows<A>(b, dq, nullptr);
        continue;
      }
      run_product(step.scores);
      run_product(step.weights_grad);
      each_row(b, form, [&](int64_t h, int64_t i, Interval seen) {
        A *p = row_of<A>(weights, b, h, i), *dp = row_of<A>(gradients, b, h, i);
        A dot = ops.dot(do_row.read(at(d_o, b, h, i)), o_row.read(at(o, b, h, i)), do_row.size());
        if (dlse.data != nullptr) dot -= *statistic<A>(dlse, b, h, i);
        const int64_t skipped = seen.begin - b.key;
        gradient(p + skipped, dp + skipped, b.row(h, i), seen, dot, *statistic<A>(lse, b, h, i));
        clear_unseen(p, b, seen);
        clear_unseen(dp, b, seen);
      });
      run_product(step.dv);
      run_product(step.dq);
      run_product(step.dk);
    }
    run(after);
  };
}

}  // namespace

bool blocked_attention_is_faster(DType dtype) {
  return dtype == DType::kFloat32 && onednn_is_faster();
}

// Prepares the kernel with inputs (q, k, v) and outputs (o, lse).
Kernel blocked_attention(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype,
                           [&]<class A>() -> Kernel { return forward<A>(call); });
}

// Prepares the kernel with inputs (do, q, k, v, o, lse) and outputs (dq, dk, dv), or (dq, dk, dv,
// dbias) if the op has a bias.
Kernel blocked_attention_grad(const KernelCall& call) {
  return with_compute_type(call.inputs[0].dtype,
                           [&]<class A>() -> Kernel { return backward<A>(call); });
}

}  // namespace tessera::kernels
