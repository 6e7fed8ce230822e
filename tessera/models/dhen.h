// DHEN is a recommender (Zhang et al., 2022) whose layers are ensembles of interaction modules of
// different kinds. As in DLRM, a sample has one vector of its numbers and one for each table; these
// are the embeddings X [batch, seq = m, hidden] of the first layer. From m embeddings a layer makes
//
//   Y = LayerNorm(ensemble of the modules' outputs + shortcut(X))
//
// Each module makes `embeddings` = l embeddings. X' = X W mixes embeddings, W [m, l'].
//   linear       X W
//   attention    TransformerEncoderLayer(X) W: attention among the embeddings and an MLP, each with
//                a residual sum and a norm behind it
//   convolution  conv(X) W, X as an image of one channel; W [filters, m, l]
//   cross        the m^2 inner products X X^T times a weight [m, m, l, hidden], and a bias
//   dot          the m (m - 1) / 2 inner products of pairs times a weight [pairs, l, hidden]
//   dlrm         these products beside a vector that an MLP makes from X: weight [pairs + hidden,
//                l, hidden]. It replaces the paper's AdvancedDLRM, whose internals are unpublished.
// X X^T is taken among embeddings, [m, m]; the paper prints it for X of the transposed shape. The
// ensemble is `concat` (k l embeddings of k modules), `sum`, or `weighted`, a sum with a trained
// number for each module (l embeddings). The shortcut is X if the layer makes m embeddings, else X
// W. After the last layer all embeddings go through the top MLP.
//
// Op paths: those of recommender.h, embed.{fields,seq,hidden}, and blocks.<i>.* for layer i:
// linear.*, attn.* with ln_1, mlp.*, ln_2, conv.*, cross.*, dot.*, dlrm.* with mlp.dense.*; then
// ensemble.*, shortcut.*, residual, ln_out. A module's last op is `<module>.mixed`: attn.mixed for
// attention, conv.mixed for the convolution.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/recommender.h"

namespace tessera {

struct DhenConfig : RecommenderConfig {
  int64_t layers = 4;
  // The modules of a layer, joined by '-'; the lists of several layers are joined by '+', and the
  // layers take them in turn.
  std::string modules = "dlrm-linear";
  std::string ensemble = "concat";
  int64_t embeddings = 8;           // embeddings that each module makes
  int64_t heads = 4;                // heads of attention
  int64_t ffn = 0;                  // width of the MLPs of attention and dlrm; 0: 4 * width
  int64_t filters = 4, kernel = 3;  // of the convolution
  double eps = 1e-5;
};

std::vector<ModelKey> model_keys(DhenConfig& config);
Status complete(DhenConfig& config);
// Builds the graph. Its inputs and loss are those of build_dlrm.
Result<Graph> build_dhen(const DhenConfig& config, int64_t batch);

}  // namespace tessera
