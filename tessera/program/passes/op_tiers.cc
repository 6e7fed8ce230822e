#include "tessera/program/passes/op_tiers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/graph/kinds.h"

namespace tessera {

StagedPart part_of(const TextView& view, Tier tier) {
  StagedPart key{view.buffer, view.region, tier};
  key.region.layout.own().partial.clear();
  key.region.layout.own().combiner = Combiner::kSum;
  return key;
}

Tier OpTiers::of(const TextCompute& compute) const {
  const Op& op = graph_.op(compute.op);
  const auto rests_below = [&](const TextView& view) {
    return of_buffer(view.buffer) != Tier::kDevice;
  };
  // Rows are read and written in the tier where the table rests, because staging would copy the
  // whole table.
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const TextView& table = compute.inputs[i];
    if (touches_rows(op, i) && rests(table.buffer) && rests_below(table)) return Tier::kHost;
  }
  if (op.phase == Phase::kUpdate) {
    bool updates = false;
    for (TensorId output : op.outputs) {
      const TensorId old = graph_.tensor(output).update_of;
      if (!old.valid()) continue;
      updates = true;
      if (graph_.tensor(old).role == Role::kOptimizerState &&
          plan_.tensors[old.index()].tier != Tier::kDevice) {
        return Tier::kHost;
      }
    }
    // An op that only reads gradients (a norm) is computed in the tier of the gradients.
    for (size_t i = 0; !updates && i < op.inputs.size(); ++i) {
      if (!graph_.tensor(op.inputs[i]).dims.empty() && rests_below(compute.inputs[i]))
        return Tier::kHost;
    }
    return Tier::kDevice;
  }
  // A cast to a narrower type is computed on the host if its tensor rests there, so that the copy
  // to the device moves fewer bytes.
  const bool narrows = info_of(op).converts && dtype_bytes(graph_.tensor(op.outputs[0]).dtype) <
                                                   dtype_bytes(graph_.tensor(op.inputs[0]).dtype);
  const bool source_rests = narrows && rests(compute.inputs[0].buffer);
  return source_rests && rests_below(compute.inputs[0]) ? Tier::kHost : Tier::kDevice;
}

void place_buffers(PlaceText& text, const OpTiers& tiers) {
  const size_t n = text.buffers.size();
  std::vector<std::set<BlockRef>> blocks(n);
  std::vector<bool> on_host(n, false), elsewhere(n, false);
  const auto touch = [&](int index, BlockRef ref) {
    blocks[static_cast<size_t>(index)].insert(ref);
  };
  for (const TextHome& fetch : text.fetches) touch(fetch.buffer, BlockKind::kUpdate);
  for (const auto& [ref, block] : text.blocks) {
    for (const TextInstruction& instruction : block) {
      const auto* compute = std::get_if<TextCompute>(&instruction.body);
      for_each_view(instruction, [&, here = ref](const TextView& view, bool writes) {
        touch(view.buffer, here);
        if (!writes) return;
        const bool host = compute != nullptr && tiers.of(*compute) == Tier::kHost;
        (host ? on_host : elsewhere)[static_cast<size_t>(view.buffer)] = true;
      });
    }
  }
  for (size_t i = 0; i < n; ++i) {
    TextBuffer& b = text.buffers[i];
    if (b.persistent) continue;
    if (on_host[i] && !elsewhere[i]) {
      b.tier = Tier::kHost;
    } else if (blocks[i].size() < 2) {
      b.tier = Tier::kDevice;
    }
  }
}

namespace {

// Calls visit(view, tensor) for all that the instruction reads, if it works on the device.
template <class Visit>
void for_each_read(const TextInstruction& instruction, const PlaceText& text, const Graph& graph,
                   const OpTiers& tiers, const Visit& visit) {
  match(
      instruction,
      [&](const TextCompute& compute) {
        if (tiers.of(compute) != Tier::kDevice) return;
        const Op& op = graph.op(compute.op);
        for (size_t i = 0; i < op.inputs.size(); ++i) visit(compute.inputs[i], op.inputs[i]);
      },
      [&](const TextIssue& issue) {
        for (const TextTransfer& transfer : issue.transfers) visit(transfer.from, transfer.tensor);
        if (!issue.named) return;
        for (const TextView& ids : issue.named->ids)
          visit(ids, text.buffers[static_cast<size_t>(ids.buffer)].tensor);
      },
      [](const OneOf<TextCross, TextWait, TextCopy, TextLoad> auto&) {});
}

}  // namespace

std::vector<StagedPart> choose_residents(const PlaceText& text, const OpTiers& tiers,
                                         const ShapeRule& shapes, const ResolvedPlan& plan) {
  std::vector<StagedPart> residents;
  std::vector<std::pair<StagedPart, TensorId>> uses;  // by first use
  for (const auto& [ref, block] : text.blocks) {
    if (ref.kind != BlockKind::kForward || plan.plan.resident_bytes == 0) continue;
    for (const TextInstruction& instruction : block) {
      for_each_read(
          instruction, text, *shapes.graph, tiers, [&](const TextView& view, TensorId tensor) {
            const StagedPart key = part_of(view, Tier::kDevice);
            const bool candidate = instruction.when == When::kAlways && tiers.rests(view.buffer) &&
                                   tiers.of_buffer(view.buffer) != Tier::kDevice &&
                                   tiers.kept(tensor) == Keep::kBlock;
            const auto same = [&](const auto& use) { return use.first == key; };
            if (candidate) {
              std::erase_if(uses, same);
              uses.emplace_back(key, tensor);
            }
          });
    }
  }
  int64_t left = plan.plan.resident_bytes;
  const std::vector<int64_t> origin(text.mesh.axes.size(), 0);
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
    const auto& [key, tensor] = *use;
    const int64_t bytes = evaluate(key.region, text.mesh, shapes.shape(tensor), origin).volume() *
                          dtype_bytes(text.buffers[static_cast<size_t>(key.buffer)].dtype);
    if (bytes > left) continue;
    left -= bytes;
    residents.push_back(key);
  }
  return residents;
}

}  // namespace tessera
