// Oracle: element by element, in memory: after the redistributions every rank has what it needs,
// and the bytes sent are those of elements that their receiver lacked.
#include "tessera/state/move.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/compile/compile.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = "llama:layers=4,hidden=6,heads=3,kv_heads=3,seq=5,vocab=7,ffn=7";

std::vector<RestingTensor> state_of(const std::string& plan, const std::string& model = kModel,
                                    const std::string& optimizer = "adamw") {
  OptimizerSpec spec;
  spec.kind = optimizer;
  const auto compiled = compile({model, plan, 12, "float32", "", spec});
  EXPECT_TRUE(compiled) << plan << ": " << compiled.error().message;
  const auto programs = lower_and_verify(*compiled->lowering);
  EXPECT_TRUE(programs) << plan << ": " << programs.error().message;
  const auto state = resting_state(compiled->graph(), *programs);
  EXPECT_TRUE(state) << plan << ": " << state.error().message;
  return *state;
}

// Returns the flat indices of a region's elements.
std::set<int64_t> elements(const std::vector<int64_t>& shape, const Box& region) {
  std::set<int64_t> found;
  if (region.empty()) return found;
  if (shape.empty()) return {0};
  const std::vector<int64_t> strides = row_major_strides(shape);
  std::vector<int64_t> at(shape.size(), 0);
  for (;;) {
    int64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) index += (region.dims[d].begin + at[d]) * strides[d];
    found.insert(index);
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == region.dims[d - 1].size) at[--d] = 0;
    if (d == 0) return found;
  }
}

TEST(Move, EveryRankGetsWhatItLacksOnceAndNoMore) {
  const std::vector<std::string> plans{"serial",
                                       "data_parallel(3)",
                                       "tensor_parallel(3)",
                                       "zero(stage=3,dp=4)",
                                       "megatron(tp=3,pp=2,dp=2,zero=1,micro_batches=2)",
                                       "pipeline(4,4,interleaved,1)"};
  for (const std::string& a : plans) {
    const auto before = state_of(a);
    for (const std::string& b : plans) {
      const auto after = state_of(b);
      const auto move = plan_move(before, after);
      ASSERT_TRUE(move) << a << " to " << b << ": " << move.error().message;
      int64_t lacking = 0;
      for (size_t i = 0; i < move->tensors.size(); ++i) {
        const MovedTensor& tensor = move->tensors[i];
        const std::vector<int64_t>& shape = after[i].shape;
        for (size_t rank = 0; rank < static_cast<size_t>(move->ranks); ++rank) {
          const auto need = elements(shape, tensor.what.need[rank]);
          const auto own = elements(shape, tensor.what.hold[rank]);
          std::set<int64_t> got;
          for (const Take& take : takes(tensor.what, rank)) {
            for (const int64_t index : elements(shape, take.box)) {
              EXPECT_TRUE(got.insert(index).second) << tensor.name;
              EXPECT_TRUE(elements(shape, tensor.what.hold[take.source]).contains(index));
              EXPECT_TRUE(take.source == rank || !own.contains(index)) << tensor.name;
            }
          }
          EXPECT_EQ(got, need) << a << " to " << b << ": " << tensor.name << " on rank " << rank;
          for (const int64_t index : need)
            lacking += own.contains(index) ? 0 : dtype_bytes(tensor.what.dtype);
        }
      }
      EXPECT_EQ(move->bytes(), lacking) << a << " to " << b;
      if (a == b) {
        EXPECT_EQ(move->bytes(), 0) << a;
      }
    }
  }
}

TEST(Move, OtherModelsAndOptimizersAreRefused) {
  const auto here = state_of("serial");
  const auto wider =
      state_of("serial", "llama:layers=4,hidden=12,heads=3,kv_heads=3,seq=5,vocab=7,ffn=7");
  const auto other = plan_move(here, wider);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(other.error().message, HasSubstr("after the change as before it"));
  const auto optimizer = plan_move(state_of("serial", kModel, "sgd"), here);
  ASSERT_FALSE(optimizer);
  EXPECT_THAT(optimizer.error().message, HasSubstr("does not keep it"));
}

// In float16 the loss is scaled, and the scale is a state that float32 does not have.
TEST(Move, WhatNoParameterNeedsBeginsAnew) {
  const auto wide = state_of("data_parallel(2)");
  const auto narrow = state_of("megatron(dp=2,precision=float16)");
  const auto move = plan_move(wide, narrow);
  ASSERT_TRUE(move) << move.error().message;
  EXPECT_THAT(move->begun_anew, testing::Contains("optimizer.loss_scale"));
  const auto back = plan_move(narrow, wide);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(back->begun_anew.empty());
}

}  // namespace
}  // namespace tessera
