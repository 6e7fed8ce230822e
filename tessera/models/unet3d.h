// The 3-D U-Net gives a class to each voxel of a volume (Cicek et al., 2016; the network of LBANN
// as used by Oyama et al., 2020, docs/strategies/spatial.md section 10). It has three levels of two
// convolutions and a pool, a bottom, and three levels that double the volume by a transposed
// convolution and join the map that the level had on the way down. Convolutions of 3^3 have no bias
// and are followed by batch norm and a rectifier. It has 19,070,560 parameters with one channel and
// three classes.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct Unet3dConfig {
  int64_t width = 64;  // of the volume in each direction; a multiple of 8
  int64_t channels = 1, classes = 3;
  int64_t filters = 32;  // of the first convolution
  int64_t ghost = 1;     // volumes whose statistics are taken together; a smaller batch: all of it
  double eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(Unet3dConfig& config);
Status complete(Unet3dConfig& config);
// Builds the graph. `volume` is [batch, sample, channels, depth, height, width], `targets` [batch,
// sample, depth, height, width], where batch counts groups of `ghost` volumes (as in resnet.h).
Result<Graph> build_unet3d(const Unet3dConfig& config, int64_t batch);

}  // namespace tessera
