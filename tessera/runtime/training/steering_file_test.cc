#include "tessera/runtime/training/steering_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace tessera {
namespace {

class SteeringFileTest : public ::testing::Test {
 protected:
  SteeringFileTest()
      : path_(::testing::TempDir() + "/tessera_steering_" + std::to_string(::getpid())),
        file_(path_, [this](const std::string& note) { notes_.push_back(note); }) {}
  ~SteeringFileTest() override { std::filesystem::remove(path_); }

  void write(const std::string& text) {
    { std::ofstream(path_ + ".new") << text; }
    std::filesystem::rename(path_ + ".new", path_);
  }

  std::string path_;
  std::vector<std::string> notes_;
  SteeringFile file_;
};

TEST_F(SteeringFileTest, SaysWhatItHoldsOnceAfterEachChange) {
  EXPECT_EQ(file_.look().plan, "");  // there is no file yet
  write(R"json({"plan": "data_parallel(2)"})json");
  EXPECT_EQ(file_.look().plan, "data_parallel(2)");
  EXPECT_EQ(file_.look().plan, "");
  write(R"({"stop": true})");
  EXPECT_TRUE(file_.look().stop);
  EXPECT_FALSE(file_.look().stop);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(SteeringFileTest, NotesAnotherFormAndChangesNothing) {
  for (const std::string text :
       {"", "[]", R"({"plan": 2})", R"({"halt": true})", "{\"plan\": \""}) {
    write(text);
    const Steering steering = file_.look();
    EXPECT_EQ(steering.plan, "") << text;
    EXPECT_FALSE(steering.stop) << text;
  }
  ASSERT_EQ(notes_.size(), 5);
  EXPECT_EQ(notes_[1], path_ + ": expected a JSON object, found another text");
  EXPECT_EQ(notes_[2], path_ + R"(: expected "plan": TEXT or "stop": true, found "plan": 2)");
}

}  // namespace
}  // namespace tessera
