// Checks what rows leave open: degrees, experts, sharded states, and what a run that has run must
// fit in.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/predict/estimate.h"
#include "tessera/predict/express.h"
#include "tessera/predict/predict.h"

namespace tessera::infer_open_test {
namespace {

Row row_of(std::string model, std::string gpu, int64_t gpus) {
  Row row;
  row.id = "r";
  row.source = "somebody";
  row.model = std::move(model);
  row.gpu = std::move(gpu);
  row.gpus = gpus;
  return row;
}

Run inferred(const Row& row) {
  const auto run = infer(row);
  EXPECT_TRUE(run) << run.error().message;
  return run ? *run : Run();
}

bool says(const std::vector<std::string>& reasons, std::string_view part) {
  return std::any_of(reasons.begin(), reasons.end(), [&](const std::string& reason) {
    return reason.find(part) != std::string::npos;
  });
}

TEST(Open, StatedReplicasLeaveTheRestToTensorsAndStages) {
  Row row = row_of("Turing-NLG", "V100-32GB", 256);
  row.dtype = "fp16";
  row.tp = 4;
  row.dp = 64;
  row.global_batch = 512;
  const auto run = inferred(row);
  EXPECT_EQ(run.pp, 1);
  EXPECT_EQ(run.dp, 64);
  row.dp = 16;
  EXPECT_EQ(inferred(row).pp, 4) << "256 GPUs of 16 replicas and 4 tensor ranks; 78 layers";
  row.tp.reset();
  row.dp = 32;
  const auto both = inferred(row);
  EXPECT_EQ(both.tp * both.pp, 8);
  // No degrees give so many replicas: the GPUs count.
  row.dp = 7;
  EXPECT_TRUE(says(inferred(row).reasons, "not 7 as stated"));
}

TEST(Open, ExpertsLieOverWholeGroupsOfReplicas) {
  Row row = row_of("Qwen3-30B-A3B", "H100-80GB", 64);
  row.ep = 8;
  row.global_batch = 512;
  row.seq = 4096;
  const auto run = inferred(row);
  EXPECT_EQ(run.dp % 8, 0);
  EXPECT_EQ(run.tp, 1);
  EXPECT_EQ(run.ep, 8);
}

TEST(Open, SilentExpertsLieOverAsFewReplicasAsFit) {
  Row row = row_of("Mixtral-8x7B", "H100-80GB", 64);
  row.tp = 1;
  row.pp = 4;
  row.zero = 1;
  row.seq = 2048;
  row.microbatch = 1;
  row.global_batch = 256;
  const auto run = inferred(row);
  EXPECT_GT(run.ep, 1);
  EXPECT_TRUE(says(run.reasons, "the smallest that fits"));
  auto fewer = run;
  fewer.ep /= 2;
  EXPECT_GT(estimated_bytes(fewer), 0.92 * 80e9);
  EXPECT_LE(estimated_bytes(run), 0.92 * 80e9);
}

TEST(Open, StatesThatFitNowhereWholeAreSharded) {
  Row row = row_of("GPT-175B", "V100-32GB", 1024);
  row.source = "BigScience, another model";
  row.dtype = "fp16";
  row.tp = 8;
  row.pp = 8;
  row.global_batch = 1024;
  const auto run = inferred(row);
  EXPECT_EQ(run.zero, 1) << "18 bytes of 2.7e9 parameters, 32 GB";
  EXPECT_TRUE(says(run.reasons, "whole states do not fit"));
  row.gpu = "A100-80GB";
  EXPECT_EQ(inferred(row).zero, 0);
}

TEST(Open, FrameworksAreOfTheTimeOfTheModel) {
  const auto framework = [](const char* model, const char* dtype, std::optional<int64_t> zero) {
    Row row = row_of(model, "A100-80GB", 64);
    row.dtype = dtype;
    row.tp = 8;
    row.zero = zero;
    row.global_batch = 64;
    return inferred(row).framework.name;
  };
  EXPECT_EQ(framework("Llama2-70B", "bf16", {}), "megatron-core");
  EXPECT_EQ(framework("GPT-39B", "fp16", {}), "megatron-lm");
  EXPECT_EQ(framework("GPT-39B", "fp16", 1), "megatron-deepspeed");
  EXPECT_EQ(framework("GPT-39B", "bf16", 1), "megatron-core");
}

// DeepSpeed has fused attention where the model or the GPU is of 2023 or later.
TEST(Open, DeepSpeedIsOfTheTimeOfModelAndGpu) {
  const auto framework = [](const char* source, const char* model, const char* gpu) {
    Row row = row_of(model, gpu, 64);
    row.source = source;
    row.dtype = "fp16";
    row.global_batch = 64;
    return inferred(row).framework.name;
  };
  EXPECT_EQ(framework("Megatron-DeepSpeed log", "GPT-39B", "A100-80GB"), "megatron-deepspeed");
  EXPECT_EQ(framework("Megatron-DeepSpeed log", "Llama2-70B", "A100-80GB"),
            "megatron-deepspeed-fused");
  EXPECT_EQ(framework("DeepSpeed log", "GPT-39B", "H100-80GB"), "deepspeed-fused");
  EXPECT_EQ(framework("DeepSpeed log", "GPT-39B", "V100-32GB"), "deepspeed");
  EXPECT_EQ(framework("Alpa paper", "GPT-39B", "V100-32GB"), "alpa");
  EXPECT_EQ(framework("Alpa paper: Megatron-LM", "GPT-39B", "V100-32GB"), "megatron-lm");
}

// A run that computes again as stated needs no tensor parallelism to fit.
TEST(Open, DegreesAreThoseOfTheStatedRecompute) {
  Row row = row_of("Llama-65B", "A100-80GB", 32);
  row.zero = 3;
  row.dtype = "bf16";
  row.global_batch = 64;
  row.recompute = "none";
  EXPECT_GT(inferred(row).tp, 1);
  row.recompute = "full";
  const auto run = inferred(row);
  EXPECT_EQ(run.tp * run.pp, 1);
  EXPECT_EQ(run.dp, 32);
  EXPECT_EQ(run.recompute, Recompute::kFull);
}

TEST(Open, MixturesSayMoeAsAWord) {
  const auto experts = [](const char* model) {
    Row row = row_of(model, "V100-16GB", 16);
    row.params = 1e9;
    return has_experts(inferred(row).model);
  };
  EXPECT_TRUE(experts("GShard-MoE-10B"));
  EXPECT_TRUE(experts("OpenMoE"));
  EXPECT_TRUE(experts("moe10b"));
  EXPECT_FALSE(experts("Amoebic-1B"));
}

TEST(Open, ReplicasDivideTheBatch) {
  Row row = row_of("Llama2-7B", "H100-80GB", 48);
  row.microbatch = 1;
  row.global_batch = 64;
  row.layers = 36;
  const auto run = inferred(row);
  EXPECT_EQ(64 % run.dp, 0) << run.dp;
}

// A batch that replicas cannot share takes the time of whole micro-batches, scaled to the stated
// batch.
TEST(Open, TimesAreOfTheStatedBatch) {
  Row row = row_of("Llama2-7B", "H100-80GB", 8);
  row.zero = 3;
  row.tp = row.pp = 1;
  row.layers = 4;
  row.microbatch = 1;
  row.global_batch = 24;
  const auto three = predict({row}, {}, 1);
  row.global_batch = 30;  // 3.75 a replica: 3 micro-batches
  const auto more = predict({row}, {}, 1);
  ASSERT_TRUE(three[0].ok && more[0].ok) << three[0].reason << more[0].reason;
  EXPECT_NEAR(more[0].step_time_s / three[0].step_time_s, 30.0 / 24, 1e-9);
  EXPECT_TRUE(more[0].reason.find("batch 24 in place of 30") != std::string::npos);
  row.global_batch = 5;  // fewer than replicas
  const auto few = predict({row}, {}, 1);
  row.global_batch = 8;
  EXPECT_NEAR(few[0].step_time_s, predict({row}, {}, 1)[0].step_time_s, 1e-9);
}

// ZeRO-2 as ZeRO-1: masters rest in shards, gathered copies live for the step.
TEST(Open, MastersOfZero2AreShards) {
  Row row = row_of("GPT-13B", "A100-80GB", 16);
  row.source = "DeepSpeed";
  row.dtype = "fp16";
  row.zero = 2;
  row.tp = row.pp = 1;
  row.microbatch = 1;
  row.global_batch = 16;
  const auto expressed = express(inferred(row));
  ASSERT_TRUE(expressed) << expressed.error().message;
  EXPECT_NE(expressed->plan.find(R"({ tensors = "role:parameter", over = "dp" })"),
            std::string::npos)
      << expressed->plan;
}

TEST(Open, IsMadeLighterStepByStep) {
  Row row = row_of("Llama2-7B", "A100-80GB", 8);
  row.source = "PyTorch FSDP";
  row.global_batch = 64;
  auto run = inferred(row);
  run.microbatch = 2;
  run.recompute = Recompute::kNone;
  auto next = lighter(row, run);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->change, "micro-batch 1");
  EXPECT_EQ(next->row.microbatch, 1);
  run.microbatch = 1;
  next = lighter(next->row, run);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->change, "recompute selective");
  next->row.recompute = "full";
  EXPECT_FALSE(lighter(next->row, run)) << "all is stated";
}

