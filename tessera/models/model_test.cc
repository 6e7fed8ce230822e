#include "tessera/models/model.h"
#include "tessera/models/language/mixtral.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "tessera/base/text.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/transform.h"
#include "tessera/models/families.h"

namespace tessera::model_test {
namespace {

Model model_of(std::string_view spec, int64_t batch = 2,
               std::optional<DType> dtype = std::nullopt) {
  auto model = build_model(spec, batch, dtype);
  EXPECT_TRUE(model) << model.error().message;
  return model ? std::move(*model) : Model{};
}

std::string error_of(std::string_view spec, int64_t batch = 2) {
  const auto model = build_model(spec, batch);
  return model ? "(no error)" : model.error().message;
}

std::vector<std::string> paths_of(const Graph& graph) {
  std::vector<std::string> out;
  for (const Op& op : graph.ops()) out.push_back(op.path);
  return out;
}

std::string dims_of(const Graph& graph, std::string_view tensor) {
  const TensorId id = graph.find_tensor(tensor);
  if (!id.valid()) return "(no tensor)";
  std::vector<std::string> names;
  for (const Dim& dim : graph.tensor(id).dims) names.push_back(dim.name);
  return join(names, " ");
}

TEST(ModelSizes, AreThePublishedOnes) {
  EXPECT_EQ(parameter_count(model_of("gpt").graph), 124'439'808);  // GPT-2
  EXPECT_EQ(parameter_count(model_of("gpt:layers=48,hidden=1600,heads=25").graph), 1'557'611'200);
  EXPECT_EQ(parameter_count(model_of("llama").graph), 6'738'415'616);  // Llama 2 7B
  EXPECT_EQ(
      parameter_count(model_of("llama:kv_heads=8,ffn=14336,vocab=128256,theta=5e5,seq=8192").graph),
      8'030'261'248);  // Llama 3 8B
  EXPECT_EQ(parameter_count(model_of("mlp:in=4,hidden=8,out=3,layers=2").graph),
            (4 * 8 + 8) + (8 * 8 + 8) + (8 * 3 + 3));
}

TEST(Gpt, OpsHaveTheAgreedPaths) {
  EXPECT_EQ(paths_of(model_of("gpt:layers=1,hidden=8,heads=2,seq=4,vocab=16").graph),
            (std::vector<std::string>{
                "embed.token", "embed.add", "blocks.0.ln_1", "blocks.0.attn.q", "blocks.0.attn.k",
                "blocks.0.attn.v", "blocks.0.attn.core", "blocks.0.attn.out",
                "blocks.0.attn.residual", "blocks.0.ln_2", "blocks.0.mlp.up", "blocks.0.mlp.act",
                "blocks.0.mlp.down", "blocks.0.mlp.residual", "final.ln", "head",
                "loss.cross_entropy", "loss.token", "loss.mean"}));
}

TEST(Gpt, TensorsHaveTheAgreedDims) {
  const Graph graph = model_of("gpt:layers=1,hidden=8,heads=2,seq=4,vocab=16").graph;
  EXPECT_EQ(dims_of(graph, "tokens"), "batch seq");
  EXPECT_EQ(dims_of(graph, "targets"), "batch seq");
  EXPECT_EQ(dims_of(graph, "embed.token.weight"), "vocab hidden");
  EXPECT_EQ(dims_of(graph, "embed.position.weight"), "seq hidden");
  EXPECT_EQ(dims_of(graph, "blocks.0.ln_1.weight"), "hidden");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.q.weight"), "hidden heads group head_dim");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.q.bias"), "heads group head_dim");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.k.weight"), "hidden heads head_dim");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.v.bias"), "heads head_dim");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.out.weight"), "heads group head_dim hidden");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.out.bias"), "hidden");
  EXPECT_EQ(dims_of(graph, "blocks.0.attn.q"), "batch seq heads group head_dim");
  EXPECT_EQ(dims_of(graph, "blocks.0.mlp.up.weight"), "hidden ffn");
  EXPECT_EQ(dims_of(graph, "blocks.0.mlp.down.weight"), "ffn hidden");
  EXPECT_EQ(dims_of(graph, "blocks.0.mlp.act"), "batch seq ffn");
  EXPECT_EQ(dims_of(graph, "head"), "batch seq vocab");
  EXPECT_EQ(dims_of(graph, "loss.mean"), "");
  EXPECT_EQ(graph.tensor(graph.loss).name, "loss.mean");
  EXPECT_FALSE(graph.find_tensor("head.weight").valid());
}

TEST(Gpt, UntiedHeadHasItsOwnTable) {
  const Graph tied = model_of("gpt:layers=1,hidden=8,heads=2,seq=4,vocab=16").graph;
  const Graph graph = model_of("gpt:layers=1,hidden=8,heads=2,seq=4,vocab=16,tied=0").graph;
  EXPECT_EQ(dims_of(graph, "head.weight"), "vocab hidden");
  EXPECT_EQ(parameter_count(graph), parameter_count(tied) + 16 * 8);
}

