// What plans of convolutional networks send, against closed forms, in elements summed over ranks (as
// volumes_test.cc): docs/theory/hybrid-3d-cnn.md section 4 and docs/theory/splitbrain.md section 4.
#include <fmt/format.h>

#include "models_and_tensors.h"

namespace tessera {
namespace {

bool is_map(const Tensor& tensor) {  // and not a gradient of a weight, which has kernel dims
  return tensor.dims.size() == 5 && tensor.dims[0].name == "batch";
}
bool of(const Tensor& tensor, const std::string& op) {
  return is_map(tensor) && tensor.name.find(op) != std::string::npos;
}

// ---- convolutions by channels. The model's layers 1 and 2 in [batch, channels, n, n, n]: layer 0
// makes 4 channels, layer 1 makes 8, layer 2 makes 16; pools halve n = 16 behind each.
constexpr int64_t kBatch = 4;
const std::string kVolumes = "cosmoflow:width=16,channels=2,filters=4,outputs=3,dropout=0";
constexpr int64_t kIn = kBatch * 4 * 8 * 8 * 8;   // what layer 1 reads
constexpr int64_t kOut = kBatch * 8 * 8 * 8 * 8;  // what it makes

bool read_by_1(const Tensor& t) { return of(t, "blocks.0.pool"); }
bool made_by_1(const Tensor& t) { return of(t, "blocks.1.conv"); }
bool gradient_for_1(const Tensor& t) { return of(t, "blocks.1.act.dx"); }

// X, the input is stationary: y is reduced and scattered, and its gradient gathered.
TEST(ChannelParallel, scatters_what_is_made_and_gathers_its_gradient) {
  for (const int64_t q : {2, 4}) {
    const Measured found = measure(kVolumes, fmt::format("channel_parallel({})", q), kBatch);
    EXPECT_EQ(found.sent_in(BlockKind::kForward, made_by_1), (q - 1) * kOut) << q;
    EXPECT_EQ(found.sent_by("reduce_scatter", made_by_1), (q - 1) * kOut) << q;
    EXPECT_EQ(found.sent(read_by_1), 0) << q;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, gradient_for_1), (q - 1) * kOut) << q;
    EXPECT_EQ(found.sent_by("all_gather", gradient_for_1), (q - 1) * kOut) << q;
  }
}

// Y, the output is stationary: x is gathered, and the parts of its gradient are reduced and
// scattered. The gradient of the weight reads all of x again, unless it is kept.
TEST(FilterParallel, gathers_what_is_read_and_scatters_its_gradient) {
  static const auto gradient_of_read = [](const Tensor& t) { return of(t, "blocks.1.conv.dx"); };
  for (const int64_t q : {2, 4}) {
    const Measured found = measure(kVolumes, fmt::format("filter_parallel({})", q), kBatch);
    EXPECT_EQ(found.sent_in(BlockKind::kForward, read_by_1), (q - 1) * kIn) << q;
    EXPECT_EQ(found.sent(made_by_1), 0) << q;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, read_by_1), (q - 1) * kIn) << q;
    EXPECT_EQ(found.sent_by("reduce_scatter", gradient_of_read), (q - 1) * kIn) << q;
    const Measured kept =
        measure(kVolumes, fmt::format("filter_parallel({}, keep=true)", q), kBatch);
    EXPECT_EQ(kept.sent(read_by_1), (q - 1) * kIn) << q;
  }
}

// W, the weight is stationary on a grid of both: what one layer scatters over an axis, the next one
// gathers over it.
TEST(FilterParallel, on_a_grid_with_channels_each_weight_has_one_place) {
  const int64_t a = 2, b = 4;
  static const auto weight_1 = [](const Tensor& t) { return t.name == "blocks.1.conv.weight"; };
  const Measured found = measure(kVolumes, "channel_parallel(2, filters=4)", kBatch);
  EXPECT_EQ(found.at_rest(0, weight_1), 4 * 8 * 27 / (a * b));
  // Layer 1 is in the second turn: it sums over `filters` and makes over `channels`.
  EXPECT_EQ(found.sent_in(BlockKind::kForward, read_by_1), (a - 1) * kIn);
  EXPECT_EQ(found.sent_in(BlockKind::kForward, made_by_1), (b - 1) * kOut);
}

// ---- dense layers in groups: features d0 = 2048 / 16 of the model's 8 filters, d1, d2, outputs
constexpr int64_t kSamples = 4;  // b of a worker
const std::string kDense = "cosmoflow:width=4,channels=1,filters=2,outputs=4,dropout=0";

struct Sizes {
  int64_t d0 = 0, d1 = 0, d2 = 0, d3 = 4, convolutions = 0, dense = 0;
};
bool is_dense_weight(const Tensor& t) {
  return is_parameter(t) && t.name.starts_with("head.") && t.name.ends_with(".weight");
}
bool is_weight_gradient(const Tensor& t) {
  return is_gradient(t) && t.of.valid() && t.name.ends_with(".weight") &&
         t.name.starts_with("grad.");
}
bool is_activation(const Tensor& t) {
  return t.role == Role::kActivation || (t.role == Role::kGradient && !t.of.valid());
}

Sizes sizes_of(const Measured& found) {
  Sizes sizes;
  for (const Tensor& tensor : found.graph.tensors()) {
    if (!is_parameter(tensor)) continue;
    const int64_t last = tensor.dims.back().size, elements = tensor.elements();
    if (tensor.name == "head.dense_1.weight") sizes.d0 = elements / last;
    if (tensor.name == "head.dense_1.weight") sizes.d1 = last;
    if (tensor.name == "head.dense_2.weight") sizes.d2 = last;
    (tensor.name.starts_with("head.") ? sizes.dense : sizes.convolutions) += elements;
  }
  return sizes;
}

int64_t border(const Measured& m) {
  return m.sent([](const Tensor& t) { return is_activation(t) && of(t, "blocks."); });
}

// Each worker receives 2 b (K-1) d0 at the border: gathered forward, reduced and scattered backward.
TEST(SplitBrain, the_border_moves_each_samples_features_to_the_group_and_back) {
  for (const int64_t k : {2, 4}) {
    for (const char* scheme : {"a", "b", "c"}) {
      const Measured found = measure(
          kDense, fmt::format("split_brain({}, scheme={}, dp=2)", k, scheme), 2 * k * kSamples);
      const Sizes sizes = sizes_of(found);
      EXPECT_EQ(border(found), 2 * k * 2 * kSamples * (k - 1) * sizes.d0) << scheme << k;
    }
  }
}

}  // namespace
}  // namespace tessera
