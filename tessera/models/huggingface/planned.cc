// The rows of decoders that are read but not written. Most are approximated: a row says in a
// sentence what our models have in place of theirs. Those that are exact have no counterparts of
// their arrays (ModelType::unnamed).
#include <fmt/format.h>

#include <algorithm>

#include "tessera/models/huggingface/rows.h"

namespace tessera::huggingface {
namespace {

// Returns the row that gives queries, keys and values biases or none.
ConfigRow qkv_bias() {
  return {"attention_bias", "", "", false, {{"false", "qkv_bias=0"}, {"true", "qkv_bias=1"}}};
}

const ConfigRow& no_attention_bias() {
  static const ConfigRow row =
      near("attention_bias", {"false"}, "attention's products have no biases", "false");
  return row;
}

// Returns for each layer whether its number, from 1, is a multiple of `every`.
std::vector<bool> each_of(int64_t layers, int64_t every) {
  std::vector<bool> full(static_cast<size_t>(layers), false);
  for (int64_t i = every; every > 0 && i <= layers; i += every)
    full[static_cast<size_t>(i - 1)] = true;
  return full;
}

// ---- mixtures

// Reads which layers of Qwen 3 have no experts. Layers at the beginning are exact.
void read_qwen3_moe(ConfigReader& reader) {
  read_rotary(reader);
  const json uses = reader.value("use_sliding_window"), window = reader.value("sliding_window");
  if (!uses.is_boolean()) return reader.unsupported("use_sliding_window", uses, "true, false");
  if (uses.get<bool>()) add_window(window, reader);
  read_experts(reader);
  const json dense = reader.value("mlp_only_layers");
  if (dense.is_null() || dense.empty()) return;
  if (!dense.is_array())
    return reader.unsupported("mlp_only_layers", dense, "null, a list of layers");
  reader.add("dense_layers", fmt::format("{}", dense.size()));
  for (size_t i = 0; i < dense.size(); ++i) {
    if (dense[i] != i) {
      return reader.approximate(
          fmt::format("the {} blocks without experts are the first, not those of mlp_only_layers",
                      dense.size()));
    }
  }
}

ModelType qwen3_moe() {
  return {
      "qwen3_moe", "mixtral", "Qwen3MoeForCausalLM",
      with(decoder_rows(),
           {same("intermediate_size", "dense_ffn"), same("moe_intermediate_size", "ffn"),
            same_or_null("head_dim", "head_dim", "null"), attention_bias(), implied("qk_norm", "1"),
            same("num_local_experts", "experts"), same("num_experts_per_tok", "top_k"),
            boolean("norm_topk_prob", "normalize"), same("decoder_sparse_step", "experts_every")}),
      read_qwen3_moe};
}

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
       near("moe_layer_freq", {"1"}, "all blocks after the first have experts (moe_layer_freq {})",
            "1"),
       near("n_group", {"null", "1"},
            "a token's experts are chosen among all, not within some of {} groups", "null"),
       near("routed_scaling_factor", {"1.0"},
            "what experts return is not multiplied by routed_scaling_factor ({})")});
}

void read_deepseek_v3(ConfigReader& reader) {
  reader.given("topk_group");
  reader.given("rope_interleave");
  read_deepseek(reader);
}

void read_deepseek_v2(ConfigReader& reader) {
  reader.given("topk_group");
  reader.given("head_dim");  // computed from the sizes of latent attention
  read_deepseek(reader);
}

ModelType deepseek_v3() {
  return {
      "deepseek_v3", "mixtral", "DeepseekV3ForCausalLM",
      with(deepseek_rows(),
           {always_near("experts are chosen by a softmax, not by sigmoids with a bias"),
            near("num_nextn_predict_layers", {"null", "0"},
                 "layers that predict further tokens are left out (num_nextn_predict_layers {})")}),
      read_deepseek_v3};
}

ModelType deepseek_v2() {
  return {"deepseek_v2", "mixtral", "DeepseekV2ForCausalLM",
          with(deepseek_rows(), {near("topk_method", {"\"greedy\"", "\"group_limited_greedy\""},
                                      "experts are chosen greedily (topk_method {})")}),
          read_deepseek_v2};
}

