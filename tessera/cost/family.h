// Names and coordinates of measured kernels (cluster/profile.h). `tessera profile` stores its
// measurements under these names, and the cost model looks them up by the same names. The
// instructions of one family differ only in their sizes.
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
// The suffix ".add" says that the kernel adds to its output. After it, the suffix "@2" says that 2
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
  std::string name;  // name of the family without "@ranks"
  std::vector<double> size;
  friend bool operator==(const FamilyKey&, const FamilyKey&) = default;
};
// Returns the family of an instruction. The name is empty if the instruction has nothing to do, so
// that it costs nothing.
FamilyKey family_of(const Graph& graph, const Program& program, const Compute& compute);
FamilyKey family_of(const Program& program, const Copy& copy);
// Returns the names of the coordinates of a family.
std::vector<std::string> size_names(const FamilyKey& key);

// Returns the names of the kinds of ops for which the profile has no family, so that their times
// come from the cost model.
std::vector<std::string> unmeasured_kinds(const Profile& profile);

struct Measured {
  double seconds = 0;
  bool exact = false;      // whether a sample has exactly these sizes
  double uncertainty = 0;  // relative
};
// Returns the time of a kernel of these sizes from the samples of the family. If a sample has these
// sizes, it is the time of that sample. Else the time per unit of work (the product of the sizes)
// is fitted to the samples in the logarithms, where nearer samples have more weight. Outside the
// range of the samples, the value at the border of the range is used, and the uncertainty grows.
Measured interpolate(const Family& family, const std::vector<double>& size);

// Returns the family of this name for `ranks` ranks side by side, "name@ranks"; null if no similar
// family was measured. If there is none of exactly this name, a family with or without ".add" is
// taken, then one with or without ".bias", then one for another number of ranks: up to twice as
// many, then fewer. A family with very few samples, none of which has these sizes, is returned only
// if no other is found.
const Family* find_family(const Profile& profile, std::string_view name, int64_t ranks,
                          const std::vector<double>& size = {});

}  // namespace tessera
