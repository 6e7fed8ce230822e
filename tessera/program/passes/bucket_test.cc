// The bucketing pass on texts written by hand.
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/program/needs.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

const AxisId kRow(0), kCol(1);
constexpr int kSink = 5;

// Five parameters of 16 float32 elements (64 bytes), one buffer each, reduced in the backward
// block and read in the update, where their values go to a sixth buffer.
class Buckets : public testing::Test {
 protected:
  Buckets() {
    GraphBuilder g("buckets");
    for (const char* name : {"a", "b", "c", "d", "e", "sink"}) {
      tensors_.push_back(g.parameter(name, {{"x", 16}}, {Init::Kind::kZeros}));
    }
    graph_ = g.graph();
    shapes_ = {&graph_, "batch", 1};
    text_.mesh = Mesh::row_major({{"row", 2}, {"col", 2}});
    for (TensorId tensor : tensors_) {
      TextBuffer buffer;
      buffer.tensor = tensor;
      buffer.region = whole();
      text_.buffers.push_back(buffer);
    }
  }
  static Region whole() { return {Layout::whole(1), std::nullopt}; }
  TextView view(int buffer) const { return {buffer, whole()}; }

  std::vector<TextInstruction>& block(BlockRef ref) { return text_.blocks[ref]; }
  void issue(int buffer, AxisId axis = kRow, When when = When::kAlways) {
    TextIssue out;
    out.handle = 10 + buffer;
    out.kind = CollectiveKind::kAllReduce;
    out.combiner = Combiner::kSum;
    out.axes = {axis};
    out.transfers.push_back({tensors_[static_cast<size_t>(buffer)], view(buffer), view(buffer)});
    block(BlockKind::kBackward).push_back({out, when, {}, next_order_++});
  }
  // Reduces the buffer over the rows and then over the columns: a conversion of two steps.
  void issue_two(int buffer) {
    issue(buffer, kRow);
    issue(buffer, kCol);
    std::get<TextIssue>(block(BlockKind::kBackward).back().body).handle = 20 + buffer;
  }
  // Returns the handles in the order in which the block issues them; -1: another instruction.
  std::vector<int> issued() {
    std::vector<int> out;
    for (const TextInstruction& instruction : block(BlockKind::kBackward)) {
      const auto* found = std::get_if<TextIssue>(&instruction.body);
      out.push_back(found == nullptr ? -1 : found->handle);
    }
    return out;
  }
  // Reads the buffer.
  void use(int buffer, BlockKind in = BlockKind::kUpdate) {
    block(in).push_back({TextCopy{tensors_[0], view(buffer), view(kSink), Write::kSet},
                         When::kAlways,
                         {},
                         next_order_++});
  }
  void copy(int from, int to) {
    block(BlockKind::kBackward)
        .push_back({TextCopy{tensors_[0], view(from), view(to), Write::kSet},
                    When::kAlways,
                    {},
                    next_order_++});
  }
  // Returns the sizes of the buckets in order.
  std::vector<size_t> bucketed(int64_t bytes) {
    bucket_collectives(text_, shapes_, {}, bytes);
    std::vector<size_t> out;
    for (const TextInstruction& instruction : block(BlockKind::kBackward)) {
      const auto* found = std::get_if<TextIssue>(&instruction.body);
      if (found != nullptr) out.push_back(found->transfers.size());
    }
    return out;
  }
  // Returns the handles that the block awaits.
  std::vector<int> awaited(BlockKind in) const {
    std::vector<int> out;
    for (const Need& need : find_needs(text_, {})) {
      if (need.block == in) out.push_back(need.handle);
    }
    return out;
  }
  using Sizes = std::vector<size_t>;

  Graph graph_;
  ShapeRule shapes_;
  PlaceText text_;
  std::vector<TensorId> tensors_;
  int64_t next_order_ = 0;
};

