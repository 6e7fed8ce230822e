#include "tessera/graph/repeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "tessera/graph/kinds.h"

namespace tessera {
namespace {

constexpr int64_t kOutside = -1;  // made by no forward op

// A repetition of blocks among the forward ops, one block directly after the other: block i begins
// at op `first` + i * length. The first block may also begin up to `slack` ops later.
struct Candidate {
  size_t first = 0, length = 0, count = 0, slack = 0;
  size_t covers() const { return length * count; }
};

class Finder {
 public:
  Finder(const Graph& graph, Sizes sizes) : graph_(graph), sizes_(sizes) {
    std::vector<int64_t> place(graph.tensors().size(), kOutside);
    for (const Op& op : graph.ops()) {
      if (op.phase != Phase::kForward) continue;
      std::vector<int64_t>& reads = reads_.emplace_back();
      for (const TensorId input : op.inputs) reads.push_back(place[input.index()]);
      for (const TensorId output : op.outputs)
        place[output.index()] = static_cast<int64_t>(ops_.size());
      alike_.push_back(number_of(op));
      ops_.push_back(op.id);
    }
    last_read_.resize(ops_.size(), 0);
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (const int64_t made : reads_[i]) {
        if (made != kOutside) last_read_[static_cast<size_t>(made)] = i;
      }
    }
  }

  std::vector<std::vector<OpId>> blocks() const {
    for (const Candidate& candidate : candidates()) {
      const std::optional<size_t> first = best_start(candidate);
      if (!first) continue;
      std::vector<std::vector<OpId>> out(candidate.count);
      for (size_t i = 0; i < candidate.covers(); ++i)
        out[i / candidate.length].push_back(ops_[*first + i]);
      return out;
    }
    return {};
  }

  BlockLayers layers_of(const std::vector<std::vector<OpId>>& blocks) const {
    const size_t length = blocks.front().size();
    const auto place = [&](OpId op) {
      return static_cast<size_t>(std::find(ops_.begin(), ops_.end(), op) - ops_.begin());
    };
    BlockLayers out{begins_of_layers(place(blocks[1].front()), length), {0}, {}};
    if (out.begins.size() == 1) return out;
    const auto layer = [&](size_t i) {
      const size_t end = i + 1 < out.begins.size() ? out.begins[i + 1] : length;
      return std::pair(out.begins[i], end - out.begins[i]);
    };
    const size_t first = place(blocks.front().front());
    const auto is_alike = [&](size_t at, std::pair<size_t, size_t> part) {
      const auto same = alike_.begin() + static_cast<std::ptrdiff_t>(first + part.first);
      return std::equal(same, same + static_cast<std::ptrdiff_t>(part.second),
                        alike_.begin() + static_cast<std::ptrdiff_t>(at));
    };
    int kinds = 1;
    for (size_t i = 1; i < out.begins.size(); ++i) {
      size_t same = 0;
      while (same < i && (layer(same).second != layer(i).second ||
                          !is_alike(first + out.begins[same], layer(i)))) {
        ++same;
      }
      out.kinds.push_back(same < i ? out.kinds[same] : kinds++);
    }
    const auto add = [&](size_t at, size_t i) {
      const auto from = ops_.begin() + static_cast<std::ptrdiff_t>(at);
      out.beside.push_back(
          {out.kinds[i], {from, from + static_cast<std::ptrdiff_t>(layer(i).second)}});
    };
    const auto any_layer = [&](const auto& is_here) {
      size_t i = 0;
      while (i < out.begins.size() && !is_here(layer(i))) ++i;
      return i;
    };
    for (size_t begin = first, i = 0; i < out.begins.size();) {
      i = any_layer([&](const auto& part) {
        return part.second <= begin && is_alike(begin - part.second, part);
      });
      if (i < out.begins.size()) add(begin -= layer(i).second, i);
    }
    for (size_t end = first + length * blocks.size(), i = 0; i < out.begins.size();) {
      i = any_layer([&](const auto& part) {
        return end + part.second <= ops_.size() && is_alike(end, part);
      });
      if (i == out.begins.size()) break;
      add(end, i);
      end += layer(i).second;
    }
    return out;
  }

 private:
  // Returns where the layers of the block begin that begins at op `begin`, as positions in it.
  std::vector<size_t> begins_of_layers(size_t begin, size_t length) const {
    const size_t least = crossing(begin);
    std::vector<size_t> cuts = {0};
    for (size_t i = 1; i < length; ++i) {
      if (crossing(begin + i) <= least) cuts.push_back(i);
    }
    cuts.push_back(length);
    std::map<std::vector<int>, std::vector<size_t>> pieces;  // the ends of equal pieces
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const auto from = alike_.begin() + static_cast<std::ptrdiff_t>(begin);
      pieces[{from + static_cast<std::ptrdiff_t>(cuts[c]),
              from + static_cast<std::ptrdiff_t>(cuts[c + 1])}]
          .push_back(cuts[c + 1]);
    }
    // If several pieces occur equally often, the one that comes last ends the layers.
    std::vector<size_t> ends;
    for (const auto& [ops, of_piece] : pieces) {
      if (std::pair(ends.size(), ends.empty() ? 0 : ends.back()) <
          std::pair(of_piece.size(), of_piece.back())) {
        ends = of_piece;
      }
    }
    if (ends.size() <= 2) return {0};
    ends.insert(ends.begin(), 0);
    if (ends.back() == length) ends.pop_back();
    return ends;
  }

