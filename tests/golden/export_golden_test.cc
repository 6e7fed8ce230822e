// Golden texts of exports: the text of each target for a plan that uses most of what the target can
// express. TESSERA_REWRITE_GOLDEN=1 writes the files anew; read the differences before you keep
// them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tessera/export/export.h"
#include "tessera/test/source_dir.h"

namespace tessera::export_golden_test {
namespace {

struct GoldenExport {
  const char* name;
  const char* target;
  const char* model;
  const char* plan;
  int64_t batch;
};

constexpr const char* kLlama =
    "llama:layers=8,hidden=512,heads=8,kv_heads=4,seq=256,vocab=4096,ffn=1024";

// Uneven stages, with a mesh written by hand.
constexpr const char* kUneven = R"(# uneven stages by hand
mesh = { data = 2, pipe = 2, tensor = 2 }
stage_axis = "pipe"
micro_batches = 4
precision = { compute = "bfloat16" }
split = [
  { ops = "*",                 dim = "batch", over = "data" },
  { ops = "blocks.*.attn",     dim = "heads", over = "tensor" },
  { ops = "blocks.*.mlp",      dim = "ffn",   over = "tensor" },
  { ops = "{embed,head,loss}", dim = "vocab", over = "tensor" },
]
stage = [
  { ops = "{embed,blocks.[0-2]}",           at = 0 },
  { ops = "{blocks.[3-7],final,head,loss}", at = 1 },
]
store = [
  { tensors = "optimizer.*",    over = "data" },
  { tensors = "role:parameter", over = "data" },
  { tensors = "*.cast",         keep = "step" },
]
)";

const std::vector<GoldenExport>& goldens() {
  static const std::vector<GoldenExport> all = {
      {"megatron_interleaved", "megatron", kLlama,
       "megatron(pp=2,dp=2,tp=2,cp=2,sequence_shard=true,micro_batches=4,schedule=interleaved,"
       "chunks=2,zero=1,recompute=norm+core,precision=bfloat16)",
       16},
      {"megatron_experts", "megatron",
       "mixtral:layers=4,hidden=256,heads=8,kv_heads=4,seq=256,vocab=4096,ffn=512,experts=8",
       "expert_parallel(4,dp=2,tp=2,pp=2,sequence_shard=true,micro_batches=2,zero=1,precision="
       "bfloat16)",
       16},
      {"megatron_uneven", "megatron", kLlama, kUneven, 16},
      {"nemo_uneven", "nemo", kLlama, kUneven, 16},
      {"torchtitan_fsdp", "torchtitan", kLlama,
       "fsdp(4,replicas=2,tp=2,sequence_shard=true,prefetch=1,recompute=full,precision=bfloat16)",
       32},
      {"torchtitan_pipeline", "torchtitan", kLlama,
       "megatron(pp=2,dp=2,zero=2,micro_batches=4,schedule=interleaved,chunks=2,precision="
       "bfloat16)",
       16},
      {"deepspeed_zero3", "deepspeed", kLlama,
       "fsdp(8,prefetch=1,micro_batches=2,recompute=full,precision=bfloat16)", 32},
      {"fsdp2_replicas", "fsdp2", kLlama,
       "fsdp(4,replicas=2,prefetch=1,recompute=full,precision=bfloat16)", 32},
      {"accelerate_replicas", "accelerate", kLlama,
       "fsdp(4,replicas=2,prefetch=1,recompute=full,precision=bfloat16)", 32},
      {"transformers_zero3", "transformers", kLlama,
       "fsdp(8,prefetch=1,micro_batches=2,recompute=full,precision=bfloat16)", 32},
      {"deepspeed_ulysses", "deepspeed", kLlama, "ulysses(2,dp=4,zero=2,precision=bfloat16)", 8},
  };
  return all;
}

class ExportOf : public testing::TestWithParam<GoldenExport> {};

TEST_P(ExportOf, is_the_golden_text) {
  const GoldenExport& golden = GetParam();
  const auto exported = export_plan(
      {golden.model, golden.plan, golden.batch, "float32", find_export_target(golden.target), 8});
  ASSERT_TRUE(exported) << exported.error().message;
  const std::string path =
      std::string(TESSERA_SOURCE_DIR "/tests/golden/") + golden.name + ".export";
  if (std::getenv("TESSERA_REWRITE_GOLDEN") != nullptr) std::ofstream(path) << exported->text;
  std::ifstream file(path);
  std::stringstream kept;
  kept << file.rdbuf();
  EXPECT_EQ(exported->text, kept.str()) << path << "; if it is meant: TESSERA_REWRITE_GOLDEN=1";
}

INSTANTIATE_TEST_SUITE_P(Plans, ExportOf, testing::ValuesIn(goldens()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tessera::export_golden_test
