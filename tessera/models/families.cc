#include "tessera/models/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/graph/carried.h"
#include "tessera/models/contract.h"
#include "tessera/models/language/bert.h"
#include "tessera/models/language/gpt.h"
#include "tessera/models/language/llama.h"
#include "tessera/models/language/mixtral.h"
#include "tessera/models/language/nemotron_h.h"
#include "tessera/models/language/t5.h"
#include "tessera/models/mlp.h"
#include "tessera/models/recommenders/dhen.h"
#include "tessera/models/recommenders/dlrm.h"
#include "tessera/models/recommenders/imam.h"
#include "tessera/models/science/cosmoflow.h"
#include "tessera/models/science/evoformer.h"
#include "tessera/models/science/ga_planes.h"
#include "tessera/models/science/smc.h"
#include "tessera/models/science/unet3d.h"
#include "tessera/models/vision/alexnet.h"
#include "tessera/models/vision/mobilenet_v2.h"
#include "tessera/models/vision/resnet.h"
#include "tessera/models/vision/swin.h"
#include "tessera/models/vision/vgg.h"
#include "tessera/models/vision/vit.h"

namespace tessera {
namespace {

// Checks that element counts stay below 2^63. The largest tensors have positions x width or width x
// width elements.
Status check_sizes(std::string_view family, const std::vector<ModelKey>& keys, int64_t batch) {
  constexpr double kMaxElements = 0x1p56;
  constexpr int64_t kMaxLayers = 10'000;
  double widest = 1, seq = 1, query = 1;
  for (const ModelKey& key : keys) {
    const auto* size = std::get_if<int64_t*>(&key.target);
    if (size == nullptr) continue;
    if (key.name == "layers" && **size > kMaxLayers) {
      return model_error(family, fmt::format("layers={} must be at most {}", **size, kMaxLayers));
    }
    if (key.name == "heads" || key.name == "head_dim") query *= static_cast<double>(**size);
    if (key.name == "seq" || key.name == "source" || key.name == "sequences") {
      seq *= static_cast<double>(**size);
    } else if (key.name == "image" || key.name == "residues") {
      seq *= static_cast<double>(**size) * static_cast<double>(**size);
    } else {
      widest = std::max(widest, static_cast<double>(**size));
    }
  }
  widest = std::max(widest, query);
  if (static_cast<double>(batch) * seq * widest > kMaxElements || widest * widest > kMaxElements) {
    return model_error(family,
                       fmt::format("batch={} is too large for these sizes: a tensor would have "
                                   "more than 2^56 elements",
                                   batch));
  }
  return {};
}

// The samples of a model, which the Model describes in addition to the graph.
struct Samples {
  int64_t seq = 1, classes = 1, text = 0;
  std::vector<InputRule> inputs = {};
};

// Describes samples of text with `further` tokens more than the targets have. Each of the inputs targets_1,
// targets_2, .. is one position further than the targets before it.
Samples further_samples(int64_t seq, int64_t vocab, int64_t further) {
  const int64_t row = seq + 1 + further;
  Samples samples = {seq, vocab, row, {}};
  if (further == 0) return samples;
  samples.inputs = {{"tokens", vocab, "tokens", row, 0}, {"targets", vocab, "tokens", row, 1}};
  for (int64_t depth = 1; depth <= further; ++depth)
    samples.inputs.push_back({fmt::format("targets_{}", depth), vocab, "tokens", row, 1 + depth});
  return samples;
}

// Describes samples of one token more than the sequence has. The first tokens are the input, and
// the targets are all tokens except the first. If a token ends documents, a further input has the
// number of each token's document.
template <class Config>
Samples samples_of_text(const Config& config, int64_t further = 0) {
  Samples samples = further_samples(config.seq, config.vocab, further);
  if (config.eod < 0) return samples;
  InputRule rule = {std::string(kDocuments), config.vocab, "tokens", samples.text};
  rule.boundary = config.eod;
  samples.inputs.push_back(std::move(rule));
  return samples;
}
Samples samples_of(const GptConfig& config) { return samples_of_text(config); }
Samples samples_of(const LlamaConfig& config) { return samples_of_text(config, config.mtp); }
Samples samples_of(const MixtralConfig& config) { return samples_of_text(config, config.mtp); }
// Describes samples of clicks. The ids of each table are drawn from a stream of their own.
Samples samples_of_clicks(const RecommenderConfig& config) {
  Samples samples = {1, 2};
  for (size_t f = 0; f < config.rows.size(); ++f) {
    InputRule rule = {fmt::format("ids.{}", f), config.rows[f], fmt::format("ids.{}", f),
                      config.bags[f]};
    if (config.bags[f] > 1) rule.mask = InputRule::Mask::kBag;
    samples.inputs.push_back(std::move(rule));
  }
  samples.inputs.push_back({"targets", 2, "targets", 1});
  return samples;
}
Samples samples_of(const DlrmConfig& config) { return samples_of_clicks(config); }
Samples samples_of(const DhenConfig& config) { return samples_of_clicks(config); }
Samples samples_of(const MlpConfig& config) { return {1, config.out}; }

// Returns the rules of the masked tokens and of their targets. Both are made from the same stream.
std::vector<InputRule> masked_tokens(int64_t vocab, int64_t mask_token, int64_t positions,
                                     int64_t masked) {
  InputRule rule = {"tokens", vocab, "tokens", positions, 0, InputRule::Mask::kHide, masked};
  rule.mask_token = mask_token;
  InputRule targets = rule;
  targets.input = "targets";
  targets.mask = InputRule::Mask::kKeep;
  return {rule, targets};
}

Samples samples_of(const BertConfig& config) {
  Samples samples = {config.seq, config.vocab, config.seq,
                     masked_tokens(config.vocab, config.mask, config.seq, config.masked)};
  samples.inputs.push_back({"segments", config.types, "segments", config.seq});
  return samples;
}

Samples samples_of(const NemotronHConfig& config) {
  return further_samples(config.seq, config.vocab, config.mtp);
}

// Describes samples of text. The decoder continues the text where the source ends.
Samples samples_of(const T5Config& config) {
  const int64_t row = config.source + config.seq;
  return {config.seq,
          config.vocab,
          row,
          {{"source", config.vocab, "tokens", row, 0},
           {"tokens", config.vocab, "tokens", row, config.source - 1},
           {"targets", config.vocab, "tokens", row, config.source}}};
}

int64_t squared(int64_t x) { return x * x; }

Samples samples_of(const VitConfig& config) {
  return {squared(config.image / config.patch) + (config.pool == "class" ? 1 : 0), config.classes};
}
Samples samples_of(const SwinConfig& config) {
  return {squared(config.image / config.patch), config.classes};
}
Samples samples_of(const ResnetConfig& config) { return {1, config.classes}; }
Samples samples_of(const SmcConfig& config) { return {1, config.classes}; }
Samples samples_of(const VggConfig& config) { return {1, config.classes}; }
Samples samples_of(const AlexnetConfig& config) { return {1, config.classes}; }
Samples samples_of(const MobilenetV2Config& config) { return {1, config.classes}; }
Samples samples_of(const CosmoflowConfig& config) { return {1, config.outputs}; }
// Describes samples whose targets are numbers, so that there are no classes.
Samples samples_of(const GaPlanesConfig&) { return {1, 2}; }
// Describes samples of shapes by their tokens, which the transformer predicts. The targets of the
// other parts are numbers.
Samples samples_of(const ImamConfig& config) {
  Samples samples = {config.tokens(), config.codes, 0, {}};
  for (const char* tokens : {"tokens", "targets"})
    samples.inputs.push_back({tokens, config.codes, "tokens", config.tokens()});
  samples.inputs.push_back({"classes", config.classes, "classes", 1});
  return samples;
}
Samples samples_of(const Unet3dConfig& config) { return {1, config.classes}; }

Samples samples_of(const EvoformerConfig& config) {
  Samples samples = {config.residues, config.vocab, 0,
                     masked_tokens(config.vocab, config.vocab - 1,
                                   config.sequences * config.residues, config.masked)};
  samples.inputs.push_back({"sequence", config.vocab, "sequence", config.residues});
  samples.inputs.push_back({"distances", config.bins, "distances", squared(config.residues)});
  return samples;
}

// A row of the table of families below. `complete` computes the values that the keys leave open and
// checks that the sizes fit together. `build` makes the forward graph.
template <class Config>
struct Row {
  std::string name, summary;
  std::vector<ModelKey> (*keys)(Config&);
  Status (*complete)(Config&);
  Result<Graph> (*build)(const Config&, int64_t batch);
  Samples (*samples)(const Config&);
  std::vector<std::string> examples;
  bool predicts_clicks = false;
};

template <class Config>
Result<Model> build_row(const Row<Config>& row, const ModelArguments& arguments, int64_t batch,
                        std::optional<DType> dtype) {
  Config config;
  const std::vector<ModelKey> keys = row.keys(config);
  TESSERA_TRY_VOID(set_keys(row.name, keys, arguments));
  if (dtype) config.dtype = *dtype;
  TESSERA_TRY_VOID(check_sizes(row.name, keys, batch));
  TESSERA_TRY_VOID(row.complete(config));
  Model model;
  TESSERA_TRY(model.graph, row.build(config, batch));
  TESSERA_TRY(model.graph, with_updates_last(std::move(model.graph)));
  if (auto status = check_contract(model.graph); !status)
    return model_error(row.name, status.error().message);
  model.family = row.name;
  model.spec = canonical_spec(row.name, keys);
  model.batch = batch;
  Samples samples = row.samples(config);
  model.seq = samples.seq;
  model.vocab = samples.classes;
  model.text = samples.text;
  model.inputs = std::move(samples.inputs);
  return model;
}

template <class Config>
ModelFamily family(Row<Config> row) {
  Config config;
  ModelFamily out{row.name,     row.summary, key_texts(row.keys(config)),
                  row.examples, nullptr,     row.predicts_clicks};
  out.build = [row = std::move(row)](const ModelArguments& arguments, int64_t batch,
                                     std::optional<DType> dtype) {
    return build_row(row, arguments, batch, dtype);
  };
  return out;
}

std::vector<ModelFamily> make_families() {
  return {
      family<GptConfig>({"gpt",
                         "GPT-2",
                         model_keys,
                         complete,
                         build_gpt,
                         samples_of,
                         {"gpt:layers=2,hidden=8,heads=2,seq=4,vocab=16",
                          "gpt:layers=2,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,dropout=0.1,"
                          "tied=0,causal=0,activation=relu"}}),
      family<LlamaConfig>({"llama",
                           "Llama 1 to 3, Mistral, Qwen 2 and 3, OLMo 2, Gemma",
                           model_keys,
                           [](LlamaConfig& config) { return complete(config); },
                           build_llama,
                           samples_of,
                           {"llama:layers=2,hidden=8,heads=2,seq=4,vocab=16",
                            "llama:layers=2,hidden=8,heads=2,seq=4,vocab=16,q_rank=4,kv_rank=4",
                            "llama:layers=2,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,qkv_bias=1,"
                            "out_bias=1,qk_norm=1,norms=both,activation=gelu,window=2,full_every=2",
                            "llama:layers=2,hidden=8,heads=2,seq=4,vocab=16,lora=2,lora_mlp=1"}}),
      family<MixtralConfig>(
          {"mixtral",
           "Llama with a mixture of experts as MLP",
           model_keys,
           complete,
           build_mixtral,
           samples_of,
           {"mixtral:layers=2,hidden=8,heads=2,seq=4,vocab=16,ffn=8,experts=4",
            "mixtral:layers=3,hidden=8,heads=2,seq=4,vocab=16,ffn=8,experts=4,shared_ffn=8,"
            "latent=4,dense_layers=1,z_loss=0.1,weigh_inside=1",
            "mixtral:layers=2,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=8,experts=4,"
            "shared_ffn=8,shared_gate=1,attn_gate=1,qk_norm=1,norms_shifted=1,delta_heads=2,"
            "delta_value_heads=4,delta_head_dim=3,delta_value_dim=4,full_every=2"}}),
      family<NemotronHConfig>(
          {"nemotron_h",
           "state space, attention, MLP and experts in a pattern",
           model_keys,
           complete,
           build_nemotron_h,
           samples_of,
           {"nemotron_h:pattern=M*-E,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=16,"
            "ssm_heads=4,ssm_head_dim=2,ssm_groups=2,state=6,chunk=2,experts=4",
            "nemotron_h:pattern=M-,hidden=8,heads=4,kv_heads=2,seq=4,vocab=16,ffn=16,"
            "ssm_heads=4,ssm_head_dim=2,ssm_groups=2,state=6,chunk=2,mtp=2,experts=4"}}),
      family<BertConfig>({"bert",
                          "BERT with its masked-token loss",
                          model_keys,
                          complete,
                          build_bert,
                          samples_of,
                          {"bert:layers=2,hidden=16,heads=2,seq=8,vocab=17"}}),
      family<T5Config>(
          {"t5",
           "encoder-decoder like T5, with relative positions",
           model_keys,
           complete,
           build_t5,
           samples_of,
           {"t5:layers=2,hidden=16,heads=2,source=6,seq=4,vocab=17",
            "t5:layers=2,hidden=16,heads=2,source=6,seq=4,vocab=17,gated=1,activation=gelu,"
            "scaled_scores=0,scaled_head=1"}}),
      family<VitConfig>({"vit",
                         "vision transformer, classification",
                         model_keys,
                         complete,
                         build_vit,
                         samples_of,
                         {"vit:layers=2,hidden=16,heads=2,image=8,patch=4,classes=5",
                          "vit:layers=2,hidden=16,heads=2,image=8,patch=4,classes=5,pool=mean"}}),
      family<SwinConfig>(
          {"swin",
           "window transformer like Swin, classification",
           model_keys,
           complete,
           build_swin,
           samples_of,
           {"swin:depths=2-2,hidden=8,heads=2,image=16,patch=2,window=2,classes=5"}}),
      family<ResnetConfig>(
          {"resnet",
           "residual convolutional network, classification",
           model_keys,
           complete,
           build_resnet,
           samples_of,
           {"resnet:layers=18,width=4,image=32,classes=5,ghost=2",
            "resnet:layers=50,width=4,image=32,classes=5,ghost=1",
            "resnet:layers=18,width=4,image=32,classes=5,ghost=2,running=0.9",
            "resnet:layers=50,width=4,widen=2,image=32,classes=5,ghost=1",
            "resnet:form=cifar,layers=10,width=2,widen=2,image=8,classes=5,ghost=2"}}),
      family<VggConfig>({"vgg",
                         "convolutions of 3 x 3 and dense layers, classification",
                         model_keys,
                         complete,
                         build_vgg,
                         samples_of,
                         {"vgg:layers=11,width=2,image=32,dense=6-4,classes=5,dropout=0.1",
                          "vgg:layers=13,form=cifar,norm=1,width=2,classes=5,ghost=2"}}),
      family<AlexnetConfig>({"alexnet",
                             "AlexNet, classification",
                             model_keys,
                             complete,
                             build_alexnet,
                             samples_of,
                             {"alexnet:form=cifar,width=4,classes=5",
                              "alexnet:form=cifar,width=4,classes=5,dense=6-4,dropout=0.1"}}),
      family<MobilenetV2Config>(
          {"mobilenet_v2",
           "depth-wise convolutions in inverted residual blocks, classification",
           model_keys,
           complete,
           build_mobilenet_v2,
           samples_of,
           {"mobilenet_v2:multiplier=0.1,divisor=2,image=64,classes=5,ghost=2,dropout=0.1"}}),
      family<SmcConfig>({"smc",
                         "small convolutional network with soft labels of its own, classification",
                         model_keys,
                         complete,
                         build_smc,
                         samples_of,
                         {"smc:width=4,image=16,classes=5,ghost=2,steps=4"}}),
      family<CosmoflowConfig>({"cosmoflow",
                               "convolutional network for volumes, regression",
                               model_keys,
                               complete,
                               build_cosmoflow,
                               samples_of,
                               {"cosmoflow:width=16,channels=2,filters=2,outputs=3"}}),
      family<Unet3dConfig>({"unet3d",
                            "3-D U-Net, a class for each voxel",
                            model_keys,
                            complete,
                            build_unet3d,
                            samples_of,
                            {"unet3d:width=16,filters=2,classes=3,ghost=2"}}),
      family<GaPlanesConfig>(
          {"ga_planes",
           "a field interpolated from grids on lines, planes and a volume, regression",
           model_keys,
           complete,
           build_ga_planes,
           samples_of,
           {"ga_planes:lines=2,planes=2,volume=1,line_size=5,plane_size=4,volume_size=3,samples=4,"
            "init=1",
            "ga_planes:training=semiconvex,lines=2,planes=2,line_size=5,plane_size=4,volume_size=3,"
            "hidden=4,samples=4,init=1",
            "ga_planes:training=nonconvex,lines=0,planes=2,volume=0,plane_size=4,hidden=4,samples="
            "0,"
            "combine=product,init=1",
            "ga_planes:space=2,training=linear,lines=2,planes=1,line_size=5,plane_size=3,samples=0,"
            "combine=product,init=1"}}),
      family<ImamConfig>(
          {"imam",
           "shapes as codes: a vector-quantised auto-encoder, and a transformer of its codes",
           model_keys,
           complete,
           build_imam,
           samples_of,
           {"imam:points=12,queries=6,plane=8,features=4,downs=1,middle=1,depth=2,codes=7,"
            "code_width=3,code_init=1",
            "imam:part=transformer,points=12,plane=4,features=2,downs=1,middle=1,depth=1,codes=7,"
            "code_width=3,code_init=1,layers=2,hidden=8,heads=2,classes=3",
            "imam:part=sequence,plane=4,downs=1,middle=1,depth=1,codes=16,layers=2,hidden=8,"
            "heads=2,classes=3,dropout=0,mlp_dropout=0",
            "imam:part=decoder,queries=6,plane=8,features=4,downs=1,middle=2,depth=2,codes=7"}}),
      family<DlrmConfig>({"dlrm",
                          "recommender: tables of categories, interaction, click or not",
                          model_keys,
                          complete,
                          build_dlrm,
                          samples_of,
                          {"dlrm:dense=3,rows=7-5-11,bags=3-1-2,width=4,bottom=6-4,top=5-1",
                           "dlrm:dense=3,rows=7-5-11,bags=2,width=4,bottom=6-4,top=5-1,"
                           "interaction=cross,layers=2,rank=3,mode=mean"},
                          /*predicts_clicks=*/true}),
      family<DhenConfig>(
          {"dhen",
           "recommender: layers that are ensembles of interaction modules",
           model_keys,
           complete,
           build_dhen,
           samples_of,
           {"dhen:dense=3,rows=7-5-11,bags=3-1-2,width=4,bottom=6-4,top=5-1,layers=2,embeddings=2,"
            "heads=2,ffn=6,filters=2,modules=dlrm-linear-attention",
            "dhen:dense=3,rows=7-5-11,bags=2,width=4,bottom=6-4,top=5-1,layers=2,embeddings=4,"
            "heads=2,ffn=6,filters=2,modules=dot-cross+convolution-attention,ensemble=weighted"},
           /*predicts_clicks=*/true}),
      family<EvoformerConfig>(
          {"evoformer",
           "Evoformer blocks with recycling",
           model_keys,
           complete,
           build_evoformer,
           samples_of,
           {"evoformer:sequences=3,residues=4,hidden=8,pair=8,heads=2,outer=2,vocab=7,bins=5",
            "evoformer:sequences=3,residues=4,hidden=8,pair=8,heads=2,outer=2,vocab=7,bins=5,"
            "recycles=1"}}),
      family<MlpConfig>({"mlp",
                         "multi-layer perceptron with a cross entropy",
                         model_keys,
                         [](MlpConfig&) -> Status { return {}; },
                         build_mlp,
                         samples_of,
                         {"mlp:in=4,hidden=8,out=3,layers=2"}}),
  };
}

}  // namespace

const std::vector<ModelFamily>& all_families() {
  static const std::vector<ModelFamily> families = make_families();
  return families;
}

const ModelFamily* find_family(std::string_view name) {
  for (const ModelFamily& family : all_families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

bool predicts_clicks(const Model& model) {
  const ModelFamily* family = find_family(model.family);
  return family != nullptr && family->predicts_clicks;
}

bool names_family(std::string_view name) { return find_family(name) != nullptr; }

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const ModelFamily& family : all_families()) names.push_back(family.name);
  return names;
}

}  // namespace tessera
