// Tests what a submission says of a job's speed, and how measured speeds take over.
#include "tessera/orchestrate/live/training.h"

#include <gtest/gtest.h>

#include <utility>

#include "tessera/base/json_text.h"

namespace tessera::share {
namespace {

nlohmann::json request() {
  return {{"name", "a"},
          {"run", "/a.toml"},
          {"folder", "/"},
          {"gpus", 4},
          {"plan", "data_parallel({})"},
          {"most", 8}};
}

TEST(MeasuredSpeeds, ScaleAsThePredictionsUntilTheyAreMeasured) {
  nlohmann::json json = request();
  const auto speed = [](const MeasuredSpeeds& speeds, int gpus) {
    return speeds.steps_per_s({{gpus}, 0}, BatchRule::kAsked);
  };
  // Without predictions: in proportion to the GPUs.
  MeasuredSpeeds plain(*parse_submission(json));
  EXPECT_DOUBLE_EQ(speed(plain, 4), 4);
  plain.measured(2, 10);
  EXPECT_DOUBLE_EQ(speed(plain, 4), 20);
  EXPECT_DOUBLE_EQ(speed(plain, 9), 0);

  json["predicted"] = {{1, 5.0}, {4, 8.0}};
  MeasuredSpeeds predicted(*parse_submission(json));
  EXPECT_DOUBLE_EQ(speed(predicted, 4), 8);
  EXPECT_DOUBLE_EQ(speed(predicted, 8), 16) << "beyond the table in proportion";
  predicted.measured(1, 10);  // twice as fast as predicted
  EXPECT_DOUBLE_EQ(speed(predicted, 1), 10);
  EXPECT_DOUBLE_EQ(speed(predicted, 4), 16);
  predicted.measured(4, 12);
  EXPECT_DOUBLE_EQ(speed(predicted, 4), 12);
}

TEST(Submission, PredictionsAreWrittenAndReadAgain) {
  nlohmann::json json = request();
  json["predicted"] = {{1, 5.0}, {4, 8.25}};
  const auto job = parse_submission(json);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->predicted, (std::map<int, double>{{1, 5.0}, {4, 8.25}}));
  EXPECT_EQ(parse_submission(to_json(*job))->predicted, job->predicted);
}

TEST(Submission, WrongPredictionsAreOneLine) {
  for (const char* wrong : {"4", "[4]", "[[4]]", "[[4, 0]]", "[[0, 1.5]]", "[[1, 1e300]]",
                            "[[1, 2], [1, 3]]", "[[1.5, 2]]", "[[1, \"a\"]]"}) {
    nlohmann::json json = request();
    json["predicted"] = *parse_json(wrong);
    const auto job = parse_submission(json);
    ASSERT_FALSE(job.has_value()) << wrong;
    EXPECT_EQ(job.error().code, ErrorCode::kInvalidInput);
    EXPECT_TRUE(job.error().message.starts_with(
        "predicted: expected pairs of a number of GPUs, each once, and steps a second, found "))
        << job.error().message;
  }
}

}  // namespace
}  // namespace tessera::share
