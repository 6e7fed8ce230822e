#include "tessera/data/match_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/test_files.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using MatchFiles = TestFiles;

TEST_F(MatchFiles, GlobsMatchComponentsAndAnyDepth) {
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

TEST_F(MatchFiles, AFileOfTwoGlobsCountsOnce) {
  const std::string a = write("a.txt", "0123456789");
  EXPECT_THAT(*files_of({path("*.txt"), path("a.*")}, ""), ElementsAre(a));
}

TEST_F(MatchFiles, AreFoundBesideAnotherFile) {
  const std::string a = write("only_here.txt", "x");
  EXPECT_THAT(*files_of({"only_h*.txt"}, folder_), ElementsAre(a));
  EXPECT_EQ(files_of({"only_h*.txt"}, "").error().message, "no file matches 'only_h*.txt'");
  EXPECT_EQ(found_file("only_here.txt", folder_), a);
  EXPECT_EQ(found_file("only_here.txt", ""), "only_here.txt");
  EXPECT_EQ(found_file("none.txt", folder_), "none.txt");
  EXPECT_EQ(found_file(a, "/nowhere"), a);
}

TEST_F(MatchFiles, AFolderIsNoFile) {
  EXPECT_EQ(files_of({path("*.txt")}, "").error().message,
            "no file matches '" + path("*.txt") + "'");
  EXPECT_EQ(files_of({folder_}, "").error().message,
            "'" + folder_ + "' is a folder; '" + folder_ + "/**' names the files in it");
}

}  // namespace
}  // namespace tessera
