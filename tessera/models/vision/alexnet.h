// AlexNet in the form of "One weird trick" (Krizhevsky, 2014): five convolutions with a bias each,
// three pools, and dense layers. `form=imagenet` has images of 224 pixels, overlapping pools of 3 x
// 3 with stride 2, and two dense layers of width 4096 with dropout (61,100,840 parameters for 1000
// classes). `form=cifar` has images of 32 pixels, pools of 2 x 2, and only the last linear layer
// (2,472,266 parameters for 10 classes).
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct AlexnetConfig {
  std::string form = "imagenet";
  int64_t width = 64;               // channels of the first convolution; a multiple of 2
  int64_t image = 0;                // 0: 224 or 32, as the form says
  std::vector<int64_t> dense = {};  // widths of the layers before the last one; {0}: none
  int64_t channels = 3;
  int64_t classes = 0;
  double dropout = 0.5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(AlexnetConfig& config);
Status complete(AlexnetConfig& config);
Result<Graph> build_alexnet(const AlexnetConfig& config, int64_t batch);

}  // namespace tessera
