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
  std::vector<ModelType> types = {deepseek_v2(), llama4(), nemotron()};
  for (ModelType& type : types) {
    if (type.unnamed.empty()) type.unnamed = "the names and layouts of its arrays";
  }
  return types;
}

}  // namespace tessera::huggingface
