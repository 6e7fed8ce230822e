// A gated DeltaNet (Yang et al., 2024, arXiv 2412.06464), as in blocks of Qwen 3 Next: linear attention
// whose state forgets, and is corrected by each token. Its ops stand below `ssm`, as those of state
// space blocks do: ssm.{q,k,v,z,beta,dt} (one product each), ssm.{q,k,v}_conv and _act, ssm.{q,k}_unit
// (vectors of length one), ssm.beta_act (sigmoid), ssm.dt_act (softplus), ssm.{a_exp,a,decay},
// ssm.scan, ssm.{norm,gate,gated} (an RMS norm of each head, times silu(z)), ssm.out. The dim heads
// counts the heads of queries and keys, and group the heads of values that use one of them.
#pragma once

#include "tessera/models/nn.h"

namespace tessera {

struct DeltaNetOptions {
  int64_t heads = 1, group = 1;
  int64_t key_dim = 1, value_dim = 1;  // widths of a head
  int64_t conv = 4;                    // tokens that the convolutions see
  LinearOptions in, out;               // of the products from hidden, and back to it
  double eps = 1e-6;                   // of the norm
  TensorId query_gain, key_gain;       // add_unit_gains()
};

// Adds the tables of constants with which norms make queries and keys of length one, and queries
// shorter by the root of their width. Must be called before the first block.
void add_unit_gains(GraphBuilder& g, DeltaNetOptions& options, DType dtype);
// Adds a DeltaNet of h [batch, seq, hidden]. Returns what it adds to the residual stream.
TensorId gated_delta_net(GraphBuilder& g, TensorId h, const DeltaNetOptions& options);

}  // namespace tessera
