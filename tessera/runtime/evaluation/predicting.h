// Computes the outputs of a model with given weights for samples: runs only the forward pass, for
// each sample of an array once, in the order of the array, or for all nodes of a graph. The weights
// do not depend on the shape of the samples. So models of one family that differ in the size of
// their images can use the same weights, each model with a program of its own.
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
  int64_t samples = 0;  // how many samples, from the first; at most as many as the arrays have;
                        // 0: all
  // The tensor to return, whose first dim is the batch; "": the output that the loss compares with
  // `targets`.
  std::string tensor = "";
  double timeout_s = 60;
  std::string beside = "";  // a folder in which relative file names are also looked up
};

struct Predictions {
  int64_t samples = 0;
  int64_t width = 0;            // elements of an output
  std::vector<double> outputs;  // by sample, each row-major, `width` numbers
  std::vector<double>
      targets;      // by sample, as many as the model has targets for a sample; empty: the model
                    // has none
  double loss = 0;  // the mean over the samples, each of which counts once (sample_passes.h)
  // For a model that gives each sample a class, if no other tensor is asked for: the share of
  // samples with the right class, among the samples whose target is not -1; NaN if there is no
  // such sample.
  std::optional<double> accuracy = std::nullopt;
  double seconds_a_sample = 0;  // time of the fastest batch over its samples
  double multiply_adds = 0;     // multiply-adds of a sample in matrix products and convolutions
};
// Computes the outputs. If the data are the nodes of a graph (data.nodes), all nodes are one batch
// and each node is a sample. Errors, one line each: a model without targets to compare an output
// with, a tensor that the model does not have or whose first dim is not the batch; data that is
// neither arrays nor nodes; weights that lack a parameter or have it in another shape.
Result<Predictions> predict(const PredictConfig& config);
// Computes the outputs of `model`; ignores config.model.
Result<Predictions> predict(const PredictConfig& config, Model model);

}  // namespace tessera
