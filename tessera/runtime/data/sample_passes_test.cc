#include "tessera/runtime/data/sample_passes.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera {
namespace {

// For up to 40 samples and batches up to 20: each sample after the last whole batch stands in
// equally many places of the last steps, first in order, and the mean of losses that are means over
// a batch's places is the mean over the samples.
TEST(SamplePasses, EachSampleCountsOnce) {
  const auto loss_of = [](int64_t sample) { return 1.0 / static_cast<double>(3 + sample); };
  for (int64_t batch = 1; batch <= 20; ++batch) {
    for (int64_t samples = 1; samples <= 40; ++samples) {
      const SamplePasses passes(batch, samples);
      EXPECT_LE(passes.steps(), samples / batch + batch);
      std::vector<double> losses;
      std::map<int64_t, int64_t> places;  // of the steps behind the whole batches
      int64_t fresh = 0;
      for (int64_t step = 0; step < passes.steps(); ++step) {
        double loss = 0;
        for (int64_t i = 0; i < batch; ++i) {
          const int64_t sample = passes.sample(step * batch + i);
          ASSERT_TRUE(sample >= 0 && sample < samples);
          if (i < passes.fresh(step)) {
            EXPECT_EQ(sample, fresh);
            ++fresh;
          }
          if (step >= passes.whole_steps()) ++places[sample];
          loss += loss_of(sample) / static_cast<double>(batch);
        }
        losses.push_back(loss);
      }
      EXPECT_EQ(fresh, samples);
      EXPECT_EQ(static_cast<int64_t>(places.size()), samples % batch);
      for (const auto& [sample, count] : places) EXPECT_EQ(count, places.begin()->second);
      double expected = 0;
      for (int64_t i = 0; i < samples; ++i) expected += loss_of(i) / static_cast<double>(samples);
      EXPECT_NEAR(passes.mean(losses), expected, 1e-15) << batch << " of " << samples;
    }
  }
}

}  // namespace
}  // namespace tessera
