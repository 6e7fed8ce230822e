#include "tessera/data/click_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "tessera/data/test_files.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ClickSchema kSchema{2, {{"ads", 10, 3}, {"pages", 4, 1}}};

class ClickFiles : public TestFiles {
 protected:
  struct Sample {
    bool clicked;
    std::vector<float> dense;
    std::vector<std::vector<uint32_t>> bags;
  };
  static const std::vector<Sample>& three() {
    static const std::vector<Sample> kThree = {{true, {0.5F, -1}, {{7, 7, 1}, {3}}},
                                               {false, {0, 2}, {{}, {}}},
                                               {true, {1, 1}, {{9}, {0}}}};
    return kThree;
  }
  std::string write_clicks(const ClickSchema& schema, const std::vector<Sample>& samples) {
    auto writer = ClickWriter::create(path("a.clicks"), schema);
    EXPECT_TRUE(writer) << writer.error().message;
    for (const Sample& sample : samples) {
      EXPECT_TRUE(writer->add(sample.clicked, sample.dense, sample.bags));
    }
    EXPECT_TRUE(writer->close());
    return path("a.clicks");
  }
  static std::string content(const std::string& path) { return *read_file(path); }
  // Returns the error of open() for the file of three() with bytes replaced.
  std::string error_with(size_t at, const std::string& bytes) {
    std::string file = content(write_clicks(kSchema, three()));
    file.replace(at, bytes.size(), bytes);
    return error_of(file);
  }
  std::string error_of(const std::string& file) {
    const auto opened = ClickFile::open(write("b.clicks", file));
    const std::string message = opened ? "" : opened.error().message;
    const std::string name = "'" + path("b.clicks") + "': ";
    return message.starts_with(name) ? message.substr(name.size()) : message;
  }
};

TEST_F(ClickFiles, GiveBackWhatWasWrittenInBothForms) {
  const auto file = ClickFile::open(write_clicks(kSchema, three()));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->schema(), kSchema);
  EXPECT_EQ(file->samples(), 3);
  EXPECT_EQ(file->clicks(), 2);
  EXPECT_EQ(file->ids(0), 4);
  EXPECT_EQ(file->ids(1), 2);
  EXPECT_EQ(file->label(1), 0);
  EXPECT_THAT(file->dense(0), ElementsAre(0.5F, -1));
  EXPECT_THAT(file->bag(0, 2), ElementsAre(9));
  ClickBatch batch;
  file->read(std::vector<int64_t>{2, 0, 1}, batch);
  EXPECT_THAT(batch.labels, ElementsAre(1, 1, 0));
  EXPECT_THAT(batch.dense, ElementsAre(1, 1, 0.5F, -1, 0, 2));
  EXPECT_THAT(batch.bags[0].lengths, ElementsAre(1, 3, 0));
  EXPECT_THAT(batch.bags[0].ids, ElementsAre(9, 7, 7, 1));
  EXPECT_THAT(padded(batch.bags[0], 3), ElementsAre(9, -1, -1, 7, 7, 1, -1, -1, -1));
  EXPECT_THAT(padded(batch.bags[1], 2), ElementsAre(0, -1, 3, -1, -1, -1));
}

TEST_F(ClickFiles, WithoutSamplesFeaturesOrNumbersAreFiles) {
  for (const ClickSchema& schema :
       {kSchema, ClickSchema{3, {}}, ClickSchema{0, {{"one", 1, 65535}}}}) {
    const auto file = ClickFile::open(write_clicks(schema, {}));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->schema(), schema);
    EXPECT_EQ(file->samples(), 0);
  }
}

RC_GTEST_FIXTURE_PROP(ClickFiles, EqualTheirSamplesOverManyBlocks, ()) {
  ClickSchema schema{*rc::gen::inRange<int64_t>(0, 4), {}};
  const auto features = *rc::gen::inRange(schema.dense == 0 ? 1 : 0, 4);
  for (int f = 0; f < features; ++f) {
    schema.features.push_back({"f" + std::to_string(f), *rc::gen::inRange<int64_t>(1, 50),
                               *rc::gen::inRange<int64_t>(1, 6)});
  }
  const auto count = *rc::gen::resize(100, rc::gen::inRange(0, 800));
  std::vector<Sample> samples;
  uint32_t next = *rc::gen::inRange<uint32_t>(1, 1000);
  const auto below = [&](int64_t end) {
    next = next * 1664525 + 1013904223;
    return static_cast<uint32_t>((next >> 8) % end);
  };
  for (int i = 0; i < count; ++i) {
    Sample sample{below(2) == 1, {}, {}};
    for (int64_t k = 0; k < schema.dense; ++k) sample.dense.push_back(static_cast<float>(below(9)));
    for (const ClickFeature& feature : schema.features) {
      auto& bag = sample.bags.emplace_back(below(feature.bag + 1));
      for (uint32_t& id : bag) id = below(feature.rows);
    }
    samples.push_back(std::move(sample));
  }
  const auto file = ClickFile::open(write_clicks(schema, samples));
  RC_ASSERT(file.has_value());
  RC_ASSERT(file->samples() == count);
  ClickBatch batch;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(i * 7919 % count);
  file->read(order, batch);
  std::vector<size_t> at(schema.features.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Sample& sample = samples[static_cast<size_t>(order[i])];
    RC_ASSERT(batch.labels[i] == (sample.clicked ? 1 : 0));
    for (size_t k = 0; k < sample.dense.size(); ++k) {
      RC_ASSERT(batch.dense[i * sample.dense.size() + k] == sample.dense[k]);
    }
    for (size_t f = 0; f < sample.bags.size(); ++f) {
      const auto bag = file->bag(f, order[i]);
      RC_ASSERT(std::vector<uint32_t>(bag.begin(), bag.end()) == sample.bags[f]);
      RC_ASSERT(batch.bags[f].lengths[i] == static_cast<int32_t>(sample.bags[f].size()));
      for (const uint32_t id : sample.bags[f]) RC_ASSERT(batch.bags[f].ids[at[f]++] == id);
    }
  }
}

