#include "tessera/planners/published/reproduce.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/text.h"

namespace tessera::published {
namespace {

std::string error_of(const std::string& system, const std::string& instance) {
  const auto result = reproduce(system, instance, "x.json", {});
  if (result) return "no error: " + result->json;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(std::count(result.error().message.begin(), result.error().message.end(), '\n'), 0);
  return result.error().message;
}

TEST(Reproduce, ErrorsNameFileAndKey) {
  EXPECT_EQ(
      error_of("alpha", "{}"),
      "reproduce: unknown system 'alpha', expected one of galvatron, alpa, terapipe, opfence, "
      "rannc, dtfm, splitbrain");
  EXPECT_EQ(error_of("alpa", "[1]"), "x.json: expected a JSON object, found [1]");
  EXPECT_EQ(error_of("alpa", "{"),
            "x.json: expected JSON: parse error at line 1, column 2: syntax error while parsing "
            "object key - unexpected end of input; expected string literal");
  EXPECT_EQ(error_of("terapipe", R"({"length": 64})"), "x.json: stages: is missing");
  EXPECT_EQ(error_of("terapipe", R"({"length": 64, "stages": 0})"),
            "x.json: stages: expected a whole number of at least 1, found 0");
  EXPECT_EQ(error_of("terapipe", R"({"length": 65, "stages": 1})"),
            "x.json: length: expected a multiple of unit = 8, at most 1024 times that");
  EXPECT_EQ(error_of("terapipe",
                     R"({"length": 8, "stages": 1, "time": {"per_tokens": 1, "measured": []}})"),
            "x.json: time.per_token: is missing");
  EXPECT_EQ(
      error_of("terapipe", R"({"length": 8, "stages": 1, "time": {"per_token": 1, "leest": 2}})"),
      "x.json: time.leest: unknown key, did you mean 'least'?");
  EXPECT_EQ(error_of("galvatron", R"({"model": "BERT-Huge-33", "memory_mb": 1})"),
            "x.json: model: expected one of BERT-Huge-32, BERT-Huge-48, ViT-Huge-32, ViT-Huge-48, "
            "T5-Large-48, Swin-Huge-32, Swin-Huge-48, found \"BERT-Huge-33\"");
  EXPECT_EQ(error_of("galvatron", R"({"ask": "strategies", "devices": 6})"),
            "x.json: devices: expected a power of two, found 6");
  EXPECT_EQ(error_of("alpa", R"({"ask": "strategies", "nodes": [{"name": "a", "costs": [1, 2]},
                               {"name": "b", "costs": [1]}], "edges": [{"from": "a", "to": "b",
                               "costs": [[1]]}]})"),
            "x.json: edges[0].costs: expected 2 rows of 1, found 1 of 1");
  EXPECT_EQ(error_of("alpa", R"({"ask": "sharding", "mesh": [2, 1], "sizes": {"m": 2},
                               "ops": [{"name": "x", "dims": ["k"]}]})"),
            "x.json: ops[0].dims[0]: expected a dim of 'sizes', found 'k'");
  EXPECT_EQ(error_of("opfence", R"({"work": [1], "megabytes": [1, 2], "speeds": [1],
                                  "megabytes_per_second": [[1]]})"),
            "x.json: megabytes: expected 1 numbers, found 2");
  EXPECT_EQ(error_of("dtfm", R"({"devices": 2, "stages": 1, "gradient_gb": 1, "activation_gb": 1,
                               "gbit_per_second": [[0, 1], [2, 0]]})"),
            "x.json: gbit_per_second[0][1]: differs from the other direction");
  EXPECT_EQ(error_of("rannc", R"({"blocks": [{"forward_ms": 1}], "devices": 1, "batch": 1,
                                "memory_mb": 1, "mb_per_ms": 1})"),
            "x.json: blocks[0].backward_ms: is missing");
  EXPECT_EQ(error_of("splitbrain", R"({"ask": "formulas", "conv_parameters": 1, "widths": [2, 2],
                                     "workers": 6, "group": 4, "batch": 1})"),
            "x.json: group: expected a divisor of workers = 6, found 4");
}

TEST(Reproduce, ErrorsOfACaseSayWhichCase) {
  EXPECT_EQ(error_of("rannc", R"({"ask": "batches", "batch": 4, "replicas": 2,
                                "cases": [{"micro_batches": 2}, {"micro_batches": -1}]})"),
            "x.json: cases[1]: micro_batches: expected a whole number from 1 to 4096, found -1");
  EXPECT_EQ(error_of("rannc", R"({"cases": [3]})"),
            "x.json: cases[0]: expected an object, found 3");
  EXPECT_EQ(error_of("rannc", R"({"cases": []})"), "x.json: cases: expected at least one case");
}

// Objects are compared key by key, lists item by item, numbers to the decimals that are printed.
TEST(Reproduce, WhatIsExpectedIsComparedWithTheAnswer) {
  const auto differences = [](const std::string& expected, const std::string& more) {
    const auto result =
        reproduce("terapipe",
                  R"({"length": 24, "stages": 3, "time": {"per_token": 0.111111111}, )" + more +
                      R"("expected": )" + expected + "}",
                  "x.json", {});
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    return result->differences;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(differences(R"({"parts": [{"slices": [8, 8, 8]}]})", ""), List{});
  EXPECT_EQ(differences(R"({"parts": [{"slices": [8, 8]}]})", ""),
            List{"expected.parts[0].slices: expected [8,8], found [8,8,8]"});
  EXPECT_EQ(differences(R"({"slowest": 0.889})", R"("decimals": 3, )"), List{});
  EXPECT_EQ(differences(R"({"slowest": 0.888})", R"("decimals": 3, )").size(), 1u);
  EXPECT_EQ(differences(R"({"slowest": 0.889})", "").size(), 1u);
  EXPECT_EQ(differences(R"({"no such": 1})", ""), List{"expected.no such: expected 1, found null"});
}

TEST(Reproduce, AnswersAreTheSameEachTime) {
  const auto examples = worked_examples("dtfm");
  ASSERT_TRUE(examples.has_value());
  for (const auto& [name, text] : *examples) {
    EXPECT_EQ(reproduce("dtfm", text, name, {})->json, reproduce("dtfm", text, name, {})->json);
  }
}

TEST(Reproduce, AnInstanceThatFitsNowhereIsAnAnswer) {
  const auto result =
      reproduce("galvatron", R"({"model": "BERT-Huge-32", "memory_mb": 100})", "x.json", {});
  ASSERT_TRUE(result.has_value());
  EXPECT_NE(result->json.find(R"("fits":false)"), std::string::npos);
}

}  // namespace
}  // namespace tessera::published
