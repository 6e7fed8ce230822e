// Finds the decisions in the place texts.
#include "tessera/program/decisions.h"

#include <fmt/format.h>

#include <map>

#include "tessera/program/instructions.h"
#include "tessera/program/text/place_form.h"
#include "tessera/program/text/text_parts.h"

namespace tessera {
namespace {

using program_text::op_text;
using program_text::tensor_text;
using program_text::write_name;

class Reader {
 public:
  explicit Reader(const Lowering& lowering) : texts_(lowering.texts()), graph_(lowering.graph()) {}

  Decisions run() {
    for (size_t p = 0; p < texts_.size(); ++p) {
      place_ = PlaceId(p);
      for (const TextBuffer& buffer : text().buffers) {
        if (buffer.persistent || buffer.accumulates) {
          tensor(buffer.tensor)
              .rests.push_back({place_, buffer.tier, buffer.region, buffer.accumulates});
        }
      }
      for (const auto& [ref, block] : text().blocks) {
        block_ = ref;
        for (const TextInstruction& instruction : block) read(instruction);
      }
    }
    Decisions out;
    for (auto& [id, op] : ops_) out.ops.push_back(std::move(op));
    for (auto& [id, tensor] : tensors_) out.tensors.push_back(std::move(tensor));
    return out;
  }

 private:
  const PlaceText& text() const { return texts_[place_.index()]; }
  TensorDecision& tensor(TensorId id) {
    TensorDecision& out = tensors_[id];
    out.tensor = id;
    return out;
  }
  Tier tier(const TextView& view) const {
    return text().buffers[static_cast<size_t>(view.buffer)].tier;
  }
  void moves(const TextInstruction& instruction, TensorId id, std::string how, const TextView& from,
             const TextView& to) {
    TensorDecision& moved = tensor(id);
    const bool once = block_.once() || instruction.when != When::kAlways;
    const bool completes = !from.region.layout->complete() && to.region.layout->complete();
    if (completes && !moved.completed_by) moved.completed_by = moved.brought.size();
    moved.brought.push_back({std::move(how), place_, block_,
                             once ? Frequency::kOnceAStep : Frequency::kEachMicroBatch, from.region,
                             to.region});
  }
  std::string over(const TextIssue& issue) const {
    std::string out = issue.classify ? "moved" : std::string(collective_name(issue.kind));
    if (issue.named) out += fmt::format(" of rows that {} names", graph_.op(issue.named->op).path);
    out += " over";
    for (AxisId axis : issue.axes) out += " " + text().mesh.axis(axis).name;
    return out;
  }

  void read(const TextInstruction& instruction) {
    match(
        instruction, [&](const TextCompute& compute) { read(compute); },
        [&](const TextIssue& issue) {
          for (const TextTransfer& transfer : issue.transfers)
            moves(instruction, transfer.tensor, over(issue), transfer.from, transfer.to);
        },
        [&](const TextCross& cross) {
          if (!cross.sends) {
            moves(instruction, cross.tensor, fmt::format("from place {}", cross.from_place.value),
                  cross.from, cross.to);
          }
        },
        [&](const TextCopy& copy) {
          if (tier(copy.from) == tier(copy.to)) return;
          moves(instruction, copy.tensor,
                fmt::format("copied from {} to {}", tier_name(tier(copy.from)),
                            tier_name(tier(copy.to))),
                copy.from, copy.to);
        },
        [](const OneOf<TextWait, TextLoad> auto&) {});
  }

  void read(const TextCompute& compute) {
    const auto [it, fresh] = ops_.try_emplace(compute.op);
    OpDecision& out = it->second;
    out.steps = std::max(out.steps, compute.step + 1);
    if (!fresh) return;
    const Op& op = graph_.op(compute.op);
    out.op = compute.op;
    out.place = place_;
    out.block = block_;
    for (size_t i = 0; i < compute.inputs.size(); ++i)
      out.reads.push_back({op.inputs[i], compute.inputs[i].region, Write::kSet});
    for (const TextOutput& output : compute.outputs)
      out.makes.push_back({output.tensor, output.view.region, output.write});
  }

  const std::vector<PlaceText>& texts_;
  const Graph& graph_;
  PlaceId place_;
  BlockRef block_;
  std::map<OpId, OpDecision> ops_;
  std::map<TensorId, TensorDecision> tensors_;
};

}  // namespace

Decisions decisions_of(const Lowering& lowering) { return Reader(lowering).run(); }

std::string to_text(const Decisions& decisions, const Lowering& lowering) {
  const Graph& graph = lowering.graph();
  const auto region = [&](PlaceId place, TensorId tensor, const Region& what) {
    return to_text(what, lowering.texts()[place.index()].mesh, graph.tensor(tensor).dims);
  };
  std::string out;
  for (const OpDecision& op : decisions.ops) {
    const auto operand = [&](const OperandDecision& one) {
      const std::string write =
          one.write == Write::kSet ? "" : fmt::format("{} ", write_name(one.write));
      return fmt::format("{}{} {}", write, tensor_text(graph, one.tensor),
                         region(op.place, one.tensor, one.region));
    };
    std::vector<std::string> reads, makes;
    for (const OperandDecision& one : op.reads) reads.push_back(operand(one));
    for (const OperandDecision& one : op.makes) makes.push_back(operand(one));
    out += fmt::format("op {} in {}, place {}{}: ({}) -> ({})\n", op_text(graph, op.op),
                       block_name(op.block), op.place.value,
                       op.steps > 1 ? fmt::format(", {} steps", op.steps) : "",
                       fmt::join(reads, ", "), fmt::join(makes, ", "));
  }
  for (const TensorDecision& tensor : decisions.tensors) {
    out += fmt::format("tensor {}\n", tensor_text(graph, tensor.tensor));
    for (const RestDecision& rest : tensor.rests) {
      out += fmt::format("  {} at place {} in the {} tier: {}\n",
                         rest.sums ? "summed over micro-batches" : "rests", rest.place.value,
                         tier_name(rest.tier), region(rest.place, tensor.tensor, rest.region));
    }
    for (size_t i = 0; i < tensor.brought.size(); ++i) {
      const Movement& move = tensor.brought[i];
      out += fmt::format("  {} at place {} in {}, {}: {} to {}\n",
                         tensor.completed_by == i ? "completed" : "brought", move.place.value,
                         block_name(move.block),
                         move.often == Frequency::kOnceAStep ? "once a step" : "each micro-batch",
                         move.how, region(move.place, tensor.tensor, move.to));
    }
  }
  return out;
}

}  // namespace tessera
