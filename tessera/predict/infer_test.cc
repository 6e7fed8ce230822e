#include <gtest/gtest.h>

#include <functional>

#include <algorithm>

#include "tessera/graph/kinds.h"
#include "tessera/models/model.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/express.h"
#include "tessera/predict/infer_model.h"
#include "tessera/predict/measured.h"

namespace tessera::infer_test {
namespace {

Row row_of(std::string model, std::string gpu, int64_t gpus) {
  Row row;
  row.id = "r";
  row.model = std::move(model);
  row.gpu = std::move(gpu);
  row.gpus = gpus;
  return row;
}

bool says(const std::vector<std::string>& reasons, std::string_view part) {
  return std::any_of(reasons.begin(), reasons.end(), [&](const std::string& reason) {
    return reason.find(part) != std::string::npos;
  });
}

TEST(Architectures, AreFoundByTheLongestBeginning) {
  EXPECT_EQ(find_architecture("LLaMA 2 70B")->layers, 80);
  EXPECT_EQ(find_architecture("Llama3-70B-12L")->layers, 12);
  EXPECT_EQ(find_architecture("Grok-1-proxy7L")->layers, 7);
  EXPECT_EQ(find_architecture("GPT-1.7B")->hidden, 2304);
  EXPECT_EQ(find_architecture("GPT3-175B")->hidden, 12288);
  EXPECT_FALSE(find_architecture("unheard-of-7B"));
  EXPECT_EQ(parameters_in_name("unheard-of-7B"), 7e9);
  EXPECT_EQ(parameters_in_name("x-760M-chat"), 760e6);
  EXPECT_EQ(active_parameters_in_name("Qwen9-30B-A3B"), 3e9);
  EXPECT_EQ(active_parameters_in_name("new_57b_a1.4b-base"), 1.4e9);
  EXPECT_EQ(active_parameters_in_name("LLaMA-7B"), 0);
  EXPECT_EQ(active_parameters_in_name("A100-7B"), 0);
}

TEST(Architectures, HaveTheParametersOfTheirNames) {
  const std::vector<std::pair<std::string, double>> known = {{"Llama2-7B", 6.74e9},
                                                             {"Llama3.1-405B", 405.9e9},
                                                             {"Mixtral-8x7B", 46.7e9},
                                                             {"DeepSeek-V3", 671e9},
                                                             {"Grok-1", 314e9},
                                                             {"Qwen3-235B-A22B", 235e9},
                                                             {"GPT3-175B", 175e9},
                                                             {"Falcon-40B", 41e9},
                                                             {"Nemotron-3-Nano", 31.6e9},
                                                             {"Nemotron-3-Super", 120.6e9},
                                                             {"Nemotron-3-Ultra", 550e9},
                                                             {"Nemotron-H-8B", 8.1e9},
                                                             {"Nemotron-H-56B", 56e9},
                                                             {"Llama4-Maverick", 400e9},
                                                             {"Llama4-Scout", 109e9},
                                                             {"Qwen3-Next-80B-A3B", 80e9},
                                                             {"Qwen3-Coder-480B-A35B", 480e9},
                                                             {"GLM-4.5", 355e9},
                                                             {"GLM-4.5-Air", 106e9},
                                                             {"Hunyuan-Large", 389e9},
                                                             {"Command-R", 35e9},
                                                             {"Command-R-plus", 104e9},
                                                             {"Kimi-K2", 1.03e12},
                                                             {"Moonlight-16B-A3B", 16e9}};
  for (const auto& [name, parameters] : known) {
    EXPECT_NEAR(parameter_count(*find_architecture(name)) / parameters, 1, 0.03) << name;
  }
}

// "100B-A10B": a mixture with 100B parameters, of which each token passes 10B.
TEST(Architectures, ActiveParametersInANameMakeAMixture) {
  Row row = row_of("Unheard-100B-A10B", "H100-80GB", 64);
  std::vector<std::string> reasons;
  const auto model = infer_model(row, reasons);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->form, Form::kMixture);
  EXPECT_NEAR(parameter_count(*model) / 100e9, 1, 0.03);
  EXPECT_NEAR(active_parameter_count(*model) / 10e9, 1, 0.1);
  // With sizes stated, experts and choices follow from both numbers.
  row.model = "Unheard-30B-A3B";
  row.layers = 48;
  row.hidden = 2048;
  row.heads = 32;
  row.kv_heads = 4;
  row.ffn = 768;
  row.vocab = 151936;
  reasons.clear();
  const auto sized = infer_model(row, reasons);
  ASSERT_TRUE(sized) << sized.error().message;
  EXPECT_EQ(sized->hidden, 2048);
  EXPECT_NEAR(static_cast<double>(sized->experts), 128, 5);
  EXPECT_NEAR(static_cast<double>(sized->top_k), 8, 1);
}

// A model cut to a few layers has its share of dense ones, rounded up.
TEST(Architectures, AreCutWithTheirShareOfDenseBlocks) {
  EXPECT_EQ(find_architecture("DeepSeek-V3")->dense_layers, 3);
  EXPECT_EQ(find_architecture("DeepSeek-V3-4L")->dense_layers, 1);
  EXPECT_EQ(find_architecture("DeepSeek-V3-4L")->layers, 4);
}

// Nemotron 3 Nano as its recipes run it: experts are computed again on H100 alone.
TEST(Express, HybridsAreTheBlocksOfTheirPattern) {
  Row row = row_of("Nemotron-3-Nano", "GB300", 8);
  row.source = "Megatron-Bridge performance summary";
  row.dtype = "mxfp8";
  row.tp = row.pp = row.zero = 1;
  row.ep = 8;
  row.microbatch = 4;
  row.global_batch = 512;
  const auto roomy = infer(row);
  ASSERT_TRUE(roomy) << roomy.error().message;
  EXPECT_EQ(roomy->recompute, Recompute::kNone);
  const auto expressed = express(*roomy);
  ASSERT_TRUE(expressed) << expressed.error().message;
  EXPECT_TRUE(expressed->model.starts_with("nemotron_h:layers=52,hidden=2688,"))
      << expressed->model;
  EXPECT_NE(expressed->model.find("pattern=MEMEM*EMEMEM*"), std::string::npos);
  EXPECT_EQ(expressed->recipe,
            "expert_parallel(ep=8,dp=1,zero=1,micro_batches=16,recompute=scan,precision=bfloat16)");
  row.gpu = "H100-80GB";
  row.gpus = 16;
  row.microbatch = 1;
  const auto tight = infer(row);
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_EQ(tight->recompute, Recompute::kExperts);
  const auto again = express(*tight);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_NE(again->recipe.find("recompute=scan+norm+act+core+moe"), std::string::npos)
      << again->recipe;
  row.recompute = "selective";
  EXPECT_EQ(infer(row)->recompute, Recompute::kSelective);
  row.recompute = "experts";
  EXPECT_EQ(infer(row)->recompute, Recompute::kExperts);
  EXPECT_EQ(find_architecture("Nemotron-3-5-Lightning")->mtp, 2);
}

TEST(Infer, ShardsParametersWhereFsdpIsSilent) {
  Row row = row_of("Llama2-7B", "A100-80GB", 64);
  row.source = "somebody's FSDP runs";
  row.global_batch = 256;
  const auto run = infer(row);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->zero, 3);
  EXPECT_EQ(run->tp * run->pp, 1);
  EXPECT_TRUE(says(run->reasons, "zero = 3"));
  row.tp = 2;
  EXPECT_EQ(infer(row)->zero, 0);
  row.tp.reset();
  row.zero = 1;
  EXPECT_EQ(infer(row)->zero, 1);
}

