#include "tessera/orchestrate/live/run_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tessera::share {
namespace {

class RunLogTest : public testing::Test {
 protected:
  ~RunLogTest() override { std::filesystem::remove(path_); }
  void append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  std::string path_ = testing::TempDir() + "/tessera_run_log_" + std::to_string(::getpid());
  RunLog log_{path_};
};

TEST_F(RunLogTest, FollowsStepsChangesAndTheEnd) {
  log_.read();
  EXPECT_EQ(log_.step(), 0);
  append(
      "{\"step\": 1, \"step_time_s\": 0.5}\n{\"step\": 2, \"step_time_s\": 0.25}\n{\"step\": 3,");
  log_.read();
  EXPECT_EQ(log_.step(), 2);  // the third line is still being written
  EXPECT_EQ(log_.steps_per_s(), 4);
  append(" \"step_time_s\": 1}\nnote: words\n{\"change\": {\"after\": 3}}\n");
  log_.read();
  EXPECT_EQ(log_.step(), 3);
  EXPECT_EQ(log_.changes(), 1);
  EXPECT_EQ(log_.steps_per_s(), 0);  // that of the plan before does not count
  append("{\"summary\": {\"steps\": 9, \"stopped_after\": 3}}\n");
  log_.read();
  EXPECT_TRUE(log_.has_stopped());
  log_.begin_process();
  EXPECT_FALSE(log_.has_stopped());
  EXPECT_FALSE(log_.has_begun());
  append("{\"step\": 4}\n{\"summary\": {\"steps\": 9}}\n");
  log_.read();
  EXPECT_TRUE(log_.has_begun());
  EXPECT_FALSE(log_.has_stopped());
}

TEST_F(RunLogTest, TakesAnyBytes) {
  append(std::string("\0[[[[{\n{\"step\": \"x\"}\n{\"step\": 1e99}\n{\"change\"\n", 46) + "{}\n");
  log_.read();
  EXPECT_EQ(log_.step(), 0);
  EXPECT_EQ(log_.changes(), 0);
}

}  // namespace
}  // namespace tessera::share