TEST(Gpt, InitialisationIsThatOfGpt2) {
  const Graph graph = model_of("gpt:layers=8,hidden=8,heads=2,seq=4,vocab=16").graph;
  const auto init = [&](std::string_view name) {
    return graph.tensor(graph.find_tensor(name)).init;
  };
  EXPECT_EQ(init("embed.token.weight"), (Init{Init::Kind::kNormal, 0.02}));
  EXPECT_EQ(init("embed.position.weight"), (Init{Init::Kind::kNormal, 0.02}));
  EXPECT_EQ(init("blocks.3.attn.k.weight"), (Init{Init::Kind::kNormal, 0.02}));
  EXPECT_EQ(init("blocks.3.attn.out.weight"), (Init{Init::Kind::kNormal, 0.02 / 4}));
  EXPECT_EQ(init("blocks.3.mlp.up.weight"), (Init{Init::Kind::kNormal, 0.02}));
  EXPECT_EQ(init("blocks.3.mlp.down.weight"), (Init{Init::Kind::kNormal, 0.02 / 4}));
  EXPECT_EQ(init("blocks.3.mlp.down.bias").kind, Init::Kind::kZeros);
  EXPECT_EQ(init("final.ln.weight").kind, Init::Kind::kOnes);
}

TEST(Gpt, DropoutsHaveKeysOfTheirOwn) {
  const Graph graph = model_of("gpt:layers=2,hidden=8,heads=2,seq=4,vocab=16,dropout=0.1").graph;
  std::set<std::string> keys;
  std::vector<std::string> paths;
  for (const Op& op : graph.ops()) {
    if (op.kind != "dropout") continue;
    keys.insert(op.text("key"));
    paths.push_back(op.path);
    EXPECT_EQ(op.number("p"), 0.1);
  }
  EXPECT_EQ(keys.size(), 5U);
  EXPECT_EQ(paths, (std::vector<std::string>{"embed.dropout", "blocks.0.attn.dropout",
                                             "blocks.0.mlp.dropout", "blocks.1.attn.dropout",
                                             "blocks.1.mlp.dropout"}));
}

TEST(Llama, OpsHaveTheAgreedPathsAndNoBiases) {
  const Graph graph =
      model_of("llama:layers=1,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=16").graph;
  EXPECT_EQ(paths_of(graph), (std::vector<std::string>{"embed.token",
                                                       "blocks.0.ln_1",
                                                       "blocks.0.attn.q",
                                                       "blocks.0.attn.k",
                                                       "blocks.0.attn.v",
                                                       "blocks.0.attn.q_rotary",
                                                       "blocks.0.attn.k_rotary",
                                                       "blocks.0.attn.core",
                                                       "blocks.0.attn.out",
                                                       "blocks.0.attn.residual",
                                                       "blocks.0.ln_2",
                                                       "blocks.0.mlp.gate",
                                                       "blocks.0.mlp.act",
                                                       "blocks.0.mlp.up",
                                                       "blocks.0.mlp.mul",
                                                       "blocks.0.mlp.down",
                                                       "blocks.0.mlp.residual",
                                                       "final.ln",
                                                       "head",
                                                       "loss.cross_entropy",
                                                       "loss.token",
                                                       "loss.mean"}));
  for (const Tensor& tensor : graph.tensors()) EXPECT_FALSE(tensor.name.ends_with(".bias"));
  EXPECT_EQ(dims_of(graph, "rotary.cos"), "seq rotary_dim");
  EXPECT_EQ(dims_of(graph, "rotary.sin"), "seq rotary_dim");
  const Tensor& q = graph.tensor(graph.find_tensor("blocks.0.attn.q.weight"));
  EXPECT_EQ(q.shape(), (std::vector<int64_t>{8, 2, 2, 2}));  // hidden, key heads, group, head_dim
  EXPECT_EQ(dims_of(graph, "head.weight"), "vocab hidden");
}

TEST(Llama, LowRankFactorsAreAllThatIsTrained) {
  const std::string spec = "llama:layers=2,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=16";
  const Graph graph = model_of(spec + ",lora=3,lora_mlp=1").graph;
  std::set<std::string> trained;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && tensor.trained) trained.insert(tensor.name);
  }
  std::set<std::string> expected;
  for (const char* block : {"blocks.0", "blocks.1"}) {
    for (const char* name :
         {"attn.q", "attn.k", "attn.v", "attn.out", "mlp.gate", "mlp.up", "mlp.down"}) {
      for (const char* factor : {"lora_a", "lora_b"}) {
        expected.insert(std::string(block) + "." + name + "." + factor + ".weight");
      }
    }
  }
  EXPECT_EQ(trained, expected);
  EXPECT_EQ(dims_of(graph, "blocks.1.attn.q.lora_a.weight"), "hidden lora");
  EXPECT_EQ(dims_of(graph, "blocks.1.attn.q.lora_b.weight"), "lora heads group head_dim");
  EXPECT_EQ(dims_of(graph, "blocks.1.mlp.down.lora_a.weight"), "ffn lora");
  EXPECT_EQ(dims_of(graph, "blocks.1.attn.q.weight"), "hidden heads group head_dim");
  // The factors are only beside attention: the MLP has none.
  const Graph narrow = model_of(spec + ",lora=3").graph;
  EXPECT_TRUE(narrow.find_tensor("blocks.0.attn.out.lora_b.weight").valid());
  EXPECT_FALSE(narrow.find_tensor("blocks.0.mlp.up.lora_a.weight").valid());
  EXPECT_FALSE(narrow.tensor(narrow.find_tensor("blocks.0.mlp.up.weight")).trained);
  EXPECT_EQ(error_of(spec + ",lora_mlp=1"), "model 'llama': lora_mlp=1 wants a rank, as lora=16");
}

