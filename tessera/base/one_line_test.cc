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

TEST(OneLine, ControlCharactersBeyondAsciiAreWritten) {
  EXPECT_EQ(one_line("a\xc2\x9b"
                     "0m"),
            "a\\u009b0m");  // C1: begins a sequence
  EXPECT_EQ(one_line("\xe2\x80\xae"
                     "abc"),
            "\\u202eabc");  // right to left
  EXPECT_EQ(one_line("a\xe2\x80\xa8"
                     "b\xef\xbb\xbf"),
            "a\\u2028b\\ufeff");
  EXPECT_EQ(one_line("\xf0\x9f\x98\x80 \xe6\xbc\xa2"), "\xf0\x9f\x98\x80 \xe6\xbc\xa2");
}

TEST(OneLine, BytesThatAreNoUtf8AreWritten) {
  EXPECT_EQ(one_line("a\xff\xfe"), "a\\xff\\xfe");
  EXPECT_EQ(one_line("\x80"), "\\x80");
  EXPECT_EQ(one_line("\xc0\x80"), "\\xc0\\x80");           // a longer form of 0
  EXPECT_EQ(one_line("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a pair
  EXPECT_EQ(one_line("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(one_line("\xe6\xbc"), "\\xe6\\xbc");  // cut off
  EXPECT_EQ(one_line("\xc3"
                     "a"),
            "\\xc3"
            "a");
}

TEST(OneLine, ApplyingItTwiceChangesNothingMore) {
  const std::string once = one_line("a\n\x1b[2J\xff\xc2\x9b\\n");
  EXPECT_EQ(one_line(once), once);
  EXPECT_EQ(message_line(once), once);
}

TEST(OneLine, LongTextsKeepTheirBeginningAndTheirEnd) {
  EXPECT_EQ(short_line("a\nb", 8), "a\\nb");
  EXPECT_EQ(short_line("0123456789", 10), "0123456789");
  EXPECT_EQ(short_line("0123456789a", 10), "01234...6789a");
  EXPECT_EQ(short_line("abc\xc3\xa4xxxx\xc3\xa4yyy", 8), "abc...yyy");
}

TEST(MessageLine, ShortMessagesStayAsTheyAre) {
  for (const std::string text :
       {"", "plan.toml:3: 'over': expected an axis, found 'x' (did you mean 'tp'?)",
        "the model's heads, 'a b', b's and 'c", "''", "'", "' '"}) {
    EXPECT_EQ(message_line(text), text);
  }
  EXPECT_EQ(message_line("cannot read 'a\nb': \x1b[31m\n\n"), "cannot read 'a\\nb': \\x1b[31m");
}

TEST(MessageLine, LongQuotedTextsAndWordsAreCut) {
  const std::string name(1'000'000, 'x'), half(150, 'x');
  EXPECT_EQ(message_line("cannot read '" + name + "': no"),
            "cannot read '" + half + "..." + half + "': no");
  EXPECT_EQ(message_line(name + ": no"), half + "..." + half.substr(1) + ": no");
  std::string words;  // of a text with spaces, beginning and end
  for (int i = 0; i < 100'000; ++i) words += "two words ";
  EXPECT_EQ(message_line("model '" + words + "': no"),
            "model '" + words.substr(0, 150) + "..." + words.substr(words.size() - 150) + "': no");
  EXPECT_EQ(message_line(words).size(), kMostMessageBytes + 3);
  EXPECT_LE(message_line("'" + std::string(1'000'000, '\'')).size(), kMostMessageBytes + 3);
}

TEST(MessageLine, NothingOfAUserLeavesTheLine) {
  for (int code = 0; code < 256; ++code) {
    const std::string text(3, static_cast<char>(code));
    for (const char letter : message_line("file '" + text + "', key " + text))
      EXPECT_TRUE(static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7F) << code;
  }
}

}  // namespace
}  // namespace tessera
