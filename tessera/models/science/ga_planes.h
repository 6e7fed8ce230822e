// GA-Planes (Sivgin, Fridovich-Keil, Wetzstein and Pilanci, 2025): a field over [-1, 1]^2 or [-1,
// 1]^3. Features are interpolated from grids on lines (e1, e2, e3), on planes (e12, e13, e23) and
// on the volume (e123). The features are combined and decoded to the field's value
// (docs/workloads/ga-planes.md). The field is trained on its values at points, or on its means
// along rays.
//
//   training     the field's value at a point with the features f
//   nonconvex    w relu(W f + b) + c
//   semiconvex   the sum of W f + b over the units with G f + h >= 0, where G and h are random and
//                fixed; no gradient goes through the condition
//   convex       the sum of f over the channels where a fixed random grid of the same shape is >= 0
//   linear       the sum of f over all channels
//
//   combine      how f is made from the features of the elements (lines, planes, volume)
//   concat       the features of all elements, concatenated
//   sum          the sum of the features of all elements, which have equal numbers of channels
//   product      three groups of features, concatenated: the product of the lines, the product of
//                the planes, and the volume. Without lines it is K-planes in space; in the plane it
//                is a low-rank matrix and a matrix of low resolution
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct GaPlanesConfig {
  int64_t space = 3;
  std::string training = "convex";
  std::string combine = "concat";
  // Channels; 0: there is no such element; -1: a default that depends on `space`.
  int64_t lines = 8, planes = 4, volume = -1;
  int64_t line_size = 32, plane_size = 16, volume_size = 8;  // grid points in each direction
  int64_t hidden = 128;                                      // units of the decoder
  int64_t samples = 64;      // samples on a ray; 0: the inputs are points instead of rays
  double near = 2, far = 6;  // distances of a ray's first and last sample from the ray's origin
  double init = 1e-3;        // standard deviation of the grids' initial values
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(GaPlanesConfig& config);
Status complete(GaPlanesConfig& config);
// Builds the graph. Its inputs are `batch` rays, `origins` and `directions` [batch, coordinate], or
// `batch` points, `points` [batch, coordinate], and `targets` [batch]. The loss is the mean of the
// squared errors.
Result<Graph> build_ga_planes(const GaPlanesConfig& config, int64_t batch);

}  // namespace tessera