TEST(Llama, FineTuningHasStatesAndWideNumbersForItsFactorsAlone) {
  const Graph forward =
      model_of("llama:layers=1,hidden=8,heads=2,seq=4,vocab=16,ffn=16,lora=2").graph;
  const auto narrow = apply_precision(forward, DType::kBFloat16);
  ASSERT_TRUE(narrow) << narrow.error().message;
  const auto graph = differentiate(*narrow, OptimizerSpec{});
  ASSERT_TRUE(graph) << graph.error().message;
  for (const Tensor& tensor : graph->tensors()) {
    if (tensor.role == Role::kOptimizerState && tensor.of.valid()) {
      EXPECT_TRUE(graph->tensor(tensor.of).trained) << tensor.name;
    }
    if (tensor.role != Role::kParameter || tensor.update_of.valid()) continue;
    EXPECT_EQ(tensor.dtype, tensor.trained ? DType::kFloat32 : DType::kBFloat16) << tensor.name;
    EXPECT_EQ(graph->find_tensor("grad." + tensor.name).valid(), tensor.trained) << tensor.name;
  }
  // Tensors before the first factor have no gradient either.
  EXPECT_FALSE(graph->find_tensor("grad.embed.token").valid());
}

TEST(Mixtral, ABlockHasAMixtureOfExpertsForItsMlp) {
  const Model model = model_of("mixtral:layers=1,hidden=8,heads=4,seq=6,vocab=16,ffn=12,experts=4");
  std::vector<std::string> moe;
  for (const std::string& path : paths_of(model.graph)) {
    if (path.starts_with("blocks.0.moe.")) moe.push_back(path.substr(13));
  }
  EXPECT_EQ(moe, (std::vector<std::string>{"router", "probabilities", "route", "dispatch", "arrive",
                                           "gate", "act", "up", "mul", "down", "return", "combine",
                                           "balance", "aux", "loss_before", "losses", "residual"}));
  EXPECT_EQ(dims_of(model.graph, "blocks.0.moe.gate.weight"), "experts hidden ffn");
  EXPECT_EQ(dims_of(model.graph, "blocks.0.moe.down.weight"), "experts ffn hidden");
  EXPECT_EQ(dims_of(model.graph, "blocks.0.moe.router.weight"), "hidden experts");
  const Tensor& slots = model.graph.tensor(model.graph.find_tensor("blocks.0.moe.dispatch"));
  EXPECT_EQ(slots.shape(),
            (std::vector<int64_t>{4, 2, 4, 8}));  // capacity: 1.25 * 2 * 6 / 4 = 3.75
  EXPECT_EQ(model.graph.tensor(model.graph.loss).name, "loss.total");
  const Graph plain =
      model_of("mixtral:layers=1,hidden=8,heads=4,seq=6,vocab=16,ffn=12,experts=4,balance=0").graph;
  const Graph both =
      model_of("mixtral:layers=1,hidden=8,heads=4,seq=6,vocab=16,ffn=12,experts=4,z_loss=0.1")
          .graph;
  // The sum of the losses before, the load balance and the z-loss; loss.total adds it to loss.mean.
  const Tensor& losses = both.tensor(both.find_tensor("blocks.0.moe.losses"));
  EXPECT_EQ(both.op(losses.producer).inputs.size(), 3U);
  EXPECT_EQ(both.op(both.tensor(both.loss).producer).inputs,
            (std::vector<TensorId>{both.find_tensor("loss.mean"), losses.id}));
  EXPECT_EQ(plain.tensor(plain.loss).name, "loss.mean");
}

TEST(Mixtral, ExpertsMayWeighWhatTheyMake) {
  const Graph graph =
      model_of("mixtral:layers=1,hidden=8,heads=4,seq=6,vocab=16,ffn=12,experts=4,weigh_inside=1")
          .graph;
  const auto op = [&](std::string_view tensor) {
    return graph.op(graph.tensor(graph.find_tensor(tensor)).producer);
  };
  const Op weigh = op("blocks.0.moe.weigh");
  EXPECT_EQ(graph.tensor(weigh.inputs[1]).name, "blocks.0.moe.arrive_weight");
  EXPECT_EQ(dims_of(graph, "blocks.0.moe.arrive_weight"), "experts batch capacity");
  EXPECT_EQ(op("blocks.0.moe.combine").inputs.size(), 2U);
}

TEST(Mixtral, CapacityIsTheShareTimesTheFactorRoundedUpAndAtMostTheSequence) {
  MixtralConfig config;
  config.seq = 16;
  EXPECT_EQ(expert_capacity(config), 5);  // 1.25 * 2 * 16 / 8
  config.capacity_factor = 1.1;
  config.seq = 40;
  EXPECT_EQ(expert_capacity(config), 11);  // exactly, though 1.1 * 10 > 11 in floating point
  config.capacity_factor = 100;
  EXPECT_EQ(expert_capacity(config), 40);
  config.capacity_factor = 0.001;
  EXPECT_EQ(expert_capacity(config), 1);
}

