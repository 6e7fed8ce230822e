// Strategies that publications found by thought, and the planner finds by trying: none of them is
// written anywhere in the planner.
#include "rediscovery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/test/source_dir.h"

namespace tessera::planner_test {
namespace {

const std::string kTwoSites = TESSERA_SOURCE_DIR "/examples/clusters/two_sites.toml";

TEST(Rediscovery, AHugeEmbeddingIsCutAlongTheVocabulary) {
  const Found found("gpt:layers=2,hidden=512,heads=8,seq=64,vocab=1000000", "dgx-a100:1", 8);
  EXPECT_TRUE(found.cuts().contains("vocab")) << found.text();
}

// Megatron's block: attention and MLP are cut by columns, then by rows, and each ends with one sum
// (or, with tokens cut between them, with its two halves).
TEST(Rediscovery, ATransformerBlockOnOneNodeHasTwoSums) {
  const Found found("gpt:layers=4,hidden=4096,heads=32,seq=1024,vocab=51200", "dgx-a100:1", 4,
                    {{"tp", "8"}, {"pp", "1"}, {"dp", "1"}});
  EXPECT_TRUE(found.cuts().contains("heads") && found.cuts().contains("ffn")) << found.text();
  const std::map<CollectiveKind, int> sums = {{CollectiveKind::kAllReduce, 2}};
  const std::map<CollectiveKind, int> halves = {{CollectiveKind::kReduceScatter, 2},
                                                {CollectiveKind::kAllGather, 2}};
  const auto has = found.collectives("blocks.1.");
  EXPECT_TRUE(has == sums || has == halves) << found.text();
}

TEST(Rediscovery, ManyExpertsAreSpread) {
  const Found found("mixtral:layers=4,hidden=1024,heads=16,kv_heads=8,ffn=4096,experts=64,seq=1024",
                    "dgx-a100:1", 16);
  EXPECT_TRUE(found.cuts().contains("experts")) << found.text();
}

// Ring attention: two long sequences on 64 devices, which neither heads nor long pipelines can use.
TEST(Rediscovery, LongSequencesGoAroundRings) {
  const std::string model =
      "llama:layers=8,hidden=4096,heads=32,seq=262144,vocab=32000,ffn=11008,kv_heads=8";
  const Found found(model, "dgx-h100:8", 2);
  EXPECT_TRUE(found.travels("kv")) << found.text();
  EXPECT_EQ(found.choice().ranks(), 64) << found.text();
}

// The slow link costs more than the other site's devices bring.
TEST(Rediscovery, FewerDevicesOnASlowLink) {
  const Found found("gpt:layers=16,hidden=2048,heads=32,seq=1024,vocab=51200", kTwoSites, 128);
  EXPECT_LT(found.choice().ranks(), 64) << found.text();
}

// Few parameters and many tokens: gradients cross the slow link, activations do not.
TEST(Rediscovery, ReplicasAcrossTheSlowLink) {
  const Found found("gpt:layers=8,hidden=256,heads=8,seq=2048,vocab=1000", kTwoSites, 1024,
                    {{"devices", "64"}});
  EXPECT_TRUE(found.choice().stages == 1 || found.choice().replicas_apart) << found.text();
}

// Many parameters and few tokens: activations cross the slow link, gradients do not.
TEST(Rediscovery, StagesAcrossTheSlowLink) {
  const Found found("gpt:layers=16,hidden=4096,heads=32,seq=64,vocab=1000", kTwoSites, 64,
                    {{"devices", "64"}});
  EXPECT_TRUE(found.choice().stages > 1 && !found.choice().replicas_apart) << found.text();
}

// A volume of 512 x 512 x 512 voxels does not fit a device of 16 GB: samples are cut in space.
TEST(Rediscovery, LargeVolumesAreCutInSpace) {
  const Found found("cosmoflow:width=512", "dgx-v100-16:1", 4, {}, 0, DType::kFloat32);
  const std::set<std::string> cuts = found.cuts();
  EXPECT_TRUE(cuts.contains("depth") || cuts.contains("height") || cuts.contains("width"))
      << found.text();
}

// SplitBrain: replicas of the convolutions share the dense layers, whose gradients would take most of
// the step on a link of 25 Gb/s.
TEST(Rediscovery, DenseLayersBehindConvolutionsAreShared) {
  const Found found("vgg", "2080ti:8", 64, {{"pp", "1"}}, 0, DType::kFloat32, 1);
  const std::set<std::string> cuts = found.cuts();
  EXPECT_TRUE(cuts.contains("batch") && (cuts.contains("features") || cuts.contains("units")))
      << found.text();
}

// Early layers of Swin hold the most activations: where memory is short, they are recomputed.
TEST(Rediscovery, EarlySwinLayersAreRecomputed) {
  const Found found("swin", "dgx-v100-16:1", 256, {{"devices", "8"}, {"tp", "1"}}, 3000000000,
                    DType::kFloat32);
  const std::vector<UnitChoice>& units = found.choice().units;
  ASSERT_FALSE(units.empty()) << found.text();
  const auto recomputed = [](auto begin, auto end) {
    return std::count_if(begin, end,
                         [](const UnitChoice& unit) { return unit.recompute.has_value(); });
  };
  const auto middle = units.begin() + static_cast<std::ptrdiff_t>(units.size() / 2);
  EXPECT_GT(recomputed(units.begin(), middle), recomputed(middle, units.end())) << found.text();
}

}  // namespace
}  // namespace tessera::planner_test
