// GA-Planes (Sivgin, Fridovich-Keil, Wetzstein and Pilanci, 2025): a field over [-1, 1]^2 or [-1,
// 1]^3 that is interpolated from grids of features on lines (e1, e2, e3), planes (e12, e13, e23)
// and the volume (e123), combined, and decoded (docs/workloads/ga-planes.md). It is trained on
// points, or on means along rays.
//
//   training     the field at a point, of features f
//   nonconvex    w relu(W f + b) + c
//   semiconvex   sum over units of (W f + b) where (G f + h) >= 0, G and h random and fixed; the
//                gate takes the features as constants
//   convex       sum over channels of f where a fixed random grid of the same shape is >= 0
//   linear       sum over channels of f
//
//   combine      the features
//   concat       features of all elements, side by side
//   sum          the sum of all elements, which have equal numbers of channels
//   product      the product of lines, the product of planes, and the volume: K-planes in space
//                without lines; in the plane a low-rank matrix and one of low resolution
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct GaPlanesConfig {
  int64_t space = 3;
  std::string training = "convex";
  std::string combine = "concat";
  int64_t lines = 8, planes = 4, volume = -1;  // channels; 0: no such element; -1: by the space
  int64_t line_size = 32, plane_size = 16, volume_size = 8;  // places of a grid in each direction
  int64_t hidden = 128;                                      // units of the decoder
  int64_t samples = 64;                                      // of a ray; 0: points instead of rays
  double near = 2, far = 6;  // distance of a ray's first and last sample from its origin
  double init = 1e-3;        // standard deviation of the grids
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(GaPlanesConfig& config);
Status complete(GaPlanesConfig& config);
// Builds the graph for `batch` rays, `origins` and `directions` [batch, coordinate], or points,
// `points` [batch, coordinate]; `targets` [batch]. The loss is the mean of squares.
Result<Graph> build_ga_planes(const GaPlanesConfig& config, int64_t batch);

}  // namespace tessera