// Returns the examples of all families.
std::vector<std::string> examples() {
  std::vector<std::string> specs;
  for (const ModelFamily& family : all_families())
    specs.insert(specs.end(), family.examples.begin(), family.examples.end());
  return specs;
}

TEST(Models, AllFamiliesVerifyInAllDtypesThatTrain) {
  for (const std::string& spec : examples()) {
    for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      const Model model = model_of(spec, 2, dtype);
      EXPECT_TRUE(model.graph.verify()) << model.graph.verify().error().message;
      for (const Tensor& tensor : model.graph.tensors()) {
        if (tensor.role == Role::kParameter) {
          EXPECT_EQ(tensor.dtype, dtype);
        }
      }
      EXPECT_EQ(model.graph.tensor(model.graph.loss).dtype,
                dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
      EXPECT_TRUE(differentiate(model.graph, OptimizerSpec{})) << spec;
      EXPECT_EQ(model_of(model.spec).graph, model.graph) << model.spec;
    }
  }
}

// Takes every model through precision, derivative, expansion of split norms, recomputation.
TEST(Models, GoThroughAllTransforms) {
  for (const std::string& spec : examples()) {
    const auto narrow = apply_precision(model_of(spec).graph, DType::kBFloat16);
    ASSERT_TRUE(narrow) << narrow.error().message;
    const auto training = differentiate(*narrow, OptimizerSpec{});
    ASSERT_TRUE(training) << training.error().message;
    std::vector<OpId> norms;
    for (const Op& op : training->ops()) {
      const bool norm = op.kind.find("_norm") != std::string::npos;
      if (norm && find_kind(op.kind)->expand != nullptr) norms.push_back(op.id);
    }
    const auto expanded = expand_ops(*training, norms);
    ASSERT_TRUE(expanded) << expanded.error().message;
    std::vector<TensorId> not_kept;
    for (const Tensor& tensor : expanded->tensors()) {
      if (glob_match("{blocks,layers,bottom,grids,decoder}.*", tensor.name))
        not_kept.push_back(tensor.id);
    }
    const auto recomputed = recompute_ops(*expanded, not_kept);
    ASSERT_TRUE(recomputed) << recomputed.error().message;
    EXPECT_GT(recomputed->ops().size(), expanded->ops().size()) << spec;
    const auto parsed = parse_graph(to_text(*recomputed));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, *recomputed) << spec;
  }
}

// Returns the elements of the optimizer's states that belong to the parameter.
int64_t state_elements(const Graph& training, const std::string& parameter) {
  int64_t elements = 0;
  for (const Tensor& tensor : training.tensors()) {
    const bool state = tensor.role == Role::kOptimizerState && !tensor.update_of.valid();
    if (state && tensor.of.valid() && training.tensor(tensor.of).name == parameter)
      elements += tensor.elements();
  }
  return elements;
}

