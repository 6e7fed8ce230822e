// Tests that both storages behave alike, and that MemoryStorage loses only what POSIX allows to be
// lost.
#include "tessera/state/storage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "tessera/state/test_memory_storage.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Storages : public testing::Test {
 protected:
  Storages() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        (fs::temp_directory_path() / fmt::format("tessera_storage_{}_{}", test->name(), ::getpid()))
            .string();
    fs::create_directories(folder_);
  }
  ~Storages() override { fs::remove_all(folder_); }

  static Status write(StorageFile& file, const std::string& text) {
    return file.write(reinterpret_cast<const std::byte*>(text.data()),
                      static_cast<int64_t>(text.size()));
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "none";
  }

  std::string folder_;
};

void expect_the_calls_of_a_storage(Storage& storage, const std::string& top) {
  const std::string folder = path_in(top, "a/b");
  ASSERT_TRUE(storage.make_folder(folder));
  ASSERT_TRUE(storage.make_folder(folder));
  EXPECT_THAT(*storage.list(folder), IsEmpty());
  EXPECT_THAT(*storage.list(path_in(top, "none")), IsEmpty());
  {
    const auto file = storage.create(path_in(folder, "x"));
    ASSERT_TRUE(file) << file.error().message;
    const std::byte zero{};
    ASSERT_TRUE((*file)->write(&zero, 1));
    ASSERT_TRUE((*file)->sync());
  }
  const auto again = storage.create(path_in(folder, "x"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kFault);
  EXPECT_THAT(again.error().message, HasSubstr("b/x: cannot create: File exists"));
  EXPECT_FALSE(storage.remove_folder(folder));  // it is not empty
  ASSERT_TRUE(storage.rename(folder, path_in(top, "c")));
  EXPECT_THAT(*storage.list(top), ElementsAre("a", "c"));
  EXPECT_THAT(*storage.list(path_in(top, "c")), ElementsAre("x"));
  ASSERT_TRUE(storage.sync_folder(top));
  EXPECT_FALSE(storage.rename(path_in(top, "none"), path_in(top, "d")));
  EXPECT_FALSE(storage.remove_file(path_in(top, "none")));
  EXPECT_FALSE(storage.remove_file(path_in(top, "c")));        // a folder
  EXPECT_THAT(*storage.list(path_in(top, "c/x")), IsEmpty());  // a file
  ASSERT_TRUE(storage.remove_file(path_in(top, "c/x")));
  ASSERT_TRUE(storage.remove_folder(path_in(top, "c")));
  EXPECT_THAT(*storage.list(top), ElementsAre("a"));
}

TEST_F(Storages, TheFileSystem) {
  FileSystem disk;
  expect_the_calls_of_a_storage(disk, folder_);
}

TEST_F(Storages, WhatIsNoFolderHasNoNames) {
  FileSystem disk;
  fs::create_symlink("loop", path_in(folder_, "loop"));
  fs::create_symlink("nowhere", path_in(folder_, "dangling"));
  EXPECT_THAT(*disk.list(path_in(folder_, "loop")), IsEmpty());
  EXPECT_THAT(*disk.list(path_in(folder_, "loop/below")), IsEmpty());
  EXPECT_THAT(*disk.list(path_in(folder_, "dangling")), IsEmpty());
  fs::create_directories(path_in(folder_, "real"));
  std::ofstream(path_in(folder_, "real/x")) << "x";
  fs::create_symlink("real", path_in(folder_, "link"));
  EXPECT_THAT(*disk.list(path_in(folder_, "link")), ElementsAre("x"));
}

TEST_F(Storages, Memory) {
  MemoryStorage memory;
  ASSERT_TRUE(memory.make_folder("top"));
  expect_the_calls_of_a_storage(memory, "top");
}

// Whole blocks from aligned memory go past the page cache; a partial block and what follows it do
// not. The file is the same.
TEST_F(Storages, LargeWritesOfAnyAlignmentAreOneFile) {
  FileSystem disk;
  constexpr int64_t kBytes = (3 << 20) + 1234;
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kStorageBlock, 4 << 20)), &std::free);
  std::string expected;
  for (int64_t i = 0; i < kBytes; ++i) {
    memory.get()[i] = static_cast<std::byte>(i * 31 + (i >> 12));
    expected += static_cast<char>(memory.get()[i]);
  }
  // Each list says where one write ends and the next begins: at blocks, inside a block, and both.
  for (const std::vector<int64_t>& cuts :
       {std::vector<int64_t>{}, {2 << 20}, {(2 << 20) + 1}, {7}, {8192, 8192 + (2 << 20)}}) {
    const std::string path = path_in(folder_, fmt::format("{}", fmt::join(cuts, "-")) + "x");
    {
      const auto file = disk.create(path);
      ASSERT_TRUE(file) << file.error().message;
      int64_t at = 0;
      for (size_t i = 0; i <= cuts.size(); ++i) {
        const int64_t end = i < cuts.size() ? cuts[i] : kBytes;
        const Status written = (*file)->write(memory.get() + at, end - at);
        ASSERT_TRUE(written) << written.error().message;
        at = end;
      }
      ASSERT_TRUE((*file)->sync());
    }
    EXPECT_TRUE(text_of(path) == expected) << path;
  }
}

