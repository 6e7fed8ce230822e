// CosmoFlow: a convolutional network that regresses a few cosmological parameters from a volume of
// matter density in several channels (Mathuriya et al., 2018; the network of LBANN as used by
// Oyama et al., 2020, docs/strategies/spatial.md section 10). It has seven convolutions of 3^3
// without bias, each followed by a leaky rectifier. The fourth convolution has stride 2. An
// average pool of 3^3 with stride 2 follows a convolution while the volume is larger than 2^3.
// Dense layers of 2048, 256 and `outputs` units follow. With volumes of 128^3, 256^3 or 512^3 it
// has 9,437,636 parameters.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct CosmoflowConfig {
  int64_t width = 128;  // side of the volume; a power of two, at least 4
  int64_t channels = 4, outputs = 4;
  // Filters of the first convolution; later convolutions have 2, 4, 8, 16 times as many.
  int64_t filters = 16;
  int64_t widest = 0;    // the largest number of filters of a layer; 0: 16 * filters
  double dropout = 0.2;  // after each dense layer except the last
  double slope = 0.01;   // of the leaky rectifiers below 0
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(CosmoflowConfig& config);
Status complete(CosmoflowConfig& config);
// Builds the graph. `volume` is [batch, channels, depth, height, width], `targets` [batch,
// outputs]. The loss is the mean of the squared errors.
Result<Graph> build_cosmoflow(const CosmoflowConfig& config, int64_t batch);

}  // namespace tessera
