// Implements Ranking::edits, which returns choices that differ from a simulated one in one setting
// (a border, the number of chunks, halos, recomputation of some units, transfers). A local search
// simulates the best of these edits next.
#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#include "tessera/search/choices/halo_choices.h"
#include "tessera/search/constants.h"
#include "tessera/search/edits/transfer_choices.h"
#include "tessera/search/question/question.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {
namespace {

// Returns the choices in which one border between two stages is moved by a few units, in
// either direction.
std::vector<Choice> border_edits(const Choice& from, size_t units) {
  std::vector<Choice> out;
  for (size_t s = 1; s < from.cuts.size(); ++s) {
    const size_t end = s + 1 < from.cuts.size() ? from.cuts[s + 1] : units;
    for (size_t by = 1; by <= kFew; ++by) {
      Choice edit = from;
      if (from.cuts[s] + by < end) {
        edit.cuts.set(s, from.cuts[s] + by);
        out.push_back(edit);
      }
      if (from.cuts[s] > from.cuts[s - 1] + by) {
        edit.cuts.set(s, from.cuts[s] - by);
        out.push_back(edit);
      }
    }
  }
  return out;
}

// Returns other numbers of chunks to try if the choice has several: one more, one less, 1.5 times
// and twice as many.
std::vector<int64_t> other_chunks(const Choice& from, size_t units) {
  std::vector<int64_t> out;
  if (from.chunks == 1) return out;
  const int64_t most = static_cast<int64_t>(units) / from.stages;
  for (const int64_t chunks :
       {from.chunks - 1, from.chunks + 1, 3 * from.chunks / 2, 2 * from.chunks}) {
    const bool is_known = std::find(out.begin(), out.end(), chunks) != out.end();
    if (chunks > 1 && chunks <= most && chunks != from.chunks && !is_known) out.push_back(chunks);
  }
  return out;
}

// Returns the choices in which the last 1, 2, 4, ... units of a stage are recomputed by one level
// more or less.
std::vector<Choice> recompute_edits(const Choice& from, const std::vector<FoldUnit>& units,
                                    const std::vector<std::string>& levels) {
  std::vector<Choice> out;
  for (size_t s = 0; s < std::max<size_t>(from.cuts.size(), 1); ++s) {
    const size_t end = s + 1 < from.cuts.size() ? from.cuts[s + 1] : units.size();
    const size_t begin = from.cuts.empty() ? 0 : from.cuts[s];
    for (const int step : {-1, 1}) {
      Choice edit = from;
      size_t changed = 0;
      for (size_t u = end; u-- > begin;) {
        const std::string& now =
            from.units.empty() ? from.recompute : from.units[u].recompute.value_or(from.recompute);
        const auto level = std::find(levels.begin(), levels.end(), now);
        if (level == levels.end() || units[u].run < 0) continue;
        const auto next = level - levels.begin() + step;
        if (next < 0 || next >= std::ssize(levels)) continue;
        edit.units.own().resize(units.size());
        edit.units.own()[u].recompute = levels[static_cast<size_t>(next)];
        if (std::has_single_bit(++changed)) out.push_back(edit);
      }
    }
  }
  return out;
}

}  // namespace

std::vector<PlanCandidate> Ranking::edits(const PlanCandidate& candidate, const Space& space) {
  std::vector<PlanCandidate> out;
  const Choice& from = candidate.choice;
  if (space.own_lists && !is_small_) out = transfer_edits(candidate, question_);
  if (!space.own_units) return out;
  estimator_.play_schedules(plays_);
  struct Kind {
    Mechanism mechanism;
    std::function<std::vector<Choice>()> edits;
  };
  const std::vector<Kind> kinds = {
      {Mechanism::kBorders, [&] { return border_edits(from, fold_.units.size()); }},
      {Mechanism::kChunks, [&] { return chunk_edits(from); }},
      {Mechanism::kHalos,
       [&] { return halo_edits(from, fold_.graph, fold_.units.size(), question_); }},
      {Mechanism::kUnitRecompute, [&]() -> std::vector<Choice> {
         const ScheduleFacts* facts = estimator_.schedule_of(from);
         if (question_.fixed.contains("recompute") || (facts != nullptr && facts->splits_backward))
           return {};
         return recompute_edits(from, fold_.units, space.recompute);
       }}};
  for (const Kind& kind : kinds) {
    if (!question_.uses(kind.mechanism)) continue;
    for (Choice& choice : kind.edits()) {
      PlanCandidate edit;
      edit.choice = std::move(choice);
      if (estimate_own(edit)) out.push_back(std::move(edit));
    }
  }
  estimator_.play_schedules(false);
  return out;
}

std::vector<Choice> Ranking::chunk_edits(const Choice& from) {
  std::vector<Choice> out;
  for (const int64_t chunks : other_chunks(from, fold_.units.size())) {
    if (!allows(question_, "chunks", chunks)) continue;
    // The stages are balanced anew, whatever single units do.
    Choice edit = from;
    edit.chunks = chunks;
    if (estimator_.schedule_of(edit) == nullptr) continue;
    const UnitQuestion asked = unit_question(edit, question_.batch);
    const auto by_kind = price_kinds(asked);
    if (by_kind.empty()) continue;
    estimator_.estimate(edit, by_kind, asked.sequences);
    out.push_back(std::move(edit));
  }
  return out;
}

}  // namespace tessera
