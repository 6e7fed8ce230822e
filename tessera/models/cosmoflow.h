// CosmoFlow: a convolutional network that regresses a few cosmological parameters from a volume of
// matter density in several channels (Mathuriya et al., 2018; the network of LBANN as used by Oyama
// et al., 2020, docs/strategies/spatial.md section 10). Seven convolutions of 3^3 without bias,
// each with a leaky rectifier; the fourth has stride 2; averages over 3^3 with stride 2 follow them
// while the volume is larger than 2^3; then dense layers of 2048, 256 and the outputs. Volumes of
// 128^3, 256^3 and 512^3 have 9,437,636 parameters.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct CosmoflowConfig {
  int64_t width = 128;  // of the volume in each direction; a power of two, at least 4
  int64_t channels = 4, outputs = 4;
  int64_t filters = 16;  // of the first convolution; later layers have 2, 4, 8, 16 times as many
  int64_t widest = 0;    // the most filters of a layer; 0: 16 * filters
  double dropout = 0.2;  // behind all dense layers except the last
  double slope = 0.01;   // of the rectifiers below 0
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(CosmoflowConfig& config);
Status complete(CosmoflowConfig& config);
// Builds the graph. `volume` is [batch, channels, depth, height, width], `targets` [batch,
// outputs]; the loss is the mean of squares.
Result<Graph> build_cosmoflow(const CosmoflowConfig& config, int64_t batch);

}  // namespace tessera
