// Predicts the cost of one compute instruction on one device (docs/theory/cost-model.md section 3).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cluster/cluster.h"
#include "tessera/cost/family.h"
#include "tessera/cost/figure.h"
#include "tessera/cost/style.h"
#include "tessera/graph/kinds.h"
#include "tessera/program/program.h"

namespace tessera {

std::string_view work_class_name(WorkClass work);

// An `OpWork` says how much work an instruction does, independently of the device. Sizes are
// those of the instruction's box and not of the whole op. Instructions with equal OpWorks have
// equal costs.
struct OpWork {
  WorkClass kind = WorkClass::kElementwise;
  std::string_view op;                       // name of the op kind in the op table
  DType dtype = DType::kFloat32;             // dtype of the arithmetic
  double flops = 0;                          // one multiply-add = 2
  double bytes_read = 0, bytes_written = 0;  // counts each operand once
  double batch = 1, m = 0, n = 0, k = 0;     // for kMatmul and kConvolution
  double queries = 0, keys = 0, heads = 0, key_heads = 0,
         head_dim = 0;  // for kAttention, with `batch`
  // For kAttention: the share of the scores that the mask leaves. Scores on the diagonal count
  // half, so that the flops of the pieces of an op add up to the flops of the op.
  double visible = 1;
  bool backward = false;  // the op is of the backward phase
  bool gradient = false;  // a kind that is the derivative of another kind (KindInfo::gradient)
  bool update = false;    // the op is of the update phase, or prepares parameters for it
  bool block = false;     // the op is in a block of the model (Op::block)
  bool on_host = false;   // an output is in host or disk memory, so the host computes
  bool grouped = false;   // for kMatmul: `batch` counts experts
  bool winograd = false;  // for kConvolution: kernels of 3 x 3 with stride 1
  bool view = false;      // for kMove: only the dims change; a framework with views copies nothing
  std::string_view layout;  // for kMatmul: "nn", "nt", "tn", "tt"; t: the operand is transposed
  double elements = 0;      // number of elements of the largest operand
  FamilyKey family;         // its measured family; empty if not asked for
  friend bool operator==(const OpWork&, const OpWork&) = default;
};
// Returns the work of an instruction. If `families`, also sets `family`, which is needed for
// machines with a profile.
OpWork work_of(const Graph& graph, const Program& program, const Compute& compute,
               bool families = false);

// An `OpScratch` is the device memory that the kernels of a style need for an op in addition to
// its operands. `saved_bytes` are kept from the forward op to its gradient, in place of the
// op's statistics (the output KindInfo::statistics). `workspace_bytes` are needed only while
// the op runs.
struct OpScratch {
  int64_t saved_bytes = 0, workspace_bytes = 0;
};
OpScratch scratch_of(const OpWork& work, const Style& style);

struct OpCost {
  double kernel_s = 0;  // time on the device: max(arithmetic, memory) + fixed part
  // Time of the host to issue the op: for each launch, device.host_issue_s and the style's host
  // time. The caller multiplies it by the node's host_slowness.
  double host_s = 0;
  // Number of launches, by the host or in the graph of a step. It may be below 1 (Style::kOps),
  // because fused neighbours share a launch, and so do many tensors of an update.
  double launches = 0;
  double flops = 0, bytes_read = 0, bytes_written = 0;
  double unit_fraction = 1;    // share of the device's units that it fills
  double memory_fraction = 0;  // share of the memory rate that it uses while it runs
  int kernels = 1;             // number of kernels; 0 for a view
  CostSource source = CostSource::kConstant;
  double uncertainty = 0;
};

// `OpCosts` predicts the costs of ops on one device (docs/theory/cost-model.md section 3). It uses
// a measurement of exactly this work, else an interpolation in a measured family, else the tile
// model (matrix products) or a curve. The constants are the tables of cost/constants.h, which
// docs/reference/costs.md explains. Costs are kept, so that equal work is computed only once; an
// object must therefore not be used by several threads.
class OpCosts {
 public:
  // Makes the costs of one device. `profile` may be null; else it must outlive this object, and
  // measurements with `ranks_a_node` ranks side by side are preferred. `host_rate`: bytes/s that
  // the host moves for one rank if the work is on the host; 0: as fast as the device.
  OpCosts(const Device& device, const Style& style, const Profile* profile,
          int64_t ranks_a_node = 1, double host_rate = 0);
  ~OpCosts();
  OpCosts(OpCosts&&) noexcept;
  // Returns the cost of the work while communication kernels use `occupied_units` of the device's
  // units. The tiles of a matrix product then run in more waves (section 5.1).
  OpCost cost(const OpWork& work, double occupied_units = 0) const;
  // Returns a lower bound on the sum of the times of all pieces into which any plan cuts the work.
  // It assumes that each piece reaches the rate of the best shape, that all flops are done, and
  // that each operand is moved once. Returns nothing if there is a profile, because measured times
  // follow no such rule.
  std::optional<double> least_s(const OpWork& work) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
