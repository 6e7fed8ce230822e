// A hierarchical window transformer like Swin (Liu et al., 2021). It consists of stages of pre-norm
// blocks whose attention stays within windows; in every second block the map is first rolled by
// half a window. Between stages 2 x 2 neighbours are merged (half the rows and columns, twice the
// width and heads). Attention adds a bias for each head and difference of places in the window,
// from a table attn.relative.weight [differences, heads] of each block. Where rolled windows wrap
// around the border, a token attends only to tokens that were its neighbours before the roll. The
// windows are joined with the heads to one dim, `(heads rows columns)`, so that batch and heads can
// be split.
#pragma once

#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct SwinConfig {
  std::vector<int64_t> depths = {2, 2, 6, 2};
  // `hidden` and `heads` are those of stage 0.
  int64_t hidden = 96, heads = 3, image = 224, patch = 4, window = 7, channels = 3;
  int64_t classes = 1000;
  int64_t ratio = 4;  // ffn / hidden
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(SwinConfig& config);
Status complete(SwinConfig& config);
Result<Graph> build_swin(const SwinConfig& config, int64_t batch);

}  // namespace tessera
