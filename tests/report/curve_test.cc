// Reads the curve of throughput against memory from a search's JSON, and hands it to the page.
#include "tessera/report/curve.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/report/report.h"

namespace tessera::curve_test {
namespace {

using Json = nlohmann::json;

// A small answer as `tessera plan MODEL --json` writes it. Its curve is not in order of memory.
Json sample() {
  return Json::parse(R"({
    "model": "gpt:layers=4", "cluster": "dgx-a100", "batch": 16, "planner": "auto", "found": true,
    "memory_limit_bytes": 1500,
    "best":
      {"choice": "dp=8[batch] sharded=3", "estimated_step_s": 0.5, "estimated_memory_bytes": 1000,
       "step_time_s": 0.25, "memory_bytes": 1200, "fits": true},
    "simulated": [
      {"choice": "dp=8[batch]", "estimated_step_s": 0.125, "estimated_memory_bytes": 1400,
       "step_time_s": 0.2, "memory_bytes": 2000, "fits": false},
      {"choice": "pp=8 zb_h1", "estimated_step_s": 0.25, "estimated_memory_bytes": 900,
       "refused": "the model has 4 layers"},
      {"choice": "dp=8[batch] sharded=3", "estimated_step_s": 0.5, "estimated_memory_bytes": 1000,
       "step_time_s": 0.25, "memory_bytes": 1200, "fits": true}],
    "curve": [
      {"choice": "tp=8[heads]", "estimated_step_s": 0.1, "estimated_memory_bytes": 1600},
      {"choice": "dp=8[batch]", "estimated_step_s": 0.125, "estimated_memory_bytes": 1400}]})");
}

PlanCurve parsed(const Json& answer) {
  auto curve = parse_plan_curve(answer.dump(), "answer.json");
  if (!curve) throw std::runtime_error(curve.error().message);
  return std::move(*curve);
}

std::string refusal(const std::string& text) {
  const auto curve = parse_plan_curve(text, "answer.json");
  return curve ? "none" : curve.error().message;
}

TEST(PlanCurve, KeepsProgramsBesideTheCurveInOrderOfMemory) {
  const PlanCurve curve = parsed(sample());
  EXPECT_EQ(curve.batch, 16);
  EXPECT_EQ(curve.limit_bytes, 1500);
  EXPECT_EQ(curve.refused, 1);
  ASSERT_EQ(curve.estimated.size(), 2U);
  EXPECT_EQ(curve.estimated[0].choice, "dp=8[batch]");
  EXPECT_TRUE(curve.estimated[0].fits);
  EXPECT_FALSE(curve.estimated[1].fits);  // 1,600 of 1,500 bytes
  ASSERT_EQ(curve.simulated.size(), 2U);
  EXPECT_FALSE(curve.simulated[0].fits);
  EXPECT_EQ(curve.simulated[0].step_s, 0.2);
  EXPECT_EQ(curve.simulated[0].estimate.memory_bytes, 1400);
  // The refused choice lies before the answer and is not counted.
  ASSERT_TRUE(curve.best);
  EXPECT_EQ(curve.simulated[*curve.best].choice, "dp=8[batch] sharded=3");
}

// The text of a choice may stand for several plans, whose units differ in other ways.
TEST(PlanCurve, TheAnswerIsFoundAmongChoicesOfTheSameText) {
  Json answer = sample();
  answer["simulated"][0]["choice"] = answer["best"]["choice"];
  EXPECT_EQ(parsed(answer).best, 1U);
}

TEST(PlanCurve, NothingFoundHasNoAnswer) {
  Json answer = sample();
  answer["found"] = false;
  answer.erase("best");
  EXPECT_FALSE(parsed(answer).best);
}

TEST(PlanCurve, WithoutALimitTheWholeCurveFits) {
  Json answer = sample();
  answer["memory_limit_bytes"] = 0;
  for (const PlanCurve::Point& point : parsed(answer).estimated) EXPECT_TRUE(point.fits);
}

TEST(PlanCurve, ThePageGetsSequencesASecond) {
  Report report;
  report.title = "gpt";
  report.curve = parsed(sample());
  const auto data = report_data(report);
  ASSERT_TRUE(data) << data.error().message;
  const Json curve = Json::parse(*data).at("curve");
  EXPECT_EQ(curve.at("estimated").at(0).at("sequences_per_s"), 128);  // 16 in 0.125 s
  EXPECT_EQ(curve.at("simulated").at(1).at("sequences_per_s"), 64);   // 16 in 0.25 s
  EXPECT_EQ(curve.at("simulated").at(1).at("estimate").at("sequences_per_s"), 32);
  EXPECT_EQ(curve.at("simulated").at(0).at("fits"), false);
  EXPECT_EQ(curve.at("best"), 1);
  EXPECT_EQ(curve.at("limit_bytes"), 1500);
  EXPECT_EQ(curve.at("refused"), 1);
  EXPECT_TRUE(Json::parse(*data).at("runs").empty());
}

TEST(PlanCurve, EveryTornFileIsRefused) {
  const std::string whole = sample().dump();
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_EQ(
        refusal(whole.substr(0, length)),
        "answer.json: expected what tessera plan MODEL --json prints, found no JSON, or a part "
        "of one")
        << length;
  }
}

