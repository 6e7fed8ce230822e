// Memory of programs with micro-batches of two sizes. The blocks of a family are laid side by side,
// instruction by instruction, and planned as one block of all micro-batches: a buffer lives from the
// first to the last touch of either, and has the size that the larger ones need. What is freed is
// then freed at that place of both.
#include <utility>

#include "tessera/program/place_text.h"

namespace tessera {
namespace {

// A family's block, and of which of its two blocks each instruction is.
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

// What takes place in the first or last run of the family stands only in the block of that run.
void keep_ends(Program& program) {
  ByBlock<std::pair<BlockRef, BlockRef>> ends;  // by family: the blocks of its first and last run
  for (const BlockRunStep& run : program.schedule) {
    const auto [it, fresh] =
        ends.try_emplace(program.family(run.block), std::pair{run.block, run.block});
    it->second.second = run.block;
  }
  for (auto& [ref, block] : program.blocks) {
    if (ref.once()) continue;
    const auto& [first, last] = ends.at(program.family(ref));
    std::erase_if(block, [&, here = ref](const Instruction& instruction) {
      return (instruction.when == When::kFirst && here != first) ||
             (instruction.when == When::kLast && here != last);
    });
  }
}

}  // namespace

void plan_memory_of_both(Program& program, const ByBlock<std::vector<size_t>>& ordinals,
                         bool offsets) {
  const auto count = static_cast<int32_t>(program.stages.size());
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
  plan_memory(one, offsets);
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
      if (std::holds_alternative<Free>(instruction.body)) {
        program.blocks[smaller].push_back(instruction);
        program.blocks[ref].push_back(std::move(instruction));
      } else {
        program.blocks[*next++].push_back(std::move(instruction));
      }
    }
  }
  keep_ends(program);
  std::erase_if(program.blocks, [](const auto& block) { return block.second.empty(); });
}

}  // namespace tessera
