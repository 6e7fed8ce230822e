#include "tessera/export/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/text.h"
#include "tessera/models/families.h"

namespace tessera {
namespace {

// A key of a model's spec whose value is written unchanged, unless it equals `without`.
struct Row {
  const char* key;
  const char* flag;
  const char* field;
  const char* without;  // if the key has this value, nothing is written
  const char* meaning;
};

constexpr Row kRows[] = {
    {"layers", "num-layers", "num_layers", "", "blocks"},
    {"hidden", "hidden-size", "hidden_size", "", "width of the residual stream"},
    {"ffn", "ffn-hidden-size", "ffn_hidden_size", "", "width inside an MLP or expert"},
    {"heads", "num-attention-heads", "num_attention_heads", "", "query heads"},
    {"head_dim", "kv-channels", "kv_channels", "", "width of a head"},
    {"seq", "seq-length", "seq_length", "", "tokens of a sequence"},
    {"seq", "max-position-embeddings", "", "", "positions"},
    {"vocab", "vocab-size", "vocab_size", "", "tokens known"},
    {"theta", "rotary-base", "rotary_base", "", "base of the rotary positions"},
    {"eps", "norm-epsilon", "layernorm_epsilon", "", "of the norms"},
    {"dropout", "hidden-dropout", "hidden_dropout", "", "of both branches"},
    {"attention_dropout", "attention-dropout", "attention_dropout", "", "of attention's weights"},
    {"experts", "num-experts", "num_moe_experts", "", "experts of a block"},
    {"top_k", "moe-router-topk", "moe_router_topk", "", "experts of a token"},
    {"capacity_factor", "moe-expert-capacity-factor", "moe_expert_capacity_factor", "",
     "slots of an expert over its even share"},
    {"shared_ffn", "moe-shared-expert-intermediate-size", "moe_shared_expert_intermediate_size",
     "0", "width of the MLP that every token passes"},
    {"balance", "moe-aux-loss-coeff", "moe_aux_loss_coeff", "0", "of the load balance"},
    {"z_loss", "moe-z-loss-coeff", "moe_z_loss_coeff", "0", "of the router's z-loss"},
};

// Keys that are written as switches (below), or for which the frameworks have no argument.
constexpr const char* kElsewhere[] = {"kv_heads",   "tied",     "dtype",  "causal",
                                      "activation", "qkv_bias", "qk_norm"};
constexpr std::pair<const char*, const char*> kScripts[] = {{"gpt", "pretrain_gpt.py"},
                                                            {"llama", "pretrain_gpt.py"},
                                                            {"mixtral", "pretrain_gpt.py"},
                                                            {"bert", "pretrain_bert.py"},
                                                            {"t5", "pretrain_t5.py"},
                                                            {"nemotron_h", "pretrain_mamba.py"},
                                                            {"vit", "pretrain_vision_classify.py"}};

}  // namespace

std::optional<int64_t> spec_number(const Model& model, std::string_view key) {
  const Result<Call> call = parse_call(model.spec);
  if (!call) return std::nullopt;
  for (const auto& [name, value] : call->arguments) {
    if (name != key) continue;
    const Result<int64_t> number = parse_int(value);
    return number ? std::optional(*number) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<std::string> megatron_families() {
  std::vector<std::string> out;
  for (const auto& [family, script] : kScripts) out.emplace_back(family);
  return out;
}

Result<ModelSizes> model_sizes(const Model& model) {
  ModelSizes out;
  for (const auto& [family, script] : kScripts) {
    if (model.family == family) out.script = script;
  }
  const bool gpt = model.family == "gpt", llama = model.family == "llama",
             mixtral = model.family == "mixtral";
  if (!gpt && !llama && !mixtral) {
    out.left_out.push_back(
        fmt::format("the sizes of the family '{}' are not written", model.family));
    return out;
  }
  TESSERA_TRY(const Call call, parse_call(model.spec));
  std::map<std::string, std::string> keys(call.arguments.begin(), call.arguments.end());
  const auto add = [&](const std::string& flag, const std::string& field, const std::string& value,
                       const std::string& meaning, const std::string& field_value = "") {
    out.arguments.push_back({flag, field, value, field_value, meaning});
  };
  std::map<std::string, bool> known;
  for (const Row& row : kRows) {
    known[row.key] = true;
    const auto value = keys.find(row.key);
    if (value == keys.end() || value->second == row.without) continue;
    add(row.flag, row.field, value->second, row.meaning);
  }
  if (keys["kv_heads"] != keys["heads"]) {
    add("group-query-attention", "", "", "key heads of their own");
    add("num-query-groups", "num_query_groups", keys["kv_heads"], "key heads");
  }
  if (keys["tied"] == "0") {
    add("untie-embeddings-and-output-weights", "share_embeddings_and_output_weights", "",
        "a head of its own", "false");
  }
  if (gpt) {
    add("position-embedding-type", "position_embedding_type", "learned_absolute", "of tokens");
    if (keys["activation"] != "gelu")
      out.left_out.push_back(fmt::format("activation={}", keys["activation"]));
    if (keys["causal"] == "0") out.left_out.emplace_back("causal=0");
  } else {
    add("position-embedding-type", "position_embedding_type", "rope", "of tokens");
    add("normalization", "normalization", "RMSNorm", "of the norms");
    add("swiglu", "gated_linear_unit", "", "SiLU of one product times another", "true");
    add("disable-bias-linear", "add_bias_linear", "", "no biases", "false");
  }
  if (keys["qkv_bias"] == "1")
    add("add-qkv-bias", "add_qkv_bias", "", "of queries, keys and values", "true");
  if (keys["qk_norm"] == "1")
    add("qk-layernorm", "qk_layernorm", "", "of each head's queries and keys", "true");
  if (mixtral) {
    add("moe-token-dispatcher-type", "moe_token_dispatcher_type", "alltoall", "tokens to experts");
    add("moe-pad-expert-input-to-capacity", "moe_pad_expert_input_to_capacity", "", "static shapes",
        "true");
    // The weights of the chosen experts are the softmax of their scores, so their sum is 1. If only
    // one expert is chosen, Megatron-Core (0.19.2, TransformerConfig) demands the softmax of all
    // scores, of which the chosen expert keeps its own.
    const bool one = keys["top_k"] == "1";
    if (one) {
      add("moe-router-pre-softmax", "moe_router_pre_softmax", "", "weights before the choice",
          "true");
    }
    known["normalize"] = keys["normalize"] == (one ? "0" : "1");
  }
  for (const char* key : kElsewhere) known[key] = true;
  // A key that has its default needs no words.
  for (const ModelKeyText& key : find_family(model.family)->keys) {
    if (const auto found = keys.find(key.name); found != keys.end() && found->second == key.value)
      known[key.name] = true;
  }
  // If the model does not begin with dense layers, their width is not needed.
  if (known["dense_layers"]) known["dense_ffn"] = true;
  for (const auto& [key, value] : keys) {
    if (!known[key] && key != "dense_ffn") out.left_out.push_back(fmt::format("{}={}", key, value));
  }
  return out;
}

}  // namespace tessera
