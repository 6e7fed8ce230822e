// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): behind a model's last block, depth
// d = 0, 1, .. predicts the token d + 2 positions ahead of each token. A depth joins the stream of the
// depth before it with the embedding of the token between, passes blocks of its own, and has a norm of
// its own in front of the model's head.
//
//   FurtherTokens further(g, config.mtp, targets, table);                 // before the first block
//   x = further.join(g, depth, x, {normal(kDeviation)}, config.eps);      // in the scope of a block
//   losses.push_back(further.loss(g, depth, normed, head, weight));       // after the model's own loss
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/models/nn.h"

namespace tessera {

class FurtherTokens {
 public:
  // Adds the embeddings embed.mtp_<d> from `table` [vocab, hidden], and the inputs targets_<d + 1>, which are
  // the `targets` of the model d + 1 positions further. All are added before the blocks, although they
  // are read only after the last block, in its stage.
  FurtherTokens(GraphBuilder& g, int64_t depths, TensorId targets, TensorId table);

  size_t depths() const { return embeddings_.size(); }
  // Makes the stream that a depth begins with from the stream `state` [batch, seq, hidden]: ops
  // state_norm, state, token_norm, token, sum, joined.
  TensorId join(GraphBuilder& g, size_t depth, TensorId state, const LinearOptions& product,
                double eps, bool norm_shifted = false) const;
  // Makes the mean cross entropy of a depth, times `weight`, from its normed stream and the table of the
  // head: ops head.mtp_<d>, loss.mtp_<d>.*, loss.mtp_<d>.weighted.
  TensorId loss(GraphBuilder& g, size_t depth, TensorId normed, TensorId head, double weight) const;

 private:
  std::vector<TensorId> embeddings_, targets_;  // by depth
};

// Adds `others` to the loss of the graph, by the op loss.total, unless there are none.
void add_to_loss(GraphBuilder& g, std::vector<TensorId> others);

}  // namespace tessera
