#include "tessera/predict/reality.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::json;

Json pair(const std::string& plan, double predicted, std::vector<double> runs, int bytes = 8) {
  return {{"model", "gpt"},
          {"plan", plan},
          {"transport", "threads"},
          {"ranks", 2},
          {"predicted", {{"step_time_s", predicted}, {"bytes", 8}, {"memory", 1 << 20}}},
          {"runs", runs},
          {"bytes", bytes},
          {"memory", 1 << 20},
          {"error", ""}};
}

Json file(std::vector<Json> pairs) {
  return {{"date", "2026-01-02"},
          {"command", "benchmarks/run_reality.py"},
          {"title", "Steps of a machine"},
          {"method", "Both were timed."},
          {"target_error", 0.1},
          {"target_tau", 0.8},
          {"machine", {{"processor", "two cores"}}},
          {"models", {{"gpt", "gpt:layers=1, batch 8"}}},
          {"pairs", pairs}};
}

TEST(Reality, ScoresAreThoseOfTheMediansOfRuns) {
  const auto reality = parse_reality(file({pair("a", 1.1, {0.9, 1.2, 1.0}), pair("b", 1.9, {2.0}),
                                           pair("c", 2.4, {3.0}, 9), pair("d", 2.9, {3.01})})
                                         .dump(),
                                     "m.json");
  ASSERT_TRUE(reality) << reality.error().message;
  const RealityScores found = score(*reality);
  EXPECT_NEAR(found.worst_error, 0.2, 1e-12);
  EXPECT_NEAR(found.median_error, (0.05 + 0.1) / 2, 1e-12);  // of .037, .05, .1, .2
  EXPECT_NEAR(found.bias, (0.1 - 0.05 - 0.2 + (2.9 / 3.01 - 1)) / 4, 1e-12);
  EXPECT_EQ(found.exact, 3);            // c sends 9 bytes, not 8
  EXPECT_DOUBLE_EQ(found.tau, 1);       // c and d are a tie
  EXPECT_NEAR(found.spread, 0, 1e-12);  // of 0.3, 0, 0, 0
}

TEST(Reality, TauCountsOrdersThatAreMissed) {
  const auto reality = parse_reality(
      file({pair("a", 3, {1}), pair("b", 2, {2}), pair("c", 4, {3})}).dump(), "m.json");
  ASSERT_TRUE(reality);
  EXPECT_DOUBLE_EQ(score(*reality).tau, 1.0 / 3);
}

TEST(Reality, ThePageHasATableAndTheMachine) {
  Json failed = pair("e", 1, {});
  failed["error"] = "exit code 3";
  const auto reality =
      parse_reality(file({pair("data_parallel(2)", 0.11, {0.1}), failed}).dump(), "m.json");
  ASSERT_TRUE(reality);
  const std::string page = reality_markdown(*reality);
  EXPECT_NE(page.find("| gpt | `data_parallel(2)` | 2 threads | 100.0 | 110.0 | +10.0 % | 0 % |"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("| could not be measured | 1 | 0 |"), std::string::npos);
  EXPECT_NE(page.find("- processor: two cores"), std::string::npos);
}

TEST(Reality, WhatIsNoSuchFileIsRefused) {
  Json without = file({pair("a", 1, {1})});
  without["pairs"][0].erase("bytes");
  const auto missing = parse_reality(without.dump(), "m.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("m.json"), std::string::npos);
  EXPECT_NE(missing.error().message.find("'bytes'"), std::string::npos) << missing.error().message;
  EXPECT_EQ(missing.error().message.find('\n'), std::string::npos);
  EXPECT_FALSE(parse_reality("{", "m.json"));
  EXPECT_FALSE(parse_reality(file({}).dump(), "m.json"));
  EXPECT_FALSE(parse_reality(file({pair("a", 1, {0.0})}).dump(), "m.json"));
}

}  // namespace
}  // namespace tessera
