#include "tessera/base/csv.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Csv, ReadsQuotesLineEndsAndEmptyFields) {
  const auto table = parse_csv(
      "\xEF\xBB\xBF"
      "a,b\r\n\"x, \"\"y\"\"\n2\",\r\n\nlast,4",
      "t.csv");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->columns, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table->rows.size(), 2U);
  EXPECT_EQ(table->rows[0], (std::vector<std::string>{"x, \"y\"\n2", ""}));
  EXPECT_EQ(table->rows[1], (std::vector<std::string>{"last", "4"}));
  EXPECT_EQ(table->lines, (std::vector<int>{2, 5}));
  EXPECT_EQ(table->find("b"), 1);
  EXPECT_EQ(table->find("c"), -1);
}

TEST(Csv, WritesWhatItReads) {
  const std::vector<std::string> fields = {"plain", "with, comma", "a \"quote\"", "two\nlines", ""};
  const auto table = parse_csv("a,b,c,d,e\n" + csv_line(fields), "t.csv");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->rows[0], fields);
}

TEST(Csv, ErrorsNameTheLine) {
  const auto error = [](std::string_view text) {
    const auto table = parse_csv(text, "t.csv");
    return table ? std::string() : table.error().message;
  };
  EXPECT_EQ(error(""), "t.csv:1: expected a header with the names of columns, found none");
  EXPECT_EQ(error("a,a\n"), "t.csv:1: the column 'a' is there twice");
  EXPECT_EQ(error("a,b\n1,2\n1\n"), "t.csv:3: expected 2 fields as in the header, found 1");
  EXPECT_EQ(error("a\n\"x\n"), "t.csv:2: a quote is opened and not closed");
  EXPECT_EQ(error("a\n\"x\"y\n"),
            "t.csv:2: expected a comma or the end of the line after a closing quote");
}

}  // namespace
}  // namespace tessera
