#include "tessera/base/toml.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace tessera::toml_test {
namespace {

std::string error_of(std::string_view text) {
  const auto table = parse_toml(text, "a.toml");
  return table ? "accepted" : table.error().message;
}

TEST(Toml, ReadsTablesAndLists) {
  const auto table = parse_toml(
      "a = 1\nlist = [\n  [1, 2],\n  [3],\n]\n[b]\nc = \"x\" # [=\n[[d]]\ne = '''\n[=]\n'''\n",
      "a.toml");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ((*table)["b"]["c"].value_or(std::string()), "x");
}

TEST(Toml, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of("a = 1\n[=]\n"), "a.toml:2: expected the name of a table after '['");
  EXPECT_EQ(error_of("a = 1\n[[\n"), "a.toml:2: expected the name of a table after '['");
  EXPECT_EQ(error_of("a = 1\nb = [\n  1,\n }"),
            "a.toml:4: expected ']' to close the list, found '}'");
  EXPECT_TRUE(error_of("a = \n[=]\n").starts_with("a.toml:1: ")) << error_of("a = \n[=]\n");
  EXPECT_TRUE(error_of("\n\na = [1,").starts_with("a.toml:3: ")) << error_of("\n\na = [1,");
}

RC_GTEST_PROP(Toml, TakesAnyText, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "a", " = ", "=", "{", "}", "[", "]", "[[a]]", "[b]", "\n", "\"", "'", "\"\"\"", "'''", ".",
      "2", "-", ",", " ", "\\", "\xff", "\xc3\xbc", "#", "\r\n", "true", "1979-05-27", "\t",
      "\xef\xbb\xbf"));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const auto table = parse_toml(text, "x");
  const bool placed = table.has_value() || table.error().message.starts_with("x:");
  RC_ASSERT(placed);
}

}  // namespace
}  // namespace tessera::toml_test
