#include "tessera/planners/unit_cuts.h"

#include <functional>

#include "tessera/planners/published/one_hot_cbc.h"
#include "tessera/search/test_questions.h"

namespace tessera::unit_cuts_test {
namespace {

const char* const kGpt = "gpt:layers=2,hidden=256,heads=4,seq=128,vocab=1024";

// Returns the cost of a row of units with these candidates, from the tables alone.
double cost_of(const UnitPrice& unit, const CutWeights& weights) {
  return unit.forward_s + unit.backward_s + weights.once * unit.once_s +
         weights.seconds_per_byte * unit.gradient_bytes;
}
double cost_of(const Fold& fold, const CutSet& set, size_t first, const std::vector<size_t>& chosen,
               const CutWeights& weights) {
  double out = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto stand_in = static_cast<size_t>(fold.units[first + i].stand_in);
    out += cost_of(set.cuts[chosen[i]].prices->units[stand_in], weights);
    if (i == 0) continue;
    const auto before = static_cast<size_t>(fold.units[first + i - 1].stand_in);
    out += set.change_s[before][chosen[i - 1]][chosen[i]];
  }
  return out;
}

TEST(UnitCuts, TheChainEqualsBruteForce) {
  for (const char* model : {kGpt, "mlp:layers=4"}) {
    const auto asked = ask(model, "dgx-v100:1", 8);
    const auto search = PlanSearch::begin(asked->question).value();
    const Fold& fold = search->fold();
    UnitCuts cuts(*search);
    std::vector<DimList> lists;
    for (const std::string& dim : dims_to_cut(fold.graph)) {
      if (lists.size() < 3) lists.push_back({dim});
    }
    cuts.set_lists(lists, {});
    const CutSet& set = cuts.candidates({1, 2}, 4, "none");
    ASSERT_GE(set.cuts.size(), 2U);
    for (const CutWeights weights : {CutWeights{0, 0}, CutWeights{.5, 1e-12}}) {
      for (size_t first = 0; first + 5 <= fold.units.size(); first += 3) {
        const size_t count = std::min<size_t>(6, fold.units.size() - first);
        const auto ranges = cuts.ranges(set, first, first + count, weights);
        ASSERT_EQ(ranges.size(), count + 1);
        double least = 1e300;
        std::vector<size_t> chosen(count);
        const std::function<void(size_t)> go = [&](size_t at) {
          if (at == count) {
            least = std::min(least, cost_of(fold, set, first, chosen, weights));
            return;
          }
          for (chosen[at] = 0; chosen[at] < set.cuts.size(); ++chosen[at]) go(at + 1);
        };
        go(0);
        EXPECT_NEAR(ranges.back().cost_s, least, 1e-9 * least) << model << " " << first;
        const auto found = cuts.chosen(set, first, first + count, weights);
        EXPECT_NEAR(cost_of(fold, set, first, found, weights), least, 1e-9 * least);
        EXPECT_EQ(ranges.back().units, count);
        // This also holds among two of the candidates.
        const std::vector<size_t> two = {0, set.cuts.size() - 1};
        double least_of_two = 1e300;
        for (size_t bits = 0; bits < (size_t{1} << count); ++bits) {
          for (size_t i = 0; i < count; ++i) chosen[i] = two[bits >> i & 1];
          least_of_two = std::min(least_of_two, cost_of(fold, set, first, chosen, weights));
        }
        const auto of_two = cuts.ranges(set, first, first + count, weights, two);
        EXPECT_NEAR(of_two.back().cost_s, least_of_two, 1e-9 * least_of_two);
      }
    }
  }
}

// Returns the question that `ranges` and `chosen` answer, as the integer program of the
// publication.
published::OneHotProblem chain_problem(const Fold& fold, const CutSet& set, size_t first,
                                       size_t last, const CutWeights& weights) {
  published::OneHotProblem out;
  for (size_t u = first; u < last; ++u) {
    auto& costs = out.nodes.emplace_back();
    for (const UnitCut& cut : set.cuts) {
      const auto stand_in = static_cast<size_t>(fold.units[u].stand_in);
      costs.push_back(cost_of(cut.prices->units[stand_in], weights));
    }
    if (u == first) continue;
    out.edges.push_back(
        {u - first - 1, u - first, set.change_s[static_cast<size_t>(fold.units[u - 1].stand_in)]});
  }
  return out;
}

// Compares the chain with programs that share no code with it: branch and bound, and CBC where it
// is built in. The ranges are longer than brute force can try.
TEST(UnitCuts, TheChainEqualsTheIntegerProgram) {
  const auto asked = ask("gpt:layers=12,hidden=256,heads=4,seq=128,vocab=1024", "dgx-v100:1", 8);
  const auto search = PlanSearch::begin(asked->question).value();
  UnitCuts cuts(*search);
  cuts.set_lists({{"batch"}, {"seq"}, {"heads", "ffn"}, {"vocab", "ffn"}}, {});
  const CutSet& set = cuts.candidates({1, 2}, 4, "none");
  ASSERT_EQ(set.cuts.size(), 4U);
  const size_t last = search->fold().units.size();
  for (const CutWeights weights : {CutWeights{0, 0}, CutWeights{1, 1e-11}}) {
    for (const size_t first : {size_t{0}, size_t{3}}) {
      const double chain = cuts.ranges(set, first, last, weights).back().cost_s;
      const auto problem = chain_problem(search->fold(), set, first, last, weights);
      EXPECT_NEAR(published::solve_one_hot(problem)->cost, chain, 1e-9 * chain);
      EXPECT_NEAR(published::cost_of(problem, cuts.chosen(set, first, last, weights)), chain,
                  1e-9 * chain);
      if (!published::cbc_available()) continue;
      const auto by_cbc = published::solve_one_hot_by_cbc(problem);
      ASSERT_TRUE(by_cbc.has_value() && by_cbc->has_value());
      EXPECT_NEAR((*by_cbc)->cost, chain, 1e-9 * chain);
    }
  }
}

TEST(UnitCuts, NoChangeCostsNothing) {
  const auto asked = ask(kGpt, "dgx-v100:1", 8);
  const auto search = PlanSearch::begin(asked->question).value();
  UnitCuts cuts(*search);
  cuts.set_lists({{"batch"}, {"seq"}, {"heads", "ffn"}}, {});
  const CutSet& set = cuts.candidates({1, 2}, 4, "none");
  ASSERT_EQ(set.cuts.size(), 3U);
  double most = 0;
  for (const auto& unit : set.change_s) {
    for (size_t from = 0; from < 3; ++from) {
      EXPECT_EQ(unit[from][from], 0);
      for (size_t to = 0; to < 3; ++to) most = std::max(most, unit[from][to]);
    }
  }
  EXPECT_GT(most, 0);
  // The batch does not divide one sequence, so that candidate is not offered there.
  EXPECT_EQ(cuts.candidates({1, 2}, 1, "none").cuts.size(), 2U);
  // One device has nothing to cut.
  EXPECT_EQ(cuts.candidates({1, 1}, 1, "none").cuts.size(), 1U);
}

TEST(UnitCuts, FindsListsThatCutATransformer) {
  const auto asked = ask("gpt:layers=4,hidden=1024,heads=16,seq=256,vocab=8192", "dgx-a100:1", 8);
  const auto search = PlanSearch::begin(asked->question).value();
  UnitCuts cuts(*search);
  cuts.find(2, false);
  ASSERT_FALSE(cuts.lists().empty());
  // None of the lists is slower than one device for the whole model.
  const double single =
      cuts.ranges(cuts.candidates({1, 1}, 2, "none"), 0, search->fold().units.size(), {})
          .back()
          .cost_s;
  EXPECT_LT(cuts.ranges(cuts.candidates({1, 2}, 2, "none"), 0, search->fold().units.size(), {})
                .back()
                .cost_s,
            single);
}

}  // namespace
}  // namespace tessera::unit_cuts_test
