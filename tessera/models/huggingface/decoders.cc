// The rows of Llama and its relatives that are read and written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/models/huggingface/rows.h"

namespace tessera::huggingface {

// Adds a capacity that gives every expert a slot for each token, because their model drops none.
// Planning prices an even spread instead. Their balance loss is one number over the tokens of all layers,
// top_k if all experts get equally many, and counts only with output_router_logits. Ours is added
// for each layer, and is 1 if all experts get equally many, so the coefficient is converted.
void read_experts(ConfigReader& reader) {
  const int64_t experts = reader.count("experts"), top_k = reader.count("top_k"),
                layers = reader.count("layers");
  const json asked = reader.value("output_router_logits", "false");
  if (!asked.is_boolean()) return reader.unsupported("output_router_logits", asked, "true, false");
  const json balance =
      number(reader.text_of("router_aux_loss_coef", reader.value("router_aux_loss_coef", "0.0")));
  if (experts == 0 || top_k == 0 || layers == 0) return;
  const double slots = std::max(1.0, static_cast<double>(experts) / static_cast<double>(top_k));
  reader.add("capacity_factor", fmt::format("{}", slots));
  const double each =
      asked.get<bool>()
          ? balance.get<double>() * (static_cast<double>(top_k) / static_cast<double>(layers))
          : 0;
  reader.add("balance", fmt::format("{}", each));
  if (slots > 1) {
    reader.add_for_planning("capacity_factor", "1",
                            "tokens are spread evenly over the experts (capacity_factor=1)");
  }
}

json window_of(const Keys& keys) {
  const std::string& window = of(keys, "window");
  return window == "0" ? json(nullptr) : number(window);
}

Texts layer_types_of(const Keys& keys, const char* other) {
  const auto every = number(of(keys, "full_every")).get<size_t>();
  Texts types;
  for (size_t i = 1; i <= number(of(keys, "layers")).get<size_t>(); ++i) {
    const bool full = of(keys, "window") == "0" || (every > 0 && i % every == 0);
    types.emplace_back(full ? "full_attention" : other);
  }
  return types;
}

void write_balance(const Keys& keys, OrderedJson& out) {
  const double balance = real_of(keys, "balance");
  out["output_router_logits"] = balance > 0;
  out["router_aux_loss_coef"] = balance / (real_of(keys, "top_k") / real_of(keys, "layers"));
}

std::string write_window(const Keys& keys, OrderedJson& out) {
  out["sliding_window"] = window_of(keys);
  return "";
}

namespace {

// Reads which layers have a window: layer_types says it, or without that max_window_layers, the
// number of the first layer with a window.
void read_layer_windows(ConfigReader& reader) {
  read_rotary(reader);
  const json uses = reader.value("use_sliding_window"), window = reader.value("sliding_window");
  const json first = reader.value("max_window_layers");
  if (!uses.is_boolean()) return reader.unsupported("use_sliding_window", uses, "true, false");
  if (!first.is_number_integer())
    return reader.unsupported("max_window_layers", first, "a whole number");
  const auto layers = static_cast<size_t>(reader.count("layers"));
  const bool windows = uses.get<bool>() && !window.is_null();
  std::vector<bool> full(layers, true);
  for (size_t i = 0; i < layers && windows; ++i)
    full[i] = static_cast<int64_t>(i) < first.get<int64_t>();
  full = full_layers("sliding_attention", full, reader);
  const int64_t with_window = std::count(full.begin(), full.end(), false);
  if (!windows && with_window > 0) {
    return reader.fail(fmt::format(
        "sliding_window: expected a window, found none for {} of {} layers", with_window, layers));
  }
  add_layer_windows(window, full, reader);
}

std::string write_layer_windows(const Keys& keys, OrderedJson& out) {
  const json window = window_of(keys);
  const bool windows = !window.is_null();
  out["use_sliding_window"] = windows;
  out["sliding_window"] = window;
  out["max_window_layers"] = windows ? json(0) : number(of(keys, "layers"));
  out["layer_types"] = layer_types_of(keys, "sliding_attention");
  return "";
}

void read_mixtral(ConfigReader& reader) {
  read_window(reader);
  read_experts(reader);
}

std::string write_mixtral(const Keys& keys, OrderedJson& out) {
  write_balance(keys, out);
  return write_window(keys, out);
}

}  // namespace

const std::vector<ConfigRow>& decoder_rows() {
  static const std::vector<ConfigRow> rows = {
      same("num_hidden_layers", "layers"),     same("hidden_size", "hidden"),
      same("num_attention_heads", "heads"),    same_or_null("num_key_value_heads", "kv_heads"),
      same("max_position_embeddings", "seq"),  same("vocab_size", "vocab"),
      same("intermediate_size", "ffn"),        real("rms_norm_eps", "eps"),
      boolean("tie_word_embeddings", "tied"),  activation("hidden_act"),
      must_be("mlp_bias", {"false"}, "false"), must_be("is_causal", {"true"}, "true"),
  };
  return rows;
}

const ConfigRow& attention_bias() {
  static const ConfigRow row = {
      "attention_bias",
      "",
      "",
      false,
      {{"false", "qkv_bias=0,out_bias=0"}, {"true", "qkv_bias=1,out_bias=1"}}};
  return row;
}

std::vector<ModelType> decoders() {
  const ConfigRow no_bias = must_be("attention_bias", {"false"}, "false");
  const ConfigRow head_dim = same_or_null("head_dim", "head_dim", "null");
  const Texts rotary = {"theta", "rope_scaling"}, windows = {"theta", "rope_scaling", "window"},
              layer_windows = {"theta", "rope_scaling", "window", "full_every"};
  return {
      {"llama", "llama", "LlamaForCausalLM", with(decoder_rows(), {head_dim, attention_bias()}),
       read_rotary, nullptr, spell_rotary, rotary},
      {"mistral", "llama", "MistralForCausalLM", with(decoder_rows(), {head_dim, no_bias}),
       read_window, write_window, spell_rotary, windows},
      {"mixtral",
       "mixtral",
       "MixtralForCausalLM",
       with(decoder_rows(), {head_dim, no_bias, same("num_local_experts", "experts"),
                             same("num_experts_per_tok", "top_k"), implied("normalize", "1"),
                             must_be("router_jitter_noise", {"0.0"})}),
       read_mixtral,
       write_mixtral,
       spell_rotary,
       {"theta", "rope_scaling", "window", "balance"}},
      {"qwen2", "llama", "Qwen2ForCausalLM",
       with(decoder_rows(), {head_dim, implied("qkv_bias", "1")}), read_layer_windows,
       write_layer_windows, spell_rotary, layer_windows},
      {"qwen3", "llama", "Qwen3ForCausalLM",
       with(decoder_rows(),
            {same("head_dim", "head_dim"), attention_bias(), implied("qk_norm", "1")}),
       read_layer_windows, write_layer_windows, spell_rotary, layer_windows},
  };
}

}  // namespace tessera::huggingface
