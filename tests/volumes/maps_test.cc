// Compares the elements that plans of convolutional networks send, summed over ranks (as
// volumes_test.cc), with closed forms: docs/strategies/spatial.md sections 4, 7, 8 and
// docs/strategies/split-brain.md section 4.
#include <fmt/format.h>

#include <algorithm>

// Behind all others: its names are short.
#include "models_and_tensors.h"

namespace tessera::volumes::maps_test {
namespace {

// The tensor, or its piece in a step of a loop.
bool is(const Tensor& tensor, std::string_view name) {
  return tensor.name == name || tensor.name.starts_with(std::string(name) + "#");
}

// ---- convolutions by channels. The model's layers 1 and 2 in [batch, channels, n, n, n]: layer 0
// makes 4 channels, layer 1 makes 8, layer 2 makes 16; pools halve n = 16 behind each.
constexpr int64_t kBatch = 4;
const std::string kVolumes = "cosmoflow:width=16,channels=2,filters=4,outputs=3,dropout=0";
constexpr int64_t kIn = kBatch * 4 * 8 * 8 * 8;   // layer 1 reads it
constexpr int64_t kOut = kBatch * 8 * 8 * 8 * 8;  // layer 1 makes it

bool read_by_1(const Tensor& t) { return is(t, "blocks.0.pool"); }
bool made_by_1(const Tensor& t) { return is(t, "blocks.1.conv"); }
bool gradient_of_read(const Tensor& t) { return is(t, "grad.blocks.0.pool"); }
bool gradient_of_made(const Tensor& t) { return is(t, "grad.blocks.1.conv"); }

// X, the input, is stationary: y is reduced and scattered, and its gradient gathered.
TEST(ChannelParallel, scatters_what_is_made_and_gathers_its_gradient) {
  for (const int64_t q : {2, 4}) {
    const MeasuredPlan found = measure(kVolumes, fmt::format("channel_parallel({})", q), kBatch);
    EXPECT_EQ(found.sent_in(BlockKind::kForward, made_by_1), (q - 1) * kOut) << q;
    EXPECT_EQ(found.sent_by("reduce_scatter", made_by_1), (q - 1) * kOut) << q;
    EXPECT_EQ(found.sent(read_by_1), 0) << q;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, gradient_of_made), (q - 1) * kOut) << q;
    EXPECT_EQ(found.sent_by("all_gather", gradient_of_made), (q - 1) * kOut) << q;
  }
}

// Y, the output, is stationary: x is gathered, and the parts of its gradient are reduced and
// scattered. The gradient of the weight gathers all of x again, unless it is kept.
TEST(FilterParallel, gathers_what_is_read_and_scatters_its_gradient) {
  for (const int64_t q : {2, 4}) {
    const MeasuredPlan found = measure(kVolumes, fmt::format("filter_parallel({})", q), kBatch);
    EXPECT_EQ(found.sent_in(BlockKind::kForward, read_by_1), (q - 1) * kIn) << q;
    EXPECT_EQ(found.sent(made_by_1), 0) << q;
    EXPECT_EQ(found.sent_in(BlockKind::kBackward, read_by_1), (q - 1) * kIn) << q;
    EXPECT_EQ(found.sent_by("reduce_scatter", gradient_of_read), (q - 1) * kIn) << q;
    const MeasuredPlan kept =
        measure(kVolumes, fmt::format("filter_parallel({}, keep=true)", q), kBatch);
    EXPECT_EQ(kept.sent(read_by_1), (q - 1) * kIn) << q;
  }
}

// W, the weight, is stationary on a grid of both: a layer scatters its output over an axis, and the
// next layer gathers over that axis.
TEST(FilterParallel, on_a_grid_with_channels_each_weight_has_one_place) {
  const int64_t a = 2, b = 4;
  static const auto weight_1 = [](const Tensor& t) { return t.name == "blocks.1.conv.weight"; };
  const MeasuredPlan found = measure(kVolumes, "channel_parallel(2, filters=4)", kBatch);
  EXPECT_EQ(found.at_rest(0, weight_1), 4 * 8 * 27 / (a * b));
  // Layer 1 is in the second turn: it sums over `filters` and makes over `channels`.
  EXPECT_EQ(found.sent_in(BlockKind::kForward, read_by_1), (a - 1) * kIn);
  EXPECT_EQ(found.sent_in(BlockKind::kForward, made_by_1), (b - 1) * kOut);
}

