// ImAM (Luo et al., 2023) and its successor Argus-3D represent shapes as one vector of tokens
// (docs/workloads/imam.md). A vector-quantised auto-encoder turns points on a surface into the
// codes of a map that three planes share, and the codes into an occupancy at any point of [-1,
// 1]^3; a transformer models the codes, which it reads row by row. `part` says which part is
// trained:
//
//   part          reads                             makes, and learns
//   autoencoder   points, queries, targets          occupancy of the queries; everything but the
//                                                   transformer
//   transformer   points, classes                   the codes of the points, by a frozen encoder and
//                                                   codebook, and from each code the next
//   sequence      tokens, classes, targets          from each code the next: the transformer alone
//   decoder       tokens, queries, targets          occupancy of the queries: the decoder alone, from
//                                                   codes that are looked up
//
// Parameters have equal names in every part: `encoder.*`, `codebook.weight`, `decoder.*`, and for
// the transformer `embed.*`, `blocks.*`, `final.*`, `head.*`. So a part takes the weights of
// another.
//
// Encoder: residual blocks over the points, between which each point takes the largest features of
// its cell in each of the planes xz, xy and yz; means of cells make the planes, whose channels
// together are one map; convolutions halve its side `downs` times. Decoder: the reverse, and a
// U-Net that the three planes share; features of the planes at a query are summed and decoded. With
// coupled=0 the planes are not joined: each goes through shared convolutions to a map of codes of
// its own, and a shape has three times as many tokens, plane by plane.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct ImamConfig {
  std::string part = "autoencoder";
  int64_t points = 30000, queries = 2048;
  int64_t plane = 256;    // cells of a plane along each side
  int64_t features = 32;  // channels of a plane, and width of the layers over points and queries
  int64_t downs = 3;      // how often the side of the map is halved on the way to the codes
  int64_t middle = 2;     // levels of the U-Net between the codes and the planes
  int64_t depth = 4;      // levels of the U-Net over each plane
  bool coupled = true;    // planes share a map of codes; otherwise each has a map of its own
  int64_t codes = 8192, code_width = 4;
  double code_init = 0;  // half-width of the codes at the beginning; 0: 1 / codes
  // Weights of the loss of the quantiser, and in it of the part that moves the codes; the part that
  // moves the points has weight 1.
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
// `targets` [batch, queries], the share of a query's place that is inside, or [batch, seq], the
// tokens; `tokens` [batch, seq]; `classes` [batch].
Result<Graph> build_imam(const ImamConfig& config, int64_t batch);

}  // namespace tessera
