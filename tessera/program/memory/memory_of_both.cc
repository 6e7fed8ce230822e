// Memory of programs with micro-batches of two sizes. The two blocks of a family are merged,
// instruction by instruction, and planned as if they were one block for all micro-batches. So a
// buffer lives from the first to the last touch in either block, has the size that the larger
// micro-batches need, and is freed at the same point of both blocks.
#include <utility>

#include "tessera/program/instructions.h"
#include "tessera/program/memory/memory.h"
#include "tessera/program/place_text.h"

namespace tessera {
namespace {

// A `Merged` has the instructions of both blocks of a family. `from`: by instruction, the block
// that it belongs to.
struct Merged {
  std::vector<Instruction> instructions;
  std::vector<BlockRef> from;
};

Merged merge(std::vector<Instruction>& larger, const std::vector<size_t>& at_larger,
             BlockRef larger_ref, std::vector<Instruction>& smaller,
             const std::vector<size_t>& at_smaller, BlockRef smaller_ref) {
  Merged out;
  size_t i = 0, j = 0;
  while (i < larger.size() || j < smaller.size()) {
    const bool first = j == smaller.size() || (i < larger.size() && at_larger[i] <= at_smaller[j]);
    out.instructions.push_back(std::move(first ? larger[i++] : smaller[j++]));
    out.from.push_back(first ? larger_ref : smaller_ref);
  }
  return out;
}

// `Ends` knows, for each family, the block of its first run in the step and that of its last run.
class Ends {
 public:
  explicit Ends(const Program& program) : program_(program) {
    for (const BlockRunStep& run : program.schedule) {
      const auto [it, fresh] =
          ends_.try_emplace(program.family(run.block), std::pair{run.block, run.block});
      it->second.second = run.block;
    }
  }

  // Returns whether the instruction belongs in the block `ref`. An instruction that runs only in
  // the first (or the last) run of a family belongs in the block that has this run.
  bool stands_in(BlockRef ref, const Instruction& instruction) const {
    if (ref.once() || instruction.when == When::kAlways) return true;
    const auto& [first, last] = ends_.at(program_.family(ref));
    return ref == (instruction.when == When::kFirst ? first : last);
  }

 private:
  const Program& program_;
  ByBlock<std::pair<BlockRef, BlockRef>> ends_;  // by family
};

// Returns by buffer which micro-batches use it. `is_smaller`: whether a block is one of the smaller
// micro-batches.
template <class IsSmaller>
std::vector<UsedBy> users_of(const Program& program, const Ends& ends,
                             const IsSmaller& is_smaller) {
  std::vector<bool> by_larger(program.buffers.size()), by_smaller(program.buffers.size());
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      if (!ends.stands_in(ref, instruction)) continue;
      accesses(instruction, [&, here = ref](const Access& access) {
        const size_t b = access.buffer.index();
        if (here.once() || !is_smaller(here)) by_larger[b] = true;
        if (here.once() || is_smaller(here)) by_smaller[b] = true;
      });
    }
  }
  std::vector<UsedBy> out;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const bool one = by_larger[b] != by_smaller[b];
    out.push_back(!one ? UsedBy::kAll : by_larger[b] ? UsedBy::kLarger : UsedBy::kSmaller);
  }
  return out;
}

// Returns whether a block for micro-batches of the size `here` frees a buffer. It does not free a
// buffer that micro-batches of its size do not use, because the buffer of another micro-batch may
// have the same memory.
bool frees(UsedBy users, UsedBy here, Lifetime lifetime) {
  return users == UsedBy::kAll || users == here || lifetime == Lifetime::kStep;
}

}  // namespace

void plan_memory_of_both(Program& program, const ByBlock<std::vector<size_t>>& ordinals,
                         bool offsets) {
  const auto count = static_cast<int32_t>(program.stages.size());
  const Ends ends(program);
  const auto is_smaller = [&](BlockRef ref) { return program.family(ref) != ref; };
  const std::vector<UsedBy> used_by = users_of(program, ends, is_smaller);
  Program one = program;
  ByBlock<std::vector<BlockRef>> from;
  one.blocks.clear();
  static const std::vector<size_t> none;
  const auto places = [&](BlockRef ref) -> const std::vector<size_t>& {
    const auto it = ordinals.find(ref);
    return it == ordinals.end() ? none : it->second;
  };
  for (auto& [ref, block] : program.blocks) {
    if (ref.once()) {
      one.blocks[ref] = std::move(block);
      continue;
    }
    const BlockRef larger = program.family(ref), smaller{ref.kind, larger.chunk + count};
    if (one.blocks.contains(larger)) continue;
    Merged merged = merge(program.block(larger), places(larger), larger, program.block(smaller),
                          places(smaller), smaller);
    one.blocks[larger] = std::move(merged.instructions);
    from[larger] = std::move(merged.from);
  }
  for (BlockRunStep& run : one.schedule) run.block = program.family(run.block);
  plan_memory_of(one, offsets, used_by);
  program.buffers = std::move(one.buffers);
  program.arena_bytes = one.arena_bytes;
  program.blocks.clear();
  for (auto& [ref, block] : one.blocks) {
    if (ref.once()) {
      program.blocks[ref] = std::move(block);
      continue;
    }
    const BlockRef smaller{ref.kind, ref.chunk + count};
    auto next = from.at(ref).begin();
    for (Instruction& instruction : block) {
      if (const auto* free = std::get_if<Free>(&instruction.body)) {
        const UsedBy users = used_by[free->buffer.index()];
        const Lifetime lifetime = program.buffer(free->buffer).lifetime;
        if (frees(users, UsedBy::kSmaller, lifetime))
          program.blocks[smaller].push_back(instruction);
        if (frees(users, UsedBy::kLarger, lifetime))
          program.blocks[ref].push_back(std::move(instruction));
      } else {
        program.blocks[*next++].push_back(std::move(instruction));
      }
    }
  }
  for (auto& [ref, block] : program.blocks) {
    std::erase_if(block, [&, here = ref](const Instruction& instruction) {
      return !ends.stands_in(here, instruction);
    });
  }
  std::erase_if(program.blocks, [](const auto& block) { return block.second.empty(); });
}

}  // namespace tessera
