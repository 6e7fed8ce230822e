// A residual convolutional network. The form for ImageNet is ResNet v1.5 (He et al., 2016; a
// bottleneck has its stride at the 3 x 3 convolution, as in the usual frameworks): 18 and 34
// layers consist of basic blocks, 50, 101 and 152 layers of bottlenecks. The form for CIFAR is the
// wide residual network (Zagoruyko and Komodakis, 2016): a 3 x 3 convolution to `width` channels,
// then three stages of basic blocks with 1, 2 and 4 times `width` * `widen` channels. In its
// blocks each convolution follows its norm and activation, and a norm follows the last block.
// WRN-28-10 is `form=cifar,layers=28,widen=10`.
//
// Batch norm takes statistics over `ghost` images. The graph has the dims batch (groups of `ghost`
// images) and sample (the images of a group). A split of batch is therefore exact, and it computes
// what data-parallel frameworks compute, where every replica normalises by its own images. A split
// of sample is synchronized batch norm.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct ResnetConfig {
  int64_t layers = 50;
  std::string form = "imagenet";
  int64_t width = 0;  // channels of the first convolution; 0: as in the form
  // The factor of the number of channels inside the bottlenecks, or in the basic blocks of the form
  // for CIFAR (wide residual networks, Zagoruyko and Komodakis, 2016).
  int64_t widen = 1;
  int64_t image = 0, channels = 3, classes = 0;  // 0: as in the form
  int64_t ghost = 32;  // images whose statistics are taken together; a batch below it is one group
  double eps = 1e-5;
  // Share of the running statistics that a step keeps; 0: there are no running statistics.
  double running = 0;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(ResnetConfig& config);
Status complete(ResnetConfig& config);
// Builds the graph for `batch` images. `batch` is a multiple of `ghost`, or below `ghost`.
Result<Graph> build_resnet(const ResnetConfig& config, int64_t batch);

}  // namespace tessera