// The estimate leaves this run with a micro-batch whose program needs more than the GPU has.
TEST(Open, ARunThatHasRunFits) {
  Row row = row_of("Llama-3.2-1B", "A100-80GB", 8);
  row.vocab = 256000;  // logits, which the estimate counts on single stages
  row.pp = 2;
  row.dp = 4;
  row.global_batch = 256;
  EXPECT_GT(inferred(row).microbatch, 1);
  const auto predicted = predict({row}, {}, 1);
  ASSERT_TRUE(predicted[0].ok) << predicted[0].reason;
  EXPECT_LE(predicted[0].device_bytes, 1.2 * 80e9);
  EXPECT_NE(predicted[0].reason.find("micro-batch 2: else "), std::string::npos)
      << predicted[0].reason;
  EXPECT_NE(predicted[0].reason.find(" of 80 GB"), std::string::npos) << predicted[0].reason;
  const auto explained = explain(row, {});
  ASSERT_TRUE(explained) << explained.error().message;
  EXPECT_NEAR(explained->prediction.device_bytes, predicted[0].device_bytes,
              1e-3 * predicted[0].device_bytes);
}

// Runs of Blackwell in fp8 are of tuned recipes, whoever tells of them; of Hopper's runs only
// NeMo's of 2024 are known not to be.
TEST(Open, Fp8IsOfTunedRecipes) {
  const auto framework = [](const std::string& source, const std::string& gpu) {
    Row row = row_of("Llama3-8B", gpu, 8);
    row.source = source;
    row.dtype = "fp8";
    return inferred(row).framework.name;
  };
  EXPECT_EQ(framework("NeMo blog", "H100-80GB"), "nemo");
  EXPECT_EQ(framework("NeMo blog", "B200"), "nemo-recipes");
  EXPECT_EQ(framework("somebody", "H100-80GB"), "nemo-recipes");
  EXPECT_EQ(framework("somebody", "MI300X"), "nemo");
  EXPECT_EQ(framework("somebody", "GB200"), "nemo-recipes");
  EXPECT_EQ(framework("DGX Cloud", "H100-80GB"), "nemo-recipes");
}

