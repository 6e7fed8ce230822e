// DHEN is a recommender (Zhang et al., 2022) whose layers are ensembles of interaction modules of
// different kinds. As in DLRM, a sample has one vector for its numbers and one for each table.
// These vectors are the embeddings X [batch, seq = m, hidden] of the first layer. From m embeddings
// a layer makes
//
//   Y = LayerNorm(ensemble of the modules' outputs + shortcut(X))
//
// Each module makes l = `embeddings` embeddings. In this list W [m, l] is a weight that mixes the
// embeddings, so that X W has l embeddings.
//   linear       X W
//   attention    TransformerEncoderLayer(X) W: attention among the embeddings and an MLP, each
//                followed by a residual sum and a norm
//   convolution  conv(X) W, where X is an image of one channel; W [filters, m, l]
//   cross        the m^2 inner products X X^T times a weight [m, m, l, hidden], plus a bias
//   dot          the m (m - 1) / 2 inner products of pairs times a weight [pairs, l, hidden]
//   dlrm         the inner products of pairs, joined with a vector that an MLP makes from X, times
//                a weight [pairs + hidden, l, hidden]. The module replaces the paper's
//                AdvancedDLRM, whose internals are unpublished.
// X X^T is taken among embeddings and is [m, m]; the paper prints it for X of the transposed shape.
// The ensemble of k modules is `concat` (k l embeddings), `sum`, or `weighted`, a sum with a
// trained factor for each module (both l embeddings). The shortcut is X if the layer makes m
// embeddings, else X W with a weight of its own. After the last layer all embeddings go through the
// top MLP.
//
// Op paths: those of recommender.h; embed.{fields,seq,hidden}; and for layer i blocks.<i>.* with
// linear.*; attn.*, ln_1, mlp.*, ln_2; conv.*; cross.*; dot.*; dlrm.* with mlp.dense.*; ensemble.*,
// shortcut.*, residual, ln_out. The last op of a module is `<module>.mixed`, where the module
// attention is called attn and convolution conv.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/recommenders/recommender.h"

namespace tessera {

struct DhenConfig : RecommenderConfig {
  int64_t layers = 4;
  // The modules of a layer, joined by '-'. The lists of several layers are joined by '+'. If there
  // are fewer lists than layers, the lists repeat.
  std::string modules = "dlrm-linear";
  std::string ensemble = "concat";
  int64_t embeddings = 8;           // embeddings that each module makes
  int64_t heads = 4;                // heads of attention
  int64_t ffn = 0;                  // width of the MLPs in attention and dlrm; 0: 4 * width
  int64_t filters = 4, kernel = 3;  // of the convolution
  double eps = 1e-5;
};

std::vector<ModelKey> model_keys(DhenConfig& config);
Status complete(DhenConfig& config);
// Builds the graph. It has the inputs and the loss of build_dlrm.
Result<Graph> build_dhen(const DhenConfig& config, int64_t batch);

}  // namespace tessera
