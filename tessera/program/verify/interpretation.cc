#include "tessera/program/verify/interpretation.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera::verifying {

std::string Interpreting::where(const Rank& rank) const {
  if (rank.done()) return "end of step";
  const BlockRef block = rank.step().block;
  if (rank.index >= rank.program().block(block).size()) return block_name(block);
  return verifying::where(rank.program(), block, rank.index, graph);
}

bool Interpreting::reject(const Rank* rank, std::string rule, TensorId tensor,
                          std::string message) {
  if (rejections.size() < kMaxRejections) {
    if (rank != nullptr && !rank->done() && rank->program().micro_batches > 1) {
      message += fmt::format(" (micro-batch {})", rank->step().micro_batch);
    }
    rejections.push_back({std::move(rule), rank != nullptr ? rank->program().rank : -1,
                          rank != nullptr ? where(*rank) : "",
                          tensor.valid() ? graph.tensor(tensor).name : "", std::move(message)});
  }
  return false;
}

bool Interpreting::check(const Rank& rank, const Failure& failure) {
  return failure ? reject(&rank, failure.rule, failure.tensor, failure.message) : true;
}

size_t Interpreting::add_communication(std::vector<int> members) {
  communications.push_back(std::make_unique<Communication>());
  communications.back()->arrivals.resize(members.size());
  communications.back()->members = std::move(members);
  return communications.size() - 1;
}

void Interpreting::block_at(Rank& rank, size_t communication, const Instruction& instruction,
                            int handle) {
  rank.pending[handle].push_back({communication, rank.family(), rank.runs_before(),
                                  rank.step().micro_batch, &instruction, true});
  if (blocking && !communications[communication]->complete()) {
    rank.waits_for = static_cast<int>(communication);
  }
}

bool sets(Rank& rank, Write write) {
  return write == Write::kSet || (write == Write::kAddExceptFirst && rank.runs_before() == 0);
}

Box relative(const Box& box, const Box& origin) {
  Box out = box;
  for (size_t i = 0; i < out.rank(); ++i) out.dims[i].begin -= origin.dims[i].begin;
  return out;
}

