// When the blocks of a program run, and when each buffer is touched: what the memory planner reads
// (memory.cc). Blocks are numbered by their positions in the order of their first runs: 0 is the
// prologue, the last one the update. Private to tessera/program.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/base/small_vector.h"
#include "tessera/program/program.h"

namespace tessera {

class BlockTimes {
 public:
  explicit BlockTimes(const Program& program);  // which outlives the object

  size_t blocks() const { return order_.size(); }
  BlockRef ref(size_t block) const { return order_[block]; }
  size_t position(BlockRef block) const;
  const std::vector<Instruction>& instructions(size_t block) const {
    return program_.block(order_[block]);
  }
  // Returns whether a micro-batch begins before the one before it has ended.
  bool overlapping() const { return overlapping_; }
  // Returns whether block `late` runs after block `early` in every micro-batch.
  bool runs_behind(size_t late, size_t early) const { return runs_behind_[late][early]; }
  // Returns the block's first, or last, run as a position in the schedule.
  int64_t first_run(size_t block) const { return first_run_[block]; }
  int64_t last_run(size_t block) const { return last_run_[block]; }
  // Returns the smallest number of slots with which micro-batches that are between blocks `first`
  // and `last` at the same time have different slots. If `last` is the update, each micro-batch
  // needs a slot of its own.
  int64_t slots_between(size_t first, size_t last) const;

 private:
  int64_t most_between(size_t first, size_t last) const;

  const Program& program_;
  std::vector<BlockRef> order_;
  bool overlapping_ = false;
  std::vector<std::vector<bool>> runs_behind_;
  std::vector<int64_t> first_run_, last_run_;
};

// The touches of a buffer.
struct BufferTouch {
  struct InBlock {
    int64_t first = -1, last = -1;  // instructions
    std::optional<When> when;       // the When of all touches if it is the same; else kAlways
  };
  SmallVector<InBlock, 4> at;  // by block
  bool in(size_t block) const { return at[block].first >= 0; }
  bool only(size_t block, When what) const { return at[block].when == what; }
  bool any() const { return first_block() < at.size(); }
  size_t first_block() const;
  size_t last_block() const;
};

class BufferTouches {
 public:
  // `rings`: by buffer, whether it is a ring: lowering has given it a number of copies, which
  // micro-batches use in turn for the whole step. Both arguments outlive the object.
  BufferTouches(const Program& program, const BlockTimes& times, std::vector<bool> rings);

  const BufferTouch& of(BufferId id) const { return touches_[id.index()]; }
  bool is_ring(BufferId id) const { return rings_[id.index()]; }
  // Returns the position in the update of the last wait for the buffer's message, if the buffer need
  // live only until then: messages that are awaited in later runs of their block, and whose buffers
  // are also read, in the same micro-batch, by later blocks before that run.
  std::optional<int64_t> taken_at(BufferId id) const;
  // Finds the touches again, after instructions have moved.
  void find();

  // Returns the first block that, in every micro-batch, comes after or has the buffer's last use.
  size_t free_block(const BufferTouch& touch) const;
  // Returns the first run of the block (`ends_in`: the last one) that touches the buffer, as a
  // position in the schedule. The buffer lives for the step.
  int64_t begins_in(const BufferTouch& touch, size_t block) const;
  int64_t ends_in(const BufferTouch& touch, size_t block) const;
  // Returns the block that touches the buffer last in the step.
  size_t ending_block(const BufferTouch& touch) const;

 private:
  void find_outlasting();

  const Program& program_;
  const BlockTimes& times_;
  std::vector<bool> rings_;
  std::vector<BufferTouch> touches_;
  std::vector<int> outlasting_;        // sorted handles of such sends
  std::map<BufferId, int64_t> taken_;  // by buffer of such a send: position of its last wait
};

}  // namespace tessera
