#include "tessera/state/shares.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace tessera {
namespace {

using Key = std::vector<std::pair<int64_t, int64_t>>;  // a box in a form that can be ordered
using Ranks = std::vector<size_t>;

struct Piece {
  size_t tensor;
  Box box;
  const Ranks* holders;
  int64_t bytes;
};

Key key_of(const Box& box) {
  Key key;
  for (const Interval& interval : box.dims) key.emplace_back(interval.begin, interval.size);
  return key;
}

// The distinct boxes of a tensor, each with the ranks that hold it, sorted by position.
using Holders = std::map<Key, std::pair<Box, Ranks>>;

bool are_disjoint(const Holders& boxes) {
  for (auto a = boxes.begin(); a != boxes.end(); ++a) {
    for (auto b = std::next(a); b != boxes.end(); ++b) {
      // Boxes are sorted by their begin along the first dim.
      if (!a->first.empty() && b->first[0].first >= a->second.first.dims[0].end()) break;
      if (!intersect(a->second.first, b->second.first).empty()) return false;
    }
  }
  return true;
}

// Cuts the boxes along the borders of all boxes. The result has cells that no border crosses, each
// with the ranks that hold it.
Holders cut_along_borders(const Holders& boxes) {
  const size_t rank = boxes.begin()->first.size();
  std::vector<std::set<int64_t>> borders(rank);
  for (const auto& [key, held] : boxes) {
    for (size_t d = 0; d < rank; ++d)
      borders[d].insert({held.first.dims[d].begin, held.first.dims[d].end()});
  }
  Holders cells;
  for (const auto& [key, held] : boxes) {
    std::vector<Box> cut{held.first};
    for (size_t d = 0; d < rank; ++d) {
      std::vector<Box> finer;
      for (const Box& box : cut) {
        Box rest = box;
        const auto first = borders[d].upper_bound(box.dims[d].begin);
        for (auto at = first; at != borders[d].end() && *at < box.dims[d].end(); ++at) {
          Box before = rest;
          before.dims[d].size = *at - rest.dims[d].begin;
          rest.dims[d] = {*at, box.dims[d].end() - *at};
          finer.push_back(std::move(before));
        }
        finer.push_back(std::move(rest));
      }
      cut = std::move(finer);
    }
    for (Box& box : cut) {
      auto& cell = cells.try_emplace(key_of(box), box, Ranks{}).first->second;
      cell.second.insert(cell.second.end(), held.second.begin(), held.second.end());
    }
  }
  for (auto& [key, cell] : cells) {
    Ranks& ranks = cell.second;
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  }
  return cells;
}

// Cuts a large piece into parts of at least `share_bytes`, at most one for each holder. The cut is
// along the first dim that has at least as many elements as there are parts, so that contiguous
// ranges of memory are long; if no dim has, along the longest dim.
void cut_evenly(const Piece& piece, int64_t share_bytes, std::vector<Piece>& out) {
  const auto most = static_cast<int64_t>(piece.holders->size());
  const int64_t parts = std::min(most, piece.bytes / std::max<int64_t>(1, share_bytes));
  const auto& dims = piece.box.dims;
  if (parts < 2 || piece.box.rank() == 0) {
    out.push_back(piece);
    return;
  }
  size_t along = 0;
  for (size_t d = 0; d < piece.box.rank() && dims[along].size < parts; ++d) {
    if (dims[d].size > dims[along].size) along = d;
  }
  const int64_t element = piece.bytes / piece.box.volume();
  for (int64_t part = 0; part < parts; ++part) {
    Piece one = piece;
    one.box.dims[along] = split_interval(dims[along], parts, part);
    if (one.box.empty()) continue;
    one.bytes = one.box.volume() * element;
    out.push_back(std::move(one));
  }
}

}  // namespace

std::vector<std::vector<HeldBox>> share_out(const std::vector<int64_t>& element_bytes,
                                            const std::vector<std::vector<HeldBox>>& held,
                                            int64_t share_bytes) {
  std::vector<Holders> tensors(element_bytes.size());
  for (size_t rank = 0; rank < held.size(); ++rank) {
    for (const HeldBox& one : held[rank]) {
      if (one.box.empty()) continue;
      Ranks& ranks =
          tensors[one.tensor].try_emplace(key_of(one.box), one.box, Ranks{}).first->second.second;
      if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
    }
  }
  std::vector<Piece> pieces;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    Holders& boxes = tensors[tensor];
    if (boxes.empty()) continue;
    if (!are_disjoint(boxes)) boxes = cut_along_borders(boxes);
    for (const auto& [key, cell] : boxes) {
      const auto& [box, ranks] = cell;
      cut_evenly({tensor, box, &ranks, box.volume() * element_bytes[tensor]}, share_bytes, pieces);
    }
  }
  // Pieces with one holder come first, because their writer cannot be chosen.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tuple(a.holders->size() > 1, -a.bytes) <
           std::tuple(b.holders->size() > 1, -b.bytes);
  });
  std::vector<int64_t> load(held.size(), 0);
  std::vector<std::vector<HeldBox>> shares(held.size());
  for (const Piece& piece : pieces) {
    const size_t writer = *std::min_element(piece.holders->begin(), piece.holders->end(),
                                            [&](size_t a, size_t b) { return load[a] < load[b]; });
    load[writer] += piece.bytes;
    shares[writer].push_back({piece.tensor, piece.box});
  }
  for (std::vector<HeldBox>& share : shares) {
    std::sort(share.begin(), share.end(), [](const HeldBox& a, const HeldBox& b) {
      return std::pair(a.tensor, key_of(a.box)) < std::pair(b.tensor, key_of(b.box));
    });
  }
  return shares;
}

}  // namespace tessera
