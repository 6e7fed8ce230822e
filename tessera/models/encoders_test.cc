// bert, t5, vit, swin, evoformer: sizes by closed forms or as published, names, errors.
#include <gtest/gtest.h>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/transform.h"
#include "tessera/models/model.h"

namespace tessera::encoders_test {
namespace {

Model model_of(std::string_view spec) {
  auto model = build_model(spec, 2);
  EXPECT_TRUE(model) << model.error().message;
  return model ? std::move(*model) : Model{};
}

int64_t parameters_of(std::string_view spec) { return parameter_count(model_of(spec).graph); }

std::string error_of(std::string_view spec) {
  const auto model = build_model(spec, 2);
  return model ? "(no error)" : model.error().message;
}

std::string dims_of(const Graph& graph, std::string_view tensor) {
  const TensorId id = graph.find_tensor(tensor);
  return id.valid() ? describe(graph.tensor(id).dims) : "(no tensor)";
}

const std::vector<std::string>& small_specs() {
  static const std::vector<std::string> specs = {
      "bert:layers=2,hidden=16,heads=2,seq=8,vocab=17",
      "t5:layers=2,hidden=16,heads=2,source=6,seq=4,vocab=17",
      "vit:layers=2,hidden=16,heads=2,image=8,patch=4,classes=5",
      "vit:layers=2,hidden=16,heads=2,image=8,patch=4,classes=5,pool=mean",
      "swin:depths=2-2,hidden=8,heads=2,image=16,patch=2,window=2,classes=5",
      "evoformer:sequences=3,residues=4,hidden=8,pair=8,heads=2,outer=2,vocab=7,bins=5,recycles=1"};
  return specs;
}

TEST(EncoderSizes, AreThePublishedOnes) {
  EXPECT_EQ(parameters_of("bert"), 109'514'298);  // BERT base with its masked-token head
  EXPECT_EQ(parameters_of("vit"), 86'567'656);    // ViT-B/16
  EXPECT_EQ(parameters_of("swin"), 28'288'354);   // Swin-T
  // t5-small, t5-base and t5-large as in the Hugging Face hub.
  EXPECT_EQ(parameters_of("t5"), 60'506'624);
  EXPECT_EQ(parameters_of("t5:layers=12,hidden=768,heads=12"), 222'903'552);
  EXPECT_EQ(parameters_of("t5:layers=24,hidden=1024,heads=16"), 737'668'096);
}

TEST(EncoderSizes, FollowTheClosedForms) {
  const int64_t h = 16, f = 64, encoder = 4 * h * h + 2 * h * f + 2 * h,
                decoder = 8 * h * h + 2 * h * f + 3 * h;
  EXPECT_EQ(parameters_of("t5:layers=2,hidden=16,heads=2,source=6,seq=4,vocab=17"),
            17 * h + 2 * 32 * 2 + 2 * (encoder + decoder) + 2 * h);

  const int64_t c = 8, z = 4, r = 5, outer = 2, vocab = 7, bins = 6, heads = 2;
  const auto attention = [](int64_t width) { return 5 * width * width + 4 * width; };
  const auto transition = [](int64_t width) { return 8 * width * width + 7 * width; };
  const int64_t row = attention(c) + 2 * z + z * heads;
  const int64_t product = 2 * c + 2 * (c * outer + outer) + outer * outer * z + z;
  const int64_t triangle = 6 * z * z + 10 * z;
  const int64_t block = row + attention(c) + transition(c) + product + 2 * triangle +
                        2 * (attention(z) + z * heads) + transition(z);
  const int64_t ends = vocab * c + r * c + 2 * vocab * z + r * r * z + 2 * (c + z) + c * vocab +
                       vocab + z * bins + bins;
  const std::string spec =
      "evoformer:layers=3,sequences=3,residues=5,hidden=8,pair=4,heads=2,pair_heads=2,outer=2,"
      "vocab=7,bins=6";
  EXPECT_EQ(parameters_of(spec), 3 * block + ends);
  EXPECT_EQ(parameters_of(spec + ",recycles=1"), 3 * block + ends + 2 * (c + z));
  EXPECT_EQ(parameters_of(spec + ",recycles=3"), 3 * block + ends + 2 * (c + z));
}

TEST(Encoders, WindowsStandBesideTheHeads) {
  const Graph graph = model_of(small_specs()[4]).graph;
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.q"),
            "[batch=2, rows=8, columns=8, heads=2, group=1, head_dim=4]");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.k_windows"), "[batch=2, seq=4, heads=32, head_dim=4]");
  EXPECT_EQ(dims_of(graph, "merge.1.gather"), "[batch=2, rows=4, columns=4, neighbours=32]");
  EXPECT_EQ(dims_of(graph, "blocks.2.attn.k_windows"), "[batch=2, seq=4, heads=16, head_dim=4]");
  // Every second block is rolled by half a window, and rolled back.
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.roll_rows"), "(no tensor)");
  EXPECT_EQ(dims_of(graph, "blocks.1.attn.roll_rows"), dims_of(graph, "blocks.1.ln_1.y"));
  EXPECT_EQ(dims_of(graph, "blocks.1.attn.roll_back_columns"), dims_of(graph, "blocks.1.ln_1.y"));
}

TEST(Encoders, PositionsAreRelative) {
  const Graph t5 = model_of(small_specs()[1]).graph;
  EXPECT_EQ(dims_of(t5, "encoder.relative.weight"), "[buckets=32, heads=2]");
  EXPECT_EQ(dims_of(t5, "blocks.0.attn.bias"), "[seq=6, kv=6, heads=2]");
  EXPECT_EQ(dims_of(t5, "blocks.3.attn.bias"), "[seq=4, kv=4, heads=2]");
  EXPECT_EQ(dims_of(t5, "blocks.3.attn.cross.bias"), "(no tensor)");
  const Graph swin = model_of(small_specs()[4]).graph;
  EXPECT_EQ(dims_of(swin, "blocks.0.attn.relative.weight"), "[differences=9, heads=2]");
  EXPECT_EQ(dims_of(swin, "blocks.0.attn.bias_windows"), "[seq=4, kv=4, heads=32]");
  EXPECT_EQ(dims_of(swin, "window.regions_0"), "[seq=4, heads=32]");
}

TEST(Encoders, DecoderBlocksReadTheEncoder) {
  const Graph graph = model_of(small_specs()[1]).graph;
  EXPECT_EQ(dims_of(graph, "blocks.1.attn.cross.q"), "(no tensor)");
  EXPECT_EQ(dims_of(graph, "blocks.2.attn.cross.q"),
            "[batch=2, seq=4, heads=2, group=1, head_dim=8]");
  EXPECT_EQ(dims_of(graph, "blocks.2.attn.cross.k"), "[batch=2, seq=6, heads=2, head_dim=8]");
}

TEST(Encoders, PassesBeforeTheTrainingPassHaveNoGradient) {
  const Graph graph = model_of(small_specs()[5] + ",layers=1").graph;
  EXPECT_TRUE(graph.find_tensor("pass.0.blocks.0.attn.row.q").valid());
  EXPECT_TRUE(graph.find_tensor("blocks.0.attn.row.q").valid());
  const auto training = differentiate(graph, OptimizerSpec{});
  ASSERT_TRUE(training) << training.error().message;
  for (const Op& op : training->ops()) {
    if (op.phase == Phase::kForward) continue;
    for (const TensorId input : op.inputs) {
      const std::string& name = training->tensor(input).name;
      EXPECT_TRUE(!name.starts_with("pass.") || name.starts_with("pass.0.stop."))
          << op.path << " reads " << name;
    }
  }
}

TEST(EncoderErrors, NameTheModelAndTheKey) {
  EXPECT_EQ(error_of("bert:seq=4,masked=5"), "model 'bert': masked=5 must be at most seq=4");
  EXPECT_EQ(error_of("bert:vocab=1"), "model 'bert': vocab=1 must be at least 2: one is the mask");
  EXPECT_EQ(error_of("t5:hidden=10,heads=3"),
            "model 't5': hidden=10 must be a multiple of heads=3");
  EXPECT_EQ(error_of("t5:buckets=6"), "model 't5': buckets=6 must be a multiple of 4");
  EXPECT_EQ(error_of("t5:max_distance=16"),
            "model 't5': max_distance=16 must be above buckets / 2 = 16");
  EXPECT_EQ(error_of("vit:image=30,patch=4"),
            "model 'vit': image=30 must be a multiple of patch=4");
  EXPECT_EQ(error_of("swin:image=100"),
            "model 'swin': image=100 must be a multiple of patch * window * 2^(stages - 1) = 224");
  EXPECT_EQ(
      error_of("swin:depths=2-x"),
      "model 'swin': depths must be integers from 1 to 1000000000 joined by '-', found '2-x'");
  EXPECT_EQ(error_of("swin:depths=200000"),
            "model 'swin': depths=200000 must be at most 10000 each");
  EXPECT_EQ(error_of("swin:ratio=100000000"),
            "model 'swin': hidden=96 with ratio=100000000 is too wide for 4 stages");
  EXPECT_EQ(error_of("evoformer:recycles=2000"),
            "model 'evoformer': recycles=2000 must be at most 1000");
  EXPECT_EQ(error_of("evoformer:pair=9,pair_heads=2"),
            "model 'evoformer': pair=9 must be a multiple of pair_heads=2");
  EXPECT_EQ(error_of("evoformer:recycles=-1"),
            "model 'evoformer': recycles must be an integer from 0 to 1000000000, found '-1'");
}

}  // namespace
}  // namespace tessera::encoders_test