  std::string dims_of(const Tensor& tensor) const {
    if (sizes_ == Sizes::kEqual) return describe(tensor.dims);
    std::string out;
    for (const Dim& dim : tensor.dims) out += dim.name + ' ';
    return out;
  }

  // Returns a number for the op. Ops that are equal, up to identity attributes, have the
  // same number.
  int number_of(const Op& op) {
    std::string text = op.kind;
    for (const auto& [name, value] : op.attributes) {
      const auto& known = info_of(op).attributes;
      const auto info = std::find_if(known.begin(), known.end(),
                                     [&](const AttributeInfo& one) { return one.name == name; });
      if (info != known.end() && info->identity) continue;
      text += fmt::format("|{}={}:", name, value.index());
      std::visit([&](const auto& content) { text += fmt::format("{}", content); }, value);
    }
    for (const auto* operands : {&op.inputs, &op.outputs}) {
      text += '>';
      for (const TensorId id : *operands) {
        const Tensor& tensor = graph_.tensor(id);
        text += fmt::format("{} {} {} {} {},", role_name(tensor.role), dims_of(tensor),
                            dtype_name(tensor.dtype), tensor.trained,
                            tensor.published.empty() ? "" : published_text(tensor));
      }
    }
    return numbers_.emplace(std::move(text), static_cast<int>(numbers_.size())).first->second;
  }

  // Returns the candidates, with those that cover most ops first.
  std::vector<Candidate> candidates() const {
    std::vector<Candidate> out;
    const size_t n = ops_.size();
    for (size_t length = 1; 2 * length <= n; ++length) {
      for (size_t i = 0; i + length < n; ++i) {
        size_t end = i;
        while (end + length < n && alike_[end] == alike_[end + length]) ++end;
        if (end - i >= length)
          out.push_back({i, length, (end - i) / length + 1, (end - i) % length});
        i = end;
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(b.covers(), a.length) < std::tuple(a.covers(), b.length);
    });
    return out;
  }

  // Returns whether the block that begins at `next` reads its tensors in the same way as the block
  // that begins at `begin`. If the first block reads a tensor that was made before it, a later
  // block may read the corresponding tensor of the block before that later block.
  bool reads_alike(size_t first, size_t begin, size_t next, size_t length) const {
    for (size_t k = 0; k < length; ++k) {
      for (size_t j = 0; j < reads_[begin + k].size(); ++j) {
        const int64_t one = reads_[begin + k][j], other = reads_[next + k][j];
        if (one == other && one < static_cast<int64_t>(first)) continue;
        if (one == kOutside || other == kOutside) return false;
        if (other - static_cast<int64_t>(next) == one - static_cast<int64_t>(begin)) continue;
        const bool enters = begin == first && one < static_cast<int64_t>(first) &&
                            other >= static_cast<int64_t>(begin) &&
                            other < static_cast<int64_t>(next);
        if (!enters) return false;
      }
    }
    return true;
  }

  bool repeats(size_t first, const Candidate& candidate) const {
    for (size_t b = 0; b + 1 < candidate.count; ++b) {
      const size_t begin = first + b * candidate.length;
      if (!reads_alike(first, begin, begin + candidate.length, candidate.length)) return false;
    }
    return true;
  }

  // Counts the tensors that are made before op `border` (the begin of the second block) and read at
  // `border` or later.
  size_t crossing(size_t border) const {
    size_t count = 0;
    for (size_t i = 0; i < border; ++i) count += last_read_[i] >= border ? 1 : 0;
    return count;
  }

  std::optional<size_t> best_start(const Candidate& candidate) const {
    std::optional<size_t> best;
    size_t fewest = 0;
    for (size_t first = candidate.first; first <= candidate.first + candidate.slack; ++first) {
      const size_t count = crossing(first + candidate.length);
      if ((best && count >= fewest) || !repeats(first, candidate)) continue;
      best = first;
      fewest = count;
    }
    return best;
  }

  const Graph& graph_;
  Sizes sizes_;
  std::vector<OpId> ops_;   // forward
  std::vector<int> alike_;  // for each op: its number_of
  // For each op: for each input the place of its producer in ops_.
  std::vector<std::vector<int64_t>> reads_;
  std::vector<size_t> last_read_;  // for each op: the place of the last reader of its outputs
  std::map<std::string, int> numbers_;
};

}  // namespace

std::vector<std::vector<OpId>> repeated_blocks(const Graph& graph, Sizes sizes) {
  return Finder(graph, sizes).blocks();
}

BlockLayers layers_of_blocks(const Graph& graph, const std::vector<std::vector<OpId>>& blocks) {
  return Finder(graph, Sizes::kEqual).layers_of(blocks);
}

}  // namespace tessera
