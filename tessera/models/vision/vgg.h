// VGG (Simonyan and Zisserman, 2015) has 8 to 16 convolutions of 3 x 3 with a bias each and 64 to
// 512 channels. A pool that halves the map follows each of its five stages. Then come dense layers.
// `form=imagenet` has images of 224 pixels and two dense layers of 4096 with dropout. `form=cifar`
// has images of 32 pixels and only the last linear layer. Batch norm after every convolution is
// optional (for what it computes under a plan see resnet.h).
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct VggConfig {
  int64_t layers = 16;  // layers with parameters in the form for ImageNet: 11, 13, 16 or 19
  std::string form = "imagenet";
  bool norm = false;
  bool bias = true;    // of the convolutions; a norm after a convolution cancels its bias
  int64_t width = 64;  // channels of the first stage
  int64_t image = 0;   // 0: 224 or 32, as the form says
  std::vector<int64_t> dense = {};  // widths of the layers before the last one; {0}: none
  int64_t channels = 3;
  int64_t classes = 0;
  double dropout = 0.5;  // after the dense layers before the last one
  int64_t ghost = 32;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(VggConfig& config);
Status complete(VggConfig& config);
Result<Graph> build_vgg(const VggConfig& config, int64_t batch);

}  // namespace tessera
