// Prices of one compute instruction on one device (docs/theory/cost-model.md section 3).
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

// An `OpWork` says how much an instruction does, independent of the device. Sizes are of the
// instruction's box, not of the op. Equal works cost the same.
struct OpWork {
  WorkClass kind = WorkClass::kElementwise;
  std::string_view op;            // name of the op kind in the op table; names the measured family
  DType dtype = DType::kFloat32;  // of the arithmetic
  double flops = 0;               // one multiply-add = 2
  double bytes_read = 0, bytes_written = 0;  // each operand once
  double batch = 1, m = 0, n = 0, k = 0;     // kMatmul, kConvolution
  double queries = 0, keys = 0, heads = 0, key_heads = 0,
         head_dim = 0;  // kAttention; batch as above
  // kAttention: share of the scores that the mask leaves. Scores on the diagonal count half, so
  // that the shares of an op's pieces add up to its flops.
  double visible = 1;
  bool backward = false;  // of the phase backward
  bool gradient = false;  // one kernel for the derivative of another kind (KindInfo::gradient)
  bool update = false;    // of the phase update
  bool block = false;     // of a numbered block of the model (Op::block)
  bool on_host = false;   // its operands lie in the host's memory: the host computes it
  bool grouped = false;   // kMatmul: the batch counts experts
  bool winograd = false;  // kConvolution: kernels of 3 x 3 at every position of a map
  bool view =
      false;  // kMove: the same bytes under other dims; a framework with views copies nothing
  std::string_view
      layout;  // kMatmul: "nn", "nt", "tn", "tt"; t: the second matrix dim is not the fast one
  double elements = 0;  // of the largest operand
  FamilyKey family;     // of measured kernels; empty if not asked for
  friend bool operator==(const OpWork&, const OpWork&) = default;
};
// Returns the work of an instruction; if `families`, with the key of its measured family, for
// machines with a profile.
OpWork work_of(const Graph& graph, const Program& program, const Compute& compute,
               bool families = false);

// Device memory that a style's kernels take for an op beside the operands. `saved_bytes` replace
// the op's statistics (the output KindInfo::statistics) and live as long as they do, from the
// forward op to its gradient; `workspace_bytes` live while the op runs.
struct OpScratch {
  int64_t saved_bytes = 0, workspace_bytes = 0;
};
OpScratch scratch_of(const OpWork& work, const Style& style);

struct OpCost {
  double kernel_s = 0;  // on the device: max(arithmetic, memory) + fixed part
  // Time to issue the op: device.host_issue_s a kernel and the style's host time, before the node's
  // host_slowness.
  double host_s = 0;
  double flops = 0, bytes_read = 0, bytes_written = 0;
  double unit_fraction = 1;    // share of the device's units that it fills
  double memory_fraction = 0;  // share of the memory rate that it uses while it runs
  int kernels = 1;             // 0: a view
  CostSource source = CostSource::kConstant;
  double uncertainty = 0;
};

// Prices work by the first that is there: measured entry, interpolation in a measured family, tile
// model, curve (section 3). Equal work is priced once (not thread-safe: one object a thread). The
// constants are the tables of cost/constants.h; docs/reference/costs.md explains them.
class OpCosts {
 public:
  // Makes the prices of one device. `profile` (may be null) must outlive this object;
  // `ranks_a_node` of its ranks work side by side in the measurements. `host_rate`: bytes a second
  // that the host moves for one rank where the work is on the host; 0: as fast as the device.
  OpCosts(const Device& device, const Style& style, const Profile* profile,
          int64_t ranks_a_node = 1, double host_rate = 0);
  ~OpCosts();
  OpCosts(OpCosts&&) noexcept;
  // Returns the cost of the work while communication kernels hold `occupied_units` of the device's
  // units: the tiles of a matrix product then go in more waves (section 5.1).
  OpCost cost(const OpWork& work, double occupied_units = 0) const;
  // Returns a lower bound on the total time of the pieces into which a plan cuts the work, whatever
  // their shapes: each piece reaches at most the rate of the best shape, all flops are done, and
  // each operand is moved once. Nothing where prices are measured: measured times follow no rule.
  std::optional<double> least_s(const OpWork& work) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
