// Positions of waits, on texts written by hand.
#include "tessera/program/needs.h"

#include <gtest/gtest.h>

#include "tessera/graph/builder.h"

namespace tessera {
namespace {

constexpr BlockRef kForward = BlockKind::kForward, kBackward = BlockKind::kBackward,
                   kUpdate = BlockKind::kUpdate, kPrologue = BlockKind::kPrologue;

// Six buffers of one tensor. One place with two stages, whose blocks run one micro-batch after the
// other: forward, forward@1, backward@1, backward.
class Needs : public testing::Test {
 protected:
  Needs() {
    text_.mesh = Mesh::row_major({{"dp", 2}});
    for (int i = 0; i < 6; ++i) {
      TextBuffer buffer;
      buffer.tensor = TensorId(0);
      buffer.region = whole();
      text_.buffers.push_back(buffer);
    }
    make_places(plan_, {text_.mesh, text_.mesh});
    micro_batches(1);
  }
  void micro_batches(int64_t count) {
    plan_.plan.micro_batches = count;
    plan_.schedule = {{}};
    for (int64_t m = 0; m < count; ++m) {
      for (const auto& [kind, stage] : {std::pair{BlockRun::kForward, 0},
                                        {BlockRun::kForward, 1},
                                        {BlockRun::kBackward, 1},
                                        {BlockRun::kBackward, 0}})
        plan_.schedule[0].push_back({kind, m, stage});
    }
  }
  static Region whole() { return {Layout::whole(1), std::nullopt}; }
  static Region step(int64_t step) {
    StepPiece piece;
    piece.steps = 4;
    piece.step = step;
    return {Layout::whole(1), piece};
  }
  void push(BlockRef block, decltype(TextInstruction::body) body, When when = When::kAlways) {
    text_.blocks[block].push_back({std::move(body), when, {}, next_order_++});
  }
  // Issues a collective from one buffer to another; its handle is the buffer that it writes.
  void gather(BlockRef block, int from, int to, When when = When::kAlways,
              const Region& into = whole()) {
    TextIssue out;
    out.handle = to;
    out.kind = CollectiveKind::kAllGather;
    out.axes = {AxisId(0)};
    out.transfers.push_back({TensorId(0), {from, whole()}, {to, into}});
    push(block, out, when);
  }
  void copy(BlockRef block, int from, int to, int handle = -1) {
    push(block, TextCopy{TensorId(0), {from, whole()}, {to, whole()}, Write::kSet, handle});
  }
  void compute(BlockRef block, TextView reads) {
    TextCompute out;
    out.op = OpId(0);
    out.inputs = {std::move(reads)};
    push(block, out);
  }
  // Returns "block[position]" of the handle's wait, with its When if it is not kAlways.
  std::string awaited(int handle) const {
    for (const Need& need : find_needs(text_, BlockOrder(plan_, PlaceId(0)))) {
      if (need.handle != handle) continue;
      const std::string where = block_name(need.block) + "[" + std::to_string(need.before) + "]";
      if (need.when == When::kAlways) return where;
      return where + (need.when == When::kFirst ? " first" : " last");
    }
    return "nowhere";
  }

