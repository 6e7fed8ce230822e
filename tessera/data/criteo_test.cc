#include "tessera/data/criteo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tessera/data/test_files.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using CriteoFiles = TestFiles;

// Makes a line of fields: label, numbers of the first integers, categories of the first features.
std::string line_of(const std::string& label, const std::vector<std::string>& numbers,
                    const std::vector<std::string>& categories) {
  std::string line = label;
  for (size_t i = 0; i < 13; ++i) line += "\t" + (i < numbers.size() ? numbers[i] : "");
  for (size_t i = 0; i < 26; ++i) line += "\t" + (i < categories.size() ? categories[i] : "");
  return line;
}

TEST(CriteoTest, FieldsMayBeMissing) {
  const auto sample =
      parse_criteo(line_of("1", {"5", "", "-2"}, {"68fd1e64", "", "ffffffff", "0"}), '\t');
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_TRUE(sample->clicked);
  EXPECT_EQ(sample->numbers[0], 5);
  EXPECT_EQ(sample->numbers[1], std::nullopt);
  EXPECT_EQ(sample->numbers[2], -2);
  EXPECT_EQ(sample->categories[0], 0x68fd1e64U);
  EXPECT_EQ(sample->categories[1], std::nullopt);
  EXPECT_EQ(sample->categories[2], 0xffffffffU);
  EXPECT_EQ(sample->categories[3], 0U);
  EXPECT_EQ(sample->categories[25], std::nullopt);
}

TEST(CriteoTest, NumbersAreLogarithmsAndCategoriesRowsOfTheirTable) {
  EXPECT_EQ(criteo_dense(0), 0);
  EXPECT_EQ(criteo_dense(-3), 0);
  EXPECT_EQ(criteo_dense(std::nullopt), 0);
  EXPECT_FLOAT_EQ(criteo_dense(std::exp(2.0) - 1), 2);
  // The finaliser of MurmurHash3 maps 2^32 (category 0 of feature 1) to this number.
  EXPECT_EQ(criteo_id(0, 1, 4294967295), 13419211857204286489ULL % 4294967295);
  for (int64_t feature = 1; feature <= 26; ++feature) {
    std::vector<int> hits(10);
    for (uint32_t category = 0; category < 10'000; ++category) {
      const uint32_t id = criteo_id(category, feature, 10);
      ASSERT_LT(id, 10U);
      ++hits[id];
    }
    for (const int count : hits) EXPECT_NEAR(count, 1000, 6 * 30);
  }
  EXPECT_NE(criteo_id(5, 1, 1'000'000), criteo_id(5, 2, 1'000'000));
}

TEST_F(CriteoFiles, BadLinesAreOneLineWithFileAndNumber) {
  const std::string good = line_of("0", {"1"}, {"ab"});
  const auto error = [&](const std::string& line) {
    const std::string file = write("day.txt", good + "\n" + line + "\n" + good + "\n");
    const auto converted = convert_criteo({file}, {100}, path("out.clicks"));
    EXPECT_FALSE(std::filesystem::exists(path("out.clicks")));
    return converted ? "" : converted.error().message;
  };
  const std::string place = path("day.txt") + ":2: ";
  EXPECT_EQ(error("0\t1"), place + "expected 40 fields, found 2");
  EXPECT_EQ(error(good + "\t"), place + "expected 40 fields, found 41");
  EXPECT_EQ(error(line_of("2", {}, {})), place + "field 1 (label): expected 0 or 1, found '2'");
  EXPECT_EQ(error(line_of("", {}, {})), place + "field 1 (label): expected 0 or 1, found ''");
  EXPECT_EQ(error(line_of("0", {"1", "2.5"}, {})),
            place + "field 3 (I2): expected an integer or nothing, found '2.5'");
  EXPECT_EQ(error(line_of("0", {"nan"}, {})),
            place + "field 2 (I1): expected an integer or nothing, found 'nan'");
  EXPECT_EQ(error(line_of("0", {}, {"xy"})),
            place + "field 15 (C1): expected up to 8 hexadecimal digits or nothing, found 'xy'");
  EXPECT_EQ(error(line_of("0", {}, {"123456789"})),
            place +
                "field 15 (C1): expected up to 8 hexadecimal digits or nothing, found "
                "'123456789'");
  const auto rows = convert_criteo({write("a.txt", good)}, {1, 2, 3}, path("out.clicks"));
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message, "expected rows of 26 tables, or one number for all, found 3");
}

TEST_F(CriteoFiles, TabsCommasHeadersAndLineEndsAreRead) {
  const std::string line = line_of("1", {"", "7"}, {"1f"});
  std::string commas = line;
  std::replace(commas.begin(), commas.end(), '\t', ',');
  const std::string head = "label" + commas.substr(1);
  const std::string first = write("a.txt", line + "\r\n" + line);
  const std::string second = write("b.csv", head + "\n" + commas + "\n\n");
  const auto samples = convert_criteo({first, second}, {1000}, path("out.clicks"));
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(*samples, 3);
  const auto file = ClickFile::open(path("out.clicks"));
  ASSERT_TRUE(file);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(file->label(i), 1);
    EXPECT_FLOAT_EQ(file->dense(i)[1], std::log(8.0F));
    EXPECT_THAT(file->bag(0, i), ElementsAre(criteo_id(0x1f, 1, 1000)));
    EXPECT_THAT(file->bag(1, i), IsEmpty());
  }
}

TEST_F(CriteoFiles, TheSampleHas200LinesAnd49Clicks) {
  const std::string source = std::string(TESSERA_SOURCE_DIR) + "/data/ctr/criteo_sample.txt";
  const auto samples = convert_criteo({source}, {5000}, path("out.clicks"));
  ASSERT_TRUE(samples) << samples.error().message;
  EXPECT_EQ(*samples, 200);
  const auto file = ClickFile::open(path("out.clicks"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->clicks(), 49);
  EXPECT_EQ(file->schema().dense, 13);
  EXPECT_EQ(file->schema().features.size(), 26U);
  // The first line: 0,,3,260.0,... and C1 = 05db9164.
  EXPECT_EQ(file->dense(0)[0], 0);
  EXPECT_FLOAT_EQ(file->dense(0)[1], std::log(4.0F));
  EXPECT_FLOAT_EQ(file->dense(0)[2], std::log(261.0F));
  EXPECT_THAT(file->bag(0, 0), ElementsAre(criteo_id(0x05db9164, 1, 5000)));
  EXPECT_THAT(file->bag(18, 0), IsEmpty());  // C19 is missing
}

}  // namespace
}  // namespace tessera
