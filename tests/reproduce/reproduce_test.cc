// Runs every worked example of the publications: each file of this folder is an instance that
// states its expected results (docs/reference/reproduce.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tessera/base/text.h"
#include "tessera/planners/published/reproduce.h"
#include "tessera/test/source_dir.h"

namespace tessera::published {
namespace {

std::vector<std::string> example_files() {
  std::vector<std::string> names;
  const auto folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/reproduce";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class WorkedExample : public testing::TestWithParam<std::string> {};

TEST_P(WorkedExample, HasTheExpectedAnswer) {
  const std::string file = GetParam() + ".json";
  const auto text = read_file(std::string(TESSERA_SOURCE_DIR) + "/tests/reproduce/" + file);
  ASSERT_TRUE(text.has_value());
  const auto result = reproduce(GetParam().substr(0, GetParam().find('_')), *text, file, {});
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_GT(result->checked, 0) << "expects nothing";
  for (const std::string& difference : result->differences) ADD_FAILURE() << difference;
}

INSTANTIATE_TEST_SUITE_P(All, WorkedExample, testing::ValuesIn(example_files()),
                         [](const auto& example) { return example.param; });

TEST(WorkedExamples, TheProgramHoldsEveryFile) {
  std::vector<std::string> held;
  for (const PublishedSystem& system : published_systems()) {
    const auto examples = worked_examples(system.name);
    ASSERT_TRUE(examples.has_value());
    EXPECT_FALSE(examples->empty()) << system.name;
    for (const auto& [name, text] : *examples) held.push_back(name);
  }
  std::sort(held.begin(), held.end());
  EXPECT_EQ(held, example_files());
}

TEST(Claims, NameSystemsStatesAndExamplesThatExist) {
  const auto claims = published_claims();
  ASSERT_TRUE(claims.has_value()) << claims.error().message;
  const auto files = example_files();
  const std::set<std::string> names(files.begin(), files.end());
  std::set<std::string> shown;
  for (const Claim& claim : *claims) {
    EXPECT_TRUE(std::set<std::string>({"exactly", "simulated", "not"}).contains(claim.reproduced))
        << claim.claim;
    EXPECT_FALSE(claim.how.empty()) << claim.claim;
    for (const std::string& example : claim.examples) {
      EXPECT_TRUE(names.contains(example)) << claim.claim << ": no example " << example;
      shown.insert(example);
    }
  }
  for (const std::string& name : names)
    EXPECT_TRUE(shown.contains(name)) << "no claim has " << name;
  for (const PublishedSystem& system : published_systems()) {
    EXPECT_TRUE(std::any_of(claims->begin(), claims->end(), [&](const Claim& claim) {
      return claim.system == system.name;
    })) << system.name;
  }
}

}  // namespace
}  // namespace tessera::published
