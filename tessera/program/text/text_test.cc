#include "tessera/program/text/text.h"

#include <gtest/gtest.h>

#include "tessera/program/test_programs.h"

namespace tessera {
namespace {

void expect_round_trip(const TestPrograms& lowered) {
  for (const Program& program : lowered.programs) {
    const std::string text = to_text(program, lowered.graph);
    const auto parsed = parse_program(text, lowered.graph);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_TRUE(*parsed == program);
    EXPECT_EQ(to_text(*parsed, lowered.graph), text);
  }
}

class ProgramText : public testing::TestWithParam<const char*> {};
TEST_P(ProgramText, parses_back_to_an_equal_program) {
  expect_round_trip(lower_all(trained(test_transformer()), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Recipes, ProgramText,
                         testing::Values("serial()", "zero(3, 2)", "summa(2)", "one_f_one_b(2, 4)",
                                         "megatron(tp=2, pp=2, dp=2, micro_batches=2)"));

// Fields that lowering does not use (yet) survive too.
TEST(ProgramTextForm, keeps_every_field) {
  TestPrograms lowered = lower_all(trained(test_perceptron()), "serial()");
  Program& p = lowered.programs[0];
  p.buffers[0].name = "a \"quoted\" \\ name\nof two lines";
  p.buffers[0].tensor = {};
  p.buffers[1].tier = Tier::kDisk;
  p.stages = {};
  auto& block = p.block(BlockKind::kUpdate);
  const View view{BufferId(0), Box::whole(p.buffers[0].shape)};
  Copy copy{TensorId(0), Box({{1, 2}, {0, 4}}), view, view, Write::kAddExceptFirst};
  block.push_back({copy, When::kFirst, OpId(1)});
  block.push_back({Wait{7, 1}, When::kLast, {}});
  block.push_back({Issue{}, When::kAlways, {}});
  auto& compute = std::get<Compute>(p.block(BlockKind::kForward)[1].body);
  compute.attributes = {
      {"whole", int64_t{-3}}, {"number", 1.0}, {"tiny", 1e-300}, {"text", std::string("a\"b")}};
  compute.outputs[0].term = 1;
  compute.outputs[0].terms = 3;
  p.block(BlockKind::kForward)[1].cause = {};
  expect_round_trip(lowered);
}

TEST(ProgramTextForm, errors_name_file_and_line) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), "serial()");
  const auto message = [&](const std::string& text) {
    const auto parsed = parse_program(text, lowered.graph, "p.txt");
    return parsed ? "accepted" : parsed.error().message;
  };
  EXPECT_EQ(message(""), "p.txt:1: expected 'program rank R of N'");
  EXPECT_EQ(message("stage 0"), "p.txt:1: expected 'program rank R of N', found 'stage 0'");
  EXPECT_EQ(message("program rank 0 of 1\nhome \"up.wight\"[0:1] %0"),
            "p.txt:2: unknown tensor 'up.wight', did you mean 'up.weight'?");
  EXPECT_EQ(message("program rank 0 of 1\nforward {\n  wait 3\n}"),
            "p.txt:3: expected '#', found '3'");
  EXPECT_EQ(message("program rank 0 of 1\nforward {\n  free %0 x\n}"),
            "p.txt:3: expected the end of the line, found 'x'");
  EXPECT_EQ(message("program rank 0 of 1\nforward {"), "p.txt:2: expected '}' before the end");
}

TEST(ProgramTextForm, a_damaged_text_never_crashes_the_parser) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), "data_parallel(2)");
  const std::string text = to_text(lowered.programs[0], lowered.graph);
  for (size_t i = 0; i < text.size(); i += 3) {
    std::string damaged = text;
    damaged.erase(i, 1);
    (void)parse_program(damaged, lowered.graph);
    (void)parse_program(text.substr(0, i), lowered.graph);
    damaged = text;
    damaged[i] = damaged[i] == '[' ? '%' : '[';
    (void)parse_program(damaged, lowered.graph);
  }
}

}  // namespace
}  // namespace tessera
