// Tests the supervisor against a world that plays a script: how each try ends, which ranks are
// available, what is saved. Oracle: the rules of launch.h, written out case by case.
#include "tessera/orchestrate/launch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Scene {
  Ended ended;
  int64_t saved_after = -1;
  int64_t available_after = 4;
};

class Script : public LaunchWorld {
 public:
  explicit Script(std::vector<Scene> scenes, int64_t available = 4)
      : scenes_(std::move(scenes)), available_(available) {}
  Result<int64_t> available_ranks() override { return available_; }
  Result<int64_t> saved_step() override { return saved_; }
  Result<Ended> run(const LaunchTry& next) override {
    tried.push_back(
        fmt::format("{} on {} from {}", next.plan.text, next.plan.ranks, next.resumes_from));
    if (at_ >= scenes_.size()) return fault("the script has no further scene");
    const Scene& scene = scenes_[at_++];
    saved_ = scene.saved_after;
    available_ = scene.available_after;
    return scene.ended;
  }
  Status log(const LaunchEvent& event) override {
    events.emplace_back(event_name(event.kind));
    lines.push_back(to_json_line(event, 1763923212));
    return {};
  }

  std::vector<std::string> silent_hosts() const override { return silent; }

  std::vector<std::string> tried, events, lines, silent;

 private:
  std::vector<Scene> scenes_;
  size_t at_ = 0;
  int64_t available_, saved_ = -1;
};

Ended code(int exit_code, std::string error = "") {
  Ended ended;
  ended.exit_code = exit_code;
  ended.error = std::move(error);
  return ended;
}
Ended killed() {
  Ended ended;
  ended.signal = 9;
  return ended;
}

const std::vector<LaunchPlan> kPlans{{"big", 4}, {"small", 2}, {"auto", 0}};

TEST(Launch, OneTryThatSucceedsIsAll) {
  Script world({{code(0), 100, 4}});
  const auto summary = launch(kPlans, 3, world);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->tries, 1);
  EXPECT_EQ(summary->losses, 0);
  EXPECT_THAT(world.tried, ElementsAre("big on 4 from -1"));
  EXPECT_THAT(world.events, ElementsAre("start", "end", "done"));
}

TEST(Launch, ALossResumesFromTheNewestCheckpoint) {
  Script world({{killed(), 20, 4}, {code(3), 40, 4}, {code(0), 100, 4}});
  const auto summary = launch(kPlans, 1, world);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->losses, 2);
  EXPECT_THAT(world.tried, ElementsAre("big on 4 from -1", "big on 4 from 20", "big on 4 from 40"));
}

TEST(Launch, FewerRanksTakeTheNextPlanThatFits) {
  Script world({{killed(), 20, 3}, {killed(), 40, 1}, {code(0), 100, 1}});
  const auto summary = launch(kPlans, 3, world);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(world.tried,
              ElementsAre("big on 4 from -1", "small on 2 from 20", "auto on 1 from 40"));
}

TEST(Launch, RanksThatComeBackAreUsedAgain) {
  Script world({{killed(), 20, 2}, {killed(), 40, 4}, {code(0), 100, 4}});
  ASSERT_TRUE(launch(kPlans, 3, world));
  EXPECT_THAT(world.tried,
              ElementsAre("big on 4 from -1", "small on 2 from 20", "big on 4 from 40"));
}

TEST(Launch, APlanIsGivenUpAfterLossesWithoutANewCheckpoint) {
  Script world({{killed(), 20, 4},
                {killed(), 20, 4},
                {code(3, "rank 1: disk full"), 20, 4},
                {code(0), 100, 4}});
  const auto summary = launch(kPlans, 2, world);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_THAT(world.tried, ElementsAre("big on 4 from -1", "big on 4 from 20", "big on 4 from 20",
                                       "small on 2 from 20"));
  EXPECT_THAT(world.events, ElementsAre("start", "end", "start", "end", "start", "end", "given_up",
                                        "start", "end", "done"));
}

TEST(Launch, WhenEveryPlanIsGivenUpTheLastErrorIsSaid) {
  Script world({{killed(), -1, 4}, {killed(), -1, 4}, {code(3, "rank 1: disk full"), -1, 4}});
  const auto summary = launch(kPlans, 1, world);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ErrorCode::kFault);
  EXPECT_EQ(summary.error().message,
            "launch: gave up after 3 tries; try 3 ended with exit code 3: rank 1: disk full");
}

TEST(Launch, WrongInputIsNotTriedAgain) {
  for (const int exit : {1, 2}) {
    Script world({{code(exit, "run.toml:3: expected a number"), -1, 4}});
    const auto summary = launch(kPlans, 3, world);
    ASSERT_FALSE(summary);
    EXPECT_EQ(exit_code(summary.error().code), exit);
    EXPECT_THAT(summary.error().message, HasSubstr("run.toml:3: expected a number"));
    EXPECT_EQ(world.tried.size(), 1U);
  }
}

// mpirun and srun end with code 1 when they lose a node, without a line of tessera's.
TEST(Launch, ALauncherThatFailsIsALoss) {
  Script world({{code(1), 20, 4}, {code(2), 40, 4}, {code(0), 100, 4}});
  const auto summary = launch(kPlans, 1, world);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(summary->losses, 2);
}

TEST(Launch, WhoeverStopsItIsObeyed) {
  Ended stopped = killed();
  stopped.stopped = true;
  Script world({{stopped, 20, 4}});
  const auto summary = launch(kPlans, 3, world);
  ASSERT_FALSE(summary);
  EXPECT_EQ(world.tried.size(), 1U);
  EXPECT_THAT(world.events, ElementsAre("start", "end", "stopped"));
}

TEST(Launch, TooFewRanksFromTheBeginningAreWrongInput) {
  Script world({}, 1);
  const auto summary = launch({{"big", 4}, {"small", 2}}, 3, world);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(summary.error().message,
            "launch: expected ranks for one of the plans big (4), small (2), found 1");
}

TEST(Launch, HostsThatDoNotAnswerAreNamed) {
  Script world({}, 1);
  world.silent = {"node3 (none within 20 s)", "node4 (none within 20 s)"};
  EXPECT_EQ(
      launch({{"big", 4}}, 3, world).error().message,
      "launch: expected ranks for one of the plans big (4), found 1; hosts without an answer: "
      "node3 (none within 20 s), node4 (none within 20 s)");
}

TEST(Launch, LogLinesAreJson) {
  Script world({{code(3, "a \"quoted\" \xff error"), 20, 4}, {code(0), 100, 4}});
  ASSERT_TRUE(launch(kPlans, 3, world));
  ASSERT_EQ(world.lines.size(), 5U);
  for (const std::string& line : world.lines) {
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["time"], "2025-11-23T18:40:12Z");
    EXPECT_EQ(json["plan"], "big");
  }
  const auto end = nlohmann::json::parse(world.lines[1]);
  EXPECT_EQ(end["exit_code"], 3);
  EXPECT_EQ(end["saved_step"], 20);
}

}  // namespace
}  // namespace tessera