TEST(Models, OptimizersGoByThePublishedShape) {
  // Gives by parameter how it is published, and how many numbers Adafactor keeps for it.
  const struct {
    const char *model, *parameter, *published;
    int64_t states;
    bool decays;
  } cases[] = {
      {"gpt:layers=1,hidden=64,heads=4,seq=4,vocab=8", "blocks.0.attn.q.weight",
       "hidden (heads group head_dim)", 64 + 64, true},
      {"gpt:layers=1,hidden=64,heads=4,seq=4,vocab=8", "blocks.0.attn.k.bias", "(heads head_dim)",
       64, false},
      {"gpt:layers=1,hidden=64,heads=4,seq=4,vocab=8", "blocks.0.attn.out.weight",
       "(heads group head_dim) hidden", 64 + 64, true},
      {"llama:layers=1,hidden=16,heads=4,kv_heads=2,seq=4,vocab=8,ffn=20,qkv_bias=1",
       "blocks.0.attn.q.weight", "(heads group head_dim) hidden", 16 + 16, true},
      {"llama:layers=1,hidden=16,heads=4,kv_heads=2,seq=4,vocab=8,ffn=20,qkv_bias=1",
       "blocks.0.attn.v.bias", "(heads head_dim)", 8, false},
      {"llama:layers=1,hidden=16,heads=4,kv_heads=2,seq=4,vocab=8,ffn=20,lora=3",
       "blocks.0.attn.q.lora_b.weight", "(heads group head_dim) lora", 16 + 3, true},
      {"bert:layers=1,hidden=12,heads=4,seq=4,vocab=8", "blocks.0.attn.q.bias",
       "(heads group head_dim)", 12, false},
      {"vit:layers=1,hidden=12,heads=4,image=8,patch=4,channels=3,classes=5", "embed.patch.weight",
       "hidden channels y x", 12 * 3 * 4 + 12 * 3 * 4, true},
      {"vit:layers=1,hidden=12,heads=4,image=8,patch=4,channels=3,classes=5",
       "embed.position.weight", "() seq hidden", 5 + 12, true},
      {"vit:layers=1,hidden=12,heads=4,image=8,patch=4,channels=3,classes=5",
       "blocks.0.attn.v.bias", "(heads head_dim)", 12, false},
      {"mixtral:layers=1,hidden=8,heads=2,kv_heads=1,experts=4,seq=4,vocab=6,ffn=6",
       "blocks.0.moe.up.weight", "experts ffn hidden", 4 * 6 + 4 * 8, true},
      {"nemotron_h:pattern=M,hidden=8,heads=2,kv_heads=2,seq=4,vocab=6,ssm_heads=4,ssm_head_dim=2,"
       "ssm_groups=2,state=3,chunk=2",
       "blocks.0.ssm.a_exp.weight", "(heads group)", 4, false},
      {"nemotron_h:pattern=M,hidden=8,heads=2,kv_heads=2,seq=4,vocab=6,ssm_heads=4,ssm_head_dim=2,"
       "ssm_groups=2,state=3,chunk=2,conv=4",
       "blocks.0.ssm.x_conv.weight", "(heads group head_dim) () taps", 8 + 8 * 4, true},
      {"ga_planes:training=nonconvex,hidden=8", "decoder.out.weight", "() units", 0, true},
  };
  for (const auto& [spec, parameter, published, states, decays] : cases) {
    OptimizerSpec adafactor, adamw;
    adafactor.kind = "adafactor";
    const Model model = model_of(spec);
    const TensorId id = model.graph.find_tensor(parameter);
    ASSERT_TRUE(id.valid()) << spec << " " << parameter;
    EXPECT_EQ(published_text(model.graph.tensor(id)), published) << parameter;
    const auto factored = differentiate(model.graph, adafactor);
    ASSERT_TRUE(factored) << spec << ": " << factored.error().message;
    const int64_t units = model.graph.tensor(id).elements();
    EXPECT_EQ(state_elements(*factored, parameter), states > 0 ? states : units + 1) << parameter;
    const auto trained = differentiate(model.graph, adamw);
    ASSERT_TRUE(trained) << spec << ": " << trained.error().message;
    for (const Op& op : trained->ops()) {
      if (op.path != std::string("optimizer.") + parameter) continue;
      EXPECT_EQ(op.number("weight_decay"), decays ? 0.1 : 0) << parameter;
    }
  }
}

TEST(Models, SaySequenceVocabularyAndACompleteSpec) {
  const Model model = model_of(" gpt:layers=1,hidden=8,heads=2,seq=4,vocab=16 ", 3);
  EXPECT_EQ(model.family, "gpt");
  EXPECT_EQ(model.batch, 3);
  EXPECT_EQ(model.seq, 4);
  EXPECT_EQ(model.vocab, 16);
  EXPECT_EQ(model.spec,
            "gpt:layers=1,hidden=8,heads=2,kv_heads=2,seq=4,vocab=16,ffn=32,dropout=0,"
            "attention_dropout=0,window=0,eod=-1,tied=1,"
            "eps=1e-05,causal=1,activation=gelu,dtype=float32");
  EXPECT_EQ(model_of(model.spec, 3).graph, model.graph);
}

TEST(Models, TheDtypeArgumentGoesBeforeTheKey) {
  const Model model = model_of("gpt:layers=1,hidden=8,heads=2,dtype=bfloat16", 2, DType::kFloat64);
  EXPECT_EQ(model.graph.tensor(model.graph.find_tensor("embed.token.weight")).dtype,
            DType::kFloat64);
}

TEST(Models, AreBuiltInWellBelowASecond) {
  const auto start = std::chrono::steady_clock::now();
  const Model model = model_of("gpt:layers=96,hidden=12288,heads=96,seq=2048", 1);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(model.graph.ops().size(), 2 + 96 * 12 + 5U);
  // Generous for sanitizers and busy machines; about 0.05 s otherwise.
  EXPECT_LT(elapsed.count(), 5.0);
}

// The factors of the first list hold up to the positions that stand in front, those of the second beyond.
TEST(Models, FactorsOfRotaryFrequenciesFollowTheLengthOfSequences) {
  const std::string llama =
      "llama:layers=1,hidden=16,heads=4,vocab=16,rope_factors=8/1.25/1-1.5/"
      "2.5-1.0800000429153442,seq=";
  const auto sizes = [&](const char* seq) {
    const Model model = model_of(llama + seq);
    return model.graph.tensor(model.graph.find_tensor("rotary.cos")).init.sizes;
  };
  EXPECT_EQ(sizes("8"),
            (std::vector<int64_t>{0, 1250000000000000, 1000000000000000, 1500000000000000}));
  EXPECT_EQ(sizes("9"),
            (std::vector<int64_t>{0, 1250000000000000, 2500000000000000, 1080000042915344}));
  for (const char* wrong :
       {"8/1/1-1", "8/1/1-1/1-1-1", "0/1/1-1/1-1", "8/1-2/1-1/1-1", "8/1/1-0/1-1", "x"}) {
    EXPECT_EQ(error_of("llama:layers=1,hidden=16,heads=4,rope_factors=" + std::string(wrong)),
              "model 'llama': rope_factors must be positions/amplitude/short/long, where short and "
              "long are 2 numbers from 0.001 to 9000 joined by '-', and goes without rope_scaling")
        << wrong;
  }
  EXPECT_NE(error_of("llama:layers=1,hidden=16,heads=4,rope_scaling=2,rope_factors=8/1/1-1/1-1")
                .find("goes without rope_scaling"),
            std::string::npos);
}

