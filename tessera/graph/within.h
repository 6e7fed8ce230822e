// The place, in a larger tensor, of the piece that an op works on, for kinds whose result depends
// on where an element lies (dropout). As an attribute it is a text, "seq=16/64/1 batch=0/8/2", for
// each cut dim begin/whole/blocks: the part from `begin` on in each of `blocks` blocks of a dim of
// size `whole` (as even as possible, the first ones longer by one).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/graph/graph.h"

namespace tessera {

struct Within {
  std::string dim;
  int64_t begin = 0;  // in a block
  int64_t whole = 0;  // size of the larger tensor's dim
  int64_t blocks = 1;
  // Returns the place in the larger tensor of element `local` of the piece, whose dim has `size`.
  int64_t index(int64_t local, int64_t size) const;
  friend bool operator==(const Within&, const Within&) = default;
};

Result<std::vector<Within>> parse_within(std::string_view text);  // "": nothing is cut
std::string to_string(const std::vector<Within>& within);
// Checks that the text places a tensor of these dims in a larger one, with no blocks along its last
// dim.
Status check_within(std::string_view text, const Tensor& x);

}  // namespace tessera