// A stage's block may run before that of another stage, whose block comes first here.
TEST_F(Buckets, join_only_what_one_block_waits_for) {
  issue(0);
  issue(1);
  issue(2);
  use(0, BlockKind::kWeight);
  use(1);
  use(2);
  EXPECT_EQ(bucketed(1024), (Sizes{1, 2}));
  EXPECT_EQ(awaited(BlockKind::kWeight), (std::vector<int>{10}));
  EXPECT_EQ(awaited(BlockKind::kUpdate), (std::vector<int>{12}));
}

TEST_F(Buckets, join_what_is_alike_in_order_at_the_last_ones_place) {
  for (int i : {0, 1, 2}) issue(i);
  copy(3, 3);
  for (int i : {0, 1, 2}) use(i);
  EXPECT_EQ(bucketed(1000), (Sizes{3}));
  const auto& joined = std::get<TextIssue>(block(BlockKind::kBackward)[0].body);
  EXPECT_EQ(joined.handle, 12);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(joined.transfers[i].tensor, tensors_[i]);
  EXPECT_EQ(awaited(BlockKind::kUpdate), std::vector<int>{12});
}

TEST_F(Buckets, are_no_larger_than_the_limit_says) {
  for (int i : {0, 1, 2, 3}) issue(i);
  for (int i : {0, 1, 2, 3}) use(i);
  EXPECT_EQ(bucketed(128), (Sizes{2, 2}));
  EXPECT_EQ(awaited(BlockKind::kUpdate), (std::vector<int>{11, 13}));
}

TEST_F(Buckets, of_no_bytes_join_nothing) {
  for (int i : {0, 1}) issue(i);
  for (int i : {0, 1}) use(i);
  EXPECT_EQ(bucketed(0), (Sizes{1, 1}));
}

TEST_F(Buckets, keep_groups_and_times_apart) {
  issue(0, kRow);
  issue(1, kCol);
  issue(2, kRow, When::kLast);
  issue(3, kRow);
  for (int i : {0, 1, 2, 3}) use(i);
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1, 2})) << "0 and 3 alone are alike";
}

// The group runs a bucket behind all that was issued before its last member.
TEST_F(Buckets, let_no_more_pass_that_is_needed_later_than_the_limit_says) {
  const auto issued = [&](AxisId others, const std::vector<int>& uses) {
    block(BlockKind::kBackward).clear();
    block(BlockKind::kUpdate).clear();
    issue(0, kRow);
    for (int i : {1, 2, 4}) issue(i, others, When::kLast);
    issue(3, kRow);
    for (int i : uses) use(i);
  };
  issued(kRow, {0, 1, 2, 3, 4});
  EXPECT_EQ(bucketed(191), (Sizes{1, 2, 1, 1})) << "192 bytes passed the first one";
  issued(kRow, {0, 1, 2, 3, 4});
  EXPECT_EQ(bucketed(192), (Sizes{3, 2}));
  issued(kCol, {0, 1, 2, 3, 4});
  EXPECT_EQ(bucketed(191), (Sizes{2, 1, 2})) << "another group does not hold it up";
  issued(kRow, {1, 2, 4, 0, 3});
  EXPECT_EQ(bucketed(191), (Sizes{2, 1, 2})) << "what is needed earlier goes first";
}

TEST_F(Buckets, close_where_a_result_is_needed) {
  issue(0);
  use(0, BlockKind::kBackward);
  issue(1);
  use(1);
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1}));
}

TEST_F(Buckets, close_where_one_is_due) {
  issue(0);
  copy(2, 3);
  issue(1);
  for (int i : {0, 1}) use(i);
  text_.due = {{10, 1}};
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1}));
}

// A bucket is due where the first of its members was due.
TEST_F(Buckets, inherit_the_due_marks_of_their_members) {
  issue(0);
  issue(1);
  copy(2, 3);
  copy(3, 2);
  for (int i : {0, 1}) use(i);
  text_.due = {{10, 2}, {11, 3}};
  EXPECT_EQ(bucketed(1000), (Sizes{2}));
  EXPECT_EQ(text_.due, (std::map<int, int64_t>{{11, 2}}));
}

