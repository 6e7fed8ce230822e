// The pass that brings rows of tables into caches: the instructions that it puts in, their text
// form, and the verifier's rule "rows", which rejects each piece that is missing or wrong.
#include "tessera/program/rows/row_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/program/instructions.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"

namespace tessera::row_caches_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kPlan =
    "mesh = { dp = 1 }\nstore = [{ tensors = \"{,optimizer.*.}table\", tier = \"host\", cache = { "
    "slots = 100 } }]\n";

std::vector<std::string> lines_with(const TestPrograms& lowered, const std::string& what) {
  std::vector<std::string> found;
  std::istringstream text(to_text(lowered.programs[0], lowered.graph));
  for (std::string line; std::getline(text, line);) {
    if (line.find(what) != std::string::npos) found.push_back(line);
  }
  return found;
}

std::string first(const TestPrograms& lowered) {
  const auto rejections = verify(lowered.graph, lowered.programs);
  return rejections.empty() ? "accepted" : rejections[0].to_string();
}

TEST(RowCaches, RowsComeBesideTheDensePartAndStayUntilTheUpdate) {
  const TestPrograms lowered = lower_all(test_table(), kPlan);
  ASSERT_EQ(lowered.programs.size(), 1U);
  EXPECT_EQ(first(lowered), "accepted");
  const Program& program = lowered.programs[0];
  ASSERT_EQ(program.caches.size(), 1U);
  const RowCache& cache = program.caches[0];
  EXPECT_EQ(cache.held.size(), 2U);  // the table, a sum for each row
  EXPECT_EQ(cache.slots, 100);
  EXPECT_EQ(cache.places, 100);  // two batches of 16 ids find slots
  EXPECT_EQ(row_bytes(program, cache), 5 * 8);
  const Buffer& table = program.buffer(cache.held[0]);
  EXPECT_EQ(table.bytes(), 100 * 4 * 8);
  EXPECT_EQ(program.buffer(cache.rests[0]).bytes(), 1000 * 4 * 8);
  EXPECT_EQ(program.buffer(cache.index).bytes(), 4 * 1000 + 8 * 100);
  // Expected order: ids, the fetch, dense work, the wait, the next step's fetch, the look-up.
  std::string order;
  for (const Instruction& instruction : program.block({BlockKind::kForward, 0})) {
    match(
        instruction, [&](const FetchRows& fetch) { order += fetch.ahead ? "next " : "fetch "; },
        [&](const Wait&) { order += "wait "; },
        [&](const Compute& compute) { order += lowered.graph.op(compute.op).path + " "; },
        [&](const Load& load) { order += lowered.graph.tensor(load.tensor).name + " "; },
        [](const OneOf<Issue, Send, Recv, Copy, Free, ReleaseRows> auto&) {});
  }
  EXPECT_THAT(order, StartsWith("ids fetch x bottom half wait next look_up "));
  EXPECT_EQ(lines_with(lowered, "release_rows").size(), 1U);
  EXPECT_THAT(lines_with(lowered, "release_rows")[0], HasSubstr(" changed"));
}

TEST(RowCaches, TheTextFormKeepsThem) {
  const TestPrograms lowered = lower_all(test_table("row_adam"), kPlan);
  const std::string text = to_text(lowered.programs[0], lowered.graph);
  const auto parsed = parse_program(text, lowered.graph);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, lowered.programs[0]);
  EXPECT_EQ(to_text(*parsed, lowered.graph), text);
}

TEST(RowCaches, ABatchThatMayBeLargerThanTheSlotsHasPlacesBehindThem) {
  std::string plan = kPlan;
  plan.replace(plan.find("slots = 100"), 11, "slots = 10, prefetch = false");
  const TestPrograms lowered = lower_all(test_table(), plan);
  EXPECT_EQ(first(lowered), "accepted");
  EXPECT_EQ(lowered.programs[0].caches[0].slots, 10);
  EXPECT_EQ(lowered.programs[0].caches[0].places, 10 + 16);
  EXPECT_TRUE(lines_with(lowered, " ahead ").empty());
}

// Returns the verdict after removing or changing the first line that has `from`.
std::string verdict(const std::string& from, const std::string& to, bool whole_line = false) {
  TestPrograms lowered = lower_all(test_table(), kPlan);
  std::string text = to_text(lowered.programs[0], lowered.graph);
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << "\n" << text;
  if (at == std::string::npos) return "";
  if (whole_line) {
    const size_t begin = text.rfind('\n', at) + 1;
    text.replace(begin, text.find('\n', at) + 1 - begin, to);
  } else {
    text.replace(at, from.size(), to);
  }
  const auto parsed = parse_program(text, lowered.graph);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  if (!parsed) return "";
  lowered.programs[0] = *parsed;
  return first(lowered);
}

TEST(RowCaches, TheVerifierMissesNoPiece) {
  const TestPrograms lowered = lower_all(test_table(), kPlan);
  int handle = -1;
  for (const auto& [ref, block] : lowered.programs[0].blocks) {
    for (const Instruction& instruction : block) {
      const auto* fetch = std::get_if<FetchRows>(&instruction.body);
      if (fetch != nullptr && !fetch->ahead) handle = fetch->handle;
    }
  }
  ASSERT_GE(handle, 0);
  const std::string number = std::to_string(handle);
  EXPECT_THAT(verdict("release_rows", "", true), HasSubstr("are never released"));
  EXPECT_THAT(verdict("release_rows of " + number + " changed", "release_rows of " + number),
              HasSubstr("as unchanged, which an op has changed"));
  EXPECT_THAT(verdict("release_rows of " + number, "release_rows of 77"),
              HasSubstr("rows: rank 0"));
  EXPECT_THAT(verdict("wait #" + number + " ", "", true), HasSubstr("rows: rank 0"));
  EXPECT_THAT(verdict("fetch_rows #" + number, "", true), HasSubstr("waits for a handle"));
  // The ids have another region than those that the look-up names.
  const std::string ids = "cache 0 (\"ids\"[0:8, 0:2]";
  const std::string fewer = "cache 0 (\"ids\"[0:8, 0:1]";
  EXPECT_THAT(verdict(ids, fewer), HasSubstr("instruction: rank 0"));
  EXPECT_THAT(verdict(" places 100\n", "\n"), HasSubstr("instruction: rank 0"));
  EXPECT_THAT(verdict("slots 100 places 100 policy", "slots 200 places 100 policy"),
              HasSubstr("cache: expected"));
}

TEST(RowCaches, ExpectedRowsBehindNoneAreAllThatABatchNames) {
  // Uniform ids: n rows, each missed by d draws with (1 - 1/n)^d.
  const double expected = 1000 * (1 - std::pow(1 - 1.0 / 1000, 500));
  EXPECT_NEAR(expected_rows_behind(0, 1000, 500, 0), expected, 1e-6 * expected);
  EXPECT_NEAR(expected_rows_behind(250, 1000, 500, 0), 0.75 * expected, 1e-6 * expected);
  EXPECT_EQ(expected_rows_behind(1000, 1000, 500, 1.05), 0);
  // Computes the law by brute force.
  double all = 0, found = 0;
  for (int64_t k = 1; k <= 100'000; ++k) all += std::pow(k, -1.05);
  for (int64_t k = 2001; k <= 100'000; ++k)
    found += 1 - std::pow(1 - std::pow(k, -1.05) / all, 2048);
  EXPECT_NEAR(expected_rows_behind(2000, 100'000, 2048, 1.05), found, 1e-3 * found);
}

}  // namespace
}  // namespace tessera::row_caches_test
