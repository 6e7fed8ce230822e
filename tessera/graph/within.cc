#include "tessera/graph/within.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/box.h"
#include "tessera/base/text.h"

namespace tessera {

int64_t Within::index(int64_t local, int64_t size) const {
  // `longer`: number of parts that have one element more
  const int64_t shortest = size / blocks, longer = size % blocks;
  const int64_t of_longer = longer * (shortest + 1);
  const int64_t block =
      local < of_longer ? local / (shortest + 1) : longer + (local - of_longer) / shortest;
  const Interval part = split_interval({0, size}, blocks, block);
  return split_interval({0, whole}, blocks, block).begin + begin + (local - part.begin);
}

Result<std::vector<Within>> parse_within(std::string_view text) {
  std::vector<Within> out;
  for (const std::string& item : split_text(text, ' ')) {
    if (item.empty()) continue;
    const auto expected = [&] {
      return invalid_input(
          fmt::format("expected dim=begin/whole/blocks in 'within', found '{}'", item));
    };
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) return expected();
    const std::vector<std::string> numbers = split_text(item.substr(equals + 1), '/');
    if (numbers.size() != 3) return expected();
    const auto begin = parse_int(numbers[0]), whole = parse_int(numbers[1]),
               blocks = parse_int(numbers[2]);
    if (!begin || !whole || !blocks || *begin < 0 || *blocks < 1) {
      return expected();
    }
    out.push_back({item.substr(0, equals), *begin, *whole, *blocks});
  }
  return out;
}

Status check_within(std::string_view text, const Tensor& x) {
  TESSERA_TRY(const std::vector<Within> within, parse_within(text));
  for (const Within& one : within) {
    const auto dim =
        std::find_if(x.dims.begin(), x.dims.end(), [&](const Dim& d) { return d.name == one.dim; });
    const int64_t size = dim == x.dims.end() ? 0 : dim->size;
    const bool last = size > 0 && dim + 1 == x.dims.end();
    // `begin` must leave room in every block of the whole. If the piece has more long blocks than
    // the whole, one of them lies in a short block of the whole, where there is room for one
    // element less.
    const int64_t part = size / one.blocks, room = one.whole / one.blocks - part;
    const bool longer = size % one.blocks > one.whole % one.blocks;
    if (size < 1 || one.begin > room - (longer ? 1 : 0) || (last && one.blocks > 1)) {
      return invalid_input(
          fmt::format("expected 'within' to place the input in a larger tensor (blocks not along "
                      "its last dim), found \"{}\" for {}",
                      text, describe(x)));
    }
  }
  return {};
}

std::string to_string(const std::vector<Within>& within) {
  std::string out;
  for (const Within& one : within) {
    out += fmt::format("{}{}={}/{}/{}", out.empty() ? "" : " ", one.dim, one.begin, one.whole,
                       one.blocks);
  }
  return out;
}

}  // namespace tessera
