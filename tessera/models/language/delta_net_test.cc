// Tests gated DeltaNets in blocks of a Llama with experts: which blocks have them, their dims,
// errors.
#include "tessera/models/language/delta_net.h"

#include <gtest/gtest.h>

#include "tessera/models/model.h"

namespace tessera::delta_net_test {
namespace {

constexpr const char* kSmall =
    "mixtral:layers=4,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=8,experts=4,delta_heads=2,"
    "delta_value_heads=4,delta_head_dim=3,delta_value_dim=5,full_every=2,shared_ffn=8,shared_gate="
    "1,"
    "attn_gate=1";

Model model_of(const std::string& spec) {
  auto model = build_model(spec, 2);
  EXPECT_TRUE(model) << spec << ": " << (model ? "" : model.error().message);
  return model.value_or(Model{});
}
std::string error_of(const std::string& spec) {
  const auto model = build_model(spec, 2);
  return model ? "none" : model.error().message;
}

TEST(DeltaNet, StandsInBlocksWithoutFullAttention) {
  const Graph graph = model_of(kSmall).graph;
  const auto has = [&](const std::string& path) {
    for (const Op& op : graph.ops()) {
      if (op.path == path) return true;
    }
    return false;
  };
  for (const int block : {0, 1, 2, 3}) {
    const std::string scope = "blocks." + std::to_string(block), full = scope + ".attn.gate_mul";
    EXPECT_EQ(has(scope + ".ssm.scan"), block % 2 == 0) << block;
    EXPECT_EQ(has(full), block % 2 == 1) << block;
    EXPECT_TRUE(has(scope + ".moe.shared_gate_mul")) << block;
  }
  const auto dims = [&](const char* name) {
    return describe(graph.tensor(graph.find_tensor(name)).dims);
  };
  EXPECT_EQ(dims("blocks.0.ssm.k.weight"), "[hidden=8, heads=2, state=3]");
  EXPECT_EQ(dims("blocks.0.ssm.z.weight"), "[hidden=8, heads=2, group=2, head_dim=5]");
  EXPECT_EQ(dims("blocks.0.ssm.v_conv.weight"), "[heads=2, group=2, head_dim=5, taps=4]");
  EXPECT_EQ(dims("blocks.0.ssm.dt.bias"), "[heads=2, group=2]");
  EXPECT_EQ(dims("blocks.0.ssm.norm.weight"), "[head_dim=5]");
}

TEST(DeltaNet, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of("llama:delta_heads=4,delta_value_heads=6"),
            "model 'llama': delta_value_heads=6 must be a multiple of delta_heads=4");
  EXPECT_EQ(error_of("llama:delta_heads=4,window=8"),
            "model 'llama': delta_heads goes without window, chunk and eod");
  EXPECT_EQ(error_of("llama:full_every=4"),
            "model 'llama': full_every wants a window for the other blocks, as window=1024, or "
            "chunks, or delta_heads");
  EXPECT_EQ(error_of("mixtral:shared_gate=1"),
            "model 'mixtral': shared_gate=1 wants a shared MLP, as shared_ffn=512");
}

}  // namespace
}  // namespace tessera::delta_net_test
