// The 3-D U-Net gives a class to each voxel of a volume (Cicek et al., 2016; the network of LBANN
// as used by Oyama et al., 2020, docs/strategies/spatial.md section 10). It has three levels of two
// convolutions and a pool, a bottom, and three levels on the way up. A level on the way up doubles
// the volume by a transposed convolution and concatenates the map of the same level on the way
// down. Convolutions of 3^3 have no bias and are followed by batch norm and a rectifier. With one
// channel and three classes it has 19,070,560 parameters.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct Unet3dConfig {
  int64_t width = 64;  // side of the volume; a multiple of 8
  int64_t channels = 1, classes = 3;
  int64_t filters = 32;  // of the first convolution
  int64_t ghost = 1;  // volumes whose statistics are taken together; a batch below it is one group
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(Unet3dConfig& config);
Status complete(Unet3dConfig& config);
// Builds the graph. `volume` is [batch, sample, channels, depth, height, width] and `targets`
// are [batch, sample, depth, height, width], where batch counts groups of `ghost` volumes (as
// in resnet.h).
Result<Graph> build_unet3d(const Unet3dConfig& config, int64_t batch);

}  // namespace tessera