TEST(Models, AMixtureMayHaveDenseBlocksAlone) {
  const Model model = model_of("mixtral:layers=2,hidden=16,heads=4,vocab=16,seq=4,dense_layers=3");
  for (const Op& op : model.graph.ops()) EXPECT_EQ(op.path.find("moe"), std::string::npos);
  EXPECT_EQ(model.graph.tensor(model.graph.loss).name, "loss.mean");
}

TEST(Models, OfAMixtureADepthOfFurtherTokensIsABlockBehindTheOthers) {
  const Model model = model_of(
      "mixtral:layers=2,hidden=16,heads=4,vocab=16,seq=4,dense_layers=2,mtp=2,balance=0.5");
  const auto made_of = [&](const char* tensor, size_t input) {
    const Graph& graph = model.graph;
    return graph.tensor(graph.op(graph.tensor(graph.find_tensor(tensor)).producer).inputs[input])
        .name;
  };
  EXPECT_EQ(made_of("blocks.mtp_0.state_norm.y", 0), "final.ln.y");
  EXPECT_EQ(made_of("blocks.mtp_1.state_norm.y", 0), "final.mtp_0.y");
  EXPECT_EQ(made_of("head.mtp_1", 0), "final.mtp_1.y");
  EXPECT_EQ(made_of("blocks.mtp_1.moe.loss_before", 0), "blocks.mtp_0.moe.losses");
  EXPECT_EQ(model.graph.op(model.graph.tensor(model.graph.loss).producer).inputs.size(), 4U);
  EXPECT_EQ(model.text, 4 + 1 + 2);
  EXPECT_EQ(model.inputs.back().input, "targets_2");
  EXPECT_EQ(error_of("llama:mtp=1,logit_cap=30"),
            "model 'llama': mtp goes without embed_scale and logit_cap");
}

TEST(ModelErrors, NameTheModelAndTheKey) {
  EXPECT_EQ(
      error_of("gpt:layer=2"),
      "model 'gpt': unknown key 'layer', did you mean 'layers'? (keys: layers, hidden, heads, "
      "kv_heads, seq, vocab, ffn, dropout, attention_dropout, window, eod, tied, eps, causal, "
      "activation, dtype)");
  EXPECT_EQ(error_of("gpt:hidden=100,heads=3"),
            "model 'gpt': hidden=100 must be a multiple of heads=3");
  EXPECT_EQ(error_of("gpt:layers=0"),
            "model 'gpt': layers must be an integer from 1 to 1000000000, found '0'");
  EXPECT_EQ(error_of("gpt:layers=-2"),
            "model 'gpt': layers must be an integer from 1 to 1000000000, found '-2'");
  EXPECT_EQ(error_of("gpt:layers=two"),
            "model 'gpt': layers must be an integer from 1 to 1000000000, found 'two'");
  EXPECT_EQ(error_of("gpt:eps=-1"), "model 'gpt': eps must be a number of at least 0, found '-1'");
  EXPECT_EQ(error_of("gpt:dropout=1"), "model 'gpt': dropout=1 must be below 1");
  EXPECT_EQ(error_of("gpt:tied=2"), "model 'gpt': tied must be 0 or 1, found '2'");
  EXPECT_EQ(error_of("gpt:activation=tanh"),
            "model 'gpt': activation must be one of gelu, gelu_erf, relu, silu, found 'tanh'");
  EXPECT_EQ(error_of("gpt:dtype=int64"),
            "model 'gpt': dtype must be one of float64, float32, bfloat16, float16, found 'int64'");
  EXPECT_EQ(error_of("gpt:12"), "model 'gpt': expected key=value, found '12'");
  EXPECT_EQ(error_of("gpt:layers=1,layers=2"), "'gpt:layers=1,layers=2': 'layers' is given twice");
  EXPECT_EQ(error_of("llama:heads=6,kv_heads=4"),
            "model 'llama': heads=6 must be a multiple of kv_heads=4");
  EXPECT_EQ(error_of("llama:hidden=6,heads=2"),
            "model 'llama': head_dim=3 must be even (rotary positions)");
  EXPECT_EQ(error_of("mixtral:heads=6,kv_heads=4"),
            "model 'mixtral': heads=6 must be a multiple of kv_heads=4");
  EXPECT_EQ(error_of("mixtral:experts=4,top_k=5"),
            "model 'mixtral': top_k=5 must be at most experts=4");
  EXPECT_EQ(error_of("mixtral:capacity_factor=0"),
            "model 'mixtral': capacity_factor=0 must be above 0");
  EXPECT_EQ(
      error_of("mixtral:seq=100000000,hidden=1000,heads=10,experts=1000000,capacity_factor=1e6"),
      "model 'mixtral': batch=2 and experts=1000000 are too large for these sizes: a tensor "
      "would have more than 2^56 elements");
}