TEST(Infer, CutsLayersInChunksOfWhichTheOutermostMayHaveOneLess) {
  Row row = row_of("Llama3.1-405B", "H100-80GB", 8192);
  row.source = "Megatron-Core, some run";
  row.tp = 8;
  row.pp = 16;
  row.microbatch = 1;
  row.global_batch = 2048;
  EXPECT_EQ(infer(row)->vpp, 4);  // 126 layers in 64 chunks: two short of 128
  row.pp = 8;
  EXPECT_EQ(infer(row)->vpp, 8);  // two short again
  row.pp = 9;
  row.gpus = 2304;
  row.global_batch = 1152;
  EXPECT_EQ(infer(row)->vpp, 7);  // even: 126 = 9 x 7 x 2
}

TEST(Frameworks, OfRowsWithShardedParametersAreNotMegatrons) {
  const auto name_of = [](const char* source, const char* dtype) {
    Row row = row_of("GPT3-175B", "A100-80GB", 384);
    row.source = source;
    row.dtype = dtype;
    row.zero = 3;
    std::string reason;
    return framework_of(row, reason).name;
  };
  EXPECT_EQ(name_of("Megatron-LM table", "fp16"), "deepspeed");
  EXPECT_EQ(name_of("NeMo table", "bf16"), "fsdp");
  EXPECT_EQ(name_of("NVIDIA DGX Cloud recipes", "fp8"), "maxtext");
  EXPECT_EQ(name_of("Megatron-DeepSpeed log", "bf16"), "megatron-deepspeed");
}

