// Shared by the kinds that read their spatial dims through windows (convolution.cc, pooling.cc).
// Private to tessera/graph.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {

// The last dims of a tensor, each with the window through which it is read.
struct Windows {
  std::vector<Dim> spatial;     // dims of the tensor under the windows
  std::vector<Window> windows;  // one a spatial dim

  // Returns the dims that the windows make: (size + 2 padding - kernel) / stride + 1 positions
  // each.
  std::vector<Dim> positions() const;
  // Spells the dims in an annotation, for a tensor that is read through the windows. A window of
  // one element with stride 1 and no padding is not spelled.
  std::string spell_through(WindowUse use) const;
  std::string spell_plain() const;
  int64_t volume() const;  // elements of a window
};

// Reads one number for each of `count` dims, or one for all: "3 3", "3". Each is at least `least`.
Result<std::vector<int64_t>> window_numbers(const Operands& x, std::string_view attribute,
                                            size_t count, int64_t least);
// Reads stride and padding; checks that a window fits: 1 to 3 spatial dims, padding below kernel.
Result<Windows> read_windows(const Operands& x, std::vector<Dim> spatial,
                             const std::vector<int64_t>& kernel);

std::vector<Dim> join_dims(std::vector<Dim> lead, const std::vector<Dim>& rest);

}  // namespace tessera::kinds
