#include "tessera/planners/slicer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/search/rank/ranking.h"
#include "tessera/search/test_questions.h"

namespace tessera::slicer_test {
namespace {

constexpr int64_t kLength = 512;

struct Sliced {
  explicit Sliced(const std::string& model, const std::string& machine = "2080ti:4",
                  int64_t batch = 2)
      : asked(ask(model, machine, batch)),
        search(PlanSearch::begin(asked->question).value()),
        ranking(asked->question, search->fold(), search->pricer()) {}

  UnitQuestion uncut(int64_t sequences) const {
    UnitQuestion out;
    out.sequences = sequences;
    out.slice_dim = kSlicedDim;
    out.on = &ranking.estimator().kinds().cluster(0);
    return out;
  }

  std::unique_ptr<Asked> asked;
  std::unique_ptr<PlanSearch> search;
  mutable Ranking ranking;
};

const char* const kGpt = "gpt:layers=4,hidden=256,heads=4,seq=512,vocab=512";

TEST(Slicer, OnlyCausalSequencesAreSliced) {
  const Sliced causal(kGpt);
  EXPECT_EQ(sliced_length(causal.search->forward()).value(), kLength);
  const Sliced both_ways("bert:layers=2,hidden=64,heads=2,seq=64,vocab=128");
  EXPECT_FALSE(sliced_length(both_ways.search->forward()));
  const Sliced no_sequence("mlp:layers=2");
  const auto refused = sliced_length(no_sequence.search->forward());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "expected a model with the dim 'seq', found none");
}

TEST(Slicer, SchedulesOfSlicesHaveALikeOfWholeSequences) {
  EXPECT_STREQ(slice_schedule("token")->of_wholes, "gpipe");
  EXPECT_STREQ(slice_schedule("token_1f1b")->of_wholes, "1f1b");
  EXPECT_EQ(slice_schedule("1f1b"), nullptr);
}

// Where it was measured the table has the prices of the sliced program, and between them it is linear.
TEST(Slicer, TheTableHasWhatWasMeasuredAndIsLinearBetween) {
  const Sliced sliced(kGpt);
  const UnitQuestion asked = sliced.uncut(2);
  UnitPricer& pricer = sliced.search->pricer();
  const auto table = SliceTable::measure(pricer, asked, kLength, 32);
  ASSERT_TRUE(table) << table.error().message;
  UnitQuestion of_slices = asked;
  of_slices.slices = {32, 32, kLength - 3 * 32, 32};
  const UnitPrices& four = **pricer.price(of_slices);
  const UnitPrices& whole = **pricer.price(asked);
  for (size_t u = 0; u < whole.units.size(); ++u) {
    EXPECT_DOUBLE_EQ(table->seconds(u, kLength, 0),
                     whole.units[u].forward_s + whole.units[u].backward_s);
    EXPECT_DOUBLE_EQ(table->seconds(u, 32, 0), four.slice_s[0][u]);
    EXPECT_DOUBLE_EQ(table->seconds(u, 32, 32), four.slice_s[1][u]);
    EXPECT_DOUBLE_EQ(table->seconds(u, 32, kLength - 32), four.slice_s[3][u]);
    // In the middle of two numbers of tokens before it, and of two lengths (32 and 128).
    const double middle = (four.slice_s[1][u] + four.slice_s[3][u]) / 2;
    EXPECT_NEAR(table->seconds(u, 32, kLength / 2), middle, 1e-9 * middle);
    const double between = (table->seconds(u, 32, 0) + table->seconds(u, 128, 0)) / 2;
    EXPECT_NEAR(table->seconds(u, 80, 0), between, 1e-9 * between);
  }
  const std::vector<double> counts(whole.units.size(), 3);
  double sum = 0;
  for (size_t u = 0; u < counts.size(); ++u) sum += 3 * table->seconds(u, 64, 96);
  EXPECT_NEAR(table->seconds(counts, 64, 96), sum, 1e-12);
}

// A slicing that was not measured takes about as long as the table says.
TEST(Slicer, OtherSlicingsAreNearTheTable) {
  const Sliced sliced("gpt:layers=4,hidden=4096,heads=32,seq=1024,vocab=1024", "dgx-a100:1");
  UnitPricer& pricer = sliced.search->pricer();
  const SliceTable table = SliceTable::measure(pricer, sliced.uncut(2), 1024, 32).value();
  UnitQuestion asked = sliced.uncut(2);
  asked.slices = {512, 256, 192, 64};
  const UnitPrices& prices = **pricer.price(asked);
  double sum = 0, expected = 0;
  int64_t context = 0;
  for (size_t s = 0; s < asked.slices.size(); ++s) {
    for (size_t u = 0; u < prices.units.size(); ++u) {
      sum += table.seconds(u, asked.slices[s], context);
      expected += prices.slice_s[s][u];
    }
    context += asked.slices[s];
  }
  EXPECT_NEAR(sum / expected, 1, .1);
}

// If no number of slices is given, their lengths are those of the least step by the published program, whose
// formula differs from the estimate by less than 1 %.
TEST(Slicer, ChosenSlicesAreNoSlowerThanEqualOnes) {
  Sliced sliced("gpt:layers=4,hidden=1024,heads=8,seq=512,vocab=512");
  Slicer slicer(*sliced.search, sliced.ranking.estimator(), kLength);
  Choice pipeline;
  pipeline.axes = {{"dp", 1, {"batch"}}};
  pipeline.stages = 4;
  pipeline.micro_batches = 1;
  pipeline.schedule = "1f1b";
  const UnitQuestion asked = sliced.uncut(2);
  const UnitPrices& whole = **sliced.search->pricer().price(asked);
  const auto estimated = [&](int64_t count) {
    Choice choice = pipeline;
    Estimate out;
    EXPECT_TRUE(slicer.slice(choice, out, asked, whole, kSliceSchedules[0], count))
        << slicer.last_refusal();
    if (count > 1) {
      EXPECT_EQ(choice.slices, std::vector<int64_t>(static_cast<size_t>(count), kLength / count));
    }
    EXPECT_EQ(std::accumulate(choice.slices.begin(), choice.slices.end(), int64_t{0}),
              choice.sliced_stages ? kLength : 0);
    return out.step_s;
  };
  const double chosen = estimated(0);
  for (const int64_t count : {1, 2, 4, 8}) EXPECT_LE(chosen, estimated(count) * 1.01) << count;
  Choice choice = pipeline;
  Estimate estimate;
  EXPECT_FALSE(
      slicer.slice(choice, estimate, asked, whole, kSliceSchedules[0], 3));  // 512 / 3 is not whole
}

// A table that the first and the last stage read has a gradient from each slice, and these cross one by one.
// Without their messages the formula has a fifth of the step of eight slices.
TEST(Slicer, GradientsOfTiedParametersAreCountedOnceASlice) {
  Sliced sliced("gpt:layers=4,hidden=512,heads=8,seq=512,vocab=51200,tied=1");
  Slicer slicer(*sliced.search, sliced.ranking.estimator(), kLength);
  const Cluster& cluster = sliced.asked->cluster;
  Compiler compiler;
  const auto model =
      compiler.model(sliced.asked->question.model, sliced.asked->question.batch).value();
  for (const int64_t count : {2, 4, 8}) {
    Choice choice;
    choice.axes = {{"dp", 1, {"batch"}}};
    choice.stages = 4;
    choice.micro_batches = 1;
    choice.schedule = "1f1b";
    const UnitQuestion asked = sliced.uncut(2);
    Estimate estimate;
    ASSERT_TRUE(slicer.slice(choice, estimate, asked, **sliced.search->pricer().price(asked),
                             kSliceSchedules[0], count));
    slicer.measure(choice, estimate, asked);
    const auto plan = sliced.search->plan_of(choice);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto lowering = compiler.lower(forward_of(model), *plan);
    ASSERT_TRUE(lowering) << lowering.error().message;
    const double step_s =
        simulate(**lowering, cluster, sliced.asked->question.options)->step_time_s;
    EXPECT_NEAR(estimate.step_s, step_s, .22 * step_s) << count << " slices";
  }
}

}  // namespace
}  // namespace tessera::slicer_test
