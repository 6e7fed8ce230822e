// A multi-layer perceptron that classifies rows, for small experiments and tests. Inputs: `x`
// [batch, in] and `targets` [batch]. Ops: layers.<i>.linear and layers.<i>.act for each hidden
// layer, head, loss.*. The output dim of hidden layer i is called `hidden` if i is even and `ffn`
// if i is odd, because an operand cannot have the same dim twice. So "ffn over tp" cuts each pair
// of layers as Megatron cuts an MLP.
#pragma once

#include <string>
#include <vector>

#include "tessera/graph/graph.h"
#include "tessera/models/config.h"

namespace tessera {

struct MlpConfig {
  int64_t in = 64, hidden = 256, out = 10, layers = 2;
  std::string activation = "relu";  // "gelu", "relu", "silu"
  DType dtype = DType::kFloat32;
};

std::vector<ModelKey> model_keys(MlpConfig& config);
Result<Graph> build_mlp(const MlpConfig& config, int64_t batch);

}  // namespace tessera
