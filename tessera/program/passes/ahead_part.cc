#include "tessera/program/passes/ahead_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/graph/ahead.h"
#include "tessera/graph/rows.h"
#include "tessera/program/instructions.h"

namespace tessera {
namespace {

// An `AheadSlice` finds the instructions of the part backwards from the buffers to be filled. It
// adds each instruction that writes a wanted buffer, and then wants the buffers that the
// instruction reads, unless they are at rest.
class AheadSlice {
 public:
  AheadSlice(const Program& program, const Graph& graph)
      : program_(program),
        graph_(graph),
        ahead_(buffers_ahead(graph)),
        made_(made_ahead(graph)),
        read_(graph.tensors().size()) {
    for (const Op& op : graph.ops()) {
      if (std::none_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId output) { return made_[output.index()]; }))
        continue;
      for (const TensorId input : op.inputs)
        read_[input.index()] = !made_[input.index()] && !ahead_[input.index()];
    }
  }

  Result<std::optional<AheadPart>> run() {
    AheadPart part;
    for (const Home& home : program_.homes) {
      if (!ahead_[home.tensor.index()]) continue;
      part.homes.push_back(home);
      wanted_.insert(home.buffer);
    }
    for (const auto& [ref, block] : program_.blocks) part.instructions[ref].resize(block.size());
    while (grow(part)) {
    }
    TESSERA_TRY_VOID(check(part));
    return part;
  }

 private:
  bool rests(BufferId buffer) const {
    return program_.buffer(buffer).lifetime == Lifetime::kPersistent;
  }

  // Adds the instructions that write a wanted buffer. Returns whether any was added.
  bool grow(AheadPart& part) {
    bool grew = false;
    for (const auto& [ref, block] : program_.blocks) {
      std::vector<bool>& chosen = part.instructions[ref];
      for (size_t i = block.size(); i-- > 0;) {
        if (chosen[i] || !belongs(block[i])) continue;
        grew = chosen[i] = true;
        if (const auto* compute = std::get_if<Compute>(&block[i].body)) want_rows(*compute);
        if (const int handle = handle_of(block[i]); handle >= 0) handles_.insert(handle);
        want_what_is_read(block[i]);
      }
    }
    return grew;
  }

  bool belongs(const Instruction& instruction) const {
    if (const auto* wait = std::get_if<Wait>(&instruction.body))
      return handles_.contains(wait->handle);
    if (const auto* fetch = std::get_if<FetchRows>(&instruction.body))
      return fetches_.contains(fetch->handle);
    if (const auto* release = std::get_if<ReleaseRows>(&instruction.body))
      return fetches_.contains(release->fetch);
    // Whether a transfer belongs to the part must not depend on the rank, because all members of a
    // collective and both ends of a message must decide alike. So only the tensors decide.
    const auto moves = [&](const auto& moved) {
      return made_[moved.tensor.index()] || read_[moved.tensor.index()];
    };
    if (const auto* issue = std::get_if<Issue>(&instruction.body))
      return std::any_of(issue->transfers.begin(), issue->transfers.end(), moves);
    if (const auto* send = std::get_if<Send>(&instruction.body)) return moves(*send);
    if (const auto* receive = std::get_if<Recv>(&instruction.body)) return moves(*receive);
    bool found = false;
    accesses(instruction, [&](const Access& access) {
      found = found || (writes(access.mode) && wanted_.contains(access.buffer));
    });
    return found;
  }