void read_gpt_oss(ConfigReader& reader) {
  read_rotary(reader);
  read_experts(reader);
  reader.given("swiglu_alpha");
  reader.given("swiglu_limit");
  add_layer_windows(reader.value("sliding_window"),
                    full_layers("sliding_attention", each_of(reader.count("layers"), 2), reader),
                    reader);
}

ModelType gpt_oss() {
  return {"gpt_oss", "mixtral", "GptOssForCausalLM",
          with(decoder_rows(),
               {same("head_dim", "head_dim"), attention_bias(),
                same("num_local_experts", "experts"), same("num_experts_per_tok", "top_k"),
                implied("normalize", "1"), always_near("experts and their router have no biases"),
                always_near("attention's softmax has no learned sinks"),
                always_near("experts compute silu(gate) * up, without limits and the factor of "
                            "gpt_oss")}),
          read_gpt_oss};
}

// Reads Llama 4. Attention in chunks of n tokens sees n / 2 of them in the mean, so it is a window
// of that size here, which does the same work.
void read_llama4(ConfigReader& reader) {
  read_rotary(reader);
  read_experts(reader);
  for (const char* key : {"attn_scale", "floor_scale", "moe_layers"}) reader.given(key);
  const json interval = reader.value("no_rope_layer_interval"),
             chunk = reader.value("attention_chunk_size");
  const int64_t layers = reader.count("layers");
  if (!interval.is_number_integer() || interval < 1)
    return reader.unsupported("no_rope_layer_interval", interval, "1, 2, ...");
  const json unturned = reader.value("no_rope_layers");
  std::vector<bool> full = each_of(layers, interval.get<int64_t>());
  if (unturned.is_array() && static_cast<int64_t>(unturned.size()) == layers) {
    for (size_t i = 0; i < full.size(); ++i) full[i] = unturned[i] == 0;
  }
  if (std::count(full.begin(), full.end(), true) > 0)
    reader.approximate("all blocks have rotary positions (no_rope_layers)");
  if (!chunk.is_number_integer() || chunk < 2) {
    if (!chunk.is_null()) reader.unsupported("attention_chunk_size", chunk, "null, 2, 3, ...");
    return;
  }
  const int64_t window = chunk.get<int64_t>() / 2;
  add_layer_windows(window, full_layers("chunked_attention", full, reader), reader);
  reader.approximate(
      fmt::format("attention in chunks of {} tokens is a window of {}, which does the same work",
                  chunk.get<int64_t>(), window));
}

ModelType llama4() {
  return {"llama4_text", "mixtral", "Llama4ForCausalLM",
          with(decoder_rows(),
               {same("intermediate_size", "shared_ffn"), same("intermediate_size_mlp", "dense_ffn"),
                same("head_dim", "head_dim"), attention_bias(),
                same("num_local_experts", "experts"), same("num_experts_per_tok", "top_k"),
                same("interleave_moe_layer_step", "experts_every"), implied("normalize", "0"),
                boolean("use_qk_norm", "qk_norm"),
                near("use_qk_norm", {"false"},
                     "norms of queries and keys have weights, and come before the rotation"),
                near("attn_temperature_tuning", {"false"},
                     "queries are not scaled by their position (attn_temperature_tuning {})"),
                near("router_jitter_noise", {"0.0"}, "the router's input has no noise"),
                always_near("a token's expert is weighed by a softmax behind it, not by a sigmoid "
                            "before it")}),
          read_llama4};
}

// ---- dense decoders

// Reads what Gemma 2 and 3 share, and their windows: the last of every `every` layers has none.
void read_gemma(ConfigReader& reader, int64_t every) {
  read_rotary(reader);
  const json scale = reader.value("query_pre_attn_scalar");
  if (scale != reader.count("head_dim")) {
    reader.approximate(
        "attention's scores are divided by the root of head_dim, not of query_pre_attn_scalar");
  }
  add_layer_windows(
      reader.value("sliding_window"),
      full_layers("sliding_attention", each_of(reader.count("layers"), every), reader), reader);
}

void read_gemma2(ConfigReader& reader) { read_gemma(reader, 2); }

