// The bucketing pass on texts written by hand.
#include <gtest/gtest.h>

#include "tessera/graph/builder.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

const AxisId kRow(0), kCol(1);

// Four parameters of 16 float32 elements (64 bytes), one buffer each, reduced in the backward
// block, waited for in the update.
class Buckets : public testing::Test {
 protected:
  Buckets() {
    GraphBuilder g("buckets");
    for (const char* name : {"a", "b", "c", "d"}) {
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
    block(BlockKind::kBackward).push_back({out, when, {}});
  }
  void wait(int buffer, BlockKind in = BlockKind::kUpdate) {
    block(in).push_back({TextWait{10 + buffer, 0}, When::kAlways, {}});
  }
  void copy(int from, int to) {
    block(BlockKind::kBackward)
        .push_back({TextCopy{tensors_[0], view(from), view(to), Write::kSet}, When::kAlways, {}});
  }
  // Sizes of the buckets in order.
  std::vector<size_t> bucketed(int64_t bytes) {
    bucket_collectives(text_, shapes_, bytes);
    std::vector<size_t> out;
    for (const TextInstruction& instruction : block(BlockKind::kBackward)) {
      const auto* found = std::get_if<TextIssue>(&instruction.body);
      if (found != nullptr) out.push_back(found->transfers.size());
    }
    return out;
  }
  std::vector<int> waits(BlockKind in) {
    std::vector<int> out;
    for (const TextInstruction& instruction : block(in)) {
      const auto* found = std::get_if<TextWait>(&instruction.body);
      if (found != nullptr) out.push_back(found->handle);
    }
    return out;
  }
  using Sizes = std::vector<size_t>;

  Graph graph_;
  ShapeRule shapes_;
  PlaceText text_;
  std::vector<TensorId> tensors_;
};

// A stage's block may run before that of another stage, whose block comes first here.
TEST_F(Buckets, join_only_what_one_block_waits_for) {
  issue(0);
  issue(1);
  issue(2);
  wait(0, BlockKind::kWeight);
  wait(1);
  wait(2);
  EXPECT_EQ(bucketed(1024), (Sizes{1, 2}));
  EXPECT_EQ(waits(BlockKind::kWeight), (std::vector<int>{10}));
  EXPECT_EQ(waits(BlockKind::kUpdate), (std::vector<int>{12}));
}

TEST_F(Buckets, join_what_is_alike_in_order_at_the_last_ones_place) {
  for (int i : {0, 1, 2}) issue(i);
  copy(3, 3);
  for (int i : {0, 1, 2}) wait(i);
  EXPECT_EQ(bucketed(1000), (Sizes{3}));
  const auto& joined = std::get<TextIssue>(block(BlockKind::kBackward)[0].body);
  EXPECT_EQ(joined.handle, 12);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(joined.transfers[i].tensor, tensors_[i]);
  EXPECT_EQ(waits(BlockKind::kUpdate), std::vector<int>{12})
      << "one wait, at the first one's place";
}

TEST_F(Buckets, are_no_larger_than_the_limit_says) {
  for (int i : {0, 1, 2, 3}) issue(i);
  for (int i : {0, 1, 2, 3}) wait(i);
  EXPECT_EQ(bucketed(128), (Sizes{2, 2}));
  EXPECT_EQ(waits(BlockKind::kUpdate), (std::vector<int>{11, 13}));
}

TEST_F(Buckets, of_no_bytes_join_nothing) {
  for (int i : {0, 1}) issue(i);
  for (int i : {0, 1}) wait(i);
  EXPECT_EQ(bucketed(0), (Sizes{1, 1}));
}

TEST_F(Buckets, keep_groups_and_times_apart) {
  issue(0, kRow);
  issue(1, kCol);
  issue(2, kRow, When::kLast);
  issue(3, kRow);
  for (int i : {0, 1, 2, 3}) wait(i);
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1, 2})) << "0 and 3 alone are alike";
}

TEST_F(Buckets, close_at_a_wait) {
  issue(0);
  wait(0, BlockKind::kBackward);
  issue(1);
  wait(1);
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1}));
}

TEST_F(Buckets, close_when_something_touches_their_memory) {
  issue(0);
  copy(0, 3);  // reads what the reduction makes
  issue(1);
  copy(3, 1);  // writes what is under way
  issue(2);
  for (int i : {0, 1, 2}) wait(i);
  EXPECT_EQ(bucketed(1000), (Sizes{1, 1, 1}));
}

// a and b are reduced, and c is made of a: the second reduction need not wait for the first.
TEST_F(Buckets, are_of_all_that_a_block_issues_before_it_waits) {
  issue(0);
  wait(0, BlockKind::kBackward);
  copy(0, 2);
  issue(1);
  wait(1, BlockKind::kBackward);
  copy(1, 3);
  await_together(block(BlockKind::kBackward));
  EXPECT_EQ(waits(BlockKind::kBackward), (std::vector<int>{10, 11}));
  EXPECT_TRUE(std::holds_alternative<TextIssue>(block(BlockKind::kBackward)[1].body));
  EXPECT_EQ(bucketed(1000), (Sizes{2}));
  const std::vector<TextInstruction>& after = block(BlockKind::kBackward);
  ASSERT_EQ(after.size(), 4U) << "one bucket, its wait, two copies";
  EXPECT_TRUE(std::holds_alternative<TextWait>(after[1].body));
}

// What writes the memory of a collective stays behind its wait, and so does what needs that.
TEST_F(Buckets, await_together_keeps_the_order_of_what_depends) {
  issue(0);
  wait(0, BlockKind::kBackward);
  copy(2, 0);  // writes what was under way
  copy(3, 2);  // writes what that reads
  issue(1);    // depends on nothing
  wait(1, BlockKind::kBackward);
  await_together(block(BlockKind::kBackward));
  const std::vector<TextInstruction>& after = block(BlockKind::kBackward);
  ASSERT_EQ(after.size(), 6U);
  EXPECT_TRUE(std::holds_alternative<TextIssue>(after[1].body));
  EXPECT_EQ(std::get<TextWait>(after[2].body).handle, 10);
  EXPECT_EQ(std::get<TextCopy>(after[3].body).to.buffer, 0);
  EXPECT_EQ(std::get<TextCopy>(after[4].body).to.buffer, 2);
}

TEST_F(Buckets, pass_by_what_touches_other_memory) {
  issue(0);
  copy(2, 3);
  issue(1);
  for (int i : {0, 1}) wait(i);
  EXPECT_EQ(bucketed(1000), (Sizes{2}));
}

}  // namespace
}  // namespace tessera
