#include "tessera/runtime/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

class DataTest : public ::testing::Test {
 protected:
  DataTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (std::filesystem::temp_directory_path() /
               ("tessera_data_" + std::to_string(getpid()) + "_" + test->name()))
                  .string();
    std::filesystem::create_directories(folder_);
  }
  ~DataTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    EXPECT_TRUE(write_file(path.string(), text));
    return path.string();
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(DataTest, GlobsMatchComponentsAndAnyDepth) {
  const std::string a = write("a.txt", "x"), b = write("sub/b.txt", "x");
  const std::string c = write("sub/deep/c.txt", "x"), d = write("sub/d.md", "x");
  write(".hidden/e.txt", "x");
  EXPECT_THAT(*match_files(path("*.txt")), ElementsAre(a));
  EXPECT_THAT(*match_files(path("**/*.txt")), ElementsAre(a, b, c));
  EXPECT_THAT(*match_files(path("**")), ElementsAre(a, b, d, c));
  EXPECT_THAT(*match_files(path("sub/**/?.{md,txt}")), ElementsAre(b, d, c));
  EXPECT_THAT(*match_files(path("*/b.txt")), ElementsAre(b));
  EXPECT_THAT(*match_files(path("none/*.txt")), ElementsAre());
}

TEST_F(DataTest, AFileOfTwoGlobsCountsOnce) {
  write("a.txt", "0123456789");
  const auto data = TextData::open({path("*.txt"), path("a.*")}, 4);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->files(), 1);
  EXPECT_EQ(data->bytes(), 10);
}

TEST_F(DataTest, AWindowIsConsecutiveBytesOfOneFile) {
  std::string letters, digits;
  for (int i = 0; i < 26; ++i) letters += static_cast<char>('a' + i);
  for (int i = 0; i < 10; ++i) digits += static_cast<char>('0' + i);
  write("a.txt", letters);
  write("b.txt", digits);
  write("short.txt", "#");
  const auto data = TextData::open({path("*.txt")}, 4);
  ASSERT_TRUE(data) << data.error().message;
  std::set<int64_t> starts;
  for (int64_t sequence = 0; sequence < 400; ++sequence) {
    std::vector<int64_t> tokens(5);
    data->read(1, 1, sequence, 0, 5, tokens.data());
    starts.insert(tokens[0]);
    for (size_t i = 1; i < tokens.size(); ++i)
      EXPECT_EQ(tokens[i], tokens[0] + static_cast<int64_t>(i));
  }
  EXPECT_EQ(starts.size(), 26U - 4 + 10 - 4);
}

TEST_F(DataTest, APartIsThatPartOfTheWhole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 37 % 251);
  const auto data = TextData::open({write("a.bin", text)}, 16);
  ASSERT_TRUE(data);
  std::vector<int64_t> whole(17), part(6), again(17), other(17);
  data->read(3, 7, 2, 0, 17, whole.data());
  data->read(3, 7, 2, 5, 6, part.data());
  data->read(3, 7, 2, 0, 17, again.data());
  data->read(3, 8, 2, 0, 17, other.data());
  EXPECT_EQ(part, std::vector<int64_t>(whole.begin() + 5, whole.begin() + 11));
  EXPECT_EQ(whole, again);
  EXPECT_NE(whole, other);
}

TEST_F(DataTest, ErrorsAreOneLine) {
  EXPECT_EQ(TextData::open({path("*.txt")}, 4).error().message,
            "data: no file matches '" + path("*.txt") + "'");
  EXPECT_EQ(TextData::open({folder_}, 4).error().message,
            "data: '" + folder_ + "' is a folder; '" + folder_ + "/**' names the files in it");
  const std::string a = write("a.txt", "1234");
  EXPECT_EQ(
      TextData::open({a}, 4).error().message,
      "data: expected a file of more than 4 bytes (seq = 4), the longest of 1, '" + a + "', has 4");
  EXPECT_EQ(TextData::open({}, 4).error().message, "data: expected at least one file or glob");
}

TEST_F(DataTest, AFileThatCannotBeReadIsNamedWithTheReason) {
  const std::string a = write("a.txt", "12345");
  std::filesystem::permissions(a, std::filesystem::perms::none);
  if (geteuid() == 0) GTEST_SKIP() << "root reads every file";
  EXPECT_EQ(TextData::open({a}, 4).error().message,
            "data: cannot read '" + a + "': Permission denied");
}

}  // namespace
}  // namespace tessera