TEST(PlanCurve, OtherJsonIsRefused) {
  for (const char* text : {"[]", "3", "{}", R"({"recipe": "serial", "text": ""})"}) {
    EXPECT_EQ(refusal(text),
              "answer.json: expected what tessera plan MODEL --json prints, found no 'curve' in it")
        << text;
  }
}

TEST(PlanCurve, AMissingKeyIsNamed) {
  for (const char* key :
       {"model", "cluster", "planner", "batch", "found", "memory_limit_bytes", "simulated"}) {
    Json answer = sample();
    answer.erase(key);
    const std::string message = refusal(answer.dump());
    EXPECT_EQ(message.rfind(std::string("answer.json: ") + key + ": expected ", 0), 0U) << message;
    EXPECT_NE(message.find(", found nothing"), std::string::npos) << message;
  }
}

TEST(PlanCurve, WrongValuesAreSaidWithTheirPlace) {
  const auto with = [](const std::string& pointer, const Json& value) {
    Json answer = sample();
    answer[Json::json_pointer(pointer)] = value;
    return refusal(answer.dump());
  };
  EXPECT_EQ(with("/curve/1/estimated_step_s", 0),
            "answer.json: curve[1].estimated_step_s: expected a time above 0, found 0");
  EXPECT_EQ(with("/simulated/2/memory_bytes", -1),
            "answer.json: simulated[2].memory_bytes: expected a size, found -1");
  EXPECT_EQ(with("/simulated/0/fits", "yes"),
            "answer.json: simulated[0].fits: expected true or false, found \"yes\"");
  EXPECT_EQ(with("/curve", Json::object()), "answer.json: curve: expected a list, found object");
  EXPECT_EQ(with("/curve/0", 7), "answer.json: curve[0].choice: expected a text, found nothing");
  EXPECT_EQ(with("/batch", 0), "answer.json: batch: expected a number of sequences, found 0");
  EXPECT_EQ(with("/batch", 2.5), "answer.json: batch: expected a number of sequences, found 2.5");
  for (const char* part : {"/best", "/best/choice", "/best/memory_bytes"}) {
    EXPECT_EQ(with(part, 1), "answer.json: best: expected one of 'simulated', found none of them");
  }
  Json empty = sample();
  empty["curve"] = empty["simulated"] = Json::array();
  empty["found"] = false;
  EXPECT_EQ(refusal(empty.dump()),
            "answer.json: expected choices in 'curve' or 'simulated', found none");
}

}  // namespace
}  // namespace tessera::curve_test
