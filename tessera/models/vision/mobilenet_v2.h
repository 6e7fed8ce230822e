// MobileNetV2 (Sandler et al., 2018) consists of inverted residual blocks. Each block has a 1 x 1
// convolution to more channels, a depth-wise 3 x 3 convolution, and a 1 x 1 convolution back to
// fewer channels. Batch norm follows each convolution, and a rectifier that is limited to [0, 6]
// follows the first two. With the default keys there are 3,504,872 parameters. Batch norm and
// `ghost` are those of resnet.h.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct MobilenetV2Config {
  double multiplier = 1;  // factor of all widths, which are rounded to multiples of `divisor`
  int64_t divisor = 8;
  int64_t image = 224, channels = 3, classes = 1000;
  double dropout = 0.2;  // before the last layer
  int64_t ghost = 32;
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(MobilenetV2Config& config);
Status complete(MobilenetV2Config& config);
Result<Graph> build_mobilenet_v2(const MobilenetV2Config& config, int64_t batch);

}  // namespace tessera
