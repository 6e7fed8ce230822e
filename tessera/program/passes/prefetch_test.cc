// The pass that gathers ahead, on a text written by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/graph/builder.h"
#include "tessera/program/needs.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

// Two units, each an op over its weight. The second op's weight is gathered where it is used, from
// a value that the prologue made: buffer 1 from buffer 0, by handle 1.
class Prefetched : public testing::Test {
 protected:
  Prefetched() {
    GraphBuilder g("prefetch");
    const TensorId x = g.input("x", {{"a", 4}}, DType::kFloat32);
    weight_ = g.parameter("weight", {{"a", 4}}, {Init::Kind::kZeros});
    const TensorId y = g.op1("first", "add", {x, weight_});
    g.op1("second", "add", {y, weight_});
    graph_ = g.graph();
    first_ = graph_.ops()[0].id;
    second_ = graph_.ops()[1].id;
    text_.mesh = Mesh::row_major({{"dp", 2}});
    for (int i = 0; i < 4; ++i) {
      TextBuffer buffer;
      buffer.tensor = weight_;
      buffer.region = whole();
      buffer.persistent = i == 0;
      text_.buffers.push_back(buffer);
    }
    prologue().push_back({gather(1, 0, 1), When::kAlways, second_});
    forward().push_back({copy(3, 3), When::kAlways, first_});
    forward().push_back({gather(2, 1, 2), When::kAlways, second_});
    forward().push_back({copy(2, 3), When::kAlways, second_});
  }
  static Region whole() { return {Layout::whole(1), std::nullopt}; }
  static TextView view(int buffer) { return {buffer, whole()}; }
  TextIssue gather(int handle, int from, int to) const {
    TextIssue out;
    out.handle = handle;
    out.kind = CollectiveKind::kAllGather;
    out.axes = {AxisId(0)};
    out.transfers.push_back({weight_, view(from), view(to)});
    return out;
  }
  TextCopy copy(int from, int to) const { return {weight_, view(from), view(to), Write::kSet}; }
  std::vector<TextInstruction>& prologue() { return text_.blocks[BlockKind::kPrologue]; }
  std::vector<TextInstruction>& forward() { return text_.blocks[BlockKind::kForward]; }
  // Returns the position at which the forward block issues the gathering of handle 2.
  size_t place() {
    const auto issues = [](const TextInstruction& instruction) {
      return std::holds_alternative<TextIssue>(instruction.body);
    };
    return static_cast<size_t>(std::ranges::find_if(forward(), issues) - forward().begin());
  }
  // Returns the order for one micro-batch, whose forward block is the first that runs.
  static BlockOrder order() {
    ResolvedPlan plan;
    plan.plan.micro_batches = 1;
    make_places(plan, {Mesh::row_major({{"dp", 2}})});
    plan.schedule = {{{BlockRun::kForward, 0, 0}}};
    return {plan, PlaceId(0)};
  }

  Graph graph_;
  TensorId weight_;
  OpId first_, second_;
  PlaceText text_;
};

TEST_F(Prefetched, gathers_what_the_prologue_needs_itself_beside_the_unit_before) {
  prologue().push_back({copy(1, 3), When::kAlways, second_});
  prefetch_at_rest(text_, graph_, order(), {"*", 1});
  EXPECT_EQ(place(), 0U);
}

// A due mark means a position in the block. An instruction that is moved to before that position
// takes over the order of the instruction behind it, so that it does not count as a later one.
TEST_F(Prefetched, gives_what_it_moves_the_order_of_what_follows) {
  prologue().push_back({copy(1, 3), When::kAlways, second_});
  for (size_t i = 0; i < forward().size(); ++i) forward()[i].order = static_cast<int64_t>(5 + i);
  prefetch_at_rest(text_, graph_, order(), {"*", 1});
  EXPECT_EQ(forward()[0].order, 5);
  EXPECT_EQ(forward()[1].order, 5);
}

// A value that the prologue issues, and that a block is the first to need, has not arrived where
// the unit before begins: the gathering that reads it stays.
TEST_F(Prefetched, does_not_pass_what_it_reads_on_its_way) {
  prefetch_at_rest(text_, graph_, order(), {"*", 1});
  EXPECT_EQ(place(), 1U);
}

}  // namespace
}  // namespace tessera
