#include "tessera/simulate/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "tessera/simulate/chrome_trace.h"

namespace tessera {
namespace {

struct SpanKey {
  int32_t rank = 0;
  BlockRef block;
  int64_t micro_batch = 0;
  int32_t instruction = 0;
  bool host = false;
  friend auto operator<=>(const SpanKey&, const SpanKey&) = default;
};
struct Piece {
  double seconds = 0;
  const TraceEvent* event = nullptr;  // the first event of the run of the instruction
};
using Pieces = std::map<SpanKey, Piece>;

Pieces pieces_of(const Simulation& trace) {
  Pieces out;
  for (const TraceEvent& event : trace.events) {
    Piece& piece = out[{event.rank, event.block, event.micro_batch, event.instruction,
                        event.lane == Lane::kHost}];
    piece.seconds += event.end_s - event.start_s;
    if (piece.event == nullptr) piece.event = &event;
  }
  return out;
}

std::string label(const Simulation& trace, int32_t index) {
  const auto i = static_cast<size_t>(index);
  return index >= 0 && i < trace.labels.size() ? trace.labels[i] : "";
}
std::string class_of(const Simulation& trace, const SpanKey& key, const Piece& piece) {
  return key.host ? "host" : label(trace, piece.event->what);
}

std::set<int32_t> ranks_of(const Simulation& trace) {
  std::set<int32_t> out;
  for (const TraceEvent& event : trace.events) out.insert(event.rank);
  return out;
}

std::vector<Unmatched> unmatched(const Simulation& trace, const Pieces& pieces,
                                 const Pieces& others, const std::set<int32_t>& ranks) {
  std::map<std::string, Unmatched> by_class;
  for (const auto& [key, piece] : pieces) {
    if (!ranks.contains(key.rank) || others.contains(key)) continue;
    const std::string what = class_of(trace, key, piece);
    Unmatched& found = by_class[what];
    if (found.events == 0) {
      found.what = what;
      found.example = fmt::format("rank {} {}", key.rank, instruction_id(*piece.event));
    }
    ++found.events;
    found.seconds += piece.seconds;
  }
  std::vector<Unmatched> out;
  for (auto& [what, found] : by_class) out.push_back(std::move(found));
  return out;
}

template <class T>
bool larger(const T& a, const T& b) {
  return std::abs(a.b_s - a.a_s) > std::abs(b.b_s - b.a_s);
}

}  // namespace

TraceDifference diff_traces(const Simulation& a, const Simulation& b, size_t worst) {
  TraceDifference out;
  out.a_step_s = a.step_time_s;
  out.b_step_s = b.step_time_s;
  const std::set<int32_t> a_ranks = ranks_of(a), b_ranks = ranks_of(b);
  std::set<int32_t> both;
  std::set_intersection(a_ranks.begin(), a_ranks.end(), b_ranks.begin(), b_ranks.end(),
                        std::inserter(both, both.end()));
  out.ranks.assign(both.begin(), both.end());
  std::set_difference(a_ranks.begin(), a_ranks.end(), both.begin(), both.end(),
                      std::back_inserter(out.only_a_ranks));
  std::set_difference(b_ranks.begin(), b_ranks.end(), both.begin(), both.end(),
                      std::back_inserter(out.only_b_ranks));

  const Pieces a_pieces = pieces_of(a), b_pieces = pieces_of(b);
  std::map<std::string, ClassDifference> classes;
  double total = 0;
  for (const auto& [key, piece] : a_pieces) {
    const auto it = b_pieces.find(key);
    if (it == b_pieces.end()) continue;
    const double before = piece.seconds, after = it->second.seconds;
    const std::string what = class_of(a, key, piece);
    ClassDifference& found = classes[what];
    found.what = what;
    ++found.events;
    found.a_s += before;
    found.b_s += after;
    const double longer = std::max(before, after);
    if (longer > 0) found.spread += std::abs(after - before) / longer;
    total += before;
    ++out.events;
    out.worst.push_back({key.rank, instruction_id(*piece.event), what, label(a, piece.event->label),
                         before, after});
  }
  for (auto& [what, found] : classes) {
    found.spread /= static_cast<double>(found.events);
    if (total > 0) found.share = found.a_s / total;
    if (a.step_time_s > 0) {
      found.rank_step = (found.b_s - found.a_s) / static_cast<double>(both.size()) / a.step_time_s;
    }
    out.classes.push_back(std::move(found));
  }
  std::stable_sort(out.classes.begin(), out.classes.end(), larger<ClassDifference>);
  std::stable_sort(out.worst.begin(), out.worst.end(), larger<InstructionDifference>);
  if (out.worst.size() > worst) out.worst.resize(worst);
  out.only_a = unmatched(a, a_pieces, b_pieces, both);
  out.only_b = unmatched(b, b_pieces, a_pieces, both);
  return out;
}

}  // namespace tessera
