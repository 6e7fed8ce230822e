#include "tessera/plan/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string folder_of_this_test() {
  const auto path =
      std::filesystem::temp_directory_path() / ("tessera_load_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(path);
  return path.string();
}

TEST(LoadPlan, AFileIsFoundBesideTheFileThatNamesIt) {
  const std::string folder = folder_of_this_test();
  ASSERT_TRUE(write_file(folder + "/one.toml", "mesh = { dp = 2 }\n"));
  const auto plan = load_plan("one.toml", Graph{}, folder + "/run.toml");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->file, folder + "/one.toml");
  EXPECT_FALSE(load_plan("one.toml", Graph{}));
  std::filesystem::remove_all(folder);
}

TEST(LoadPlan, ARecipeCallIsEmitted) {
  const auto plan = load_plan("serial", Graph{});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->ranks(), 1);
  EXPECT_EQ(load_plan("seriall", Graph{}).error().message,
            "unknown recipe 'seriall', did you mean 'serial'?");
  EXPECT_THAT(load_plan("auto", Graph{}).error().message, HasSubstr("is not known here"));
}

TEST(CheckRanks, NamesTheMeshAndBothNumbers) {
  const auto plan = parse_plan("mesh = { dp = 2, tp = 2 }\n", "p.toml");
  ASSERT_TRUE(plan);
  EXPECT_TRUE(check_ranks(*plan, 4));
  EXPECT_EQ(check_ranks(*plan, 3).error().message,
            "p.toml: its mesh {dp=2, tp=2} needs 4 ranks, found 3 (--ranks)");
}

TEST(SmallestBatch, IsReplicasTimesMicroBatches) {
  const auto plan = parse_plan(
      "mesh = { a = 2, b = 3, tp = 5 }\nmicro_batches = 4\n"
      "split = [ { ops = \"*\", dim = \"batch\", over = [\"a\", \"b\"] } ]\n",
      "p.toml");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(smallest_batch(*plan), 24);
}

}  // namespace
}  // namespace tessera
