// ImAM (Luo et al., 2023) and its successor Argus-3D represent a shape as one vector of tokens
// (docs/workloads/imam.md). A vector-quantised auto-encoder turns points on a surface into a map of
// codes, which three planes share, and turns the codes into the occupancy at any point of [-1,
// 1]^3. A transformer models the sequence of the codes, row by row of the map. `part` says which
// part is trained:
//
//   part          reads                             what it computes and learns
//   autoencoder   points, queries, targets          the occupancy of the queries; learns all but
//                                                   the transformer
//   transformer   points, classes                   the codes of the points, by a frozen encoder
//                                                   and codebook, and from each code the next code
//   sequence      tokens, classes, targets          from each code the next code: the transformer
//                                                   without the encoder
//   decoder       tokens, queries, targets          the occupancy of the queries: the decoder
//                                                   without the encoder, from codes looked up by
//                                                   tokens
//
// A parameter has the same name in every part: `encoder.*`, `codebook.weight`, `decoder.*`, and for
// the transformer `embed.*`, `blocks.*`, `final.*`, `head.*`. So one part can load the weights that
// another part was trained to.
//
// Encoder: residual blocks work on the points. Between the blocks, each point takes the maximum of
// the features of its cell, in each of the planes xz, xy and yz. The means of the cells make three
// planes, whose channels are joined to one map, and convolutions halve the side of the map `downs`
// times. Decoder: the same steps in reverse, then a U-Net whose weights the three planes share. The
// features of the planes at a query are summed and decoded. With coupled=0 the planes are not
// joined: shared convolutions turn each plane into a map of codes of its own, and a shape has three
// times as many tokens, plane by plane.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct ImamConfig {
  std::string part = "autoencoder";
  int64_t points = 30000, queries = 2048;
  int64_t plane = 256;  // cells of a plane along each side
  // Channels of a plane, and width of the layers that work on points and queries.
  int64_t features = 32;
  int64_t downs = 3;    // how often the side of the map is halved on the way to the codes
  int64_t middle = 2;   // levels of the U-Net between the codes and the planes
  int64_t depth = 4;    // number of levels of the U-Net that works on each plane
  bool coupled = true;  // true: the planes share one map of codes; false: each plane has its own
  int64_t codes = 8192, code_width = 4;
  // Half-width of the uniform distribution of the initial codes; 0: 1 / codes.
  double code_init = 0;
  // Weight of the quantiser's loss in the whole loss, and in the quantiser's loss the weight of
  // the term that moves the codes to the points. The term that moves the points to the codes has
  // weight 1.
  double quantiser = 1, codebook = 0.4;
  int64_t layers = 32, hidden = 3072, heads = 24, classes = 55;
  double dropout = 0.1, mlp_dropout = 0.01, eps = 1e-5;
  DType dtype = DType::kFloat32;

  int64_t side() const { return plane >> downs; }              // side of a map of codes
  int64_t maps() const;                                        // number of maps of codes
  int64_t tokens() const { return maps() * side() * side(); }  // tokens of a shape
};

std::vector<ModelKey> model_keys(ImamConfig& config);
Status complete(ImamConfig& config);
// Builds the graph. Inputs for `batch` shapes: `points` and `queries` [batch, .., coordinate];
// `tokens` [batch, seq]; `classes` [batch]; `targets`, which are for queries [batch, queries] the
// share of the query's surroundings that is inside the shape, and for the part `sequence` [batch,
// seq] the tokens.
Result<Graph> build_imam(const ImamConfig& config, int64_t batch);

}  // namespace tessera
