// Tests what one rank of 64 reads of Llama 70B (140 GB), and what it holds in memory meanwhile.
#include "tessera/import/huggingface/test_large_model.h"

#include "tessera/compile/compile.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/import/tiles.h"

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

  // Lists the shards of the rank; it reads one after the other into the same memory.
  std::vector<const Home*> shards;
  int64_t largest = 0, asked = 0, marks = 0;
  for (const Home& home : program->homes) {
    const Tensor& tensor = compiled->graph().tensor(home.tensor);
    if (tensor.role != Role::kParameter || home.region.empty()) continue;
    shards.push_back(&home);
    largest = std::max(largest, home.region.volume() * 2);
    asked += home.region.volume() * 2;
  }
  std::map<std::string, std::string> theirs_of;
  for (const TensorView& view : views) theirs_of[view.name] = view.arrays.front();
  reset_peak();
  const int64_t before = resident_bytes();
  std::vector<uint16_t> shard(static_cast<size_t>(largest / 2));
  for (const Home* home : shards) {
    const std::string& name = compiled->graph().tensor(home->tensor).name;
    const SourceArray* array = (*source)->find(name);
    ASSERT_NE(array, nullptr) << name;
    ASSERT_TRUE((*source)->read(*array, home->region, DType::kBFloat16,
                                reinterpret_cast<std::byte*>(shard.data())));
    const auto end = shard.begin() + home->region.volume();
    const auto found = std::find_if(shard.begin(), end, [](uint16_t v) { return v != 0; });
    if (found == end) continue;  // the mark of the array is another rank's
    ++marks;
    EXPECT_EQ(*found, mark(theirs_of[name])) << name;
  }
  const int64_t held = peak_bytes() - before;
  fmt::print("rank 37 of 64: {} arrays, {} bytes of {}, the largest of {}; {} held at most\n",
             shards.size(), asked, apparent_, largest, held);
  // The rank has its tenth of the layers (a stage of 8), and an eighth of each except for the
  // norms.
  EXPECT_EQ((*source)->bytes_read(), asked) << "bytes beside its own";
  EXPECT_EQ(shards.size(), 10U * 9);
  EXPECT_LT(asked, apparent_ / 50);
  EXPECT_GT(marks, 0);
  // Memory holds the shard, and pieces on their way.
  if (!heap_keeps_what_is_freed()) {
    EXPECT_LT(held, largest + 4 * kReadBytes);
  }
}

}  // namespace
}  // namespace tessera