TEST(ModelErrors, UnknownModelsAndImpossibleSizes) {
  EXPECT_EQ(error_of("gtp:layers=2"),
            "unknown model 'gtp', did you mean 'gpt'? (a model is family:key=value, a "
            "config.json, .graph or .pt2, a folder with one, or a published name; tessera inspect "
            "--models)");
  EXPECT_EQ(error_of("gpt", 0), "expected a batch of at least 1, found 0");
  EXPECT_EQ(error_of("gpt:seq=1000000000", 1'000'000'000),
            "model 'gpt': batch=1000000000 is too large for these sizes: a tensor would have more "
            "than 2^56 elements");
  EXPECT_EQ(error_of("llama:heads=200000000,head_dim=200000000"),
            "model 'llama': batch=2 is too large for these sizes: a tensor would have more than "
            "2^56 elements");
  EXPECT_EQ(error_of("gpt:layers=1000000"), "model 'gpt': layers=1000000 must be at most 10000");
}

TEST(ModelHelp, ListsFamiliesKeysAndDefaults) {
  const std::string help = model_help();
  std::vector<std::string> parts = {"4 * hidden", "config.json", "50257",
                                    "gelu, gelu_erf, relu, silu"};
  for (const ModelFamily& family : all_families()) {
    parts.push_back("\n" + family.name + ": " + family.summary + "\n");
    for (const ModelKeyText& key : family.keys) parts.push_back("  " + key.name + " ");
  }
  for (const std::string& part : parts) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
}

class HuggingFace : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("tessera_model_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "config.json").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string& write(std::string_view text) {
    EXPECT_TRUE(write_file(path_, text));
    return path_;
  }
  std::string error(std::string_view text) { return error_of(write(text)); }
  std::filesystem::path folder_;
  std::string path_;
};

constexpr std::string_view kLlama =
    R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": null, "hidden_act": "silu", "attention_bias": false,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16")";

TEST_F(HuggingFace, Gpt2) {
  const Model model = model_of(write(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024, "n_embd": 768,
          "n_layer": 12, "n_head": 12, "n_inner": null, "activation_function": "gelu_new",
          "layer_norm_epsilon": 1e-05, "resid_pdrop": 0.1})"));
  EXPECT_EQ(parameter_count(model.graph), 124'439'808);
  EXPECT_EQ(model.graph, model_of("gpt").graph);
}

TEST_F(HuggingFace, LlamaInBothSpellings) {
  const Model model = model_of(write(std::string(kLlama) + "}"));
  EXPECT_EQ(parameter_count(model.graph), 8'030'261'248);
  EXPECT_EQ(model.graph.tensor(model.graph.find_tensor("rotary.cos")).init,
            (Init{Init::Kind::kRotaryCos, 500000}));
  const Model newer =
      model_of(write(R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
                "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05,
                "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})"));
  EXPECT_EQ(newer.graph, model.graph);
}

TEST_F(HuggingFace, MistralWithAndWithoutItsWindow) {
  const std::string mistral =
      R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096,
          "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": )";
  EXPECT_EQ(parameter_count(model_of(write(mistral + "null}")).graph), 7'241'732'096);
  const auto window = [&](const std::string& value) {
    const Graph graph = model_of(write(mistral + value + "}")).graph;
    const TensorId core = graph.find_tensor("blocks.31.attn.core.o");
    return core.valid() ? graph.op(graph.tensor(core).producer).integer("window") : -1;
  };
  EXPECT_EQ(window("null"), 0);
  EXPECT_EQ(window("4096"), 4096);
  EXPECT_EQ(window("32768"), 0) << "of all positions";
  const auto longer = build_model(write(mistral + "32768}") + ":seq=65536,layers=1", 1);
  ASSERT_TRUE(longer) << longer.error().message;
  EXPECT_NE(longer->spec.find(",window=32768,"), std::string::npos) << longer->spec;
}

TEST_F(HuggingFace, Mixtral) {
  const std::string_view mixtral =
      R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
          "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
          "rope_theta": 1000000.0, "sliding_window": null, "hidden_act": "silu",
          "num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": false,
          "router_aux_loss_coef": 0.02, "tie_word_embeddings": false)";
  const Model model = model_of(write(std::string(mixtral) + "}"));
  EXPECT_EQ(parameter_count(model.graph), 46'702'792'704);  // Mixtral 8x7B
  EXPECT_EQ(
      model.spec,
      "mixtral:layers=32,hidden=4096,heads=32,kv_heads=8,head_dim=128,seq=32768,vocab=32000,"
      "ffn=14336,q_rank=0,kv_rank=0,rope_dim=0,value_dim=0,lora=0,lora_mlp=0,qkv_bias=0,out_bias=0,"
      "qk_norm=0,qk_norm_over=head,sinks=0,attn_gate=0,window=0,chunk=0,full_every=0,delta_heads=0,"
      "delta_value_heads=0,delta_head_dim=128,delta_value_dim=128,delta_conv=4,norms=before,"
      "norms_shifted=0,"
      "embed_scale=1,score_scale=0,score_cap=0,logit_cap=0,activation=silu,gated=1,eod=-1,"
      "theta=1000000,rope_scaling=1,rope_factors=1,rotary_dim=0,rotary_pairs=halves,window_theta=0,"
      "unturned_every=0,scores_rise_at=0,scores_rise=0.1,mtp=0,mtp_loss=0.3,tied=0,eps=1e-05,"
      "experts=8,top_k=2,normalize=1,capacity_"
      "factor=4,"
      "shared_ffn=0,shared_gate=0,latent=0,dense_layers=0,experts_every=1,dense_ffn=0,balance=0,z_"
      "loss=0,"
      "weigh_inside=0,weigh_before=0,router=softmax,router_bias=0,choice_bias=0,groups=1,"
      "top_groups=1,group_best=1,route_scale=1,expert_bias=0,gate_limit=0,gate_alpha=1,up_shift=0,"
      "dtype=float32");
  EXPECT_EQ(error(std::string(mixtral) + R"(, "router_jitter_noise": 0.1})"),
            path_ + ": router_jitter_noise 0.1 is not supported (supported: 0.0)");
}

TEST_F(HuggingFace, KeysAfterThePathWin) {
  const Model model = model_of(write(std::string(kLlama) + "}") + ":seq=128,layers=2");
  EXPECT_EQ(model.seq, 128);
  EXPECT_EQ(model.graph.find_tensor("blocks.2.ln_1"), TensorId());
}

TEST_F(HuggingFace, OfASpecTheFileAloneIsNamed) {
  EXPECT_EQ(config_file_of("x/config.json"), "x/config.json");
  EXPECT_EQ(config_file_of(" x/config.json:seq=8,layers=2"), "x/config.json");
  EXPECT_EQ(config_file_of("gpt:layers=2"), "");
}

// Each message quotes a name of another kind: shortened, on one line.
TEST_F(HuggingFace, MessagesQuoteOneLineOfTheFile) {
  EXPECT_EQ(error(R"({"model_type": "a\nb"})").find('\n'), std::string::npos);
  EXPECT_LT(error(R"({"model_type": ")" + std::string(10'000, 'x') + "\"}").size(), 500U);
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(error(std::string(kLlama) + R"(, "hidden_act": )" + deep + "}"),
            path_ + ": expected a JSON object (a Hugging Face config.json)");
}

