// A small convolutional network that learns from its own predictions of the previous step: SMC with
// two channels (Zhao, Luo and Wang, 2023). The two channels are two streams of data. Both deliver
// the same samples in the same order, each with its own random augmentation, and the second channel
// is one step ahead:
//   - `images_ahead` are the samples of the next step. Their logits are the soft labels of the next
//     step: after each step they replace the buffer `soft_labels` [batch, sample, classes]. The
//     pass over these images updates the running statistics of the batch norms. No gradient goes
//     through it.
//   - `images` are the samples of this step. The previous step made their soft labels q with the
//     weights of that step. Let z be the logits of `images`. In step t = 1, 2, .. of `steps` the
//     loss of a sample is
//       (1 - a) CE(z, target) + a KL(softmax(q / tau) || softmax(z / tau)),
//     with a = alpha (1 - (1 + cos(pi (t - 1) / steps)) / 2). a is 0 in the first step, which has
//     no soft labels yet, and in evaluations, whose loss is therefore the cross entropy.
// With alpha = 0 the network is trained in the plain way. It has three blocks of convolution, batch
// norm, rectifier and pool of 2, then the mean of the map and a linear layer.
#pragma once

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct SmcConfig {
  // Channels of the first convolution; the others have twice and four times as many.
  int64_t width = 16;
  int64_t image = 32, channels = 3, classes = 10;
  int64_t ghost = 128;  // images that share batch norm statistics; a batch below it is one group
  int64_t steps = 1000;
  double alpha = 0.9, tau = 1.5, running = 0.9, eps = 1e-5;
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(SmcConfig& config);
Status complete(SmcConfig& config);
// Builds the graph for `batch` images. `batch` is a multiple of `ghost`, or below `ghost`.
Result<Graph> build_smc(const SmcConfig& config, int64_t batch);

}  // namespace tessera
