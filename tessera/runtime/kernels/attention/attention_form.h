// Internal to kernels/: tells attention kernels which keys a query of an attention box sees, what
// is added to the query's scores, and which of the query's weights are dropped. The functions work
// on one row at a time: the scores of one query of one head against consecutive keys. Indices of
// queries and keys count from the box's first ones.
//
//   AttentionForm<float> form(call);
//   form.start(*context);                                // once in each execution
//   const Interval keys = form.seen(query);
//   const bool any = form.shape(scores, row, keys, scale);  // scale, bias, -inf for unseen keys
//   form.drop(weights, row, keys);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/box.h"
#include "tessera/runtime/kernels/family.h"
#include "tessera/runtime/kernels/nest.h"
#include "tessera/runtime/kernels/random.h"

namespace tessera::kernels {

// The positions of the inputs of `attention` or of one of its derivatives.
struct AttentionOperands {
  explicit AttentionOperands(const Op& op);
  size_t q = 0;  // position of q; k and v are the next two
  // -1: the op has no such input
  int bias = -1, query_segments = -1, key_segments = -1, of_lse = -1;
};

// A query of a head.
struct AttentionRow {
  int64_t batch = 0, head = 0, group = 0, query = 0;
};

template <class A>
class AttentionForm {
 public:
  explicit AttentionForm(const KernelCall& call);

  int64_t queries() const { return queries_; }
  int64_t keys() const { return keys_; }
  // Returns whether each query sees exactly the keys of seen(query) and nothing is added to scores.
  bool simple() const { return !bias_ && !segments_ && positions_.empty() && softcap_ == 0; }
  // Returns whether each query sees all keys that the query before it sees.
  bool nested() const { return window_ == 0 && positions_.empty(); }
  bool drops() const { return keep_.p > 0; }

  // Returns the interval from the first to the last key that the query may see.
  Interval seen(int64_t query) const;
  Interval seen(int64_t query, int64_t count) const;  // for any of `count` queries from `query`

  void start(const KernelContext& context);
  // Turns x[j] into scale x[j] + bias, or into -inf if the query does not see key keys.begin + j.
  // With a cap c of the scores, c tanh(scale x[j] / c) is in the place of scale x[j]. Returns
  // whether the query sees any of the keys.
  bool shape(A* x, const AttentionRow& row, Interval keys, A scale) const;
  // Multiplies the gradients dx of the capped scores that the last shape() made by the derivative
  // of the cap, for n keys.
  void uncap(A* dx, int64_t n) const;
  // Sets x[j] to 0 if the weight of key keys.begin + j is dropped, else to x[j] / (1 - p).
  void drop(A* x, const AttentionRow& row, Interval keys) const;

 private:
  bool sees(int64_t query, int64_t key) const;

  int64_t queries_ = 0, keys_ = 0, window_ = 0;
  bool causal_ = false;
  A softcap_ = 0;                           // 0: none
  std::shared_ptr<std::vector<A>> slopes_;  // of the cap, for each score of the last row
  int64_t shift_ = 0;                       // position of query 0 minus position of key 0
  // If the tokens are in another order than their positions (the op's `order`) and this matters for
  // which keys are seen: the positions of the queries, then those of the keys. Else empty.
  std::vector<int64_t> positions_;
  // The dims of the three arrays are (batch, heads, group, seq, kv), (batch, heads, seq) and
  // (batch, heads, kv).
  Array bias_array_, query_segments_, key_segments_;
  bool bias_ = false, segments_ = false;
  Row<A> bias_row_;
  Keep keep_;
  // The index of a row's first weight is a sum. These lists have the terms for each batch, head
  // and group.
  std::vector<int64_t> batch_index_, head_index_, group_index_;
  int64_t query_step_ = 0, first_index_ = 0;
  bool dropping_ = true;  // whether the run that start() began drops weights
  uint64_t seed_ = 0, stream_ = 0;
  std::shared_ptr<std::vector<uint32_t>> words_;
};

}  // namespace tessera::kernels
