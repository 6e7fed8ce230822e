// VGG (Simonyan and Zisserman, 2015): 8 to 16 convolutions of 3 x 3 with a bias each, of 64 to 512
// channels, with a pool that halves the map after each of five stages; then dense layers.
// `form=imagenet` has images of 224 pixels and two dense layers of 4096 with dropout, `form=cifar`
// images of 32 pixels and only the last linear layer. Batch norm behind every convolution is
// optional (for its meaning under a plan see resnet.h).
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct VggConfig {
  int64_t layers = 16;  // with parameters, in the form for ImageNet: 11, 13, 16 or 19
  std::string form = "imagenet";
  bool norm = false;
  bool bias = true;                 // of the convolutions; a norm behind cancels it
  int64_t width = 64;               // channels of the first stage
  int64_t image = 0;                // 0: as in the form
  std::vector<int64_t> dense = {};  // widths of the layers before the last one; {0}: none
  int64_t channels = 3;
  int64_t classes = 0;
  double dropout = 0.5;  // behind those layers
  int64_t ghost = 32;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(VggConfig& config);
Status complete(VggConfig& config);
Result<Graph> build_vgg(const VggConfig& config, int64_t batch);

}  // namespace tessera
