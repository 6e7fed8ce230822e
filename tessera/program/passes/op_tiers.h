// In which memory tier each op of a place computes, and where buffers lie (tiers.cc). Private to
// tessera/program.
#pragma once

#include <vector>

#include "tessera/program/memory/touches.h"
#include "tessera/program/place_text.h"

namespace tessera {

// Calls visit(view, writes) for all views of the instruction.
template <class Visit>
void for_each_view(const TextInstruction& instruction, const Visit& visit) {
  accesses(instruction, [&](const TextAccess& access) {
    visit(*access.view, access.mode != AccessMode::kRead);
  });
}

// A `StagedPart` names a part of a buffer and another tier in which this part is staged.
struct StagedPart {
  int buffer = -1;
  Region region;
  Tier tier = Tier::kDevice;
  friend bool operator==(const StagedPart&, const StagedPart&) = default;
};

StagedPart part_of(const TextView& view, Tier tier);

class OpTiers {
 public:
  // Keeps references to all arguments. The text may change meanwhile.
  OpTiers(const PlaceText& text, const Graph& graph, const ResolvedPlan& plan)
      : text_(text), graph_(graph), plan_(plan) {}

  // Returns the tier in which the op computes. The update of an optimizer state is computed on the
  // host if the state rests below the device, and so is an op that touches rows of a table there.
  Tier of(const TextCompute& compute) const;
  Tier of_buffer(int buffer) const { return text_.buffers[static_cast<size_t>(buffer)].tier; }
  bool rests(int buffer) const { return text_.buffers[static_cast<size_t>(buffer)].persistent; }
  // Returns how long the plan keeps copies of the tensor.
  Keep kept(TensorId tensor) const {
    return plan_.tensors[tensor.index()].keep.value_or(Keep::kBlock);
  }

 private:
  const PlaceText& text_;
  const Graph& graph_;
  const ResolvedPlan& plan_;
};

// Moves buffers to the host tier that only ops on the host write. Moves buffers to the device that
// are made and read inside one block, because such a tensor does not rest in a tier.
void place_buffers(PlaceText& text, const OpTiers& tiers);

// Returns the parts that stay on the device from one block to the next. Together they have at most
// the plan's `resident_bytes`. Within a block there is nothing to choose: a block copies a tensor at
// rest only once, because its later reads find the copy. With one micro-batch, the chosen tensors
// are those that the backward pass uses first, which are those that the forward pass uses last. With
// more micro-batches the same tensors are kept for the whole step, because no other choice saves
// more copies if all tensors have the same size (docs/adr/0016-tiers.md).
std::vector<StagedPart> choose_residents(const PlaceText& text, const OpTiers& tiers,
                                         const ShapeRule& shapes, const ResolvedPlan& plan);

}  // namespace tessera
