// Checks that every published row is expressed, and that the result lowers.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "tessera/base/text.h"
#include "tessera/predict/express.h"
#include "tessera/predict/lowered.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

Status lowers(const Expressed& expressed) {
  Compiler compiler(1);
  TESSERA_TRY(const auto lowering, lower_row(compiler, expressed));
  for (const RankClass& role : lowering->roles()) {
    TESSERA_TRY(const Program program, lowering->lower(role.representative));
    if (program.schedule.empty()) return invalid_input("an empty schedule");
  }
  return {};
}

TEST(Express, NinetyEightOfAHundredPublishedRowsLower) {
  const auto text = read_file(TESSERA_SOURCE_DIR "/data/published-throughput.csv");
  ASSERT_TRUE(text) << text.error().message;
  const auto table = parse_csv(*text, "published-throughput.csv");
  ASSERT_TRUE(table) << table.error().message;
  const auto rows = read_rows(*table, "published-throughput.csv");
  ASSERT_TRUE(rows) << rows.error().message;
  std::map<std::string, std::string> seen;  // model and plan: why not, "" if it lowers
  size_t good = 0;
  for (const Row& row : *rows) {
    const auto run = infer(row);
    if (!run) {
      printf("%s: %s\n", row.id.c_str(), run.error().message.c_str());
      continue;
    }
    const auto expressed = express(*run);
    if (!expressed) {
      printf("%s: %s\n", row.id.c_str(), expressed.error().message.c_str());
      continue;
    }
    const auto [it, fresh] = seen.try_emplace(expressed->model + expressed->recipe);
    if (fresh) {
      if (const Status status = lowers(*expressed); !status) it->second = status.error().message;
    }
    if (it->second.empty()) {
      ++good;
    } else {
      printf("%s: %s %s: %s\n", row.id.c_str(), expressed->model.c_str(), expressed->recipe.c_str(),
             it->second.c_str());
    }
  }
  EXPECT_GE(static_cast<double>(good), 0.98 * static_cast<double>(rows->size()));
}

}  // namespace
}  // namespace tessera
