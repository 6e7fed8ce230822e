// What publications found by thought the planner finds by trying: none of these strategies is written
// anywhere in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/compile/compile.h"
#include "tessera/search/planner.h"
#include "tessera/search/ranking.h"
#include "tessera/search/spaces.h"
#include "tessera/test/source_dir.h"

namespace tessera::planner_test {
namespace {

constexpr size_t kPrograms = 16;  // a strategy is among the first that are tried

class Found {
 public:
  Found(const std::string& model, const std::string& machine, int64_t batch,
        const std::map<std::string, std::string>& fixed = {}, int64_t limit = 0,
        DType compute = DType::kBFloat16, int64_t devices_a_node = 0)
      : cluster_(load_cluster(machine).value()) {
    if (devices_a_node > 0) cluster_.parts.front().type.devices = devices_a_node;
    question_.model = model;
    question_.batch = batch;
    question_.cluster = &cluster_;
    question_.options.style = parse_style("tessera").value();
    question_.compute = compute;
    question_.fixed = fixed;
    question_.memory_limit_bytes = limit;
    question_.evaluations = kPrograms;
    // Without the recipes to which `auto` gives the programs that are left.
    answer_ = find_in_space(question_, whole_space).value();
    EXPECT_TRUE(answer_.best.has_value()) << to_text(answer_, question_, true);
  }

  const Choice& choice() const { return answer_.simulated[*answer_.best].choice; }
  // Of the axis inside a stage: the dims along which ops of the model are cut.
  std::set<std::string> cuts() const {
    Compiler compiler;
    const auto model = compiler.model(question_.model, question_.batch, DType::kFloat32).value();
    std::set<std::string> out;
    for (const Op& op : model->graph.ops()) {
      for (size_t a = 1; a < choice().axes.size(); ++a)
        out.insert(dim_to_cut(op, choice().axes[a]));
    }
    out.erase("");
    return out;
  }
  // Do pieces of the dim travel around an axis inside a stage?
  bool travels(const std::string& dim) const {
    return std::any_of(choice().axes.begin(), choice().axes.end(), [&](const ChoiceAxis& axis) {
      return std::any_of(axis.dims.begin(), axis.dims.end(), [&](const std::string& entry) {
        return axis.size > 1 && parse_entry(entry).travels == dim;
      });
    });
  }
  std::string text() const { return to_text(answer_, question_, true); }
  // Of the plan's program on rank 0: the collectives in the forward pass of the ops whose paths begin
  // so, by kind.
  std::map<CollectiveKind, int> collectives(const std::string& scope) const {
    Compiler compiler;
    const auto model = compiler.model(question_.model, question_.batch, DType::kFloat32).value();
    const auto lowering =
        compiler.lower(forward_of(model), parse_plan(answer_.plan, "answer").value()).value();
    const Program program = lowering->lower(0).value();
    std::map<CollectiveKind, int> out;
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto* issue = std::get_if<Issue>(&instruction.body);
        if (issue == nullptr || ref.kind != BlockKind::kForward || !instruction.cause.valid())
          continue;
        if (lowering->graph().op(instruction.cause).path.starts_with(scope)) ++out[issue->kind];
      }
    }
    return out;
  }

 private:
  Cluster cluster_;
  PlanQuestion question_;
  PlanAnswer answer_;
};

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

// Dynamic axial parallelism: some ops by rows, others by columns of the pair representation.
TEST(Rediscovery, EvoformerAlternatesRowsAndColumns) {
  const Found found("evoformer:layers=4,sequences=128,residues=256,hidden=128,pair=128",
                    "dgx-a100:1", 1, {{"tp", "4"}, {"pp", "1"}, {"dp", "1"}});
  EXPECT_TRUE(found.cuts().contains("r") && found.cuts().contains("r2")) << found.text();
}

// Ring attention: two long sequences on 64 devices, which neither heads nor long pipelines can use.
TEST(Rediscovery, LongSequencesGoAroundRings) {
  const std::string model =
      "llama:layers=8,hidden=4096,heads=32,seq=262144,vocab=32000,ffn=11008,kv_heads=8";
  const Found found(model, "dgx-h100:8", 2);
  EXPECT_TRUE(found.travels("kv")) << found.text();
  EXPECT_EQ(found.choice().ranks(), 64) << found.text();
}

// What the slow link costs is more than what the other
// site's devices bring.
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

// Many parameters and few tokens: the reverse.
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

// Early layers of Swin hold the most activations: where memory is short, these are recomputed.
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
