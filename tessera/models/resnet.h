// A residual convolutional network. The form for ImageNet is ResNet v1.5 (He et al., 2016; the
// stride of a bottleneck is at its 3 x 3 convolution, as in the usual frameworks): 18 and 34 layers
// of basic blocks, 50, 101 and 152 of bottlenecks. The form for CIFAR is the wide residual network
// (Zagoruyko and Komodakis, 2016): a 3 x 3 convolution to `width` channels, three stages of basic
// blocks with `width`, twice and four times as many channels, times `widen`, whose norms and
// activations stand before their convolutions, and a norm behind the last; WRN-28-10 is
// `form=cifar,layers=28,widen=10`. Batch norm takes statistics of `ghost` images: the graph's dims
// are batch (groups of `ghost` images) and sample (the images of a group), so a split of batch is
// exact and computes what data-parallel frameworks do, where every replica normalises by its own
// images. A split of sample is synchronized batch norm.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct ResnetConfig {
  int64_t layers = 50;
  std::string form = "imagenet";
  int64_t width = 0;  // channels of the stem; 0: as in the form
  // The factor of channels inside the bottlenecks, or in the basic blocks (wide residual networks,
  // Zagoruyko and Komodakis, 2016).
  int64_t widen = 1;
  int64_t image = 0, channels = 3, classes = 0;  // 0: as in the form
  int64_t ghost = 32;  // images whose statistics are taken together; a smaller batch: all of it
  double eps = 1e-5;
  double running = 0;  // share of running statistics that a step keeps; 0: there are none
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(ResnetConfig& config);
Status complete(ResnetConfig& config);
// Builds the graph for `batch` images, a multiple of `ghost` or below it.
Result<Graph> build_resnet(const ResnetConfig& config, int64_t batch);

}  // namespace tessera
