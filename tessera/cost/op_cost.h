// What one compute instruction costs on one device (cost-model.md section 3).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/figure.h"
#include "tessera/cost/style.h"
#include "tessera/program/program.h"

namespace tessera {

// What kind of work an op is, for the cost model; the table in op_work.cc gives it for every op
// kind.
enum class WorkClass : uint8_t {
  kMatmul,       // batch x (m, n, k)
  kAttention,    // fused core, forward or backward
  kElementwise,  // passes over memory: activations, sums, dropout, casts
  kNorm,         // layer norm, RMS norm, softmax: rows
  kLoss,         // softmax cross entropy over the vocabulary
  kLookup,       // embedding rows; its gradient scatters
  kRouting,      // router, dispatch, combine of experts
  kOptimizer,    // update of parameters
  kMove,         // transposes, slices, joins: bytes only
};
std::string_view work_class_name(WorkClass work);

// How much an instruction does, independent of the device. Sizes are of the instruction's box, not
// of the op.
struct OpWork {
  WorkClass kind = WorkClass::kElementwise;
  DType dtype = DType::kFloat32;             // of the arithmetic
  double flops = 0;                          // one multiply-add = 2
  double bytes_read = 0, bytes_written = 0;  // each operand once
  double batch = 1, m = 0, n = 0, k = 0;     // kMatmul
  double queries = 0, keys = 0, heads = 0, key_heads = 0,
         head_dim = 0;  // kAttention; batch as above
  double visible = 1;   // kAttention: share of the scores that the mask leaves
  bool backward = false;
  double elements = 0;  // of the largest operand
};
OpWork work_of(const Graph& graph, const Program& program, const Compute& compute);

struct OpCost {
  double kernel_s = 0;  // on the device: max(arithmetic, memory) + fixed part
  double host_s = 0;    // to issue it
  double flops = 0, bytes_read = 0, bytes_written = 0;
  double unit_fraction = 1;    // share of the device's units that it fills
  double memory_fraction = 0;  // share of the memory rate that it uses while it runs
  int64_t workspace_bytes = 0;
  int kernels = 1;
  CostSource source = CostSource::kConstant;
  double uncertainty = 0;
};

// Look-up order: measured entry, interpolation in a measured family, tile model, curve (section 3).
// Equal work is priced once.
class OpCosts {
 public:
  OpCosts(const Device& device, const Style& style, const Profile* profile);
  ~OpCosts();
  OpCosts(OpCosts&&) noexcept;
  OpCost cost(const OpWork& work) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
