// Names and coordinates of measured kernels. By this one rule `tessera profile` files what it
// measures and the cost model looks it up (cluster/profile.h). A family holds instructions that
// differ in their sizes only.
//
//   "einsum.float32.nt.bias"   (batch, m, n, k)    layouts of the operands as BLAS sees them: n as
//                                                  written, t transposed; bias: its sum is in it
//   "conv.float32.k3x3s2x2"    (m, n, k)           of the implicit product; kernel and stride are
//                                                  left out where every element is its own window
//   "attention.float32.causal" (heads, queries, keys, head_dim)   heads: batch x heads x group
//   "attention.float32.causal.general" the same, with a bias, segments, a window or dropped weights
//   "layer_norm.float32"       (rows, width)       kinds that reduce or that keep a dim whole: of
//                                                  their largest operand, width its last dim
//   "reduce_sum.float32.rows"  (rows, width)       .rows: the last dim is summed over
//   "gelu.float32"             (bytes)             element-wise kinds: read and written
//   "adamw.float32"            (elements)          updates
//   "embedding_grad.float32"   (rows, width, vocab)
//   "copy.float32"             (bytes)             inside a tier; both sides
//
// The suffix ".add" marks an output that is added to. The suffix "@2", after it, says how many
// ranks of a node worked side by side during the measurement.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cluster/profile.h"
#include "tessera/program/program.h"

namespace tessera {

struct FamilyKey {
  std::string name;  // without "@ranks"
  std::vector<double> size;
  friend bool operator==(const FamilyKey&, const FamilyKey&) = default;
};
// Returns the family of an instruction as it runs in the first micro-batch. Empty name: there is
// nothing to do, and no cost.
FamilyKey family_of(const Graph& graph, const Program& program, const Compute& compute);
FamilyKey family_of(const Program& program, const Copy& copy);
// Returns the names of the coordinates of a family.
std::vector<std::string> size_names(const FamilyKey& key);

// Returns the names of the kinds of ops without a family in the profile: their times are the cost
// model's.
std::vector<std::string> unmeasured_kinds(const Profile& profile);

struct Measured {
  double seconds = 0;
  bool exact = false;      // a sample of these very sizes
  double uncertainty = 0;  // relative
};
// Returns the time of the sizes from the family's samples: the time of equal sizes, else a local
// log-log fit of the time a unit of work (product of the sizes) to the samples around, where nearer
// samples count more. Beyond the samples the fit is held at their border and the uncertainty grows.
Measured interpolate(const Family& family, const std::vector<double>& size);

// Returns the family for `ranks` ranks side by side: "name@ranks", else without ".add", else
// without ".bias", else of another number of ranks, the next larger one before smaller ones. A
// family of very few samples, none of them of these sizes, is returned only if no other is found.
// Null: no such family was measured.
const Family* find_family(const Profile& profile, std::string_view name, int64_t ranks,
                          const std::vector<double>& size = {});

}  // namespace tessera
