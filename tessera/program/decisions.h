// The decisions of lowering, apart from the order of instructions. For each op: the layouts in
// which the op reads and makes its operands. For each tensor: the layout in which the tensor rests,
// the way in which it becomes complete, and how often it is brought to other layouts. The decisions
// are read off the place texts, so they describe what the programs do.
//
//   std::cout << to_text(decisions_of(lowering), lowering);
//
//   op "blocks.0.mlp.up" forward, place 0: ("x" [batch: dp, hidden: -], "w" [hidden: -, ffn: tp])
//       -> ("y" [batch: dp, ffn: tp])
//   tensor "w"
//     rests at place 0 in the device tier: [hidden: dp, ffn: tp]
//     brought at place 0 in forward, each micro-batch: all_gather over dp to [hidden: -, ffn: tp]
//
// Tensors that rest nowhere and never move are left out, because the ops that make and read them
// already say everything about them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/program/lower.h"
#include "tessera/program/place_text.h"

namespace tessera {

struct OperandDecision {
  TensorId tensor;
  Region region;
  Write write = Write::kSet;  // for operands that the op makes
};
struct OpDecision {
  OpId op;
  PlaceId place;
  BlockRef block;
  int64_t steps = 1;                          // of the op's time loop
  std::vector<OperandDecision> reads, makes;  // in the first step
};

enum class Frequency : uint8_t { kOnceAStep, kEachMicroBatch };
// A `Movement` brings an array to where it is needed: by a collective, between places or between
// tiers.
struct Movement {
  std::string how;  // "all_gather over dp", "from place 0", "copied from the host tier"
  PlaceId place;
  BlockRef block;
  Frequency often = Frequency::kOnceAStep;
  Region from, to;
};
struct RestDecision {
  PlaceId place;
  Tier tier = Tier::kDevice;
  Region region;
  // True: the tensor is summed there over micro-batches, within a step. False: it rests there
  // across steps.
  bool sums = false;
};
struct TensorDecision {
  TensorId tensor;
  std::vector<RestDecision> rests;
  // The movement that adds up the tensor's parts. Unset: the tensor is made complete, or other ops
  // add up its parts.
  std::optional<size_t> completed_by;  // index into `brought`
  std::vector<Movement> brought;       // in the order of blocks
};
struct Decisions {
  // In the order of ops. Where an op writes a term of a sum that is made in place, the tensor of
  // the operand is the sum.
  std::vector<OpDecision> ops;
  std::vector<TensorDecision> tensors;  // by tensor
};

Decisions decisions_of(const Lowering& lowering);
std::string to_text(const Decisions& decisions, const Lowering& lowering);

}  // namespace tessera
