// The journal of a live controller keeps what it was told, for one controller at a time.
#include "tessera/orchestrate/live/journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tessera::share {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_("/tmp/tessera_journal_XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Journal, events_outlive_the_object) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal";
  const std::vector<JournalEvent> events{{0, "open", "{}"},
                                         {1.5, "submit", R"({"name":"a\u0000"})"}};
  {
    auto journal = Journal::open(path);
    ASSERT_TRUE(journal.has_value()) << journal.error().message;
    for (const JournalEvent& event : events) ASSERT_TRUE(journal->append(event).has_value());
  }
  auto journal = Journal::open(path);
  ASSERT_TRUE(journal.has_value()) << journal.error().message;
  EXPECT_EQ(journal->events().value(), events);
  const auto reader = Journal::read(path);
  ASSERT_TRUE(reader.has_value()) << reader.error().message;
  ASSERT_TRUE(journal->append({2, "round", "{}"}).has_value());
  EXPECT_EQ(reader->events()->size(), 3U) << "a reader sees what is written meanwhile";
}

TEST(Journal, a_second_controller_is_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal";
  auto first = Journal::open(path);
  ASSERT_TRUE(first.has_value());
  const auto second = Journal::open(path);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message,
            path + ": expected a journal that no other controller has open, found that one has");
}

TEST(Journal, other_files_are_refused_and_stay_as_they_are) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/notes.txt";
  const std::string text(5000, 'x');
  std::ofstream(path) << text;
  const auto journal = Journal::open(path);
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().message,
            path + ": expected a journal of tessera cluster, found another file");
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
}

TEST(Journal, an_emptied_journal_is_refused_and_a_fresh_empty_file_begins_one) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal";
  // As a controller leaves it that is killed between the creation of the file and its first page.
  std::ofstream(path).flush();
  std::ofstream(path + ".lock").flush();
  {
    auto journal = Journal::open(path);
    ASSERT_TRUE(journal.has_value()) << journal.error().message;
    ASSERT_TRUE(journal->append({0, "open", "{}"}).has_value());
  }
  ASSERT_TRUE(Journal::open(path).has_value());
  std::ofstream(path, std::ios::trunc).flush();
  const auto journal = Journal::open(path);
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(journal.error().message,
            path +
                ": expected the journal that was begun here, found an empty file (without the "
                "file a new journal begins)");
  EXPECT_EQ(std::filesystem::file_size(path), 0U);
  std::filesystem::remove(path);
  EXPECT_TRUE(Journal::open(path).has_value());
}

TEST(Journal, newer_versions_are_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/journal";
  { ASSERT_TRUE(Journal::open(path).has_value()); }
  // The version is the 4 bytes at offset 60 of the header, big end first (file format of SQLite).
  std::filesystem::remove(path + "-wal");
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(63);
  file.put(9);
  file.close();
  const auto journal = Journal::open(path);
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(
      journal.error().message,
      path +
          ": expected a journal of version 1 or older, found version 9; a newer tessera wrote it");
}

}  // namespace
}  // namespace tessera::share
