#include "tessera/runtime/step/prepared_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tessera/base/text.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/pieces.h"
#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"
#include "tessera/runtime/formulas/formula.h"

namespace tessera {
namespace {

class InstructionMaker {
 public:
  InstructionMaker(const Graph& graph, const Program& program, const RankMemory& memory)
      : graph_(graph), program_(program), memory_(memory) {}

  PreparedInstruction make(const Instruction& instruction) const {
    PreparedInstruction made;
    if (instruction.cause.valid()) made.label.op = graph_.op(instruction.cause).path;
    accesses(instruction, [&](const Access& access) {
      if (access.view != nullptr) memory_.extend(made.touched, *access.view);
    });
    match(
        instruction, [&](const Compute& compute) { add_variants(compute, made); },
        [&](const Issue& issue) { add_items(issue, made); },
        [&](const Copy& copy) {
          made.varying = copy.write == Write::kAddExceptFirst;
          add_kernels(false, std::lcm(memory_.slots_of(copy.from), memory_.slots_of(copy.to)),
                      made);
          if (copy.handle < 0) return;
          made.label.tensor = graph_.tensor(copy.tensor).name;
          made.jobs.resize(made.kernels.size());
        },
        [&](const OneOf<Send, Recv> auto& message) {
          made.label.tensor = graph_.tensor(message.tensor).name;
          each_slot(memory_.slots_of(message.view), [&](int64_t m) {
            made.views.push_back(memory_.comm_view(message.view, message.region, m));
          });
        },
        [&](const FetchRows& fetch) {
          const RowCache& cache = program_.caches[static_cast<size_t>(fetch.cache)];
          made.label.tensor = graph_.tensor(program_.buffer(cache.held.front()).tensor).name;
        },
        [&](const Load& one) {
          const int dim = micro_batch_dim_of(program_, graph_.tensor(one.tensor));
          for (int64_t m = 0; m < program_.micro_batches; ++m) {
            made.loads.emplace_back(at_micro_batch(program_, one.region, dim, m),
                                    memory_.array(one.to, m));
          }
        },
        [](const OneOf<Wait, Free, ReleaseRows> auto&) {});
    return made;
  }

 private:
  // Calls f with one micro-batch for each of the `slots` slots of a buffer: micro-batch m uses slot
  // m mod slots.
  template <class F>
  void each_slot(int64_t slots, F&& f) const {
    for (int64_t m = 0; m < std::min(slots, program_.micro_batches); ++m) f(m);
  }

  // `moving`: whether the kernels depend on the micro-batch; `slots`: the least common multiple of
  // the numbers of slots of the buffers.
  void add_kernels(bool moving, int64_t slots, PreparedInstruction& made) const {
    made.places = moving ? program_.micro_batches : std::min(slots, program_.micro_batches);
    made.kernels.resize(2 * static_cast<size_t>(made.places));
  }

  void add_variants(const Compute& compute, PreparedInstruction& made) const {
    const Op& op = graph_.op(compute.op);
    const int dim = micro_batch_dim_of(program_, op.annotation);
    int64_t slots = 1;
    for (const View& view : compute.inputs) slots = std::lcm(slots, memory_.slots_of(view));
    for (const Output& output : compute.outputs) {
      slots = std::lcm(slots, memory_.slots_of(output.view));
      made.varying = made.varying || output.write == Write::kAddExceptFirst;
    }
    add_kernels(dim >= 0 && program_.micro_batches > 1 && reads_position(op, dim), slots, made);
  }

