#include "tessera/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tessera/data/test_files.h"

namespace tessera::token_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TokenFiles = TestFiles;

std::vector<int64_t> all(const TokenFile& file) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.tokens()));
  file.read(0, file.tokens(), tokens.data());
  return tokens;
}

std::string open_error(const std::string& path, TokenFormat format) {
  const auto file = TokenFile::open(path, format);
  return file ? "" : file.error().message;
}

TEST_F(TokenFiles, OfEveryFormatHoldTheSameTokens) {
  const std::vector<uint16_t> narrow{3, 1, 65535, 0, 7};
  const std::vector<uint32_t> wide{3, 1, 65535, 0, 7};
  const std::vector<int64_t> expected{3, 1, 65535, 0, 7};
  const std::vector<std::pair<std::string, TokenFormat>> files{
      {write("a.bin", bytes_of(narrow)), TokenFormat::kUint16},
      {write("b.bin", bytes_of(wide)), TokenFormat::kUint32},
      {write("c.npy", npy("<u2", "(5,)", bytes_of(narrow))), TokenFormat::kNpy},
      {write("d.npy", npy("<i8", "(5,)", bytes_of(expected))), TokenFormat::kNpy},
  };
  for (const auto& [path, format] : files) {
    const auto file = TokenFile::open(path, format);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(all(*file), expected) << path;
  }
  write("e.bin", bytes_of(narrow));
  write("e.idx", megatron_index({2, 3}));
  for (const char* name : {"e.bin", "e.idx"}) {
    const auto file = TokenFile::open(path(name), TokenFormat::kMegatron);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(all(*file), expected);
    EXPECT_THAT(file->documents(-1), ElementsAre(0, 2, 5));
  }
  const auto bytes = TokenFile::open(write("f.txt", "\xff\1"), TokenFormat::kBytes);
  ASSERT_TRUE(bytes);
  EXPECT_THAT(all(*bytes), ElementsAre(255, 1));
}

TEST_F(TokenFiles, EndOfDocumentTokensEndDocuments) {
  const auto file = TokenFile::open(
      write("a.bin", bytes_of(std::vector<uint16_t>{5, 9, 9, 4, 4, 9, 2})), TokenFormat::kUint16);
  ASSERT_TRUE(file);
  EXPECT_THAT(file->documents(9), ElementsAre(0, 2, 3, 6, 7));
  EXPECT_THAT(file->documents(-1), ElementsAre(0, 7));
  EXPECT_THAT(file->documents(2), ElementsAre(0, 7));
}

TEST_F(TokenFiles, DocumentsOfAnIndexMayHaveSeveralSequencesOrNone) {
  write("a.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5, 6}));
  std::string index = megatron_index({2, 1, 3});
  const std::vector<int64_t> documents{0, 2, 2, 3};
  index.replace(index.size() - 32, 32, bytes_of(documents));
  write("a.idx", index);
  const auto file = TokenFile::open(path("a.idx"), TokenFormat::kMegatron);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->documents(-1), ElementsAre(0, 3, 6));
  write("a.idx", index + std::string(3, '\0'));  // with the modes of a newer index
  EXPECT_TRUE(TokenFile::open(path("a.idx"), TokenFormat::kMegatron));
}

TEST_F(TokenFiles, ErrorsNameTheFile) {
  EXPECT_EQ(open_error(write("a.bin", "123"), TokenFormat::kUint16),
            "'" + path("a.bin") + "': expected whole tokens of uint16, found 3 bytes");
  EXPECT_EQ(open_error(path("none.bin"), TokenFormat::kUint16),
            "cannot read '" + path("none.bin") + "': No such file or directory");
  EXPECT_EQ(open_error(write("b.npy", "12"), TokenFormat::kNpy),
            "'" + path("b.npy") + "': expected a NumPy array (.npy), found another head");
  EXPECT_EQ(open_error(write("c.npy", npy("<f4", "(1,)", "1234")), TokenFormat::kNpy),
            "'" + path("c.npy") +
                "': expected an array of one dim of integers, found the shape (1) of float32");
  EXPECT_EQ(open_error(write("d.npy", npy(">u2", "(1,)", "12")), TokenFormat::kNpy),
            "'" + path("d.npy") +
                "': expected a NumPy array of little-endian integers or of float32 or float64, "
                "found '>u2'");
  EXPECT_EQ(open_error(write("e.npy", npy("<u2", "(2,)", "12")), TokenFormat::kNpy),
            "'" + path("e.npy") +
                "': expected elements for the shape (2) of uint16, the file has 130 bytes");
  EXPECT_EQ(open_error(path("x.txt"), TokenFormat::kMegatron),
            "'" + path("x.txt") + "': expected NAME.idx or NAME.bin of a pair");
}

TEST_F(TokenFiles, AFileThatCannotBeReadIsNamedWithTheReason) {
  const std::string a = write("a.txt", "12345");
  std::filesystem::permissions(a, std::filesystem::perms::none);
  if (geteuid() == 0) GTEST_SKIP() << "root reads every file";
  EXPECT_EQ(open_error(a, TokenFormat::kBytes), "cannot read '" + a + "': Permission denied");
}

// 1,000 indexes with bytes that were changed or cut off. Each is refused with one line, or still
// describes the tokens (a byte without meaning changed). A count that a damaged head states is
// never believed: the largest would be 2^64 entries.
TEST_F(TokenFiles, DamagedIndexesAreRefusedOrStillRight) {
  std::vector<uint16_t> tokens(50);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  write("a.bin", bytes_of(tokens));
  const std::string good = megatron_index({10, 1, 14, 25});
  std::mt19937 random(1);
  const auto below = [&](size_t limit) { return random() % limit; };
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = good;
    const size_t changes = 1 + below(3);
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = round % 2 == 0 ? below(34) : below(damaged.size());  // of the head, or any
      damaged[at] = static_cast<char>(below(4) == 0 ? 0xff : below(256));
    }
    if (round % 5 == 0) damaged.resize(below(damaged.size()));
    write("a.idx", damaged);
    const auto file = TokenFile::open(path("a.idx"), TokenFormat::kMegatron);
    if (!file) {
      ++refused;
      EXPECT_EQ(file.error().code, ErrorCode::kInvalidInput);
      EXPECT_THAT(file.error().message, HasSubstr("a.idx"));
      EXPECT_EQ(file.error().message.find('\n'), std::string::npos) << file.error().message;
      continue;
    }
    const std::vector<int64_t> documents = file->documents(-1);
    EXPECT_EQ(documents.front(), 0);
    EXPECT_EQ(documents.back(), file->tokens());
    EXPECT_TRUE(std::is_sorted(documents.begin(), documents.end()));
    EXPECT_EQ(all(*file).size() * static_cast<size_t>(file->bytes() / file->tokens()), 100U);
  }
  EXPECT_GT(refused, 150);
}

TEST_F(TokenFiles, DamagedArraysAreRefusedOrStillInside) {
  const std::string good = npy("<u2", "(40,)", bytes_of(std::vector<uint16_t>(40, 7)));
  std::mt19937 random(2);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 2; ++i) damaged[random() % 70] = static_cast<char>(random() % 128);
    if (round % 5 == 0) damaged.resize(random() % damaged.size());
    const auto file = TokenFile::open(write("a.npy", damaged), TokenFormat::kNpy);
    if (!file) {
      ++refused;
      EXPECT_EQ(file.error().message.find('\n'), std::string::npos) << file.error().message;
      continue;
    }
    EXPECT_LE(file->bytes(), static_cast<int64_t>(damaged.size()));
    all(*file);
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace tessera::token_file_test