TEST_F(HuggingFace, WhatHasNoCounterpartIsAnError) {
  const std::string llama(kLlama);
  const std::string known =
      "gpt2, llama, mistral, mixtral, qwen2, qwen3, bert, vit, t5, phi3, olmo2, smollm3, gemma2, "
      "gemma3_text, glm4, qwen3_moe, deepseek_v3, glm4_moe, gpt_oss, llama4_text, mamba2, "
      "qwen3_next, deepseek_v2, nemotron";
  EXPECT_EQ(error(R"({"model_type": "opt"})"),
            path_ + ": model_type 'opt' is not supported, the nearest is 'gpt2' (supported: " +
                known + ")");
  EXPECT_EQ(error("{}"),
            path_ + ": expected the key model_type with one of " + known + ", found none");
  EXPECT_EQ(error(R"({"model_type": 3})"),
            path_ + ": expected the key model_type with one of " + known + ", found no text");
  EXPECT_EQ(error("[1"), path_ + ": expected a JSON object (a Hugging Face config.json)");
  EXPECT_EQ(error(llama + R"(, "mlp_bias": true})"),
            path_ + ": mlp_bias true is not supported (supported: false)");
  EXPECT_EQ(error(llama + R"(, "rope_parameters": {"rope_type": "dynamic", "factor": 8.0}})"),
            path_ +
                ": expected a model that can be computed exactly, found one that is approximated: "
                "rotary frequencies are not scaled (rope_type \"dynamic\") (planning takes it: "
                "inspect, simulate, plan, report, export of plans)");
  EXPECT_EQ(error(llama + R"(, "rope_parameters": {"rope_type": "mrope"}})"),
            path_ +
                ": rope_type \"mrope\" is not supported (supported: \"default\", \"linear\", "
                "\"llama3\", \"yarn\", \"longrope\", \"su\", \"dynamic\")");
  const std::string factors = R"(, "rope_parameters": {"rope_type": "longrope", "short_factor": )";
  EXPECT_EQ(error(llama + factors + R"([1.0, "x"], "long_factor": [1.0]}})"),
            path_ +
                ": rope_parameters: expected lists short_factor and long_factor of numbers and "
                "original_max_position_embeddings of at least 2");
  EXPECT_EQ(error(llama + R"(, "rope_parameters": {"rope_type": "linear", "factor": 2.5}})"),
            path_ + ": rope_parameters: factor must be a whole number of at least 1");
  EXPECT_EQ(error(llama + R"(, "hidden_act": "tanh"})"),
            path_ +
                ": hidden_act \"tanh\" is not supported (supported: \"gelu_new\", "
                "\"gelu_pytorch_tanh\", \"gelu\", \"relu\", \"relu2\", \"silu\", \"swish\")");
  EXPECT_EQ(error(llama + R"(, "num_hidden_layers": "many"})"),
            path_ + ": num_hidden_layers must be a number, found \"many\"");
  EXPECT_EQ(error_of("/no/such/config.json"),
            "cannot read '/no/such/config.json': No such file or directory");
}

}  // namespace
}  // namespace tessera::model_test