TEST(Open, AnUnknownWordForRecomputeIsTakenAsFullAndSaid) {
  Row row = row_of("Llama2-7B", "A100-80GB", 8);
  row.recompute = "some";
  EXPECT_EQ(inferred(row).recompute, Recompute::kFull);
  EXPECT_TRUE(says(inferred(row).reasons, "recompute 'some' taken as full"));
  row.recompute = "layernorm, moe_act+mla_up_proj";  // as Megatron-Core says it
  EXPECT_EQ(inferred(row).recompute, Recompute::kSelective);
  row.recompute = "full(uniform)";
  EXPECT_FALSE(says(inferred(row).reasons, "taken as full"));
}

// Sources without a known name, on devices before Hopper.
TEST(Open, ShardedStatesTellTheFrameworkByTheirDtype) {
  const auto framework = [](const std::string& dtype, std::optional<int64_t> zero,
                            const std::string& gpu = "A100-80GB") {
    Row row = row_of("Llama2-7B", gpu, 64);
    row.dtype = dtype;
    row.zero = zero;
    return inferred(row).framework.name;
  };
  EXPECT_EQ(framework("bf16", 1), "megatron-core");
  EXPECT_EQ(framework("", 1), "megatron-core");
  EXPECT_EQ(framework("", 1, "V100-32GB"), "deepspeed-fused");
  EXPECT_EQ(framework("float16", 1), "deepspeed-fused");
  EXPECT_EQ(framework("bf16", {}), "fsdp");
  EXPECT_EQ(framework("fp16", {}), "pytorch-ddp");
  EXPECT_EQ(framework("bf16", 3), "fsdp");
}

