// A small convolutional network that learns from its own predictions of the step before: SMC with
// two channels (Zhao, Luo and Wang, 2023). Both channels deliver the same samples in the same
// order, each with its own random augmentation, and the second channel is a step ahead:
//   - `images_ahead` are the samples of the next step. Their logits are the soft labels of the next
//     step: the buffer `soft_labels` [batch, sample, classes] is replaced by them after each step.
//     This pass moves the running statistics of the batch norms and is not trained through.
//   - `images` are the samples of this step, for which the step before made soft labels q with the
//     weights that it had. If z are their logits, the loss of a sample in step t = 1, 2, .. of
//     `steps` is
//       (1 - a) CE(z, target) + a KL(softmax(q / tau) || softmax(z / tau)),
//     a = alpha (1 - (1 + cos(pi (t - 1) / steps)) / 2): 0 in the first step, which has no soft
//     labels yet. Evaluations have a = 0: their loss is the cross entropy.
// With alpha = 0 it is the plain network. Three blocks of convolution, batch norm, rectifier and
// pool of 2, then the mean of the map and a linear layer.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct SmcConfig {
  int64_t width =
      16;  // channels of the first convolution; the others have twice and four times as many
  int64_t image = 32, channels = 3, classes = 10;
  int64_t ghost = 128;  // images that share batch norm statistics; a smaller batch: all of it
  int64_t steps = 1000;
  double alpha = 0.9, tau = 1.5, running = 0.9, eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(SmcConfig& config);
Status complete(SmcConfig& config);
// Builds the graph for `batch` images, a multiple of `ghost` or below it.
Result<Graph> build_smc(const SmcConfig& config, int64_t batch);

}  // namespace tessera
