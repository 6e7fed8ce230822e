// What lowering has decided, apart from the order of instructions: the layouts in which ops read
// and make their operands, and of each tensor where it rests, where it becomes complete, and how
// often it is brought there. It is read off the place texts, so it says what is done.
//
//   std::cout << to_text(decisions_of(lowering), lowering);
//
//   op "blocks.0.mlp.up" forward, place 0: ("x" [batch: dp, hidden: -], "w" [hidden: -, ffn: tp])
//       -> ("y" [batch: dp, ffn: tp])
//   tensor "w"
//     rests at place 0 in the device tier: [hidden: dp, ffn: tp]
//     brought at place 0 in forward, each micro-batch: all_gather over dp to [hidden: -, ffn: tp]
//
// Tensors that rest nowhere and never move are left out: the ops say all there is to them.
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
  Write write = Write::kSet;  // of what is made
};
struct OpDecision {
  OpId op;
  PlaceId place;
  BlockRef block;
  int64_t steps = 1;                          // of its time loop
  std::vector<OperandDecision> reads, makes;  // in the first step
};

enum class Frequency : uint8_t { kOnceAStep, kEachMicroBatch };
// An array that moves to where it is needed: by a collective, over places, between tiers.
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
  bool sums = false;  // over micro-batches, for the step; else it rests there across steps
};
struct TensorDecision {
  TensorId tensor;
  std::vector<RestDecision> rests;
  // What makes its parts whole; none: it is made whole, or its parts are added up by others.
  std::optional<size_t> completed_by;  // index into `brought`
  std::vector<Movement> brought;       // in the order of blocks
};
struct Decisions {
  std::vector<OpDecision> ops;          // by op; what is a term of a sum says so by its tensor
  std::vector<TensorDecision> tensors;  // by tensor
};

Decisions decisions_of(const Lowering& lowering);
std::string to_text(const Decisions& decisions, const Lowering& lowering);

}  // namespace tessera