// Offsets in the file of three(): head 24, features 2 x 80, then the block at 184: counts 8, labels
// 4, dense 24, lengths 2 x 8, ids.
TEST_F(ClickFiles, DamageIsOneLineThatNamesFeatureAndSample) {
  const auto u16 = [](uint16_t value) { return bytes_of(std::vector<uint16_t>{value}); };
  const auto u32 = [](uint32_t value) { return bytes_of(std::vector<uint32_t>{value}); };
  EXPECT_EQ(error_with(0, "X"), "expected a file of clicks (TSRCLCK1), found another head");
  EXPECT_EQ(error_with(8, u32(300)),
            "expected 300 samples, found a file of 260 bytes that ends elsewhere: block 1 of 2");
  EXPECT_EQ(error_with(15, "\xff"),
            "expected 18374686479671623683 samples of 2 features, the file has 260 bytes");
  EXPECT_EQ(error_with(16, u32(70000)), "expected 0 to 65536 dense numbers, found 70000");
  EXPECT_EQ(error_with(20, u32(3)), "expected 3 samples of 3 features, the file has 260 bytes");
  EXPECT_EQ(error_with(40, std::string(1, '\0')),
            "expected a feature's name of 1 to 63 bytes, found ''");
  EXPECT_EQ(error_with(20, u32(5000)),
            "expected at most 4096 features, and one or a dense number, found 5000");
  EXPECT_EQ(error_with(24, u32(0)),
            "feature 'ads': expected 1 to 4294967295 rows of its table, found 0");
  EXPECT_EQ(error_with(32, u32(70000)),
            "feature 'ads': expected bags of 1 to 65535 ids at most, found 65536");
  EXPECT_EQ(error_with(120, std::string("ads\0\0", 5)), "expected one feature 'ads', found two");
  EXPECT_EQ(error_with(192, "\2"), "sample 0: expected label 0 or 1, found 2");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_with(208, bytes_of(std::vector<float>{nan})),
            "sample 1: expected dense number 1 to be finite, found another");
  EXPECT_EQ(error_with(220, u16(4)),
            "feature 'ads', sample 0: expected a bag of at most 3 ids, found 4");
  EXPECT_EQ(error_with(222, u16(2)),
            "feature 'ads', sample 1: expected lengths of samples 0 to 2 that add up to 4, found 5 "
            "by now");
  EXPECT_EQ(
      error_with(220, u16(2)),
      "feature 'ads', sample 2: expected lengths of samples 0 to 2 that add up to 4, found 3");
  EXPECT_EQ(error_with(240, u32(10)),
            "feature 'ads', sample 0: expected ids below 10 (rows of its table), found row 10");
  EXPECT_EQ(error_with(256, u32(77)),
            "feature 'pages', sample 2: expected ids below 4 (rows of its table), found row 77");
  EXPECT_EQ(error_with(184, u32(9)),
            "expected 3 samples, found a file of 260 bytes that ends elsewhere: block 1 of 1");
  const std::string good = content(path("a.clicks"));
  EXPECT_EQ(error_of(good), "");
  EXPECT_EQ(error_of(good + "x"),
            "expected 3 samples, found a file of 261 bytes that ends elsewhere: block 1 of 1");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(error_of(good.substr(0, size)), "") << size;
  }
}

TEST_F(ClickFiles, AreWrittenCompletelyOrNotAtAll) {
  const auto error = [](const Status& status) { return status ? "" : status.error().message; };
  const std::string name = "'" + path("a.clicks") + "': ";
  {
    auto writer = ClickWriter::create(path("a.clicks"), kSchema);
    ASSERT_TRUE(writer);
    EXPECT_EQ(error(writer->add(true, std::vector<float>{0, 1},
                                std::vector<std::vector<uint32_t>>{{1, 2, 3, 4}, {}})),
              name + "sample 0: feature 'ads': expected a bag of at most 3 ids, found 4");
    EXPECT_EQ(error(writer->add(true, std::vector<float>{0, 1},
                                std::vector<std::vector<uint32_t>>{{1}, {4}})),
              name +
                  "sample 0: feature 'pages': expected ids below 4 (rows of its table), found "
                  "row 4");
    EXPECT_EQ(error(writer->add(true, std::vector<float>{0, INFINITY},
                                std::vector<std::vector<uint32_t>>{{1}, {2}})),
              name + "sample 0: expected dense numbers to be finite");
    EXPECT_FALSE(std::filesystem::exists(path("a.clicks")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));  // not closed: nothing is left behind
  const auto nowhere = ClickWriter::create(path("no/a.clicks"), kSchema);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message,
            "cannot write '" + path("no/a.clicks") + "': No such file or directory");
  const auto wrong = ClickWriter::create(path("a.clicks"), {0, {}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            name + "expected at most 4096 features, and one or a dense number, found 0");
}

}  // namespace
}  // namespace tessera