TEST_F(Buckets, close_when_something_touches_their_memory) {
  issue(0);
  copy(0, 3);  // reads what the reduction makes
  issue(1);
  copy(3, 1);  // writes what is under way
  issue(2);
  for (int i : {0, 1, 2}) use(i);
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1, 1}));
}

// a and b are reduced, and c is made of a: the second reduction need not wait for the first.
TEST_F(Buckets, are_of_all_that_a_block_issues_before_it_waits) {
  issue(0);
  copy(0, 2);
  issue(1);
  copy(1, 3);
  issue_together(text_, BlockKind::kBackward);
  EXPECT_TRUE(std::holds_alternative<TextIssue>(block(BlockKind::kBackward)[1].body));
  EXPECT_EQ(bucketed(1000), (Sizes{2}));
  EXPECT_EQ(block(BlockKind::kBackward).size(), 3U) << "one bucket, two copies";
  EXPECT_EQ(find_needs(text_, {})[0].before, 1U);
}

// Second steps of conversions wait for each other, for up to a bucket's size: so first steps share a
// bucket, and second steps another one.
TEST_F(Buckets, are_of_first_steps_and_of_second_steps) {
  for (const int buffer : {0, 1, 2}) issue_two(buffer);
  for (const int buffer : {0, 1, 2}) use(buffer);
  text_.due = {{10, 1}};  // the first step of a is due before its second step
  std::vector<TextInstruction> before = block(BlockKind::kBackward);
  gather_second_steps(text_, shapes_, 64);
  EXPECT_EQ(issued(), (std::vector<int>{10, 11, 20, 12, 21, 22}));
  EXPECT_EQ(text_.due.at(10), block(BlockKind::kBackward)[2].order);
  block(BlockKind::kBackward) = before;
  text_.due.clear();
  gather_second_steps(text_, shapes_, 1000);
  EXPECT_EQ(issued(), (std::vector<int>{10, 11, 12, 20, 21, 22}));
  EXPECT_EQ(bucketed(1000), (Sizes{3, 3}));
}

// A second step goes before the first instruction that needs what it makes.
TEST_F(Buckets, second_steps_come_before_their_readers) {
  issue_two(0);
  issue_two(1);
  copy(0, 3);
  issue_two(2);
  gather_second_steps(text_, shapes_, 1000);
  EXPECT_EQ(issued(), (std::vector<int>{10, 11, 20, 21, -1, 12, 22}));
}

// A due mark names the instruction before which a handle is awaited. It moves with that
// instruction.
TEST_F(Buckets, issue_together_moves_due_marks) {
  issue(0);
  copy(0, 2);
  issue(1);
  text_.due = {{10, 1}};
  issue_together(text_, BlockKind::kBackward);
  EXPECT_EQ(find_needs(text_, {})[0].before, 2U);
  EXPECT_EQ(text_.due.at(10), block(BlockKind::kBackward)[2].order);
}

// An instruction that writes the memory of a collective stays behind it, and so does an instruction
// that reads what the first one writes.
TEST_F(Buckets, issue_together_keeps_the_order_of_what_depends) {
  issue(0);
  copy(2, 0);  // writes what is under way
  copy(3, 2);  // writes what the instruction before reads
  issue(1);    // depends on nothing
  issue_together(text_, BlockKind::kBackward);
  const std::vector<TextInstruction>& after = block(BlockKind::kBackward);
  ASSERT_EQ(after.size(), 4U);
  EXPECT_TRUE(std::holds_alternative<TextIssue>(after[1].body));
  EXPECT_EQ(std::get<TextCopy>(after[2].body).to.buffer, 0);
  EXPECT_EQ(std::get<TextCopy>(after[3].body).to.buffer, 2);
}

TEST_F(Buckets, pass_by_what_touches_other_memory) {
  issue(0);
  copy(2, 3);
  issue(1);
  for (int i : {0, 1}) use(i);
  EXPECT_EQ(bucketed(1000), (Sizes{2}));
}

}  // namespace
}  // namespace tessera