void read_gemma3(ConfigReader& reader) {
  const json every = reader.value("sliding_window_pattern", "6");
  if (!every.is_number_integer() || every < 1)
    return reader.unsupported("sliding_window_pattern", every, "1, 2, ...");
  read_gemma(reader, every.get<int64_t>());
  reader.approximate(
      "rotary positions of layers with a window are those of layers with full attention");
}

std::vector<ConfigRow> gemma_rows() {
  std::vector<ConfigRow> rows = decoder_rows();
  std::erase_if(rows, [](const ConfigRow& row) { return row.theirs == "hidden_act"; });
  return with(
      std::move(rows),
      {activation("hidden_activation"), same("head_dim", "head_dim"), attention_bias(),
       implied("norms", "both"), near("final_logit_softcapping", {"null"}, "logits are not capped"),
       near("attn_logit_softcapping", {"null"}, "attention's scores are not capped"),
       near("use_bidirectional_attention", {"null", "false"}, "attention is causal"),
       always_near("the token embedding is not multiplied by the root of its width")});
}

ModelType gemma2() { return {"gemma2", "llama", "Gemma2ForCausalLM", gemma_rows(), read_gemma2}; }

ModelType gemma3() {
  return {"gemma3_text", "llama", "Gemma3ForCausalLM",
          with(gemma_rows(), {implied("qk_norm", "1")}), read_gemma3};
}

ModelType olmo2() {
  return {"olmo2", "llama", "Olmo2ForCausalLM",
          with(decoder_rows(),
               {attention_bias(), implied("qk_norm", "1"), implied("norms", "after"),
                always_near("queries and keys are normed by head, not over all heads")}),
          read_rotary};
}

ModelType phi3() {
  return {"phi3",
          "llama",
          "Phi3ForCausalLM",
          with(decoder_rows(), {no_attention_bias()}),
          read_window,
          nullptr,
          nullptr,
          {},
          "counterparts of the fused arrays qkv_proj and gate_up_proj"};
}

ModelType glm4() {
  return {"glm4", "llama", "Glm4ForCausalLM",
          with(decoder_rows(),
               {same_or_null("head_dim", "head_dim"), qkv_bias(), implied("norms", "both"),
                always_near("rotary positions turn the halves of a head, not neighbouring "
                            "numbers")}),
          read_rotary};
}

ModelType nemotron() {
  std::vector<ConfigRow> rows = decoder_rows();
  std::erase_if(rows, [](const ConfigRow& row) { return row.theirs == "rms_norm_eps"; });
  return {"nemotron", "llama", "NemotronForCausalLM",
          with(std::move(rows), {real("norm_eps", "eps"), same_or_null("head_dim", "head_dim"),
                                 attention_bias(), implied("gated", "0"),
                                 always_near("norms are RMS norms, not layer norms with biases")}),
          read_rotary};
}

// Reads SmolLM 3. `no_rope_layers` has a 0 for each layer without rotary positions.
void read_smollm3(ConfigReader& reader) {
  read_rotary(reader);
  const json uses = reader.value("use_sliding_window"), window = reader.value("sliding_window");
  const json turned = reader.value("no_rope_layers"),
             interval = reader.value("no_rope_layer_interval");
  const bool all =
      turned.is_array() && !turned.empty() &&
      std::all_of(turned.begin(), turned.end(), [](const json& one) { return one == 1; });
  const auto layers = static_cast<size_t>(reader.count("layers"));
  if (!all && !(interval.is_number() && interval > layers))
    reader.approximate("all blocks have rotary positions (no_rope_layers)");
  const std::vector<bool> full(layers, uses != true || window.is_null());
  add_layer_windows(window, full_layers("sliding_attention", full, reader), reader);
}

ModelType smollm3() {
  return {"smollm3", "llama", "SmolLM3ForCausalLM", with(decoder_rows(), {attention_bias()}),
          read_smollm3};
}

}  // namespace

std::vector<ModelType> planned_decoders() {
  std::vector<ModelType> types = {qwen3_moe(), deepseek_v3(), deepseek_v2(), gpt_oss(),
                                  gemma2(),    gemma3(),      olmo2(),       phi3(),
                                  glm4(),      llama4(),      nemotron(),    smollm3()};
  for (ModelType& type : types) {
    if (type.unnamed.empty()) type.unnamed = "the names and layouts of its arrays";
  }
  return types;
}

}  // namespace tessera::huggingface
