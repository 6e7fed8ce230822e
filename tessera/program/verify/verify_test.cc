#include "tessera/program/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/program/test_programs.h"
#include "tessera/program/text/text.h"
#include "tessera/program/verify/parts.h"

namespace tessera::verify_test {
namespace {

using testing::HasSubstr;

std::string first(const TestPrograms& lowered, const VerifyOptions& options = {}) {
  const auto rejections = verify(lowered.graph, lowered.programs, options);
  return rejections.empty() ? "accepted" : rejections[0].to_string();
}

// Replaces a piece of the text of rank `rank`, which must occur.
void edit(TestPrograms& lowered, size_t rank, const std::string& from, const std::string& to) {
  std::string text = to_text(lowered.programs[rank], lowered.graph);
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << "\n" << text;
  text.replace(at, from.size(), to);
  const auto parsed = parse_program(text, lowered.graph);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  lowered.programs[rank] = *parsed;
}

// y = x w over rows of x, in parts over `in` on two ranks, and a residual; written by hand as text.
class ByHand : public testing::Test {
 protected:
  ByHand() {
    GraphBuilder g("hand");
    const auto x = g.input("x", {{"batch", 2}, {"in", 4}}, DType::kFloat32);
    const auto r = g.input("r", {{"batch", 2}, {"out", 2}}, DType::kFloat32);
    const auto w = g.parameter("w", {{"in", 4}, {"out", 2}}, Init{Init::Kind::kNormal, 0.02});
    const auto y =
        g.op1("y", "einsum", {x, w}, {{"spec", std::string("batch in+, in out -> batch out")}});
    g.op1("z", "add", {y, r});
    lowered.graph = *g.finish();
  }
  // `tail`: the text behind the product of each rank; %3 holds the part of y, %4 is for r, %5 for
  // z.
  std::string verified(const std::string& tail) {
    lowered.programs.clear();
    for (int rank = 0; rank < 2; ++rank) {
      const std::string in = rank == 0 ? "0:2" : "2:4";
      const std::string text = "program rank " + std::to_string(rank) + " of 2\n" +
                               "micro_batches 1 dim \"batch\" size 2\n"
                               "group 0 place 0 axes [\"dp\"] members [0, 1] index " +
                               std::to_string(rank) + "\n" +
                               "buffer %0 \"w\" of \"w\" float32 [2, 2] device persistent at -1\n"
                               "buffer %1 \"x\" of \"x\" float32 [2, 2] device block at -1\n"
                               "buffer %2 \"unused\" of \"x\" float32 [2, 2] device block at -1\n"
                               "buffer %3 \"y\" of \"y\" float32 [2, 2] device block at -1\n"
                               "buffer %4 \"r\" of \"r\" float32 [2, 2] device block at -1\n"
                               "buffer %5 \"z\" of \"z\" float32 [2, 2] device step at -1\n"
                               "home \"w\"[" +
                               in +
                               ", 0:2] %0\n"
                               "fetch \"z\"[0:2, 0:2] %5\n"
                               "schedule forward 0\n"
                               "forward {\n"
                               "  load \"x\"[0:2, " +
                               in +
                               "] -> %1\n"
                               "  compute \"y\" einsum [0:2, " +
                               in +
                               ", 0:2] (%1, %0) -> (set \"y\" %3) "
                               "{spec = \"batch in+, in out -> batch out\"}\n" +
                               tail + "}\n";
      const auto parsed = parse_program(text, lowered.graph, "hand");
      EXPECT_TRUE(parsed.has_value()) << (parsed ? "" : parsed.error().message);
      if (parsed) lowered.programs.push_back(*parsed);
    }
    return first(lowered);
  }
  static std::string reduce(const std::string& tensor, const std::string& buffer,
                            const std::string& how = "all_reduce by sum") {
    return "  issue #0 " + how + " float32 group 0 {\"" + tensor +
           "\" ([0:2, 0:2] [0:2, 0:2]) -> ([0:2, 0:2] [0:2, 0:2]) in " + buffer + " out " + buffer +
           "}\n  wait #0\n";
  }
  const std::string load_r = "  load \"r\"[0:2, 0:2] -> %4\n";
  const std::string add = "  compute \"z\" add [0:2, 0:2] (%3, %4) -> (set \"z\" %5)\n";
  TestPrograms lowered;
};

TEST_F(ByHand, parts_reduced_before_the_sum_are_accepted) {
  EXPECT_EQ(verified(reduce("y", "%3") + load_r + add), "accepted");
}

TEST_F(ByHand, parts_that_nobody_reduces_are_found_where_the_result_is_fetched) {
  EXPECT_EQ(
      verified(load_r + add),
      "coverage: rank 0, end of step, tensor z, fetched at the end of the step: expected the "
      "complete value of [0:2, 0:2], found a part of z (input 0: the part (in) in [0:2] of y)");
}

// z = y + r is linear, so parts of y may be added to; but r is there on both ranks.
TEST_F(ByHand, a_residual_that_is_added_on_every_rank_is_counted_twice) {
  EXPECT_THAT(
      verified(load_r + add + reduce("z", "%5")),
      HasSubstr("coverage: rank 1, forward[5] wait #0, tensor z, counted twice: both values "
                "are complete (input 1 of z)"));
}

TEST_F(ByHand, a_wrong_combiner_is_rejected) {
  EXPECT_THAT(verified(reduce("y", "%3", "all_reduce by max") + load_r + add),
              HasSubstr("merges parts of y by max, expected sum"));
}

TEST_F(ByHand, moments_that_are_cut_along_their_last_dim_are_rejected) {
  const std::string cut =
      "  issue #0 exchange by moments float32 group 0 {\"y\" ([0:2, 0:1] [0:2, 0:1]) -> ([0:2, "
      "0:1] "
      "[0:2, 0:1]) in %3[0:2, 0:1] out %3[0:2, 0:1]}\n  wait #0\n";
  EXPECT_THAT(verified(cut + load_r + add), HasSubstr("merges moments whose last dim is cut"));
}

TEST_F(ByHand, a_buffer_that_is_written_while_it_is_sent_is_rejected) {
  std::string late = reduce("y", "%3");
  late = late.substr(0, late.find("  wait"));
  EXPECT_EQ(
      verified(late + load_r + add + "  wait #0\n"),
      "lifetime: rank 0, forward[4] compute z, tensor y, reads %3[0:2, 0:2] while #0 writes it: "
      "expected its wait before");
}

class Accepts : public testing::TestWithParam<const char*> {};
TEST_P(Accepts, lowered_transformer) {
  VerifyOptions options;
  EXPECT_EQ(first(lower_all(trained(test_transformer()), GetParam()), options), "accepted");
}
INSTANTIATE_TEST_SUITE_P(Recipes, Accepts,
                         testing::Values("serial()", "data_parallel(2)", "zero(3, 2)", "summa(2)",
                                         "tensor_parallel(2)", "gpipe(2, 4)", "one_f_one_b(2, 4)",
                                         "megatron(tp=2, pp=2, dp=2, micro_batches=2)"));

class Perceptron : public testing::Test {
 protected:
  Perceptron() : lowered(lower_all(trained(test_perceptron()), "data_parallel(2)")) {}
  TestPrograms lowered;
};

TEST_F(Perceptron, wrong_attribute_is_an_instruction_error) {
  edit(lowered, 1, "factor = 0.03125", "factor = 0.0625");
  EXPECT_EQ(
      first(lowered),
      "instruction: rank 1, forward[5] compute loss, attributes differ from those of op loss");
}

TEST_F(Perceptron, replicas_of_one_batch_shard_are_counted_twice) {
  lowered.programs[1] = lowered.programs[0];
  lowered.programs[1].rank = 1;
  for (Group& group : lowered.programs[1].groups) group.index = 1;
  EXPECT_THAT(first(lowered), HasSubstr("counted twice"));
}

TEST_F(Perceptron, arena_and_limit_are_checked) {
  VerifyOptions options;
  options.memory_limit_bytes = 1000;
  EXPECT_THAT(first(lowered, options), HasSubstr("memory: rank 0, the device arena has"));
  lowered.programs[1].arena_bytes[0] = 700;
  EXPECT_THAT(first(lowered), HasSubstr("memory: rank 1, tensor optimizer."));
}

// Tests each limit at its edge: a program that just fits is accepted; with a byte less it is not.
TEST_F(Perceptron, limit_of_the_device_arena_is_exact) {
  int64_t largest = 0;
  for (const Program& program : lowered.programs)
    largest = std::max(largest, program.arena_bytes[0]);
  VerifyOptions options;
  options.memory_limit_bytes = largest;
  EXPECT_EQ(first(lowered, options), "accepted");
  options.memory_limit_bytes = largest - 1;
  EXPECT_THAT(first(lowered, options), HasSubstr("the device arena has"));
}

TEST_F(Perceptron, an_arena_ends_where_its_last_buffer_ends) {
  Program& program = lowered.programs[1];
  int64_t end = 0;
  for (const Buffer& buffer : program.buffers)
    end = std::max(end, buffer.offset + (buffer.slots - 1) * buffer.slot_bytes + buffer.bytes());
  program.arena_bytes[0] = end;
  EXPECT_EQ(first(lowered), "accepted");
  program.arena_bytes[0] = end - 1;
  EXPECT_THAT(first(lowered), HasSubstr("memory: rank 1"));
}

TEST_F(Perceptron, buffers_at_rest_may_touch_but_not_overlap) {
  Program& program = lowered.programs[0];
  std::vector<Buffer*> rest;
  for (Buffer& buffer : program.buffers) {
    if (buffer.lifetime == Lifetime::kPersistent && buffer.tier == Tier::kDevice)
      rest.push_back(&buffer);
  }
  std::ranges::sort(rest, {}, &Buffer::offset);
  ASSERT_GE(rest.size(), 2U);
  const int64_t touching = rest[0]->offset + rest[0]->bytes();
  ASSERT_LE(touching, rest[1]->offset);
  rest[1]->offset = touching;
  EXPECT_EQ(first(lowered), "accepted");
  rest[1]->offset = touching - 1;
  EXPECT_THAT(first(lowered), HasSubstr("lifetime: rank 0"));
}

TEST_F(Perceptron, a_missing_update_is_named) {
  auto& block = lowered.programs[0].block(BlockKind::kUpdate);
  std::erase_if(block, [&](const Instruction& instruction) {
    const auto* compute = std::get_if<Compute>(&instruction.body);
    return compute != nullptr && lowered.graph.op(compute->op).path == "optimizer.down.weight";
  });
  EXPECT_THAT(first(lowered),
              HasSubstr("coverage: rank 0, end of step, tensor down.weight, at the end "
                        "of the step: expected updated.down.weight in %1"));
}

TEST(DisjointBoxes, are_fused_and_overlaps_are_refused) {
  std::vector<Box> set;
  EXPECT_TRUE(verifying::add_disjoint(set, Box({{0, 2}, {0, 2}})));
  EXPECT_TRUE(verifying::add_disjoint(set, Box({{2, 2}, {2, 2}})));
  EXPECT_TRUE(verifying::add_disjoint(set, Box({{0, 2}, {2, 2}})));
  EXPECT_FALSE(verifying::add_disjoint(set, Box({{1, 2}, {0, 1}})));
  EXPECT_TRUE(verifying::add_disjoint(set, Box({{2, 2}, {0, 2}})));
  EXPECT_EQ(set, (std::vector<Box>{Box({{0, 4}, {0, 4}})}));
}

}  // namespace
}  // namespace tessera::verify_test
