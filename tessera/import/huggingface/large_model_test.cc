// Llama 70B, 140 GB of it: what one rank of 64 reads, and what it holds in memory meanwhile.
#include "tessera/import/huggingface/large_model.h"

#include "tessera/compile/compile.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/import/huggingface/tiles.h"

namespace tessera {
namespace {

TEST_F(LargeModel, ARankReadsItsShardsAndHoldsOneOfThemAtATime) {
  Model model;
  std::vector<TensorView> views;
  if (!make(80, model, views)) GTEST_SKIP() << folder_ << ": files have no holes there";
  EXPECT_GT(apparent_, 140'000'000'000);
  const auto compiled =
      compile({theirs() + "/config.json", "megatron(tp=8,pp=8)", 0, "bfloat16", "", {}});
  ASSERT_TRUE(compiled) << compiled.error().message;
  ASSERT_EQ(compiled->ranks(), 64);
  const auto program = compiled->lowering->lower(37);
  ASSERT_TRUE(program) << program.error().message;
  const auto source = open_huggingface(theirs(), model);
  ASSERT_TRUE(source) << source.error().message;

  // Which arrays have their mark in the rank's region: by ours, as the oracle of what is read.
  std::map<std::string, const TensorView*> by_name;
  for (const TensorView& view : views) by_name[view.name] = &view;
  int64_t largest = 0, asked = 0, arrays = 0, marks = 0;
  reset_peak();
  const int64_t before = resident_bytes();
  for (const Home& home : program->homes) {
    const Tensor& tensor = compiled->graph().tensor(home.tensor);
    if (tensor.role != Role::kParameter || home.region.empty()) continue;
    const int64_t bytes = home.region.volume() * 2;
    std::vector<std::byte> shard(static_cast<size_t>(bytes));
    const SourceArray* array = (*source)->find(tensor.name);
    ASSERT_NE(array, nullptr) << tensor.name;
    ASSERT_TRUE((*source)->read(*array, home.region, DType::kBFloat16, shard.data()));
    largest = std::max(largest, bytes);
    asked += bytes;
    ++arrays;
    const auto* values = reinterpret_cast<const uint16_t*>(shard.data());
    const auto found = std::find_if(values, values + bytes / 2, [](uint16_t v) { return v != 0; });
    if (found == values + bytes / 2) continue;
    ++marks;
    EXPECT_EQ(*found, mark(by_name[tensor.name]->arrays.front())) << tensor.name;
  }
  const int64_t held = peak_bytes() - before;
  fmt::print("rank 37 of 64: {} arrays, {} bytes of {}, the largest of {}; {} held at most\n",
             arrays, asked, apparent_, largest, held);
  // Its tenth of the layers (a stage of 8), an eighth of each but for the norms.
  EXPECT_EQ((*source)->bytes_read(), asked) << "bytes beside its own";
  EXPECT_GE(arrays, 10 * 9);
  EXPECT_LT(asked, apparent_ / 50);
  EXPECT_GT(marks, 0);
  // The shard, what the heap has not given back of the one before it, and a piece on its way.
  EXPECT_LT(held, 2 * largest + 4 * kReadBytes);
}

}  // namespace
}  // namespace tessera
