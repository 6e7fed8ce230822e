// Preparation of a rank's program before the first step, so that a step takes nothing from the heap:
// the runs of the schedule, and for each instruction its label, the memory that it touches and
// its operands for communicators and loads. Kernels are prepared at their first execution and kept
// here. Private to tessera/runtime.
//
//   const PreparedStep prepared = prepare_step(graph, program, memory);
//   for (const StepRun& run : prepared.schedule) {
//     for (size_t i = 0; i < program.block(run.block).size(); ++i)
//       execute(run, program.block(run.block)[i], prepared.at(run.block, i));
//   }
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/program/program.h"
#include "tessera/runtime/arrays/copier.h"
#include "tessera/runtime/cached_rows/row_exchange.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/kernels.h"
#include "tessera/runtime/step/rank_memory.h"

namespace tessera {

// One run of a block.
struct StepRun {
  BlockRef block;
  int64_t micro_batch = 0;
  int64_t index = 0;  // number among the runs in the step of all blocks of its family
  bool first = false, last = false;

  // Returns whether the instruction is executed in this run of its block.
  bool executes(const Instruction& instruction) const {
    return (instruction.when != When::kFirst || first) && (instruction.when != When::kLast || last);
  }
  // Returns whether an output that is written so adds to what is there.
  bool adds(Write write) const {
    return write == Write::kAdd || (write == Write::kAddExceptFirst && !first);
  }
};

// Returns the tag of a message in a run. It differs between micro-batches, so that their messages
// cannot be confused.
inline int64_t tag_in(const StepRun& run, int64_t tag, const Program& program) {
  return tag * program.micro_batches + run.micro_batch;
}

struct PreparedInstruction {
  comm::Label label;
  Extent touched;

  // The kernels of a compute instruction or a local copy. Micro-batches need different kernels
  // (variants), because their boxes or the slots of their buffers differ.
  int64_t places = 1;    // micro-batch m uses the variants of place m modulo this number
  bool varying = false;  // whether the first run sets the output and later runs add to it
  std::vector<std::optional<kernels::Kernel>> kernels;  // by variant; unset: not prepared yet
  std::vector<Copier::Job> jobs;  // by variant, for a copy with a handle; empty: not prepared yet
  size_t variant(const StepRun& run) const {
    return static_cast<size_t>(2 * (run.micro_batch % places) + (varying && run.first ? 1 : 0));
  }

  // The operands of an instruction that communicates or loads. The lists have an element for each
  // slot; `loads` has one for each micro-batch.
  std::vector<Redistribution> redistributions;        // by transfer of a collective
  std::vector<std::vector<comm::Item>> items;         // operands of a collective
  std::vector<comm::ArrayView> views;                 // operand of a message
  std::vector<std::pair<Box, kernels::Array>> loads;  // the region, and where it is loaded
  std::unique_ptr<RowExchange> exchange;              // of named rows; null: none
  // Returns the element of one of these lists that is for the run's micro-batch.
  template <class T>
  static const T& of_run(const std::vector<T>& list, const StepRun& run) {
    return list[static_cast<size_t>(run.micro_batch) % list.size()];
  }
};

struct PreparedStep {
  std::vector<StepRun> schedule;                // runs of a step, in order
  ByBlock<std::vector<int64_t>> micro_batches;  // for each run of the family in a step
  ByBlock<std::vector<PreparedInstruction>> instructions;
  PreparedInstruction& at(BlockRef block, size_t i) { return instructions.find(block)->second[i]; }
};

// Returns the runs of a step: PreparedStep without instructions.
PreparedStep prepare_schedule(const Program& program);
// Prepares the instructions. Program and memory outlive what is prepared. Called where the memory of
// the device may be addressed.
void prepare_instructions(const Graph& graph, const Program& program, const RankMemory& memory,
                          PreparedStep& step);

// Returns what the rank exchanges with others in a step.
device::Connections connections_of(const Program& program, const std::vector<StepRun>& schedule);
// Returns whether the processor computes the op, on memory of the host.
bool on_host(const Program& program, const Compute& compute);
// Checks that an accelerator of this name can do what the program asks for: it has no kernels but
// formulas, and no caches of rows, which read ids on the host in the middle of a step.
Status check_for_accelerator(const Program& program, const Graph& graph, std::string_view device);

}  // namespace tessera
