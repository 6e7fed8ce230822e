// Sends are awaited late enough for every order that can be carried out, and buffers have no more
// copies than that takes.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/program/test_programs.h"
#include "tessera/program/verify/verify.h"

namespace tessera::send_waits_test {
namespace {

// Two stages: the second one, at place 1, reads the first one's output and sends its gradient.
Graph two_stages() {
  GraphBuilder g("two stages");
  const Dim batch{"batch", 8}, in{"in", 4};
  const Init init{Init::Kind::kNormal, 0.02};
  const auto x = g.input("x", {batch, in}, DType::kFloat64);
  const auto bias = g.parameter("first.bias", {in}, init, DType::kFloat64);
  const auto h = g.op1("first", "add", {x, bias});
  const auto square = g.op1("second", "mul", {h, h});
  g.graph().loss = g.op1("loss", "reduce_sum", {square}, {{"dims", std::string("batch in")}});
  return trained(g.finish().value());
}

TestPrograms lower_table(const std::string& first, const std::string& second) {
  return lower_all(two_stages(), fmt::format(R"(mesh = {{ pp = 2 }}
micro_batches = 4
schedule = [
  [{}],
  [{}],
]
[[stage]]
ops = "first"
at = 0
[[stage]]
ops = "{{second,loss}}"
at = 1
)",
                                             first, second));
}

int most_lag(const Program& program) {
  int most = 0;
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* wait = std::get_if<Wait>(&instruction.body)) most = std::max(most, wait->lag);
    }
  }
  return most;
}

int64_t copies(const Program& program, std::string_view tensor) {
  int64_t most = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name.starts_with(tensor)) most = std::max(most, buffer.slots);
  }
  return most;
}

void expect_accepted(const TestPrograms& lowered) {
  ASSERT_EQ(lowered.programs.size(), 2U);
  for (const Rejection& rejection : verify(lowered.graph, lowered.programs))
    ADD_FAILURE() << rejection.to_string();
}

const char* const kFirst = R"("F0@0", "F1@0", "F2@0", "F3@0", )";
const char* const kSecond = R"("F0@1", "F1@1", "F2@1", "F3@1", )";

TEST(SendWaits, OneCopyServesWhereTheReceiverTakesMessagesInTheOrderOfSending) {
  const auto lowered = lower_table(std::string(kFirst) + R"("B0@0", "B1@0", "B2@0", "B3@0")",
                                   std::string(kSecond) + R"("B0@1", "B1@1", "B2@1", "B3@1")");
  expect_accepted(lowered);
  EXPECT_EQ(copies(lowered.programs[1], "grad."), 1);
  EXPECT_EQ(most_lag(lowered.programs[1]), 1);
}

TEST(SendWaits, ABufferHasACopyMoreForEachMessageThatIsTakenLater) {
  // The receiver takes the first message of the second stage after the second message.
  const auto one = lower_table(std::string(kFirst) + R"("B1@0", "B0@0", "B2@0", "B3@0")",
                               std::string(kSecond) + R"("B0@1", "B1@1", "B2@1", "B3@1")");
  expect_accepted(one);
  EXPECT_EQ(copies(one.programs[1], "grad."), 2);
  EXPECT_EQ(most_lag(one.programs[1]), 2);
  // The receiver takes it last: no run of the block waits, the update does.
  const auto last = lower_table(std::string(kFirst) + R"("B1@0", "B2@0", "B3@0", "B0@0")",
                                std::string(kSecond) + R"("B0@1", "B1@1", "B2@1", "B3@1")");
  expect_accepted(last);
  EXPECT_EQ(copies(last.programs[1], "grad."), 4);
  EXPECT_EQ(most_lag(last.programs[1]), 0);
}

TEST(SendWaits, CopiesOfOneSlotAreNeverInUseTwiceWhateverTheOrderOfMicroBatches) {
  // With three slots, 3 and 0 share a slot: one run apart, too soon.
  const auto lowered = lower_table(std::string(kFirst) + R"("B0@0", "B1@0", "B2@0", "B3@0")",
                                   std::string(kSecond) + R"("B3@1", "B0@1", "B1@1", "B2@1")");
  expect_accepted(lowered);
  EXPECT_EQ(copies(lowered.programs[1], "grad."), 4);
}

TEST(SendWaits, OrdersThatNobodyCanCarryOutAreStillRefused) {
  TestPrograms lowered = lower_table(std::string(kFirst) + R"("B0@0", "B1@0", "B2@0", "B3@0")",
                                     std::string(kSecond) + R"("B0@1", "B1@1", "B2@1", "B3@1")");
  ASSERT_EQ(lowered.programs.size(), 2U);
  // The first stage wants a gradient before it has sent the value whose gradient it is.
  auto& schedule = lowered.programs[0].schedule;
  std::swap(schedule[1], schedule[5]);
  EXPECT_FALSE(verify(lowered.graph, lowered.programs).empty());
}

}  // namespace
}  // namespace tessera::send_waits_test
