#include "tessera/data/click_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tessera/data/click_metrics.h"
#include "tessera/data/test_files.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

const std::string kReuse = std::string(TESSERA_SOURCE_DIR) + "/data/dlrm/locality_stats.txt";

TEST(ReuseLawTest, LookUpsHaveThePublishedHistograms) {
  const auto sections = read_reuse(kReuse);
  ASSERT_TRUE(sections) << sections.error().message;
  ASSERT_EQ(sections->size(), 17U);
  for (const size_t section : {0U, 1U}) {
    const ReuseHistogram& published = (*sections)[section];
    const ReuseLaw law = ReuseLaw::fit(published);
    constexpr int64_t kRows = 400'000;
    const RowDraw draw(law, kRows);
    double lookups_a_row = 0;
    for (const ReuseLaw::Class& one : law.classes) lookups_a_row += one.share * one.lookups;
    const auto lookups = static_cast<int64_t>(lookups_a_row * kRows);  // of one batch
    std::vector<int64_t> counts(kRows);
    for (int64_t i = 0; i < lookups; ++i) {
      ++counts[static_cast<size_t>(draw({3, 4}, static_cast<uint64_t>(i)))];
    }
    std::vector<double> rows(published.edges.size()), ids(published.edges.size());
    double used = 0;
    for (const int64_t count : counts) {
      if (count == 0) continue;
      size_t bin = 0;
      while (bin + 1 < published.edges.size() &&
             static_cast<double>(count) > published.edges[bin + 1]) {
        ++bin;
      }
      rows[bin] += 1;
      ids[bin] += static_cast<double>(count);
      used += 1;
    }
    for (size_t bin = 0; bin < rows.size(); ++bin) {
      EXPECT_NEAR(rows[bin] / used, published.rows_share[bin], 0.006) << section << ", " << bin;
      EXPECT_NEAR(ids[bin] / static_cast<double>(lookups), published.lookups_share[bin], 0.02)
          << section << ", " << bin;
    }
    EXPECT_NEAR(static_cast<double>(lookups) / used, published.lookups / published.rows, 0.2);
  }
}

TEST(ReuseLawTest, WrongFilesAreOneLine) {
  const auto error = [](std::string_view text) {
    return parse_reuse(text, "s.txt").error().message;
  };
  EXPECT_EQ(error(""), "s.txt:0: expected the name of a data set, NAME.pt, found ''");
  EXPECT_EQ(error("a.pt\nhello\n"), "s.txt:2: expected a line of statistics, found 'hello'");
  EXPECT_EQ(error("a.pt\nHistogram of col sizes:\n(0, x]: 1\n"),
            "s.txt:3: expected '(LO, HI]: SHARE', found '(0, x]: 1'");
  EXPECT_EQ(error("a.pt\nAvg # of indices: none\n"),
            "s.txt:2: expected a number from 1, found 'Avg # of indices: none'");
  EXPECT_EQ(error("a.pt\nHistogram of col sizes:\n(0, 1]: 1\n"),
            "s.txt:3: expected two histograms of the same bins and the numbers of indices and "
            "unique cols, found 'a.pt'");
}

ClickOptions some_options() {
  ClickOptions options;
  options.dense = 4;
  options.features = {{{"a", 50, 1}, 1.05, std::nullopt, false},
                      {{"b", 1000, 4}, 0.8, std::nullopt, true}};
  return options;
}

TEST(ClickGeneratorTest, ASampleIsAFunctionOfTheSeedAndItsNumber) {
  const ClickGenerator one(some_options()), two(some_options());
  ClickOptions other = some_options();
  other.seed = 2;
  const ClickGenerator three(other);
  int equal = 0;
  for (const int64_t i : {99, 3, 0}) {
    const auto a = one.sample(i), b = two.sample(i), c = three.sample(i);
    EXPECT_EQ(a.dense, b.dense);
    EXPECT_EQ(a.bags, b.bags);
    EXPECT_EQ(a.clicked, b.clicked);
    EXPECT_EQ(a.logit, b.logit);
    equal += a.dense == c.dense ? 1 : 0;
  }
  EXPECT_EQ(equal, 0);
}

TEST(ClickGeneratorTest, BagsAndIdsAreAsAsked) {
  const ClickGenerator generator(some_options());
  std::map<size_t, int> lengths;
  std::vector<int> counts(50);
  constexpr int kSamples = 20'000;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto sample = generator.sample(i);
    ASSERT_EQ(sample.bags[0].size(), 1U);
    ++counts[sample.bags[0][0]];
    ++lengths[sample.bags[1].size()];
    for (const uint32_t id : sample.bags[1]) ASSERT_LT(id, 1000U);
  }
  ASSERT_EQ(lengths.size(), 5U);  // 0 to 4
  for (const auto& [length, count] : lengths) EXPECT_NEAR(count, kSamples / 5, 6 * 57) << length;
  // Zipf's law holds for any order of the rows: the most frequent row has the share 1 / sum
  // k^-1.05.
  double sum = 0;
  for (int k = 1; k <= 50; ++k) sum += std::pow(k, -1.05);
  std::sort(counts.rbegin(), counts.rend());
  EXPECT_NEAR(counts[0], kSamples / sum, 6 * std::sqrt(kSamples / sum));
  EXPECT_NEAR(counts[9], kSamples / sum * std::pow(10, -1.05), 6 * 25);
}

using GeneratedFiles = TestFiles;

// Logistic regression on the features of the planted weights would reach this entropy. The planted
// model's own is well below 1, and every label comes from that model.
TEST_F(GeneratedFiles, LabelsFollowThePlantedModel) {
  const ClickOptions options = some_options();
  const auto made = generate_clicks(options, 0, 20'000, path("a.clicks"));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_LT(made->normalized_entropy, 0.85);
  EXPECT_GT(made->normalized_entropy, 0.4);
  const auto file = ClickFile::open(path("a.clicks"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->samples(), 20'000);
  EXPECT_EQ(file->clicks(), made->clicks);
  // The file is calibrated: it has as many clicks as the probabilities say.
  const ClickGenerator generator(options);
  double expected = 0, variance = 0;
  for (int64_t i = 0; i < file->samples(); ++i) {
    const auto sample = generator.sample(i);
    const double p = 1 / (1 + std::exp(-sample.logit));
    expected += p;
    variance += p * (1 - p);
    ASSERT_EQ(file->label(i), sample.clicked ? 1 : 0);
    const auto bag = file->bag(1, i);
    ASSERT_EQ(std::vector<uint32_t>(bag.begin(), bag.end()), sample.bags[1]);
  }
  EXPECT_NEAR(static_cast<double>(made->clicks), expected, 5 * std::sqrt(variance));
}

TEST_F(GeneratedFiles, MayBeginAtAnySample) {
  ASSERT_TRUE(generate_clicks(some_options(), 0, 12, path("all.clicks")));
  ASSERT_TRUE(generate_clicks(some_options(), 5, 7, path("rest.clicks")));
  const auto all = ClickFile::open(path("all.clicks")), rest = ClickFile::open(path("rest.clicks"));
  ASSERT_TRUE(all && rest);
  ASSERT_EQ(rest->samples(), 7);
  ClickBatch of_all, of_rest;
  all->read(std::vector<int64_t>{5, 6, 7, 8, 9, 10, 11}, of_all);
  rest->read(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}, of_rest);
  EXPECT_EQ(of_all, of_rest);
}

}  // namespace
}  // namespace tessera
