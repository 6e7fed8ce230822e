// Implements Ranking::with_scopes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/search/choices/scoped_dims.h"
#include "tessera/search/constants.h"
#include "tessera/search/rank/ranking.h"

namespace tessera {

// Tries each scoped entry (scoped_dims.h) by itself, and then all entries together that save time,
// the best first. Together they mostly save more, because they concern different ops. Entries are
// not tried a second time on the result, which keeps the search short.
std::optional<DimList> Ranking::with_scopes(const PlanCandidate& start,
                                            std::optional<DimList> improved, const Space& space) {
  const ChoiceAxis& axis = start.choice.axes[1];
  // Returns the least seconds of a step with these dims that fits, or needs no more memory
  // than `start`.
  const auto step_s = [&](const DimList& dims) -> std::optional<double> {
    Inside inside;
    inside.axes = inner_axes(axis.size, dims);
    inside.sequences =
        question_.batch / start.choice.micro_batches / start.choice.axes.front().size;
    UnitQuestion asked{inside.axes, inside.sequences, start.choice.recompute};
    asked.halos = halos_;
    inside.by_kind = price_kinds(std::move(asked));
    if (inside.by_kind.empty()) return {};
    Choice choice = start.choice;
    choice.axes.own()[1].dims = dims;
    std::vector<PlanCandidate> ranked;
    rank_schedules(choice, space, inside, ranked);
    std::optional<double> out;
    for (const PlanCandidate& one : ranked) {
      const bool is_allowed =
          one.estimate.fits() || one.estimate.memory_bytes <= start.estimate.memory_bytes;
      if (is_allowed && (!out || one.estimate.step_s < *out)) out = one.estimate.step_s;
    }
    return out;
  };
  // Returns whether ops have a choice, that is, whether the list cuts otherwise than any single dim
  // of `start` would. `improved` may have no choice where the slower `start` has one.
  const auto has_choice = [&](const DimList& dims) {
    const std::string cuts = cuts_of(fold_.graph, {{axis.name, axis.size, dims}});
    return std::ranges::none_of(axis.dims, [&](const std::string& dim) {
      return cuts == cuts_of(fold_.graph, {{axis.name, axis.size, {dim}}});
    });
  };
  const DimList list = improved && has_choice(*improved) ? *improved : axis.dims;
  if (question_.progress)
    question_.progress(fmt::format("which dims parts of blocks cut: [{}]", join(list, ",")));
  const auto whole_s = step_s(list);
  const UsedDevices used = expected(question_, start.choice, start.estimate).used;
  const auto is_near = [&](double seconds) {
    return is_best(question_.objective.merit({seconds / (1 + kLittle), 0, used}));
  };
  if (!whole_s || !is_near(*whole_s)) return improved;
  std::vector<std::pair<double, DimList>> better;
  for (DimList& edited : scoped_edits(fold_.graph, {axis.name, axis.size, list})) {
    if (question_.stop && question_.stop()) break;
    if (!has_choice(edited)) continue;
    const auto edited_s = step_s(edited);
    if (edited_s && *edited_s <= kGain * *whole_s)
      better.emplace_back(*edited_s, std::move(edited));
  }
  if (better.empty()) return improved;
  std::stable_sort(better.begin(), better.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  DimList together;
  for (const auto& [edited_s, edited] : better) together.push_back(edited.front());
  together.insert(together.end(), list.begin(), list.end());
  if (better.size() > 1) {
    const auto together_s = step_s(together);
    if (together_s && *together_s < better.front().first)
      better.insert(better.begin(), {*together_s, std::move(together)});
  }
  if (better.front().first > kGain * *whole_s) return improved;
  return std::move(better.front().second);
}

}  // namespace tessera
