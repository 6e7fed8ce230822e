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

TEST(RunRecord, TheAccuracyOfEvaluationsIsDrawn) {
  const auto record =
      parse_run_record(step(1, 9) + step(2, 8, R"(, "eval_loss": 1, "eval_accuracy": 0.5)") +
                           step(3, 7, R"(, "eval_loss": 1, "eval_accuracy": null)") +
                           step(4, 6, R"(, "eval_loss": 1, "eval_accuracy": 0.75)"),
                       "m.jsonl");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_FALSE(record->steps[0].accuracy);
  EXPECT_EQ(record->steps[1].accuracy, 0.5);
  EXPECT_TRUE(std::isnan(*record->steps[2].accuracy));
  const std::string text = draw(*record);
  EXPECT_NE(text.find("accuracy of the evaluation (last: 0.7500)\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("normalised entropy"), std::string::npos) << text;
  EXPECT_EQ(error_of(step(1, 9, R"(, "eval_accuracy": "high")")),
            "m.jsonl:1: eval_accuracy: expected a number, found string");
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

TEST(RunRecord, WhereTablesRestIsListedWithTheLoadOfEachRank) {
  const auto share = [](const char* table, int rank, int first_row, int rows,
                        const std::string& tier = "device") {
    return fmt::format(
        R"({{"table": "{}", "rank": {}, "first_row": {}, "rows": {}, "first_column": 0, )"
        R"("columns": 8, "tier": "{}", "bytes": {}, "state_bytes": {}}})",
        table, rank, first_row, rows, tier, rows * 32, rows * 4);
  };
  const auto begun = [](const std::string& tables) {
    return R"({"start": {"time": 1, "model": "dlrm", "plan": "p", "ranks": 3, "tables": )" +
           tables + "}}\n";
  };
  const std::string tables = fmt::format(
      "[{}, {}, {}, {}, {}, {}]", share("a", 0, 0, 64), share("a", 1, 64, 32),
      share("b", 1, 0, 16, "host"), share("c", 0, 0, 4), share("c", 1, 0, 4), share("c", 2, 0, 4));
  const auto record = parse_run_record(begun(tables) + step(1, 5), "m.jsonl");
  ASSERT_TRUE(record) << record.error().message;
  const std::string text = draw(*record, 3, 2);
  EXPECT_EQ(text.substr(std::min(text.size(), text.find("tables under"))),
            "tables under plan p\n"
            "table        rows columns  on ranks\n"
            "a              96       8  rows 0-63 on 0, rows 64-95 on 1\n"
            "b              16       8  on 1 (host)\n"
            "c               4       8  on 0 to 2\n"
            "\n"
            " rank  pieces         rows       tables their states\n"
            "    0       2           68    2.125 KiB        272 B\n"
            "    1       3           52    1.625 KiB        208 B\n"
            "    2       1            4        128 B         16 B\n");
  EXPECT_EQ(error_of(begun("3") + step(1, 5)), "m.jsonl:1: tables: expected a list");
  EXPECT_EQ(error_of(begun("[3]") + step(1, 5)), "m.jsonl:1: tables: expected a list of objects");
  EXPECT_EQ(error_of(begun("[{\"table\": \"a\"}]") + step(1, 5)),
            "m.jsonl:1: tables: expected the key 'rank', found none");
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