TEST(Frameworks, HaveTheNetworkOfTheirSite) {
  Row row = row_of("GPT-1536x16", "V100-16GB", 32);
  std::string reason;
  row.source = "DLPerf GPT report: Megatron-LM";
  EXPECT_EQ(framework_of(row, reason).machine, "link:nic*0.25");
  row.source = "Megatron-LM README 2020";
  EXPECT_EQ(framework_of(row, reason).machine, "");
}

TEST(Infer, TakesHeadsOf96ForTheSizesOfThe2019Paper) {
  for (const auto& [hidden, heads] :
       {std::pair<int64_t, int64_t>{1536, 16}, {3072, 32}, {4096, 32}}) {
    Row row = row_of("GPT", "V100-16GB", 8);
    row.layers = 16;
    row.hidden = hidden;
    row.global_batch = 16;
    EXPECT_EQ(infer(row)->model.heads, heads) << hidden;
  }
}

TEST(Infer, CompletesARowAndNamesEachInference) {
  Row row = row_of("GPT-175B", "A100-80GB", 384);
  row.source = "Megatron-LM, some table";
  row.tp = 8;
  row.pp = 12;
  row.global_batch = 1536;
  const auto run = infer(row);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->dp, 4);
  EXPECT_EQ(run->microbatch * run->micro_batches * run->dp, 1536);
  EXPECT_EQ(run->recompute, Recompute::kFull);
  for (const char* part : {"dp = 4", "micro-batch", "recompute full", "dtype", "seq 2048"}) {
    EXPECT_TRUE(says(run->reasons, part)) << part;
  }
}

