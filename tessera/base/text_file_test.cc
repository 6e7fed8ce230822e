#include "tessera/base/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "tessera/base/text.h"

namespace tessera {
namespace {

class TextFile : public testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    std::string made = testing::TempDir() + "text_file_XXXXXX";
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string error_of(const std::string& path, int64_t most) {
    const auto text = read_text_file(path, most);
    return text ? "none" : text.error().message;
  }

 private:
  std::string folder_;
};

TEST_F(TextFile, IsReadUpToTheStatedSize) {
  const std::string text(100'000, 'a'), file = path("a");
  ASSERT_TRUE(write_file(file, text));
  EXPECT_EQ(read_text_file(file, 100'000).value(), text);
  EXPECT_EQ(error_of(file, 99'999), "cannot read '" + file +
                                        "': expected a text of at most 97.66 KiB (99,999 bytes), "
                                        "found 97.66 KiB (100,000 bytes)");
}

TEST_F(TextFile, HasAnEnd) {
  EXPECT_EQ(error_of("/dev/zero", 1 << 20),
            "cannot read '/dev/zero': expected a text of at most 1.00 MiB (1,048,576 bytes), found "
            "more");
  EXPECT_EQ(read_text_file("/dev/null", 10).value(), "");
  EXPECT_EQ(read_file("/dev/zero").error().message,
            "cannot read '/dev/zero': expected a text of at most 256.00 MiB (268,435,456 bytes), "
            "found more");
}

TEST_F(TextFile, OfOneTebibyteWithoutContentIsNotRead) {
  const std::string file = path("holes");
  ASSERT_TRUE(write_file(file, ""));
  ASSERT_EQ(::truncate(file.c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(read_file(file).error().message,
            "cannot read '" + file +
                "': expected a text of at most 256.00 MiB (268,435,456 bytes), found 1.00 TiB "
                "(1,099,511,627,776 bytes)");
}

TEST_F(TextFile, MayBeAPipe) {
  const std::string text(300'000, 'b');  // more than a pipe holds
  const auto pipe = [&](const std::string& name) {
    EXPECT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    return path(name);
  };
  const std::string full = pipe("full"), empty = pipe("empty"), long_one = pipe("long");
  {
    std::jthread writer([&] { ASSERT_TRUE(write_file(full, text)); });
    EXPECT_EQ(read_text_file(full, 1 << 20).value(), text);
  }
  EXPECT_EQ(read_text_file(full, 1 << 20).value(), text);  // the text it gave before
  {
    std::jthread writer([&] { ASSERT_TRUE(write_file(empty, "")); });
    EXPECT_EQ(read_text_file(empty, 1 << 20).value(), "");
  }
  {
    std::jthread writer([&] { EXPECT_FALSE(write_file(long_one, text)); });  // the reader closes it
    EXPECT_EQ(error_of(long_one, 70'000),
              "cannot read '" + long_one +
                  "': expected a text of at most 68.36 KiB (70,000 bytes), found more");
  }
}

TEST_F(TextFile, FoldersAndPathsThatAreNotThereAreNamed) {
  EXPECT_EQ(error_of(path("none"), 10),
            "cannot read '" + path("none") + "': No such file or directory");
  EXPECT_EQ(error_of(path(""), 10), "cannot read '" + path("") + "': Is a directory");
  EXPECT_EQ(error_of(path("a/b"), 10),
            "cannot read '" + path("a/b") + "': No such file or directory");
}

TEST_F(TextFile, WhatIsNoFileIsNotReplaced) {
  ASSERT_TRUE(write_file(path("a"), "a"));
  EXPECT_TRUE(check_replaceable(path("a")));
  EXPECT_TRUE(check_replaceable(path("none")));
  EXPECT_EQ(check_replaceable("/dev/null").error().message,
            "cannot write '/dev/null': expected a file or none, found a device or a pipe");
  EXPECT_EQ(check_replaceable(path("")).error().message,
            "cannot write '" + path("") + "': expected a file or none, found a folder");
}

TEST_F(TextFile, APipeWithoutAWriterIsRefused) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of(pipe, 10), "cannot read '" + pipe +
                                    "': expected a text, found a pipe that nothing has written to "
                                    "for 2 seconds");
}

}  // namespace
}  // namespace tessera
