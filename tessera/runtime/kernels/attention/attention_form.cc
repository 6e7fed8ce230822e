#include "tessera/runtime/kernels/attention/attention_form.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/check.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/runtime/kernels/row_loops/rows.h"

namespace tessera::kernels {
namespace {

int dim_of(const Op& op, std::string_view name) {
  const int dim = op.annotation.find(name);
  TESSERA_CHECK(dim >= 0, "{}: no dim {}", op.path, name);
  return dim;
}

std::byte* at(const Array& x, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  size_t d = 0;
  for (const int64_t i : index) offset += i * x.strides[d++];
  return x.data + offset * dtype_bytes(x.dtype);
}

int64_t segment(const Array& x, int64_t batch, int64_t head, int64_t token) {
  return *reinterpret_cast<const int64_t*>(at(x, {batch, head, token}));
}

void add_positions(const Order& order, int64_t size, Interval interval, std::vector<int64_t>& out) {
  for (const OpRun& run : runs_of(order, size, interval)) {
    for (int64_t i = 0; i < run.size; ++i) out.push_back(run.first + i * run.stride);
  }
}

}  // namespace

AttentionOperands::AttentionOperands(const Op& op) {
  const bool of_derivative = info_of(op).gradient;  // true: (do, q, k, v, o, lse, ..)
  q = of_derivative ? 1 : 0;
  size_t next = of_derivative ? 6 : 3, last = op.inputs.size();
  if (of_derivative && op.integer("of_lse") == 1) of_lse = static_cast<int>(--last);
  if ((last - next) % 2 == 1) bias = static_cast<int>(next++);
  if (next == last) return;
  query_segments = static_cast<int>(next);
  key_segments = static_cast<int>(next + 1);
}

template <class A>
AttentionForm<A>::AttentionForm(const KernelCall& call) {
  const Op& op = *call.op;
  const AttentionOperands operands(op);
  const int batch = dim_of(op, "batch"), heads = dim_of(op, "heads"), group = dim_of(op, "group"),
            seq = dim_of(op, "seq"), kv = dim_of(op, "kv");
  const auto box = [&](int dim) { return call.box.dims[static_cast<size_t>(dim)]; };
  const auto size = [&](int dim) { return op.annotation.dims[static_cast<size_t>(dim)].size; };
  queries_ = box(seq).size;
  keys_ = call.inputs[operands.q + 1].shape[1];  // k may end at the last query
  causal_ = op.integer("causal") != 0;
  window_ = op.integer("window");
  softcap_ = static_cast<A>(op.number("softcap"));
  if (softcap_ > 0) slopes_ = std::make_shared<std::vector<A>>(static_cast<size_t>(keys_));
  // If there are more keys than queries, the queries have the last positions.
  shift_ = box(seq).begin - box(kv).begin + size(kv) - size(seq);
  const auto order = parse_order(op.text("order"));
  TESSERA_CHECK(order.has_value(), "{}: order {}", op.path, op.text("order"));
  if (order->kind != Order::Kind::kNone && (causal_ || window_ > 0)) {
    add_positions(*order, size(kv), box(seq), positions_);
    add_positions(*order, size(kv), {box(kv).begin, keys_}, positions_);
  }
  const auto along = [&](int input, const std::vector<int>& dims) {
    return input < 0 ? Array{} : input_along(call, static_cast<size_t>(input), dims);
  };
  bias_array_ = along(operands.bias, {batch, heads, group, seq, kv});
  query_segments_ = along(operands.query_segments, {batch, heads, seq});
  key_segments_ = along(operands.key_segments, {batch, heads, kv});
  bias_ = operands.bias >= 0;
  segments_ = operands.query_segments >= 0;
  if (bias_) bias_row_ = Row<A>(bias_array_.dtype, keys_, bias_array_.strides.back());
  if (op.number("p") == 0) return;
  // Dropout of weights uses the index that a weight has in a tensor [batch, seq, heads, group, kv].
  keep_ = Keep(op);
  const std::vector<Within> places = places_of(op, {batch, seq, heads, group, kv});
  int64_t step = 1;
  const auto indices = [&](int dim, size_t place, std::vector<int64_t>& out) {
    for (int64_t i = 0; i < box(dim).size; ++i)
      out.push_back(places[place].index(box(dim).begin + i, size(dim)) * step);
    step *= places[place].whole;
  };
  step *= size(kv);
  indices(group, 3, group_index_);
  indices(heads, 2, head_index_);
  query_step_ = step;
  step *= size(seq);
  indices(batch, 0, batch_index_);
  first_index_ = box(seq).begin * query_step_ + box(kv).begin;
  words_ = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(keys_ + 8));
}

