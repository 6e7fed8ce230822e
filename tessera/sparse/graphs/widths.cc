#include "tessera/sparse/graphs/widths.h"

#include <fmt/format.h>

#include <optional>

namespace tessera::sparse {

Result<WidthChoice> choose_widths(int64_t layers, const std::vector<int64_t>& candidates,
                                  const std::function<double(const std::vector<int64_t>&)>& quality,
                                  const std::function<double(int64_t layer, int64_t width)>& cost,
                                  double least) {
  bool ascending = !candidates.empty() && candidates.front() > 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    ascending = ascending && candidates[i] > candidates[i - 1];
  }
  if (layers < 1 || !ascending) {
    return invalid_input(
        fmt::format("expected layers and widths above 0 that ascend, found {} layers and {} widths",
                    layers, candidates.size()));
  }
  std::vector<size_t> at(static_cast<size_t>(layers), candidates.size() - 1);
  WidthChoice choice;
  choice.widths.assign(static_cast<size_t>(layers), candidates.back());
  choice.quality = quality(choice.widths);
  choice.asked = 1;
  if (!(choice.quality >= least)) {
    return check_failed(fmt::format("expected a quality of at least {} at width {}, found {}",
                                    least, candidates.back(), choice.quality));
  }
  struct Step {
    size_t layer;
    double saved, quality;
  };
  while (true) {
    std::optional<Step> best;
    for (size_t layer = 0; layer < at.size(); ++layer) {
      if (at[layer] == 0) continue;
      const int64_t now = candidates[at[layer]];
      const int64_t smaller = candidates[at[layer] - 1];
      std::vector<int64_t> tried = choice.widths;
      tried[layer] = smaller;
      const int64_t number = static_cast<int64_t>(layer);
      const Step step{layer, cost(number, now) - cost(number, smaller), quality(tried)};
      ++choice.asked;
      if (!(step.quality >= least)) continue;
      if (!best || step.saved > best->saved ||
          (step.saved == best->saved && step.quality > best->quality)) {
        best = step;
      }
    }
    if (!best) break;
    --at[best->layer];
    choice.widths[best->layer] = candidates[at[best->layer]];
    choice.quality = best->quality;
  }
  for (size_t layer = 0; layer < at.size(); ++layer) {
    choice.cost += cost(static_cast<int64_t>(layer), choice.widths[layer]);
  }
  return choice;
}

}  // namespace tessera::sparse
