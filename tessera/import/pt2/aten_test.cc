#include "tessera/import/pt2/aten.h"

#include <gtest/gtest.h>
#include <tessera/test/source_dir.h>

#include <set>

#include "tessera/base/text.h"

namespace tessera::pt2 {
namespace {

TEST(AtenTest, TheGuideListsTheOpsOfTheTable) {
  const auto text = read_file(std::string(TESSERA_SOURCE_DIR) + "/docs/guides/bring-your-model.md");
  ASSERT_TRUE(text) << text.error().message;
  const size_t begin = text->find("<!-- table: aten -->");
  const size_t end = text->find("<!-- end -->", begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  std::set<std::string> listed;
  const std::vector<std::string> pieces = split_text(text->substr(begin, end - begin), '`');
  for (size_t i = 1; i < pieces.size(); i += 2) {
    if (!pieces[i].ends_with('.')) listed.insert(pieces[i]);
  }
  std::set<std::string> known;
  for (const Rows& rows :
       {pointwise_rows(), shape_rows(), product_rows(), convolution_rows(), attention_rows(),
        norm_rows(), loss_rows(), integer_rows(), expert_rows()}) {
    for (const auto& [name, row] : rows) {
      EXPECT_TRUE(known.insert(std::string(name)).second) << name << " is in two tables";
      EXPECT_EQ(find_row(name), row);
    }
  }
  EXPECT_EQ(listed, known);
}

}  // namespace
}  // namespace tessera::pt2