TEST(Infer, RefusesWhatItCannotKnow) {
  const auto error = [](const Row& row) {
    const auto run = infer(row);
    return run ? std::string("none") : run.error().message;
  };
  EXPECT_EQ(error(row_of("VGG-16", "V100-16GB", 8)),
            "the model 'VGG-16' is a convolutional network other than ResNet: no builder");
  EXPECT_EQ(error(row_of("DLRM", "V100-16GB", 8)),
            "the model 'DLRM' is a recommendation model, whose embedding tables are sparse: no "
            "builder");
  // Whatever else is stated: no transformer of so many parameters is meant.
  for (const char* name : {"WResNet-2B", "WRN-50-2", "LSTM-1B", "DCNv2", "GCN", "DiT-XL/2",
                           "AmoebaNet-D", "Whisper-large", "OpenFold", "DHEN", "YOLOv5"}) {
    Row row = row_of(name, "V100-16GB", 8);
    row.params = 1e9;
    EXPECT_NE(error(row).find(": no builder"), std::string::npos) << name << ": " << error(row);
  }
  Row ditto = row_of("Ditto-7B", "V100-16GB", 8);
  ditto.params = 7e9;
  EXPECT_EQ(error(ditto), "none");
  EXPECT_EQ(error(row_of("ResNet-20", "V100-16GB", 8)),
            "the model 'ResNet-20' is a ResNet of another depth than 18, 34, 50, 101 and 152: no "
            "builder");
  Row split = row_of("ResNet-50", "V100-16GB", 8);
  split.tp = 2;
  EXPECT_EQ(
      error(split),
      "'ResNet-50' is split over its batch and its blocks only: expected tp = cp = 1, found 2 "
      "and 1");
  EXPECT_EQ(error(row_of("Mystery", "H100-80GB", 8)),
            "the model 'Mystery' is not known, and neither layers and hidden nor parameters are "
            "stated");
  EXPECT_EQ(error(row_of("Llama2-7B", "abacus", 8)),
            "the GPU 'abacus' is not known, did you mean 'habana'?");
  Row row = row_of("Llama2-7B", "H100-80GB", 8);
  row.tp = 3;
  EXPECT_EQ(error(row), "tp 3 pp 1 cp 1 do not divide 8 GPUs");
}

// Sizes and flops of the table are those of the builders.
TEST(Images, TableAndBuildersAgree) {
  for (const char* name : {"ResNet-18", "ResNet34", "resnet_50", "ResNet-101", "ResNet-152 v1.5",
                           "Swin-T", "Swin-S", "Swin-B", "Swin-L"}) {
    Row row = row_of(name, "V100-16GB", 1);
    row.microbatch = 1;
    row.global_batch = 1;
    const auto run = infer(row);
    ASSERT_TRUE(run) << run.error().message;
    const auto expressed = express(*run);
    ASSERT_TRUE(expressed) << expressed.error().message;
    const auto model = build_model(expressed->model, 1);
    ASSERT_TRUE(model) << model.error().message;
    double parameters = 0, flops = 0;
    for (const Tensor& tensor : model->graph.tensors()) {
      if (tensor.role == Role::kParameter) parameters += static_cast<double>(tensor.elements());
    }
    for (const Op& op : model->graph.ops()) {
      if (op.kind == "einsum" || op.kind == "conv" || op.kind == "attention")
        flops += static_cast<double>(op_flops(op));
    }
    const bool resnet = run->model.form == Form::kConvolution;
    EXPECT_NEAR(parameter_count(run->model) / parameters, 1, resnet ? 1e-9 : 0.03) << name;
    EXPECT_NEAR(run->model.forward_flops / flops, 1, resnet ? 1e-3 : 0.03) << name;
    EXPECT_DOUBLE_EQ(model_flops_a_token(*run), 3 * run->model.forward_flops);
  }
}

TEST(Images, BatchesCountImagesAndReplicasHaveStatisticsOfTheirOwn) {
  Row row = row_of("ResNet-50", "V100-16GB", 8);
  row.dtype = "amp";
  row.microbatch = 64;
  row.global_batch = 1024;
  auto run = infer(row);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->dp, 8);
  EXPECT_EQ(run->micro_batches, 2);
  EXPECT_EQ(run->arithmetic, Arithmetic::kFp16);
  EXPECT_TRUE(says(run->reasons, "images of 224 x 224"));
  EXPECT_EQ(express(*run)->model, "resnet:layers=50,image=224,ghost=64");
  EXPECT_EQ(express(*run)->batch, 1024);
  row.microbatch.reset();
  row.seq = 160;
  run = infer(row);
  EXPECT_EQ(run->micro_batches, 1) << "a replica takes its images at once";
  EXPECT_EQ(express(*run)->model, "resnet:layers=50,image=160,ghost=128");
  row.global_batch.reset();
  EXPECT_EQ(infer(row)->global_batch, 8 * 64);
  row.model = "ResNet";
  row.layers = 101;
  EXPECT_EQ(infer(row)->model.depth, 101);
  row = row_of("ResNet-50", "H100-80GB", 8);
  EXPECT_EQ(infer(row)->framework.name, "pytorch-ddp");
  row.pp = 2;
  EXPECT_EQ(infer(row)->framework.name, "pytorch-ddp") << "no framework of language models";
}