// ---- dense layers in groups: d0 features, widths d1 and d2, d3 outputs
const std::string kDense = "cosmoflow:width=4,channels=1,filters=2,outputs=4,dropout=0";
constexpr int64_t d0 = 256, d1 = 256, d2 = 32, d3 = 4;
constexpr int64_t kSamples = 4;  // b of a worker

bool is_features(const Tensor& t) { return is(t, "blocks.6.act"); }
bool is_gradient_of_features(const Tensor& t) { return is(t, "grad.blocks.6.act"); }
bool is_between(const Tensor& t) { return is(t, "head.dense_1.act") || is(t, "head.dense_2.act"); }
bool is_gradient_between(const Tensor& t) {
  return is(t, "grad.head.dense_1.act") || is(t, "grad.head.dense_2.act") ||
         is(t, "grad.head.dense_1") || is(t, "grad.head.dense_2");
}
bool is_dense_gradient(const Tensor& t) { return t.name.starts_with("grad.head.") && t.of.valid(); }
bool is_dense(const Tensor& t) { return t.name.starts_with("head."); }

struct Group {
  int64_t k = 1, groups = 1;
  int64_t workers() const { return k * groups; }
  MeasuredPlan measured(const std::string& how) const {
    return measure(kDense, fmt::format("split_brain({}, dp={}, {})", k, groups, how),
                   workers() * kSamples);
  }
};
const std::vector<Group> kGroups = {{2, 1}, {2, 2}, {4, 1}, {4, 2}, {2, 4}};

// 2 b (K-1) d0 a worker: features are gathered, their gradients reduced and scattered. All schemes
// move equally much. Without `keep`, features are gathered again for the weight's gradient.
TEST(SplitBrain, the_border_moves_each_samples_features_to_its_group_and_back) {
  for (const Group& group : kGroups) {
    for (const char* scheme : {"a", "b", "c"}) {
      const int64_t once = group.workers() * kSamples * (group.k - 1) * d0;
      const MeasuredPlan kept = group.measured(fmt::format("scheme={}, keep=true", scheme));
      // Steps in time (b) fetch their pieces for each op.
      EXPECT_EQ(kept.sent(is_features), scheme == std::string("b") ? 2 * once : once) << group.k;
      EXPECT_EQ(kept.sent(is_gradient_of_features), once) << scheme << group.k;
      const MeasuredPlan found = group.measured(fmt::format("scheme={}", scheme));
      EXPECT_EQ(found.sent(is_features), 2 * once) << scheme << group.k;
      EXPECT_EQ(found.sent(is_gradient_of_features), once) << scheme << group.k;
    }
  }
}

// At once (a) a rank holds the features of the group's K b samples; in turns (b, c) of b samples.
TEST(SplitBrain, turns_gather_the_kth_part_of_what_one_pass_gathers) {
  for (const Group& group : kGroups) {
    const auto largest = [&](const std::string& scheme) {
      const MeasuredPlan found = group.measured("scheme=" + scheme);
      int64_t bytes = 0;
      for (const Buffer& buffer : found.programs[0].buffers) {
        if (is_features(found.graph.tensor(buffer.tensor))) bytes = std::max(bytes, buffer.bytes());
      }
      return bytes / 8;
    };
    EXPECT_EQ(largest("a"), group.k * kSamples * d0) << group.k << " " << group.groups;
    EXPECT_EQ(largest("b"), kSamples * d0) << group.k << " " << group.groups;
    EXPECT_EQ(largest("c"), kSamples * d0) << group.k << " " << group.groups;
  }
}

// 2 b (K-1) (d1 + d2) a worker, and the logits, of which each rank makes a part.
TEST(SplitBrain, between_dense_layers_outputs_are_gathered_and_gradients_scattered) {
  for (const Group& group : kGroups) {
    for (const char* scheme : {"a", "b", "c"}) {
      const int64_t once = group.workers() * kSamples * (group.k - 1) * (d1 + d2);
      const MeasuredPlan found = group.measured(fmt::format("scheme={}, keep=true", scheme));
      EXPECT_EQ(found.sent(is_between), once) << scheme << group.k;
      EXPECT_EQ(found.sent(is_gradient_between), once) << scheme << group.k;
    }
  }
}