template <class A>
bool AttentionForm<A>::sees(int64_t query, int64_t key) const {
  const int64_t apart =
      positions_[static_cast<size_t>(query)] - positions_[static_cast<size_t>(queries_ + key)];
  return (!causal_ || apart >= 0) && (window_ == 0 || std::abs(apart) < window_);
}

template <class A>
Interval AttentionForm<A>::seen(int64_t query) const {
  return seen(query, 1);
}

template <class A>
Interval AttentionForm<A>::seen(int64_t query, int64_t count) const {
  if (!positions_.empty()) return {0, keys_};
  const int64_t first = query + shift_, last = first + count - 1;
  int64_t begin = 0, end = keys_;
  if (window_ > 0) {
    begin = first - window_ + 1;
    end = last + window_;
  }
  if (causal_) end = last + 1;
  begin = std::clamp<int64_t>(begin, 0, keys_);
  return {begin, std::clamp(end, begin, keys_) - begin};
}

template <class A>
void AttentionForm<A>::start(const KernelContext& context) {
  if (!drops()) return;
  dropping_ = !context.evaluating;
  seed_ = context.seed;
  stream_ = keep_.stream(context.step);
}

template <class A>
bool AttentionForm<A>::shape(A* x, const AttentionRow& row, Interval keys, A scale) const {
  const A* bias = nullptr;
  if (bias_) {
    bias = bias_row_.read(at(bias_array_, {row.batch, row.head, row.group, row.query, 0})) +
           keys.begin;
  }
  const int64_t own = segments_ ? segment(query_segments_, row.batch, row.head, row.query) : 0;
  bool any = false;
  for (int64_t j = 0; j < keys.size; ++j) {
    const int64_t key = keys.begin + j;
    const bool visible = (positions_.empty() || sees(row.query, key)) &&
                         (!segments_ || segment(key_segments_, row.batch, row.head, key) == own);
    A score = x[j] * scale;
    if (softcap_ > 0) {
      const A bent = std::tanh(score / softcap_);
      (*slopes_)[static_cast<size_t>(j)] = 1 - bent * bent;
      score = softcap_ * bent;
    }
    if (bias != nullptr) score += bias[j];
    x[j] = visible ? score : -std::numeric_limits<A>::infinity();
    any = any || visible;
  }
  return any;
}

template <class A>
void AttentionForm<A>::uncap(A* dx, int64_t n) const {
  for (int64_t j = 0; softcap_ > 0 && j < n; ++j) dx[j] *= (*slopes_)[static_cast<size_t>(j)];
}

template <class A>
void AttentionForm<A>::drop(A* x, const AttentionRow& row, Interval keys) const {
  if (!drops() || !dropping_ || keys.empty()) return;
  const int64_t first = first_index_ + keys.begin + row.query * query_step_ +
                        batch_index_[static_cast<size_t>(row.batch)] +
                        head_index_[static_cast<size_t>(row.head)] +
                        group_index_[static_cast<size_t>(row.group)];
  const int64_t block = first / 4, end = (first + keys.size + 3) / 4;
  philox_words(words_->data(), seed_, stream_, static_cast<uint64_t>(block), end - block);
  row_ops<A>().keep(x, x, words_->data() + (first - 4 * block), keep_.threshold,
                    static_cast<A>(keep_.factor), keys.size);
}

template class AttentionForm<float>;
template class AttentionForm<double>;

}  // namespace tessera::kernels
