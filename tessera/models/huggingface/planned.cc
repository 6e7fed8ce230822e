// The rows of decoders that are read but not written. Most are approximated: a row says in a
// sentence what our models have in place of theirs. Those that are exact have no counterparts of
// their arrays (ModelType::unnamed).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/models/huggingface/rows.h"

namespace tessera::huggingface {
namespace {

const ConfigRow& no_attention_bias() {
  static const ConfigRow row =
      near("attention_bias", {"false"}, "attention's products have no biases", "false");
  return row;
}

// ---- mixtures

// Reads DeepSeek's latent attention. Theirs has heads of two sizes, for scores and for values, and
// makes the part of a key that carries positions from the residual stream. Ours has one size, their
// mean, and makes keys and values from as many numbers as theirs send on.
void read_latent_attention(ConfigReader& reader) {
  const json plain = reader.value("qk_nope_head_dim"), rotated = reader.value("qk_rope_head_dim"),
             values = reader.value("v_head_dim"), rank = reader.value("kv_lora_rank");
  for (const json* size : {&plain, &rotated, &values, &rank}) {
    if (!size->is_number_integer() || *size < 1 || *size > kMaxModelSize) {
      return reader.fail(
          "qk_nope_head_dim, qk_rope_head_dim, v_head_dim and kv_lora_rank must be "
          "whole numbers of at least 1");
    }
  }
  const auto scores = plain.get<int64_t>() + rotated.get<int64_t>(), value = values.get<int64_t>();
  const int64_t mean = (scores + value) / 2 / 2 * 2;
  reader.add("head_dim", fmt::format("{}", mean));
  reader.add("kv_rank", fmt::format("{}", rank.get<int64_t>() + rotated.get<int64_t>()));
  if (scores != value) {
    reader.approximate(fmt::format("heads have {} numbers for scores and for values, not {} and {}",
                                   mean, scores, value));
  }
  reader.approximate(
      "keys are made from the latent numbers as a whole, also the part that carries positions");
}

void read_deepseek(ConfigReader& reader) {
  read_rotary(reader);
  read_latent_attention(reader);
  read_experts(reader);
  const int64_t width = reader.count("ffn");
  const json shared = reader.value("n_shared_experts");
  if (!shared.is_null() && !shared.is_number_integer())
    return reader.unsupported("n_shared_experts", shared, "null, 0, 1, 2, ...");
  if (shared.is_null() || shared == 0 || width == 0) return;
  reader.add("shared_ffn", fmt::format("{}", shared.get<double>() * static_cast<double>(width)));
}

std::vector<ConfigRow> deepseek_rows() {
  return with(
      decoder_rows(),
      {same("intermediate_size", "dense_ffn"), same("moe_intermediate_size", "ffn"),
       same_or_null("q_lora_rank", "q_rank"), no_attention_bias(),
       same("n_routed_experts", "experts"), same_or_null("num_experts_per_tok", "top_k"),
       same("first_k_dense_replace", "dense_layers"), boolean("norm_topk_prob", "normalize"),
       must_be("scoring_func", {"\"softmax\""}, "\"softmax\""),
       near("moe_layer_freq", {"1"}, "all blocks after the first have experts (moe_layer_freq {})",
            "1"),
       near("n_group", {"null", "1"},
            "a token's experts are chosen among all, not within some of {} groups", "null"),
       near("routed_scaling_factor", {"1.0"},
            "what experts return is not multiplied by routed_scaling_factor ({})")});
}

void read_deepseek_v2(ConfigReader& reader) {
  reader.given("topk_group");
  reader.given("head_dim");  // computed from the sizes of latent attention
  read_deepseek(reader);
}

ModelType deepseek_v2() {
  return {"deepseek_v2", "mixtral", "DeepseekV2ForCausalLM",
          with(deepseek_rows(), {near("topk_method", {"\"greedy\"", "\"group_limited_greedy\""},
                                      "experts are chosen greedily (topk_method {})")}),
          read_deepseek_v2};
}

// ---- dense decoders

ModelType nemotron() {
  std::vector<ConfigRow> rows = decoder_rows();
  std::erase_if(rows, [](const ConfigRow& row) { return row.theirs == "rms_norm_eps"; });
  return {"nemotron", "llama", "NemotronForCausalLM",
          with(std::move(rows), {real("norm_eps", "eps"), same_or_null("head_dim", "head_dim"),
                                 attention_bias(), implied("gated", "0"),
                                 always_near("norms are RMS norms, not layer norms with biases")}),
          read_rotary};
}

}  // namespace

std::vector<ModelType> planned_decoders() {
  std::vector<ModelType> types = {deepseek_v2(), nemotron()};
  for (ModelType& type : types) {
    if (type.unnamed.empty()) type.unnamed = "the names and layouts of its arrays";
  }
  return types;
}

}  // namespace tessera::huggingface
