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

TEST(Toml, KeysAreNestedNoDeeperThanTheyCanBeVisited) {
  const auto key = [](int parts) {
    std::string text = "a";
    for (int i = 1; i < parts; ++i) text += ".a";
    return text;
  };
  for (const int parts : {66, 50'000}) {
    EXPECT_EQ(error_of(key(parts) + " = 1\n"), "a.toml:1: expected a key of at most 65 parts");
    EXPECT_EQ(error_of("b = 1\n[" + key(parts) + "]\n"),
              "a.toml:2: expected a key of at most 65 parts");
    EXPECT_EQ(error_of("b = { " + key(parts) + " = 1 }\n"),
              "a.toml:1: expected a key of at most 65 parts");
  }
  const std::string dots(1000, '.');
  const auto table = parse_toml(
      "[" + key(65) + "] # " + dots + "\n" + key(60) + " = 1.5 # " + dots + "\nb = \"" + dots +
          "\"\nc = [" +
          [] {
            std::string numbers;
            for (int i = 0; i < 200; ++i) numbers += "1.5, ";
            return numbers;
          }() +
          "]\n",
      "a.toml");
  EXPECT_TRUE(table.has_value()) << table.error().message;
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
