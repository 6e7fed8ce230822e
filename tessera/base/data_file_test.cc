#include "tessera/base/data_file.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// Reads one [[row]] with a name, a size and an origin.
Status read(std::string_view text) {
  TESSERA_TRY(const DataTable root, parse_data(text, "d.toml"));
  TESSERA_TRY(const auto rows, root.tables("row"));
  for (const DataTable& row : rows) {
    std::string name;
    int64_t size = 0;
    TESSERA_TRY_VOID(row.require("name"));
    TESSERA_TRY_VOID(row.text("name", name));
    TESSERA_TRY_VOID(row.whole("size", size));
    TESSERA_TRY(const Origin origin, row.origin());
    static_cast<void>(origin);
    TESSERA_TRY_VOID(row.done());
  }
  return root.done();
}

std::string message(std::string_view text) {
  const Status status = read(text);
  return status ? "" : status.error().message;
}

TEST(DataFile, takes_what_says_what_it_is) {
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"fact\"\nsource = \"a paper\"\n"
                    "[[row]]\nname = \"b\"\nsize = 3\nkind = \"assumption\"\nreason = \"usual\"\n"
                    "[[row]]\nname = \"c\"\nkind = \"fitted\"\nrows = [\"A\", \"B\"]\n"),
            "");
}

TEST(DataFile, errors_name_the_line) {
  EXPECT_EQ(message("[[row]]\nname = \"a\"\n"), "d.toml:1: [[row]] needs the key 'kind'");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"fact\"\n"),
            "d.toml:1: [[row]] needs the key 'source'");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"assumption\"\nsource = \"x\"\n"),
            "d.toml:1: [[row]] needs the key 'reason'");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"fitted\"\nsource = \"x\"\n"),
            "d.toml:1: [[row]] needs the key 'rows'");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"guess\"\n"),
            "d.toml:3: 'kind' in [[row]]: expected fact, assumption or fitted, found 'guess'");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"fact\"\nsource = \"x\"\nsise = 3\n"),
            "d.toml:5: unknown key 'sise' in [[row]], did you mean 'size'?");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nsize = \"3\"\n"),
            "d.toml:3: 'size' in [[row]]: expected a whole number");
  EXPECT_EQ(message("[[rows]]\nname = \"a\"\n").substr(0, 32), "d.toml:1: unknown key 'rows' in ");
  EXPECT_EQ(message("[[row]]\nname = \"a\"\nkind = \"fact\"\nsource = \"\"\n").substr(0, 17),
            "d.toml:3: 'kind' ");
}

TEST(DataFile, settings_keep_the_order_of_the_file) {
  const auto root = parse_data("z = 1\na.b = \"20us\"\nc = true\nd = 0.5\n", "d.toml");
  ASSERT_TRUE(root);
  const auto settings = root->settings();
  ASSERT_TRUE(settings);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"z", "1"}, {"a.b", "20us"}, {"c", "true"}, {"d", "0.5"}};
  EXPECT_EQ(*settings, expected);
  EXPECT_TRUE(root->done());
}

}  // namespace
}  // namespace tessera