TEST(Express, SaysWhereARecipeWantsAnotherForm) {
  Row row = row_of("Qwen3-30B-A3B", "H100-80GB", 16);
  row.source = "Megatron-Bridge";
  row.tp = 2;
  row.pp = 1;
  row.ep = 16;
  row.global_batch = 64;
  const auto run = infer(row);
  ASSERT_TRUE(run) << run.error().message;
  const auto expressed = express(*run);
  ASSERT_TRUE(expressed) << expressed.error().message;
  EXPECT_TRUE(says(expressed->reasons, "whole experts over 16 ranks"));
  EXPECT_TRUE(expressed->recipe.starts_with("expert_parallel(ep=8,dp=1,tp=2")) << expressed->recipe;
  row.ep = 12;  // six replicas do not divide eight
  const auto other = infer(row);
  ASSERT_TRUE(other) << other.error().message;
  const auto within = express(*other);
  ASSERT_TRUE(within) << within.error().message;
  EXPECT_TRUE(says(within->reasons, "ep = 8 in place of 12"));
  EXPECT_EQ(within->recipe.find("experts_over_tp"), std::string::npos) << within->recipe;
}

// Checks that rows are written with what their frameworks do without the rows' saying so.
TEST(Express, WritesWhatTheFrameworkKeepsAndCounts) {
  const auto expressed = [](std::string source, const std::function<void(Row&)>& change) {
    Row row = row_of("Llama2-7B", "A100-80GB", 16);
    row.source = std::move(source);
    row.tp = 2;
    row.pp = 2;
    row.global_batch = 64;
    row.recompute = "none";
    change(row);
    const auto run = infer(row);
    EXPECT_TRUE(run) << run.error().message;
    auto out = express(*run);
    EXPECT_TRUE(out) << out.error().message;
    return *out;
  };
  const auto has = [](const Expressed& row, std::string_view text) {
    return row.plan.find(text) != std::string::npos;
  };
  const auto nothing = [](Row&) {};
  const Expressed core = expressed("Megatron-Core", nothing);
  EXPECT_TRUE(has(core, R"({ tensors = "blocks.*.{mlp,moe}.act", recompute = true })"));
  EXPECT_EQ(core.memory, CountedMemory::kAllocated);
  const Expressed full = expressed("Megatron-Core", [](Row& row) { row.recompute = "full"; });
  EXPECT_FALSE(has(full, "moe}.act"));
  // Megatron sums gradients of bf16 runs in float32.
  const auto as = [](const char* dtype) { return [dtype](Row& row) { row.dtype = dtype; }; };
  EXPECT_TRUE(has(expressed("BigScience BLOOM", as("fp16")), R"(gradient = "float16")"));
  EXPECT_TRUE(has(expressed("BigScience BLOOM", as("fp16/bf16")), R"(gradient = "float16")"));
  EXPECT_TRUE(has(expressed("BigScience BLOOM", as("bf16")), R"(gradient = "float32")"));
  EXPECT_EQ(expressed("BigScience BLOOM", nothing).memory, CountedMemory::kDevice);
  // Sequence parallelism came with selective recompute.
  const auto shards = [](const Expressed& row) {
    return row.recipe.find("sequence_shard=true") != std::string::npos;
  };
  EXPECT_FALSE(shards(expressed("Korthikanti", nothing)));
  EXPECT_TRUE(shards(expressed("Korthikanti", [](Row& row) { row.recompute = "selective"; })));
  const Expressed titan = expressed("torchtitan", [](Row& row) { row.zero = 3; });
  EXPECT_TRUE(has(titan, R"({ tensors = "*.cast", keep = "step" })"));
  EXPECT_TRUE(has(titan, R"({ tensors = "grad.*.cast", over = [] })"));
  EXPECT_EQ(titan.memory, CountedMemory::kReserved);
  // Partitioned gradients have no buffer of their whole size.
  const auto deepspeed = [&](int64_t zero) {
    return expressed("DeepSpeed", [&](Row& row) {
      row.model = "GPT-7.5B";
      row.gpu = "A100-80GB";
      row.zero = zero;
      row.tp = row.pp = 1;
    });
  };
  const auto partitioned = [](const Expressed& row) {
    return row.style.find("gradient_buffers=false") != std::string::npos;
  };
  EXPECT_TRUE(partitioned(deepspeed(3)));
  EXPECT_FALSE(partitioned(deepspeed(1)));
  // Norms and biases are gathered once a step, not where they are used.
  const auto keeps_small = [&](const Expressed& row) {
    return has(row, "blocks.*.ln_1.weight,blocks.*.ln_2.bias,blocks.*.ln_2.weight,") &&
           has(row, R"(final.ln.weight}", over = [] })") && !has(row, "mlp.down.weight");
  };
  EXPECT_TRUE(keeps_small(deepspeed(3)));
  EXPECT_FALSE(keeps_small(deepspeed(1)));
  EXPECT_TRUE(expressed("llm-foundry", nothing).style.starts_with("fsdp,loss_saved=0"));
}