TEST_F(Storages, FreeRoomIsThatOfTheFolderThatIsThere) {
  FileSystem disk;
  const auto here = disk.free_bytes(folder_), below = disk.free_bytes(path_in(folder_, "a/b"));
  ASSERT_TRUE(here) << here.error().message;
  ASSERT_TRUE(below) << below.error().message;
  EXPECT_GT(*here, 0);
  EXPECT_GT(*below, 0);
  EXPECT_EQ(disk.piece_bytes() % kStorageBlock, 0);
}

TEST_F(Storages, AFolderThatCannotBeMadeIsAFaultThatNamesIt) {
  FileSystem disk;
  std::ofstream(path_in(folder_, "file")) << "x";
  const Status made = disk.make_folder(path_in(folder_, "file/below"));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kFault);
  EXPECT_THAT(made.error().message, HasSubstr("/file: cannot make the folder: File exists"));
}

TEST_F(Storages, WhatWasNotSyncedIsLost) {
  MemoryStorage memory;
  ASSERT_TRUE(memory.make_folder("d"));
  const auto synced = memory.create("d/synced"), named = memory.create("d/named");
  ASSERT_TRUE(write(**synced, "abcd"));
  ASSERT_TRUE((*synced)->sync());
  ASSERT_TRUE(memory.sync_folder("d"));
  ASSERT_TRUE(write(**synced, "efgh"));
  ASSERT_TRUE(write(**named, "ij"));
  const auto late = memory.create("d/late");
  ASSERT_TRUE(write(**late, "kl"));
  ASSERT_TRUE((*late)->sync());
  const auto left = [&](Survivors survivors) {
    const fs::path to = fs::path(folder_) / fmt::format("{}", static_cast<int>(survivors));
    memory.restore_to("d", to.string(), survivors);
    return std::vector<std::string>{text_of(to / "synced"), text_of(to / "named"),
                                    text_of(to / "late")};
  };
  EXPECT_THAT(left(Survivors::kAll), ElementsAre("abcdefgh", "ij", "kl"));
  EXPECT_THAT(left(Survivors::kOnlySynced), ElementsAre("abcd", "", "none"));
  EXPECT_THAT(left(Survivors::kNames), ElementsAre("abcd", "", "kl"));
  EXPECT_THAT(left(Survivors::kTorn),
              ElementsAre(std::string("abcdef\0\0", 8), std::string("i\0", 2), "kl"));
}

TEST_F(Storages, AStoppedProcessDoesNothingMore) {
  MemoryStorage memory({.at = 3});
  ASSERT_TRUE(memory.make_folder("d"));
  const auto file = memory.create("d/x");
  ASSERT_TRUE(file);
  EXPECT_FALSE(write(**file, "abcd"));  // half of it
  EXPECT_FALSE(write(**file, "efgh"));
  EXPECT_FALSE((*file)->sync());
  EXPECT_FALSE(memory.sync_folder("d"));
  memory.restore_to("d", folder_, Survivors::kAll);
  EXPECT_EQ(text_of(fs::path(folder_) / "x"), "ab");
}

TEST_F(Storages, AFullDiskStillRemoves) {
  MemoryStorage memory({.at = 3, .kind = Failure::Kind::kFull});
  ASSERT_TRUE(memory.make_folder("d"));
  const auto file = memory.create("d/x");
  const Status written = write(**file, "abcd");
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("d/x: cannot write: No space left on device"));
  EXPECT_TRUE(memory.remove_file("d/x"));
}

}  // namespace
}  // namespace tessera
