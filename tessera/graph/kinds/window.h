// Shared by the kinds that read their spatial dims through windows (convolution.cc, pooling.cc).
// Private to tessera/graph.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/kinds/common.h"

namespace tessera::kinds {

// The last dims of a tensor, each with the window through which the dim is read.
struct Windows {
  std::vector<Dim> spatial;     // dims of the tensor under the windows
  std::vector<Window> windows;  // one for each spatial dim

  // Returns the dims that count the windows. Along each dim there are (size + 2 padding - kernel) /
  // stride + 1 windows.
  std::vector<Dim> positions() const;
  // Spells the spatial dims in the annotation of a tensor that is read through the windows. For a
  // window of one element with stride 1 and no padding only the name is spelled.
  std::string spell_through(WindowUse use) const;
  std::string spell_plain() const;
  int64_t volume() const;  // number of elements of a window
};

// Reads an attribute with one number for each of `count` dims ("3 3"), or one number for all dims
// ("3"). Returns an error if a number is below `least`.
Result<std::vector<int64_t>> window_numbers(const Operands& x, std::string_view attribute,
                                            size_t count, int64_t least);
// Reads stride and padding, and checks that there are 1 to 3 spatial dims, that each padding is
// below the kernel, and that a window fits.
Result<Windows> read_windows(const Operands& x, std::vector<Dim> spatial,
                             const std::vector<int64_t>& kernel);

std::vector<Dim> join_dims(std::vector<Dim> lead, const std::vector<Dim>& rest);

}  // namespace tessera::kinds
