// Compares the answers about instructions with the text form, which is written independently.
#include "tessera/program/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/program/memory/touches.h"
#include "tessera/program/test_programs.h"
#include "tessera/program/text/text.h"

namespace tessera::instructions_test {
namespace {

using Body = decltype(Instruction::body);

TEST(Instructions, cases_are_exhaustive_only_if_each_kind_has_its_own) {
  const auto some =
      [](const OneOf<Compute, Issue, Send, Recv, Copy, Load, FetchRows, ReleaseRows> auto&) {};
  const auto wait = [](const Wait&) {};
  const auto free = [](const Free&) {};
  const auto everything = [](const auto&) {};
  EXPECT_TRUE((kExhaustive<decltype(Overloaded{some, wait, free}), Body>));
  EXPECT_FALSE((kExhaustive<decltype(Overloaded{some, wait}), Body>)) << "no case for Free";
  EXPECT_FALSE((kExhaustive<decltype(Overloaded{some, wait, everything}), Body>))
      << "a kind to come would be taken unseen";
  EXPECT_FALSE(
      (kExhaustive<decltype(Overloaded{some, wait, free}), decltype(TextInstruction::body)>));
}

// Returns the numbers behind `mark` that stand outside quotes.
std::set<int> numbers_behind(char mark, const std::string& text) {
  std::set<int> out;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') inside = !inside;
    if (!inside && text[i] == mark) out.insert(std::stoi(text.substr(i + 1)));
  }
  return out;
}

constexpr const char* kMessages =
    "mesh = { pp = 2 }\nstage = [ { ops = \"{up,act}\", at = 0 }, { ops = \"{down,square,loss}\", "
    "at = 1 } ]\n"
    "compress = [ { tensors = \"*\", with = \"topk:0.1\", error_feedback = true } ]\n";
constexpr const char* kCollectives =
    "mesh = { dp = 2 }\nsplit = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
    "compress = [ { tensors = \"role:gradient\", with = \"int8\", error_feedback = true } ]\n";

std::vector<TestPrograms> samples() {
  std::vector<TestPrograms> out;
  for (const char* plan : {kMessages, kCollectives})
    out.push_back(lower_all(trained(test_perceptron()), plan));
  for (const char* plan : {"one_f_one_b(2, 4)", "zero(3, 2)", "summa(2)",
                           "offload(dp=2,zero=2,to=disk,activations=true,micro_batches=2)"})
    out.push_back(lower_all(trained(test_transformer()), plan));
  out.push_back(lower_all(test_table(),
                          "mesh = { dp = 1 }\nstore = [ { tensors = \"{,optimizer.*.}table\", tier "
                          "= \"host\", cache = { "
                          "slots = 100 } } ]\n"));
  return out;
}

TEST(Instructions, accesses_are_the_buffers_that_the_text_names) {
  std::set<size_t> kinds;
  int residuals = 0;
  for (const TestPrograms& lowered : samples()) {
    for (const Program& program : lowered.programs) {
      for (const auto& [ref, block] : program.blocks) {
        for (const Instruction& instruction : block) {
          const std::string text = to_text(instruction, program, lowered.graph);
          std::set<int> touched;
          accesses(instruction, [&](const Access& access) {
            touched.insert(access.buffer.value);
            EXPECT_EQ(access.view == nullptr, access.mode == AccessMode::kFree);
            EXPECT_TRUE(access.view == nullptr || access.view->buffer == access.buffer);
            residuals += access.mode == AccessMode::kUpdate ? 1 : 0;
          });
          EXPECT_EQ(touched, numbers_behind('%', text)) << text;
          const auto* wait = std::get_if<Wait>(&instruction.body);
          const int handle = wait != nullptr ? wait->handle : handle_of(instruction);
          EXPECT_EQ(handle < 0 ? std::set<int>() : std::set<int>{handle}, numbers_behind('#', text))
              << text;
          EXPECT_EQ(message_of(instruction).has_value(),
                    text.starts_with("send ") || text.starts_with("recv "));
          kinds.insert(instruction.body.index());
        }
      }
    }
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Body>) << "each kind of instruction is tried";
  EXPECT_GT(residuals, 0);
}

TEST(Instructions, modes_say_what_is_read_and_what_is_written) {
  const View in{BufferId(0), Box::whole({2})}, out{BufferId(1), Box::whole({2})};
  const auto modes = [](const Instruction& instruction) {
    std::vector<AccessMode> found;
    accesses(instruction, [&](const Access& access) { found.push_back(access.mode); });
    return found;
  };
  using enum AccessMode;
  EXPECT_THAT(modes({Copy{{}, {}, in, out, Write::kAdd}, {}, {}}),
              testing::ElementsAre(kRead, kAdd));
  EXPECT_THAT(modes({Send{0, 1, 0, {}, {}, in, std::nullopt, out}, {}, {}}),
              testing::ElementsAre(kRead, kUpdate));
  EXPECT_THAT(modes({Free{BufferId(1)}, {}, {}}), testing::ElementsAre(kFree));
  EXPECT_TRUE(reads(kUpdate) && writes(kUpdate) && reads(kAddExceptFirst) && writes(kAdd));
  EXPECT_FALSE(reads(kSet) || writes(kRead) || reads(kFree) || writes(kFree));
}

}  // namespace
}  // namespace tessera::instructions_test
