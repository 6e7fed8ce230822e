#include "tessera/import/pt2/archive.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>

#include <filesystem>
#include <fstream>

namespace tessera::pt2 {
namespace {

class ArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("tessera_archive_test_" + std::to_string(getpid()) + ".pt2");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::vector<std::pair<std::string, std::string>>& entries) const {
    std::filesystem::remove(path_);
    int code = 0;
    zip_t* const zip = zip_open(path_.c_str(), ZIP_CREATE, &code);
    ASSERT_NE(zip, nullptr);
    for (const auto& [name, text] : entries) {
      zip_source_t* const source = zip_source_buffer(zip, text.data(), text.size(), 0);
      const zip_int64_t at = zip_file_add(zip, name.c_str(), source, 0);
      ASSERT_GE(at, 0);
      ASSERT_EQ(zip_set_file_compression(zip, static_cast<zip_uint64_t>(at), ZIP_CM_STORE, 0), 0);
    }
    ASSERT_EQ(zip_close(zip), 0);
  }

  std::string error() const {
    const auto archive = Archive::open(path_.string());
    if (archive) return "";
    return archive.error().message.substr(path_.string().size());
  }

  std::filesystem::path path_;
};

TEST_F(ArchiveTest, ReadsEntriesAndRangesBelowTheRoot) {
  write({{"m/one", "0123456789"}, {"m/data/two", "abc"}});
  const auto archive = Archive::open(path_.string());
  ASSERT_TRUE(archive) << archive.error().message;
  EXPECT_EQ(archive->names(), (std::vector<std::string>{"one", "data/two"}));
  EXPECT_EQ(archive->text("data/two"), "abc");
  std::string part;
  const auto append = [&part](std::span<const char> piece) -> Status {
    part.append(piece.begin(), piece.end());
    return {};
  };
  for (const bool again : {false, true}) {  // the second call reads only the range
    part.clear();
    ASSERT_TRUE(archive->read("one", 4, 3, append)) << again;
    EXPECT_EQ(part, "456");
  }
  const Status refused = archive->read("one", 7, 4, append);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            path_.string() + ": entry 'one': expected 4 bytes from byte 7 on, found 10");
  EXPECT_FALSE(archive->text("three"));
}

TEST_F(ArchiveTest, RefusesWhatIsNoArchiveOfOneRoot) {
  EXPECT_EQ(error(), ": expected a .pt2 archive, found no file that can be read");
  std::ofstream(path_) << "text";
  EXPECT_EQ(error(), ": expected a .pt2 archive (a zip file), found: Not a zip archive");
  write({{"m/one", "1"}, {"n/two", "2"}});
  EXPECT_EQ(error(), ": expected all entries in the folder 'm/', found 'n/two'");
}

TEST_F(ArchiveTest, AFlippedByteIsFoundByTheChecksum) {
  write({{"m/one", "0123456789"}});
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), {});
  file.seekp(static_cast<std::streamoff>(all.find("0123456789")));
  file << '9';
  file.close();
  const auto archive = Archive::open(path_.string());
  ASSERT_TRUE(archive);
  const auto text = archive->text("one");
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("entry 'one'"), std::string::npos);
}

TEST_F(ArchiveTest, AFlippedByteIsFoundInARangeThatLacksItAndBehindTheFirstPieces) {
  constexpr size_t kBytes = 9 << 20;
  write({{"m/one", std::string(kBytes - 7, 'a') + "flipped"}});
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), {});
  file.seekp(static_cast<std::streamoff>(all.find("flipped")));
  file << 'F';
  file.close();
  const auto archive = Archive::open(path_.string());
  ASSERT_TRUE(archive);
  size_t seen = 0;
  const auto count = [&seen](std::span<const char> piece) -> Status {
    seen += piece.size();
    return {};
  };
  for (const int64_t bytes : {static_cast<int64_t>(kBytes), int64_t{3}}) {
    seen = 0;
    const Status read = archive->read("one", 0, bytes, count);
    ASSERT_FALSE(read) << bytes;
    EXPECT_NE(read.error().message.find("entry 'one'"), std::string::npos);
    EXPECT_EQ(seen, static_cast<size_t>(bytes));
  }
}

}  // namespace
}  // namespace tessera::pt2