namespace {

bool runs_now(When when, int64_t run, int64_t runs) {
  switch (when) {
    case When::kAlways: return true;
    case When::kFirst: return run == 0;
    case When::kLast: return run == runs - 1;
  }
  return true;
}

bool next_block(Interpreting& v, Rank& rank) {
  if (Failure failure = rank.state.end_block()) {
    rank.index = rank.index == 0 ? 0 : rank.index - 1;
    return v.check(rank, failure);
  }
  ++rank.run[rank.family()];
  ++rank.position;
  rank.index = 0;
  rank.state.begin_block();
  return true;
}

// Returns whether the run to which the wait's lag points was of the other size of micro-batches,
// whose blocks issued nothing under the handle.
bool other_size(const Rank& rank, const Wait& wait) {
  if (wait.lag == 0 || rank.program().larger == 0) return false;
  int64_t left = wait.lag;
  for (size_t i = rank.position; i-- > 0;) {
    const BlockRunStep& step = rank.program().schedule[i];
    if (rank.program().family(step.block) != rank.family() || --left > 0) continue;
    return std::ranges::none_of(rank.program().block(step.block), [&](const Instruction& one) {
      return handle_of(one) == wait.handle;
    });
  }
  return false;
}

Pending* find_pending(Rank& rank, const Wait& wait) {
  const auto found = rank.pending.find(wait.handle);
  if (found == rank.pending.end()) return nullptr;
  std::vector<Pending>& pendings = found->second;
  const BlockRunStep& step = rank.step();
  const BlockRef family = rank.family();
  const int64_t run = rank.runs_before() - wait.lag;
  const auto first = [&](auto&& fits) -> Pending* {
    const auto it = std::find_if(pendings.begin(), pendings.end(), fits);
    return it == pendings.end() ? nullptr : &*it;
  };
  const bool here = !pendings.empty() && pendings[0].block == family;
  if (here || wait.lag > 0) {
    return first([&](const Pending& p) { return p.block == family && p.run == run; });
  }
  if (step.block.once()) {
    return first([](const Pending&) { return true; });
  }
  return first([&](const Pending& p) {
    return p.block == BlockKind::kPrologue || p.micro_batch == step.micro_batch;
  });
}

bool run_wait(Interpreting& v, Rank& rank, const Wait& wait) {
  Pending* pending = find_pending(rank, wait);
  if (pending == nullptr) {
    if (wait.lag > rank.runs_before() || other_size(rank, wait)) return true;
    // If micro-batches have two sizes, those of one size may have sent nothing under the handle,
    // and all messages of the other size may be awaited already. A wait at the end of the step then
    // finds nothing, which is no error.
    if (rank.step().block.once() && rank.program().larger > 0 && rank.pending.contains(wait.handle))
      return true;
    return v.reject(&rank, "lifetime", {}, "waits for a handle that was not issued");
  }
  if (!v.communications[pending->communication]->complete()) {
    rank.waits_for = static_cast<int>(pending->communication);
    return true;
  }
  const Pending done = *pending;
  std::vector<Pending>& pendings = rank.pending[wait.handle];
  pendings.erase(pendings.begin() + (pending - pendings.data()));
  if (!finish(v, rank, done)) return false;
  // A wait in a block that runs once a step is for all that the step has issued under the handle.
  return !rank.step().block.once() || pendings.empty() || run_wait(v, rank, wait);
}

bool execute(Interpreting& v, Rank& rank, const Instruction& instruction,
             const Prepared& prepared) {
  const int64_t mb = rank.step().micro_batch;
  return match(
      instruction, [&](const Compute& what) { return run_compute(v, rank, what, prepared); },
      [&](const Issue& what) { return start_collective(v, rank, instruction, what, prepared); },
      [&](const Wait& what) { return run_wait(v, rank, what); },
      [&](const Free& what) {
        return v.check(rank, rank.step().block.once() ? rank.state.free_slots(what.buffer)
                                                      : rank.state.free(what.buffer, mb));
      },
      [&](const Load& what) {
        const Box region = prepared.regions[0].at(mb);
        const std::vector<Piece> pieces{{relative(region, region), region, what.tensor, nullptr}};
        return v.check(rank, rank.state.write(what.to, mb, pieces, nullptr));
      },
      [&](const Copy& what) { return start_copy(v, rank, instruction, what, prepared); },
      [&](const FetchRows& what) { return fetch_rows(v, rank, instruction, what, prepared); },
      [&](const ReleaseRows& what) { return release_rows(v, rank, what); },
      [&](const OneOf<Send, Recv> auto&) {
        return start_message(v, rank, instruction, *message_of(instruction), prepared);
      });
}

bool advance(Interpreting& v, size_t r) {
  Rank& rank = v.ranks[r];
  while (!rank.done()) {
    if (rank.waits_for >= 0) {
      if (!v.communications[static_cast<size_t>(rank.waits_for)]->complete()) return true;
      rank.waits_for = -1;
      // The communication at which the rank was blocked is complete. If the rank was blocked at an
      // issue, the issue is done; if at a wait, the wait is executed now.
      if (!std::holds_alternative<Wait>(rank.program().block(rank.step().block)[rank.index].body)) {
        ++rank.index;
      }
    }
    const BlockRef ref = rank.step().block;
    const std::vector<Instruction>& block = rank.program().block(ref);
    while (rank.index < block.size()) {
      const Instruction& instruction = block[rank.index];
      if (runs_now(instruction.when, rank.runs_before(), rank.prepared->runs.at(rank.family()))) {
        if (!execute(v, rank, instruction, rank.prepared->blocks.at(ref)[rank.index])) return false;
        if (rank.waits_for >= 0) return true;
      }
      ++rank.index;
    }
    if (!next_block(v, rank)) return false;
  }
  return true;
}

}  // namespace

bool interpret(const Graph& graph, const std::vector<PreparedProgram>& programs, bool blocking,
               std::vector<Rejection>& rejections) {
  Interpreting v{graph, blocking, rejections};
  v.executed.resize(graph.ops().size());
  v.updated.resize(graph.tensors().size());
  v.fused.resize(graph.ops().size());
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.update_of.valid()) v.updated[tensor.update_of.index()] = tensor.id;
  }
  v.ranks.reserve(programs.size());
  for (const PreparedProgram& program : programs) v.ranks.emplace_back(graph, program);
  for (Rank& rank : v.ranks) {
    if (Failure failure = rank.state.begin_step()) {
      return v.reject(&rank, failure.rule, failure.tensor, failure.message);
    }
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < v.ranks.size(); ++r) {
      const auto before = std::make_pair(v.ranks[r].position, v.ranks[r].index);
      if (!advance(v, r)) return false;
      moved = moved || before != std::make_pair(v.ranks[r].position, v.ranks[r].index);
    }
  }
  return std::all_of(v.ranks.begin(), v.ranks.end(), [](const Rank& r) { return r.done(); })
             ? finish_step(v)
             : stuck(v);
}

}  // namespace tessera::verifying
