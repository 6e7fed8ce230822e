// The place of the piece that an op works on in a larger tensor, for kinds whose result depends on
// the place of an element (dropout). The attribute `within` is a text, "seq=16/64/1 batch=0/8/2",
// with begin/whole/blocks for each cut dim. The larger tensor's dim has the size `whole` and
// consists of `blocks` blocks (as even as possible, the first ones longer by one); the piece has a
// part of each block, which starts `begin` elements after the start of the block.
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
  int64_t begin = 0;  // first element of the piece in each block
  int64_t whole = 0;  // size of the larger tensor's dim
  int64_t blocks = 1;
  // Returns the index in the larger tensor's dim of element `local` of the piece, whose dim
  // has `size`.
  int64_t index(int64_t local, int64_t size) const;
  friend bool operator==(const Within&, const Within&) = default;
};

Result<std::vector<Within>> parse_within(std::string_view text);  // "" means that nothing is cut
std::string to_string(const std::vector<Within>& within);
// Checks that the text places a tensor with the dims of x in a larger tensor, with only one block
// along the last dim.
Status check_within(std::string_view text, const Tensor& x);

}  // namespace tessera
