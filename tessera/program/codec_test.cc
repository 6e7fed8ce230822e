// Codecs in programs: text, verification, volume.
#include <gtest/gtest.h>

#include "tessera/program/test_programs.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/verify.h"

namespace tessera::codec_test {
namespace {

constexpr const char* kCollectives =
    "mesh = { dp = 2 }\nsplit = [ { ops = \"*\", dim = \"batch\", over = \"dp\" } ]\n"
    "compress = [ { tensors = \"role:gradient\", with = \"int8\", error_feedback = true } ]\n";
constexpr const char* kMessages =
    "mesh = { pp = 2 }\nstage = [ { ops = \"{up,act}\", at = 0 }, { ops = \"{down,square,loss}\", "
    "at = 1 } ]\n"
    "compress = [ { tensors = \"*\", with = \"topk:0.1\", error_feedback = true } ]\n";

// Returns the first instruction of the kind that has a codec.
template <class Body>
Body* coded(Program& program) {
  for (auto& [ref, block] : program.blocks) {
    for (Instruction& instruction : block) {
      auto* body = std::get_if<Body>(&instruction.body);
      if (body != nullptr && body->codec) return body;
    }
  }
  return nullptr;
}

std::string rejection(const TestPrograms& lowered) {
  const std::vector<Rejection> found = verify(lowered.graph, lowered.programs);
  return found.empty() ? "accepted" : found.front().message;
}

TEST(ProgramCodecs, TextParsesBack) {
  for (const char* plan : {kCollectives, kMessages}) {
    const TestPrograms lowered = lower_all(trained(test_perceptron()), plan);
    EXPECT_EQ(rejection(lowered), "accepted");
    for (const Program& program : lowered.programs) {
      EXPECT_TRUE(is_lossy(program));
      const std::string text = to_text(program, lowered.graph);
      EXPECT_NE(text.find(" residual %"), std::string::npos);
      const auto parsed = parse_program(text, lowered.graph);
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_TRUE(*parsed == program);
    }
  }
}

TEST(ProgramCodecs, BothEndsMustAgree) {
  TestPrograms lowered = lower_all(trained(test_perceptron()), kMessages);
  Send* send = coded<Send>(lowered.programs[0]);
  ASSERT_NE(send, nullptr);
  send->codec->ratio = 0.2;
  EXPECT_NE(rejection(lowered).find("expected the codec topk:0."), std::string::npos)
      << rejection(lowered);
  lowered = lower_all(trained(test_perceptron()), kCollectives);
  Issue* issue = coded<Issue>(lowered.programs[1]);
  ASSERT_NE(issue, nullptr);
  issue->codec->kind = Codec::Kind::kFloat16;
  EXPECT_NE(rejection(lowered).find("codec differ"), std::string::npos) << rejection(lowered);
}

TEST(ProgramCodecs, ResidualsHaveOneElementEach) {
  TestPrograms lowered = lower_all(trained(test_perceptron()), kCollectives);
  Issue* issue = coded<Issue>(lowered.programs[0]);
  ASSERT_TRUE(issue != nullptr && issue->residual);
  lowered.programs[0].buffers[issue->residual->buffer.index()].lifetime = Lifetime::kStep;
  EXPECT_NE(rejection(lowered).find("persistent float32 residual"), std::string::npos)
      << rejection(lowered);
}

// Two weights of 32 float64 elements on two ranks. Halves of 16 elements: 16 + 4 bytes instead of
// 128, once each way; one bucket each.
TEST(ProgramCodecs, VolumeIsOfEncodedBytes) {
  const TestPrograms lowered = lower_all(trained(test_perceptron()), kCollectives);
  const Volume volume = tessera::volume(lowered.programs[0], lowered.graph);
  EXPECT_EQ(volume.by_kind.at("reduce_scatter").bytes, 2 * 20);
  EXPECT_EQ(volume.by_kind.at("all_gather").bytes, 2 * 20);
}

}  // namespace
}  // namespace tessera::codec_test