// Fine-tuning of factors: by the benchmark, by name, or because nothing else could have run.
TEST(Open, LowRankFactorsAreTrainedWhereNothingElseCouldBe) {
  Row row = row_of("Llama2-70B", "H100-80GB", 64);
  row.tp = 4;
  row.cp = 2;
  row.pp = 1;
  row.seq = 8192;
  row.microbatch = 1;
  row.global_batch = 8;
  row.zero = 1;
  row.source = "MLPerf Training v4.1";
  auto run = inferred(row);
  EXPECT_EQ(run.lora, 16);
  EXPECT_FALSE(run.lora_mlp);
  EXPECT_EQ(run.zero, 0);
  const auto expressed = express(run);
  ASSERT_TRUE(expressed) << expressed.error().message;
  EXPECT_NE(expressed->model.find(",lora=16"), std::string::npos) << expressed->model;
  row.global_batch = 512;
  EXPECT_EQ(inferred(row).lora, 0);

  row.source = "Megatron-Bridge";
  row.gpus = 8;
  row.cp = 1;
  row.tp = 2;
  row.pp = 4;
  row.global_batch = 32;
  run = inferred(row);
  EXPECT_EQ(run.lora, 16);
  EXPECT_TRUE(run.lora_mlp);
  EXPECT_NE(join(run.reasons, ";").find("states of all parameters are 1"), std::string::npos);
  row.gpus = 128;
  EXPECT_EQ(inferred(row).lora, 0) << "16 replicas share the states";
  row.model = "Llama2-70B-LoRA";
  EXPECT_EQ(inferred(row).lora, 16);
}

// A column counts before words, words before what the batch tells; 0 says that all is trained.
TEST(Open, LowRankFactorsAreTrainedWhereTheRowSaysSo) {
  Row row = row_of("Llama3-8B", "H100-80GB", 64);
  row.global_batch = 128;
  row.seq = 4096;
  EXPECT_EQ(inferred(row).lora, 0);
  row.notes = "LoRA with rank 32; 4.1 s a step";
  EXPECT_EQ(inferred(row).lora, 32);
  EXPECT_TRUE(inferred(row).lora_mlp);
  EXPECT_TRUE(says(inferred(row).reasons, "by the notes"));
  row.lora = 8;
  EXPECT_EQ(inferred(row).lora, 8);
  EXPECT_TRUE(says(inferred(row).reasons, "as stated"));
  row.lora = 0;
  EXPECT_EQ(inferred(row).lora, 0);
  row.lora.reset();
  row.notes = "QLoRA";
  EXPECT_TRUE(says(inferred(row).reasons, "QLoRA priced as LoRA"));
  // The benchmark's factors stand beside attention alone, whatever the notes say.
  row.source = "MLPerf Training v4.1";
  row.notes = "LoRA fine-tuning (rank 16)";
  EXPECT_EQ(inferred(row).lora, 16);
  EXPECT_FALSE(inferred(row).lora_mlp);

  Row mixture = row_of("Mixtral-8x7B", "H100-80GB", 64);
  mixture.global_batch = 128;
  mixture.lora = 16;
  const auto expressed = express(inferred(mixture));
  ASSERT_TRUE(expressed) << expressed.error().message;
  EXPECT_NE(expressed->model.find("mixtral:"), std::string::npos);
  EXPECT_NE(expressed->model.find(",lora=16"), std::string::npos) << expressed->model;
  Row other = row_of("GPT-2 XL", "H100-80GB", 8);
  other.lora = 16;
  const auto refused = infer(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("are built for Llama and Mixtral"), std::string::npos)
      << refused.error().message;
}