  // Adds the fetches of cached rows that the compute uses to the wanted ones, so that the part
  // fetches and releases rows as the step does.
  void want_rows(const Compute& compute) {
    const Op& op = graph_.op(compute.op);
    const std::vector<size_t> ids = ids_of_rows(op);
    const auto names = [&](const RowIds& row) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](size_t input) { return op.inputs[input] == row.tensor; });
    };
    for (const View& view : compute.inputs) {
      const int cache = cache_of(program_, view.buffer);
      if (cache < 0) continue;
      for (const auto& [ref, block] : program_.blocks) {
        for (const Instruction& instruction : block) {
          const auto* fetch = std::get_if<FetchRows>(&instruction.body);
          if (fetch != nullptr && fetch->cache == cache && !fetch->ahead &&
              std::any_of(fetch->ids.begin(), fetch->ids.end(), names))
            fetches_.insert(fetch->handle);
        }
      }
    }
  }

  // Adds the buffers that the instruction reads to the wanted ones. In a collective only transfers
  // that fill a wanted buffer count. Others move too, but it does not matter what they send.
  void want_what_is_read(const Instruction& instruction) {
    const auto want = [&](BufferId buffer) {
      if (!rests(buffer)) wanted_.insert(buffer);
    };
    if (const auto* issue = std::get_if<Issue>(&instruction.body)) {
      for (const Transfer& transfer : issue->transfers) {
        const bool receives = transfer.out && wanted_.contains(transfer.out->buffer);
        if ((receives || made_[transfer.tensor.index()]) && transfer.in) want(transfer.in->buffer);
      }
      if (issue->named) {
        for (const View& ids : issue->named->ids) want(ids.buffer);
      }
      return;
    }
    accesses(instruction, [&](const Access& access) {
      if (reads(access.mode)) want(access.buffer);
    });
  }

  tl::unexpected<Error> changes(BufferId buffer) const {
    const TensorId tensor = program_.buffer(buffer).tensor;
    return invalid_input(
        fmt::format("dim \"step\": expected that ops ahead read tensors where they rest, found "
                    "that '{}' changes "
                    "on the way",
                    tensor.valid() ? graph_.tensor(tensor).name : program_.buffer(buffer).name));
  }

  // Checks a tensor that moves in the same collective as a wanted tensor. If the tensor is sent
  // from where it rests, each rank sends the value at rest, and nothing changes. If it is a new
  // value that is sent to where it rests, the result is an error, because the part does not make
  // it.
  Status check(const Transfer& transfer) const {
    return transfer.in ? check_new_value(transfer.tensor, transfer.in->buffer) : Status();
  }
  Status check_new_value(TensorId tensor, BufferId from) const {
    const bool brings = !rests(from) && !wanted_.contains(from);
    if (brings && graph_.tensor(tensor).update_of.valid()) return changes(from);
    return {};
  }

  Status check(const AheadPart& part) const {
    for (const auto& [ref, block] : program_.blocks) {
      for (size_t i = 0; i < block.size(); ++i) {
        if (!part.instructions.at(ref)[i]) continue;
        if (const auto* issue = std::get_if<Issue>(&block[i].body)) {
          for (const Transfer& transfer : issue->transfers) TESSERA_TRY_VOID(check(transfer));
          continue;
        }
        if (const auto* send = std::get_if<Send>(&block[i].body))
          TESSERA_TRY_VOID(check_new_value(send->tensor, send->view.buffer));
        Status status;
        accesses(block[i], [&](const Access& access) {
          if (writes(access.mode) && rests(access.buffer) && !wanted_.contains(access.buffer))
            status = changes(access.buffer);
        });
        TESSERA_TRY_VOID(std::move(status));
      }
    }
    return {};
  }

  const Program& program_;
  const Graph& graph_;
  const std::vector<bool> ahead_;  // by tensor: buffers to be filled
  // By tensor. made_: tensors made by ops on which the new values of the buffers to be filled
  // depend. read_: tensors at rest from which these are made.
  std::vector<bool> made_, read_;
  std::set<BufferId> wanted_;
  std::set<int> handles_, fetches_;
};

}  // namespace

std::vector<bool> made_ahead(const Graph& graph) {
  const std::vector<bool> buffers = buffers_ahead(graph);
  std::vector<bool> made(graph.tensors().size());
  for (const Tensor& tensor : graph.tensors()) {
    const TensorId old = tensor.update_of;
    if (old.valid() && buffers[old.index()]) made[tensor.id.index()] = true;
  }
  for (auto op = graph.ops().rbegin(); op != graph.ops().rend(); ++op) {
    if (std::none_of(op->outputs.begin(), op->outputs.end(),
                     [&](TensorId output) { return made[output.index()]; }))
      continue;
    for (const TensorId input : op->inputs) {
      const Tensor& tensor = graph.tensor(input);
      if (tensor.producer.valid() && !tensor.update_of.valid()) made[input.index()] = true;
    }
  }
  return made;
}

Result<std::optional<AheadPart>> ahead_part(const Program& program, const Graph& graph) {
  const bool any = std::any_of(graph.tensors().begin(), graph.tensors().end(), is_of_next_step);
  if (!any) return std::nullopt;
  return AheadSlice(program, graph).run();
}

Program program_of(const AheadPart& part, const Program& program) {
  Program out = program;
  for (auto& [ref, block] : out.blocks) {
    std::vector<Instruction> kept;
    const std::vector<bool>& chosen = part.instructions.at(ref);
    for (size_t i = 0; i < block.size(); ++i) {
      if (chosen[i]) kept.push_back(std::move(block[i]));
    }
    block = std::move(kept);
  }
  return out;
}

}  // namespace tessera