  PlaceText text_;
  ResolvedPlan plan_;
  int64_t next_order_ = 0;
};

TEST_F(Needs, come_where_the_result_is_read) {
  gather(kForward, 0, 1);
  copy(kForward, 2, 3);  // other memory
  copy(kForward, 0, 3);  // the source may be read
  copy(kForward, 1, 3);
  EXPECT_EQ(awaited(1), "forward[3]");
}

TEST_F(Needs, come_where_the_memory_is_written) {
  gather(kForward, 0, 1);
  copy(kForward, 2, 0);
  copy(kForward, 1, 3);
  EXPECT_EQ(awaited(1), "forward[1]");
}

TEST_F(Needs, are_kept_apart_by_step) {
  gather(kForward, 0, 1, When::kAlways, step(0));
  compute(kForward, {1, step(1)});
  compute(kForward, {1, step(0)});
  EXPECT_EQ(awaited(1), "forward[2]");
}

TEST_F(Needs, go_to_the_end_of_the_block_if_there_are_none) {
  gather(kBackward, 0, 1, When::kLast);
  copy(kBackward, 2, 3);
  EXPECT_EQ(awaited(1), "backward[2] last");
}

TEST_F(Needs, of_other_blocks_are_those_of_the_first_that_runs) {
  gather(kForward, 0, 1);
  copy({BlockKind::kBackward, 0}, 1, 2);
  copy({BlockKind::kForward, 1}, 3, 4);
  copy({BlockKind::kForward, 1}, 1, 5);
  EXPECT_EQ(awaited(1), "forward@1[1]");
}

// If neither of two blocks always runs first, one of them would use what the other awaits.
TEST_F(Needs, of_blocks_without_an_order_are_met_in_the_block_that_issues) {
  gather(kForward, 0, 1);
  copy({BlockKind::kForward, 1}, 1, 2);
  copy(kBackward, 1, 3);
  micro_batches(2);
  std::swap(plan_.schedule[0][5], plan_.schedule[0][7]);
  EXPECT_EQ(awaited(1), "forward[1]");
}

// A block that ran before reads the value from before.
TEST_F(Needs, are_not_of_blocks_that_ran_before) {
  gather(kUpdate, 0, 1);
  copy(kForward, 1, 2);
  EXPECT_EQ(awaited(1), "update[1]");
}

TEST_F(Needs, of_the_update_are_met_there_if_the_block_runs_once) {
  gather(kBackward, 0, 1);
  copy(kUpdate, 1, 2);
  EXPECT_EQ(awaited(1), "update[0]");
  micro_batches(3);  // the next run uses the same memory
  EXPECT_EQ(awaited(1), "backward[1]");
}

// All micro-batches add to one buffer: the next run of the block meets what is under way.
TEST_F(Needs, of_what_micro_batches_share_are_met_before_the_next_one) {
  micro_batches(3);
  gather({BlockKind::kForward, 1}, 0, 1);
  copy({BlockKind::kBackward, 1}, 1, 2);
  EXPECT_EQ(awaited(1), "backward@1[0]");
  text_.buffers[1].accumulates = true;
  EXPECT_EQ(awaited(1), "forward@1[1]");
}

TEST_F(Needs, of_the_last_run_are_met_in_the_update) {
  micro_batches(3);
  gather(kBackward, 0, 1, When::kLast);
  copy(kUpdate, 1, 2);
  EXPECT_EQ(awaited(1), "update[0]");
}

TEST_F(Needs, of_what_the_prologue_gathers_are_met_in_the_first_run) {
  micro_batches(3);
  gather(kPrologue, 0, 1);
  copy({BlockKind::kForward, 1}, 1, 2);
  copy(kBackward, 1, 3);
  EXPECT_EQ(awaited(1), "forward@1[0] first");
  copy(kPrologue, 1, 4);
  EXPECT_EQ(awaited(1), "prologue[1]");
}

TEST_F(Needs, of_what_is_fetched_are_met_at_the_end_of_the_step) {
  gather(kBackward, 0, 1, When::kLast);
  copy(kUpdate, 2, 3);
  text_.fetches = {{TensorId(0), 1}};
  EXPECT_EQ(awaited(1), "update[1]");
}

TEST_F(Needs, come_no_later_than_they_are_due) {
  gather(kBackward, 0, 1);
  copy(kBackward, 2, 3);
  copy(kBackward, 3, 2);
  copy(kBackward, 1, 5);
  text_.due = {{1, 2}};
  EXPECT_EQ(awaited(1), "backward[2]");
  text_.due = {{1, 9}};
  EXPECT_EQ(awaited(1), "backward[3]") << "the result is needed first";
}

TEST_F(Needs, keep_two_copies_at_a_time_that_leave_a_tier) {
  for (const size_t host : {3, 4, 5}) text_.buffers[host].tier = Tier::kHost;
  for (const int i : {0, 1, 2}) copy(kBackward, i, 3 + i, 10 + i);
  copy(kBackward, 5, 0);
  EXPECT_EQ(awaited(10), "backward[2]");
  EXPECT_EQ(awaited(11), "backward[4]");
  EXPECT_EQ(awaited(12), "backward[3]");
}

TEST_F(Needs, are_not_asked_of_sends) {
  TextCross cross;
  cross.handle = 9;
  cross.sends = true;
  cross.from = {0, whole()};
  push(kForward, cross);
  EXPECT_EQ(awaited(9), "nowhere");
  cross.handle = 8;
  cross.sends = false;
  cross.to = {1, whole()};
  push(kBackward, cross);
  copy(kBackward, 1, 2);
  EXPECT_EQ(awaited(8), "backward[1]");
}

}  // namespace
}  // namespace tessera