TEST(Settings, HaveScopesAndRefuseUnknownKeys) {
  const auto settings = parse_settings(
      {"megatron-core.plan.dropout=0.1", "jitter=0.01", "p3.16xlarge.cluster=link:nic*0.8"});
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ((*settings)[0].scope, "megatron-core");
  EXPECT_EQ((*settings)[0].key, "plan.dropout");
  EXPECT_EQ((*settings)[1].scope, "");
  EXPECT_EQ((*settings)[2].scope, "p3.16xlarge");
  for (const char* bad : {"jitter", "jiter=1", "megatron-kore.jitter=0.1", "plan.dropout=2"}) {
    EXPECT_FALSE(parse_settings({bad})) << bad;
  }
}

TEST(Constants, AreReadWithAndWithoutASource) {
  const auto constants = parse_constants(
      "[[constants]]\nkind = \"fitted\"\nrows = [\"A b\", \"C\"]\nframeworks = [\"nemo\"]\n"
      "jitter = 0.02\n"
      "[[constants]]\nkind = \"fitted\"\nrows = \"C\"\nmachines = [\"p4d\"]\njitter = 0.01\n"
      "[[constants]]\nkind = \"fitted\"\nrows = \"C\"\nwithout = \"A b\"\nframeworks = [\"nemo\"]\n"
      "jitter = 0.03\n",
      "c.toml");
  ASSERT_TRUE(constants) << constants.error().message;
  ASSERT_EQ(constants->all.size(), 2U);
  EXPECT_EQ(constants->all[1].scope, "p4d");
  EXPECT_EQ(constants->without("other").size(), 2U);
  EXPECT_EQ(constants->without("A b").back().value, "0.03");
  EXPECT_EQ(constants->without("C").size(), 1U);  // what was fitted on it alone is left out
  EXPECT_EQ(constants->sources(), (std::vector<std::string>{"C", "A b"}));
  EXPECT_FALSE(parse_constants("[some]\n", "c.toml"));
  const auto bad =
      parse_constants("[[constants]]\nkind = \"fitted\"\nrows = \"C\"\njiter = 0.02\n", "c.toml");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message.substr(0, 9), "c.toml:1:");
  EXPECT_TRUE(load_constants(""));
}

}  // namespace
}  // namespace tessera::infer_test