  void add_items(const Issue& issue, PreparedInstruction& made) const {
    const Group& group = program_.groups[static_cast<size_t>(issue.group)];
    const auto me = static_cast<size_t>(group.index);
    made.label.tensor = moved_tensors(issue, graph_);
    made.label.axis = join(group.axes, "+");
    int64_t slots = 1;
    for (const Transfer& transfer : issue.transfers) {
      made.redistributions.push_back(
          {issue.kind, issue.combiner, issue.dtype, transfer.hold, transfer.need});
      if (transfer.in) slots = std::lcm(slots, memory_.slots_of(*transfer.in));
      if (transfer.out) slots = std::lcm(slots, memory_.slots_of(*transfer.out));
    }
    each_slot(slots, [&](int64_t m) {
      std::vector<comm::Item>& items = made.items.emplace_back();
      for (size_t t = 0; t < issue.transfers.size(); ++t) {
        const Transfer& transfer = issue.transfers[t];
        items.push_back({&made.redistributions[t],
                         memory_.comm_view(transfer.in, transfer.hold[me], m),
                         memory_.comm_view(transfer.out, transfer.need[me], m)});
      }
    });
    if (issue.named) made.exchange = std::make_unique<RowExchange>(graph_, issue, me);
  }

  const Graph& graph_;
  const Program& program_;
  const RankMemory& memory_;
};

}  // namespace

PreparedStep prepare_schedule(const Program& program) {
  PreparedStep step;
  for (const BlockRunStep& entry : program.schedule)
    step.micro_batches[program.family(entry.block)].push_back(entry.micro_batch);
  ByBlock<int64_t> runs;
  for (const BlockRunStep& entry : program.schedule) {
    const BlockRef family = program.family(entry.block);
    const int64_t index = runs[family]++;
    const auto total = static_cast<int64_t>(step.micro_batches.at(family).size());
    step.schedule.push_back(
        {entry.block, entry.micro_batch, index, index == 0, index + 1 == total});
  }
  return step;
}

void prepare_instructions(const Graph& graph, const Program& program, const RankMemory& memory,
                          PreparedStep& step) {
  const InstructionMaker maker(graph, program, memory);
  for (const auto& [ref, block] : program.blocks) {
    std::vector<PreparedInstruction>& made = step.instructions[ref];
    made.reserve(block.size());
    for (const Instruction& instruction : block) made.push_back(maker.make(instruction));
  }
}

device::Connections connections_of(const Program& program, const std::vector<StepRun>& schedule) {
  device::Connections found;
  for (const Group& group : program.groups) found.groups.push_back(group.members);
  for (const StepRun& run : schedule) {
    for (const Instruction& instruction : program.block(run.block)) {
      if (!run.executes(instruction)) continue;
      match(
          instruction,
          [&](const Send& one) {
            found.messages.push_back(
                {program.rank, one.peer, tag_in(run, one.tag, program), one.tag});
          },
          [&](const Recv& one) {
            found.messages.push_back(
                {one.peer, program.rank, tag_in(run, one.tag, program), one.tag});
          },
          [](const OneOf<Compute, Issue, Wait, Copy, Load, Free, FetchRows, ReleaseRows> auto&) {});
    }
  }
  return found;
}

bool on_host(const Program& program, const Compute& compute) {
  return !compute.outputs.empty() &&
         program.buffer(compute.outputs.front().view.buffer).tier != Tier::kDevice;
}

Status check_for_accelerator(const Program& program, const Graph& graph, std::string_view device) {
  const auto refused = [&](std::string_view what, const Instruction& instruction) {
    return invalid_input(
        fmt::format("device {}: expected a program without {}, found one at op {}", device, what,
                    instruction.cause.valid() ? graph.op(instruction.cause).path : "none"));
  };
  for (const auto& [ref, block] : program.blocks) {
    for (const Instruction& instruction : block) {
      const auto checked = match(
          instruction,
          [&](const Compute& compute) -> Status {
            const Op& op = graph.op(compute.op);
            if (on_host(program, compute) || kernels::has_formula(op)) return {};
            return refused(fmt::format("ops of kind {}", op.kind), instruction);
          },
          [&](const OneOf<FetchRows, ReleaseRows> auto&) -> Status {
            return refused("caches of rows", instruction);
          },
          [](const OneOf<Issue, Send, Recv, Copy, Load, Wait, Free> auto&) -> Status {
            return {};
          });
      TESSERA_TRY_VOID(checked);
    }
  }
  return {};
}

}  // namespace tessera
