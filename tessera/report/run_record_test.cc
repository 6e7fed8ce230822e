#include "tessera/report/run_record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

std::string start(const std::string& plan) {
  return fmt::format(R"({{"start": {{"time": 1.5, "model": "gpt", "plan": "{}", "ranks": 2}}}})"
                     "\n",
                     plan);
}

std::string step(int64_t number, double loss, const std::string& more = "") {
  return fmt::format(
      R"({{"step": {}, "loss": {}, "learning_rate": 0.1, "step_time_s": 0.5, "tokens_per_s": 100, )"
      R"("memory_bytes": 2048, "resident_bytes": 4096{}}})"
      "\n",
      number, loss, more);
}

std::string error_of(const std::string& text) {
  const auto record = parse_run_record(text, "m.jsonl");
  return record ? "" : record.error().message;
}

TEST(RunRecord, AStepThatIsMadeAgainCountsByItsLaterLine) {
  const auto record = parse_run_record(
      start("serial") + step(1, 5) + step(2, 4) + step(3, 3.5) + start("data_parallel(2)") +
          "{\"loaded\": {\"step\": 2}}\n" + step(3, 3) + "{\"saved\": {\"step\": 3}}\n" +
          "{\"change\": {\"after\": 3}}\n" + step(4, 2, R"(, "eval_loss": 2.5)"),
      "m.jsonl");
  ASSERT_TRUE(record) << record.error().message;
  ASSERT_EQ(record->steps.size(), 4U);
  EXPECT_EQ(record->steps[2].loss, 3);
  EXPECT_EQ(record->steps[3].eval_loss, 2.5);
  EXPECT_FALSE(record->steps[0].eval_loss);
  ASSERT_EQ(record->starts.size(), 2U);
  EXPECT_EQ(record->starts[0].first_step, 1);
  EXPECT_EQ(record->starts[1].first_step, 3);
}

TEST(RunRecord, APartOfALineAtTheEndIsPassedOver) {
  const std::string whole = start("serial") + step(1, 5), next = step(2, 4);
  for (size_t part = 0; part < next.size(); ++part) {
    const auto record = parse_run_record(whole + next.substr(0, part), "m.jsonl");
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_EQ(record->steps.size(), 1U);
  }
}

TEST(RunRecord, ALossThatIsNoneIsNotDrawn) {
  std::string text = step(1, 5) + step(2, 7) + step(3, 4);
  text.replace(text.find("\"loss\": 7"), 9, "\"loss\": null");
  const auto record = parse_run_record(text, "m.jsonl");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_TRUE(std::isnan(record->steps[1].loss));
  const std::string drawing = "           5 |*\n           4 |  *\n";
  EXPECT_NE(draw(*record, 3, 2).find(drawing), std::string::npos) << draw(*record, 3, 2);
}

TEST(RunRecord, ErrorsAreOneLineWithThePlace) {
  EXPECT_EQ(error_of(""), "m.jsonl: expected steps, found none");
  EXPECT_EQ(error_of(start("serial")), "m.jsonl: expected steps, found none");
  EXPECT_EQ(error_of(step(1, 5) + "3\n"), "m.jsonl:2: expected a JSON object, found another text");
  EXPECT_EQ(error_of("{\"step\": 1}\n"), "m.jsonl:1: expected the key 'loss', found none");
  EXPECT_EQ(error_of("{\"step\": -1, \"loss\": 1}\n"),
            "m.jsonl:1: step: expected an integer of at least 0, found -1");
  EXPECT_EQ(error_of("{\"start\": 3}\n"), "m.jsonl:1: start: expected an object");
}

TEST(RunRecord, IsDrawnWithEvaluationsAndRestarts) {
  const auto record =
      parse_run_record(start("serial") + step(1, 9) + step(2, 8) + start("data_parallel(2)") +
                           step(3, 3, R"(, "eval_loss": 6)") + step(4, 1) + step(5, 1),
                       "m.jsonl");
  ASSERT_TRUE(record) << record.error().message;
  const std::string text = draw(*record, 5, 3);
  EXPECT_EQ(text.substr(0, text.find("\n\ntokens/s")),
            "gpt, plan data_parallel(2), 2 ranks\n"
            "steps 1 to 5, 1 restart (R): at step 3 (plan data_parallel(2))\n"
            "\n"
            "loss, nats a token (*), and of the evaluation (o)\n"
            "           9 |**\n"
            "             |  o\n"
            "           1 |  ***\n"
            "             +--R--\n"
            "        step  1   5");
}

TEST(RunRecord, HowGoodPredictionsOfClicksAreIsDrawn) {
  const auto clicks = [](const char* entropy, const char* auc) {
    return fmt::format(R"(, "eval_loss": 1, "eval_normalized_entropy": {}, "eval_auc": {})",
                       entropy, auc);
  };
  const auto record =
      parse_run_record(start("serial") + step(1, 9, clicks("null", "null")) +
                           step(2, 8, clicks("1.25", "0.5")) + step(3, 7, clicks("0.75", "0.875")),
                       "m.jsonl");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_TRUE(std::isnan(*record->steps[0].normalized_entropy));
  EXPECT_EQ(record->steps[2].auc, 0.875);
  const std::string text = draw(*record, 3, 2);
  const std::string expected =
      "normalised entropy of the evaluation (last: 0.7500)\n"
      "        1.25 | o\n"
      "        0.75 |  o\n";
  EXPECT_NE(text.find(expected), std::string::npos) << text;
  EXPECT_NE(text.find("area under the ROC curve of the evaluation (last: 0.8750)\n"
                      "       0.875 |  o\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(draw(*parse_run_record(step(1, 9), "m.jsonl")).find("ROC"), std::string::npos);
  EXPECT_EQ(error_of(step(1, 9, R"(, "eval_loss": 1, "eval_normalized_entropy": 2)")),
            "m.jsonl:1: expected the key 'eval_auc', found none");
}

}  // namespace
}  // namespace tessera