// TF32: float32 numbers, products at TF32's rate where the GPU has it.
TEST(Open, Tf32IsNotFp32) {
  Row row = row_of("GPT-1.3B", "A100-80GB", 8);
  row.global_batch = 64;
  row.dtype = "tf32";
  const auto run = inferred(row);
  EXPECT_EQ(run.arithmetic, Arithmetic::kTf32);
  const auto narrow = express(run);
  ASSERT_TRUE(narrow) << narrow.error().message;
  EXPECT_NE(narrow->style.find("matmul_arithmetic=tf32"), std::string::npos) << narrow->style;
  EXPECT_EQ(narrow->plan.find("precision"), std::string::npos) << narrow->plan;
  row.dtype = "fp32";
  const auto wide = predict({row}, {}, 1).front();
  row.dtype = "tf32";
  const auto fast = predict({row}, {}, 1).front();
  ASSERT_TRUE(wide.ok && fast.ok) << wide.reason << fast.reason;
  EXPECT_EQ(wide.memory_bytes, fast.memory_bytes);
  EXPECT_LT(fast.step_time_s, wide.step_time_s / 2);
  row.gpu = "V100-32GB";
  const auto old = inferred(row);
  EXPECT_EQ(old.arithmetic, Arithmetic::kFp32);
  EXPECT_TRUE(says(old.reasons, "fp32 in place of tf32"));
}

// FlashAttention and cuDNN have no kernels for a V100: Megatron-Core writes the scores there.
TEST(Open, AttentionIsNotFusedBeforeTheGpusThatHaveIt) {
  Row row = row_of("GPT-2 774M swiglu", "V100-32GB", 1);
  row.source = "Megatron-LM issue 525";
  row.dtype = "fp16";
  row.recompute = "none";
  row.params = 771106304;
  row.layers = 36;
  row.hidden = 1280;
  row.heads = 20;
  row.kv_heads = 20;
  row.ffn = 3392;
  row.seq = 1024;
  row.vocab = 50304;
  row.gpus_a_node = 1;
  row.tp = row.pp = row.dp = 1;
  row.zero = 1;
  row.microbatch = 4;
  row.global_batch = 16;
  const auto old = predict({row}, {}, 1).front();
  ASSERT_TRUE(old.ok) << old.reason;
  EXPECT_GT(old.memory_bytes, 32e9);
  EXPECT_NE(old.reason.find("attention is not fused"), std::string::npos) << old.reason;
  // The second row of the report: ungated, 5120 wide, parameters not stated.
  Row plain = row;
  plain.model = "GPT-2 774M";
  plain.gpu = "V100 32GB";
  plain.params.reset();
  plain.ffn = 5120;
  EXPECT_GT(predict({plain}, {}, 1).front().memory_bytes, 32e9);
  row.gpu = "A100-40GB";
  const auto fused = predict({row}, {}, 1).front();
  EXPECT_LT(fused.memory_bytes, 0.8 * old.memory_bytes);
  EXPECT_EQ(fused.reason.find("attention is not fused"), std::string::npos) << fused.reason;
}

// Megatron-Core's groups of experts take tensor ranks too, if each has whole experts.
TEST(Open, ExpertsLieOverTensorRanksWhereReplicasAreTooFew) {
  Row row = row_of("Qwen3-30B-A3B", "H100-80GB", 32);
  row.tp = 2;
  row.pp = 1;
  row.dp = 16;
  row.ep = 32;
  row.global_batch = 512;
  row.seq = 4096;
  row.source = "Megatron-Core";
  const auto expressed = express(inferred(row));
  ASSERT_TRUE(expressed) << expressed.error().message;
  EXPECT_NE(expressed->recipe.find("expert_parallel(ep=16,dp=1,tp=2"), std::string::npos)
      << expressed->recipe;
  EXPECT_NE(expressed->recipe.find("experts_over_tp=true"), std::string::npos) << expressed->recipe;
  EXPECT_TRUE(says(expressed->reasons, "whole experts over 32 ranks: the 2 tensor ranks of 16"));
  const auto spanning = predict({row}, {}, 1).front();
  ASSERT_TRUE(spanning.ok) << spanning.reason;
  row.ep = 16;
  const auto inside = predict({row}, {}, 1).front();
  // Each rank holds a 32nd of the experts either way: whole ones, or halves of twice as many, whose
  // slots are gathered.
  EXPECT_LT(spanning.memory_bytes, inside.memory_bytes);
  EXPECT_GT(spanning.memory_bytes, 0.75 * inside.memory_bytes);
  row.ep = 24;  // 12 replicas are no divisor of 16
  EXPECT_TRUE(says(express(inferred(row))->reasons, "within the 16 replicas"));
}

}  // namespace
}  // namespace tessera::infer_open_test
