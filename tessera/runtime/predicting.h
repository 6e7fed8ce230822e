// Computes the outputs of a model with given weights for samples: the forward pass alone, of every
// sample of an array once, in the array's own order, or of all nodes of a graph. The weights do not
// depend on the shape of the samples: models of one family that differ in the size of their images
// use the same weights, each with a program of its own.
//
//   PredictConfig config{"resnet:layers=18,image=32", "checkpoints"};
//   config.data.arrays = {{"images", "x32.npy"}, {"targets", "y.npy"}};
//   TESSERA_TRY(const Predictions made, predict(config));
//   made.outputs[i * made.width + c];   // logit of class c of sample i
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/data/data_config.h"
#include "tessera/models/model.h"

namespace tessera {

struct PredictConfig {
  std::string model;
  std::string weights;  // a path for open_source (state/source.h): a file, a folder, a checkpoint
  DataConfig data = {};
  std::string plan = "serial";
  std::string precision = "float32";
  int64_t batch = 64;
  int64_t samples = 0;  // the first samples, at most those of the arrays; 0: all
  // The tensor to return, whose first dim is the batch; "": the output that the loss compares with
  // `targets`.
  std::string tensor = "";
  double timeout_s = 60;
  std::string beside = "";  // a folder: relative files may lie there too
};

struct Predictions {
  int64_t samples = 0;
  int64_t width = 0;            // elements of an output
  std::vector<double> outputs;  // by sample; what stands in front of its last dims, flat
  std::vector<double>
      targets;      // likewise, as many as the model has for a sample; empty: it has none
  double loss = 0;  // the mean over the samples, each of which counts once (sample_passes.h)
  // For a model that gives each sample a class, if no other tensor is asked for: the share that is
  // right among the samples whose target is not -1; NaN without any.
  std::optional<double> accuracy = std::nullopt;
  double seconds_a_sample = 0;  // that of the fastest batch
  double multiply_adds = 0;     // of a sample: products and convolutions
};
// Computes the outputs. The nodes of a graph (data.nodes) are one batch, and its nodes are the
// samples. Errors, one line each: a model without targets to compare an output with, a tensor that
// the model does not have or that is not of samples, data that is no array, weights that lack a
// parameter or have it in another shape.
Result<Predictions> predict(const PredictConfig& config);
// Computes the outputs of the model `model`; config.model is ignored.
Result<Predictions> predict(const PredictConfig& config, Model model);

}  // namespace tessera
