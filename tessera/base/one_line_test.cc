#include "tessera/base/one_line.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(OneLine, ControlCharactersAreWritten) {
  EXPECT_EQ(one_line("plain, 'quoted' \\ and \xc3\xa4"), "plain, 'quoted' \\ and \xc3\xa4");
  EXPECT_EQ(one_line(std::string_view("a\nb\tc\r\x1b[0m\0d\x7f", 13)),
            "a\\nb\\tc\\x0d\\x1b[0m\\x00d\\x7f");
  EXPECT_EQ(one_line(""), "");
}

TEST(OneLine, LongTextsKeepTheirBeginningAndTheirEnd) {
  EXPECT_EQ(short_line("a\nb", 8), "a\\nb");
  EXPECT_EQ(short_line("0123456789", 10), "0123456789");
  EXPECT_EQ(short_line("0123456789a", 10), "01234...6789a");
  EXPECT_EQ(short_line("abc\xc3\xa4xxxx\xc3\xa4yyy", 8), "abc...yyy");
}

}  // namespace
}  // namespace tessera
