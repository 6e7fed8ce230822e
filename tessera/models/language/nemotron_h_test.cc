// Tests nemotron_h: published numbers of parameters, patterns, names, errors.
#include "tessera/models/language/nemotron_h.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"

namespace tessera::nemotron_h_test {
namespace {

constexpr const char* kSmall =
    "nemotron_h:pattern=M*-E,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=16,ssm_heads=4,"
    "ssm_head_dim=2,ssm_groups=2,state=6,experts=4";

Model model_of(const std::string& spec) {
  auto model = build_model(spec, 2);
  EXPECT_TRUE(model) << spec << ": " << (model ? "" : model.error().message);
  return model.value_or(Model{});
}
std::string error_of(const std::string& spec) {
  const auto model = build_model(spec, 2);
  return model ? "none" : model.error().message;
}
double billions(const std::string& spec) {
  return static_cast<double>(parameter_count(model_of(spec).graph)) * 1e-9;
}

// The published sizes 8B and 56B are of Nemotron-H (2025), table 1, 31.6B of Nemotron 3 Nano
// (2025).
TEST(NemotronH, HasThePublishedNumbersOfParameters) {
  EXPECT_NEAR(billions("nemotron_h:seq=8"), 8.1, 0.1);
  EXPECT_NEAR(billions("nemotron_h:pattern=MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME,"
                       "hidden=2688,heads=32,kv_heads=2,head_dim=128,seq=8,ffn=1856,ssm_heads=64,"
                       "experts=128,top_k=6,shared_ffn=3712"),
              31.6, 0.1);
}

TEST(NemotronH, PatternsAreRepeatedOrCutToTheLayers) {
  NemotronHConfig config;
  config.pattern = "M-*";
  config.layers = 7;
  ASSERT_TRUE(complete(config));
  EXPECT_EQ(config.pattern, "M-*M-*M");
  config.layers = 2;
  ASSERT_TRUE(complete(config));
  EXPECT_EQ(config.pattern, "M-");
  config.layers = 0;
  ASSERT_TRUE(complete(config));
  EXPECT_EQ(config.layers, 2);
}

TEST(NemotronH, BlocksAreWhatTheirLettersSay) {
  const Graph graph = model_of(kSmall).graph;
  const auto kind_at = [&](std::string_view path) -> std::string {
    for (const Op& op : graph.ops()) {
      if (op.path == path) return op.kind;
    }
    return "none";
  };
  EXPECT_EQ(kind_at("blocks.0.ssm.scan"), "state_scan");
  EXPECT_EQ(kind_at("blocks.0.ssm.b_conv"), "causal_conv");
  EXPECT_EQ(kind_at("blocks.1.attn.core"), "attention");
  EXPECT_EQ(kind_at("blocks.1.attn.q_rotary"), "none");
  EXPECT_EQ(kind_at("blocks.2.mlp.act"), "relu2");
  EXPECT_EQ(kind_at("blocks.3.moe.act"), "relu2");
  EXPECT_EQ(kind_at("blocks.3.moe.gate"), "none");
  const Tensor& gain = graph.tensor(graph.find_tensor("blocks.0.ssm.gain.weight"));
  EXPECT_EQ(describe(gain.dims), "[heads=2, width=4]");
}

TEST(NemotronH, PredictsFurtherTokensFromTheStreamAndTheTokenBetween) {
  const Model model = model_of(std::string(kSmall) + ",mtp=2");
  const Graph& graph = model.graph;
  const auto made_of = [&](const char* tensor, size_t input) {
    return graph.tensor(graph.op(graph.tensor(graph.find_tensor(tensor)).producer).inputs[input])
        .name;
  };
  EXPECT_EQ(made_of("embed.mtp_0", 0), "targets");
  EXPECT_EQ(made_of("embed.mtp_1", 0), "targets_1");
  EXPECT_EQ(made_of("loss.mtp_1.cross_entropy.lse", 1), "targets_2");
  EXPECT_EQ(made_of("blocks.mtp_0_0.state_norm.y", 0), "blocks.3.moe.residual");
  EXPECT_EQ(made_of("blocks.mtp_1_0.state_norm.y", 0), "blocks.mtp_0_1.moe.residual");
  EXPECT_EQ(made_of("head.mtp_1", 1), "head.weight");
  // The terms: loss.mean, two losses of further tokens, and the sum over three mixtures, one of
  // them in the trunk.
  EXPECT_EQ(graph.op(graph.tensor(graph.loss).producer).inputs.size(), 4U);
  EXPECT_EQ(made_of("loss.total", 3), "blocks.mtp_1_1.moe.losses");
  EXPECT_EQ(made_of("blocks.mtp_1_1.moe.loss_before", 0), "blocks.mtp_0_1.moe.losses");
  EXPECT_EQ(made_of("blocks.mtp_0_1.moe.loss_before", 0), "blocks.3.moe.losses");
  EXPECT_EQ(model.text, 4 + 1 + 2);
  const InputRule& last = model.inputs.back();
  EXPECT_EQ(last.input, "targets_2");
  EXPECT_EQ(last.shift, 3);
}

TEST(NemotronH, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of("nemotron_h:mtp_pattern=*e"),
            "model 'nemotron_h': mtp_pattern=*e must be letters M (state space), * (attention), - "
            "(MLP) and E (experts), found 'e'");
  EXPECT_EQ(
      error_of("nemotron_h:pattern=MX"),
      "model 'nemotron_h': pattern=MX must be letters M (state space), * (attention), - (MLP) "
      "and E (experts), found 'X'");
  EXPECT_EQ(error_of("nemotron_h:ssm_heads=6,ssm_groups=4"),
            "model 'nemotron_h': ssm_heads=6 must be a multiple of ssm_groups=4");
  EXPECT_EQ(error_of("nemotron_h:heads=6,kv_heads=4"),
            "model 'nemotron_h': heads=6 must be a multiple of kv_heads=4");
  EXPECT_EQ(error_of("nemotron_h:top_k=9"),
            "model 'nemotron_h': top_k=9 must be at most experts=8");
}

}  // namespace
}  // namespace tessera::nemotron_h_test
