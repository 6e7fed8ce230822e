// Vision transformer (Dosovitskiy et al., 2020): a linear layer over patches, learned positions,
// pre-norm blocks, and classification by the class token or by the mean over patches. Inputs:
// images [batch, height, width, channels] and targets [batch].
#pragma once

#include <string>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct VitConfig {
  int64_t layers = 12, hidden = 768, heads = 12, image = 224, patch = 16, channels = 3;
  int64_t classes = 1000;
  int64_t ffn = 0;             // 0: 4 * hidden
  std::string pool = "class";  // what is classified: the "class" token, or the "mean" over patches
  double eps = 1e-6;
  std::string activation = "gelu";
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(VitConfig& config);
Status complete(VitConfig& config);
Result<Graph> build_vit(const VitConfig& config, int64_t batch);

}  // namespace tessera