// Only the holders of one shard average it.
TEST(SplitBrain, averages_shards_among_peers_and_convolutions_among_all) {
  for (const Group& group : kGroups) {
    const MeasuredPlan found = group.measured("scheme=c");
    // Biases and weights that are cut: each of K shards is summed over the groups.
    EXPECT_EQ(found.sent_along({"dp"}, is_dense_gradient),
              2 * (group.groups - 1) * found.parameters(is_dense))
        << group.k << " " << group.groups;
    static const auto is_convolution = [](const Tensor& t) {
      return t.name.starts_with("grad.blocks.") && t.name.ends_with(".weight");
    };
    static const auto is_kernel = [](const Tensor& t) { return t.name.starts_with("blocks."); };
    EXPECT_EQ(found.sent(is_convolution), 2 * (group.workers() - 1) * found.parameters(is_kernel));
  }
}

// Saves s(K) = P_f / (P_c + P_f) (1 - 1/K) of the parameters.
TEST(SplitBrain, spares_the_share_of_dense_parameters) {
  for (const Group& group : kGroups) {
    const MeasuredPlan found = group.measured("scheme=c");
    static const auto parameters = [](const Tensor& t) { return is_parameter(t); };
    const int64_t all = found.parameters(), dense = found.parameters(is_dense);
    EXPECT_EQ(all - found.at_rest(0, parameters), dense - dense / group.k) << group.k;
  }
}

// In pairs, one sum after the second layer replaces a gather before it: d1 is not moved, d2 is
// summed (twice the bytes of a gather). Here d1 = 8 d2.
TEST(SplitBrain, pairs_move_what_the_second_layer_makes_in_place_of_what_it_reads) {
  for (const Group& group : kGroups) {
    const MeasuredPlan plain = group.measured("scheme=a, keep=true");
    const MeasuredPlan pairs = group.measured("scheme=a, keep=true, pairs=true");
    static const auto second = [](const Tensor& t) {
      return is(t, "head.dense_1.act") || is(t, "grad.head.dense_1.act");
    };
    EXPECT_GT(plain.sent(second), 0);
    EXPECT_EQ(pairs.sent(second), 0);
    EXPECT_LT(pairs.sent(), plain.sent()) << group.k;
  }
}

// Turns take equal parts of the batch. If replicas and groups do not divide the batch, or it has
// fewer samples than ranks, the group takes all at once, as under scheme = a.
TEST(SplitBrain, takes_no_turns_where_ranks_have_unequal_samples) {
  for (const int64_t batch : {4, 8, 10}) {
    const MeasuredPlan turns = measure(kDense, "split_brain(3, dp=3)", batch);
    const MeasuredPlan at_once = measure(kDense, "split_brain(3, dp=3, scheme=a)", batch);
    EXPECT_EQ(turns.programs.size(), 9U) << batch;
    EXPECT_EQ(turns.sent(), at_once.sent()) << batch;
  }
}

// ---- tiles: the halo is exchanged once for all of them
TEST(Tiles, send_what_the_whole_piece_sends) {
  for (const char* call : {"spatial(d=2{})", "spatial(h=4{})", "spatial(w=2, dp=2{})",
                           "spatial(d=2, w=2{})", "spatial(h=2, filters=2{})"}) {
    const MeasuredPlan whole = measure(kVolumes, fmt::format(fmt::runtime(call), ""), kBatch);
    const MeasuredPlan tiles =
        measure(kVolumes, fmt::format(fmt::runtime(call), ", tiles=2"), kBatch);
    EXPECT_EQ(tiles.sent(), whole.sent()) << call;
    EXPECT_EQ(tiles.sent_by("exchange"), whole.sent_by("exchange")) << call;
    EXPECT_EQ(tiles.calls(0, CollectiveKind::kExchange, MeasuredPlan::any),
              whole.calls(0, CollectiveKind::kExchange, MeasuredPlan::any))
        << call;
  }
}

// The text of a place shows steps that read through windows, and parses back.
TEST(Tiles, stand_in_texts_of_places) {
  const std::string written = text_of_place(kVolumes, "spatial(d=2, tiles=4)", kBatch);
  EXPECT_NE(written.find(" read ~3/1/1 8 of 8"), std::string::npos);
  // The inner tiles come first.
  const auto at = [&](int step) {
    const std::string named = step == 0 ? "" : fmt::format(" step {}", step);
    return written.find(fmt::format("compute \"blocks.1.conv\"{} (", named));
  };
  EXPECT_LT(at(1), at(0));
  EXPECT_LT(at(2), at(0));
  EXPECT_LT(at(0), at(3));
}

}  // namespace
}  // namespace tessera::volumes::maps_test
