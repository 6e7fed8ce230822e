// Tests the import of Llama 70B from first to last byte: 140 GB in, 140 GB out, one tile in memory.
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/huggingface/test_large_model.h"
#include "tessera/import/tiles.h"
#include "tessera/state/source.h"

namespace tessera {
namespace {

TEST_F(LargeModel, ImportHoldsOneTileInMemory) {
  Model model;
  std::vector<TensorView> views;
  if (!make(80, model, views)) GTEST_SKIP() << folder_ << ": files have no holes there";
  EXPECT_GT(apparent_, 140'000'000'000);
  const std::string ours = folder_ + "/ours";
  reset_peak();
  const int64_t before = resident_bytes();
  const auto done = import_huggingface({theirs(), ours, {}});
  const int64_t held = peak_bytes() - before;
  ASSERT_TRUE(done) << done.error().message;
  fmt::print("{} bytes imported, {} held at most, {} on the disk\n", done->bytes, held,
             allocated(ours));
  EXPECT_GT(done->bytes, 140'000'000'000);
  // Memory holds a tile that is read and written, and pieces on their way.
  if (!heap_keeps_what_is_freed()) {
    EXPECT_LT(held, kTileBytes + (32 << 20));
  }
  // Holes of the files remain holes.
  EXPECT_LT(allocated(ours), done->bytes / 100);
  // The one element of each array that is not zero is where the table of names puts it.
  const auto source = open_safetensors(done->weights);
  ASSERT_TRUE(source) << source.error().message;
  for (const TensorView& view : views) {
    const std::string& theirs = view.arrays.front();
    // Finds its position in their dims, then in ours.
    int64_t rest = marked(theirs, Box::whole(view.split_shape).volume());
    Box region = Box::whole(view.shape);
    for (size_t d = view.split_shape.size(); d-- > 0;) {
      const int64_t at = rest % view.split_shape[d];
      rest /= view.split_shape[d];
      ASSERT_NE(view.dims[d], TensorView::kPart) << "no array of this model is fused";
      region.dims[static_cast<size_t>(view.dims[d])] = {at, 1};
    }
    uint16_t value = 0;
    const SourceArray* array = (*source)->find(view.name);
    ASSERT_NE(array, nullptr) << view.name;
    ASSERT_TRUE(
        (*source)->read(*array, region, DType::kBFloat16, reinterpret_cast<std::byte*>(&value)));
    EXPECT_EQ(value, mark(theirs)) << view.name << " " << region.to_string();
  }
}

}  // namespace
}  // namespace tessera
