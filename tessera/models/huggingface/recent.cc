// The rows of decoders since 2024 that are read and written: norms on both sides, positions in a
// part of the blocks or of a head, latent attention, mixtures with sigmoid routers, sinks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/json_text.h"
#include "tessera/models/huggingface/rows.h"

namespace tessera::huggingface {
namespace {

// Returns the row that gives queries, keys and values biases or none.
ConfigRow qkv_bias() {
  return {"attention_bias", "", "", false, {{"false", "qkv_bias=0"}, {"true", "qkv_bias=1"}}};
}
ConfigRow without_bias() { return must_be("attention_bias", {"false"}, "false"); }
ConfigRow head_dim() { return same_or_null("head_dim", "head_dim", "null"); }

// Reads a number of theirs that may be null, which is our 0.
void add_real(const char* theirs, const char* ours, ConfigReader& reader) {
  const json found = reader.value(theirs);
  if (!found.is_null()) reader.add(ours, reader.text_of(theirs, found));
}
json real_or_null(const Keys& keys, const char* ours) {
  const double value = real_of(keys, ours);
  return value == 0 ? json(nullptr) : json(value);
}

// ---- dense decoders

ModelType phi3() {
  return {"phi3",
          "llama",
          "Phi3ForCausalLM",
          with(decoder_rows(), {head_dim(), without_bias()}),
          [](ConfigReader& reader) {
            read_partial_rotary(reader, "1.0");
            add_window(reader.value("sliding_window"), reader);
          },
          write_window,
          spell_partial_rotary,
          {"theta", "rope_scaling", "rotary_dim", "window"}};
}

ModelType olmo2() {
  return {"olmo2",
          "llama",
          "Olmo2ForCausalLM",
          with(decoder_rows(), {head_dim(), attention_bias(), implied("qk_norm", "1"),
                                implied("qk_norm_over", "all"), implied("norms", "after")}),
          read_rotary,
          nullptr,
          spell_rotary,
          {"theta", "rope_scaling"}};
}

// Returns "every block", "every 2nd block", ...
std::string every_block(int64_t every) {
  if (every == 1) return "every block";
  const int64_t last = every / 10 % 10 == 1 ? 0 : every % 10;
  const char* ending = last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
  return fmt::format("every {}{} block", every, ending);
}

// Reads which layers have no rotary positions. `no_rope_layers` has a 0 for each of them; without it
// these are every no_rope_layer_interval-th layer. Returns them.
std::vector<bool> add_unturned(ConfigReader& reader) {
  const json turned = reader.value("no_rope_layers"),
             interval = reader.value("no_rope_layer_interval");
  const int64_t layers = reader.count("layers");
  std::vector<bool> without(static_cast<size_t>(layers), false);
  const auto is_flag = [](const json& each) { return each == 0 || each == 1; };
  if (!turned.is_null() &&
      (!turned.is_array() || !std::all_of(turned.begin(), turned.end(), is_flag))) {
    reader.unsupported("no_rope_layers", turned, "null, a list of 0 and 1");
    return without;
  }
  if (turned.is_array() && !turned.empty()) {
    if (static_cast<int64_t>(turned.size()) != layers) {
      reader.fail(fmt::format("no_rope_layers: expected a number for each of {} layers, found {}",
                              layers, turned.size()));
      return without;
    }
    for (size_t i = 0; i < without.size(); ++i) without[i] = turned[i] == 0;
  } else if (interval.is_number_integer() && interval >= 1) {
    without = each_of(layers, interval.get<int64_t>());
  } else {
    reader.unsupported("no_rope_layer_interval", interval, "1, 2, ...");
  }
  const auto first = std::find(without.begin(), without.end(), true);
  if (first == without.end()) return without;
  const int64_t every = first - without.begin() + 1;
  reader.add("unturned_every", fmt::format("{}", every));
  if (without != each_of(layers, every)) {
    reader.approximate(
        fmt::format("{} has no rotary positions, not those of no_rope_layers", every_block(every)));
  }
  return without;
}

void write_unturned(const Keys& keys, OrderedJson& out) {
  const auto layers = number(of(keys, "layers")).get<int64_t>(),
             every = number(of(keys, "unturned_every")).get<int64_t>();
  OrderedJson turned = OrderedJson::array();
  for (const bool without : each_of(layers, every)) turned.push_back(without ? 0 : 1);
  out["no_rope_layers"] = turned;
  out["no_rope_layer_interval"] = every == 0 ? layers + 1 : every;
}

void read_smollm3(ConfigReader& reader) {
  read_rotary(reader);
  const std::vector<bool> without = add_unturned(reader);
  const json uses = reader.value("use_sliding_window"), window = reader.value("sliding_window");
  // Without layer_types, layers with positions have a window.
  const bool windows = uses == true && !window.is_null();
  if (!windows) reader.given("max_window_layers");
  const std::vector<bool> otherwise = windows ? without : std::vector<bool>(without.size(), true);
  const std::vector<bool> full = full_layers("sliding_attention", otherwise, reader);
  if (windows) add_layer_windows(window, full, reader);
}

std::string write_smollm3(const Keys& keys, OrderedJson& out) {
  write_unturned(keys, out);
  out["use_sliding_window"] = !window_of(keys).is_null();
  out["sliding_window"] = window_of(keys);
  out["layer_types"] = layer_types_of(keys, "sliding_attention");
  return "";
}

ModelType smollm3() {
  return {"smollm3",
          "llama",
          "SmolLM3ForCausalLM",
          with(decoder_rows(), {head_dim(), attention_bias()}),
          read_smollm3,
          write_smollm3,
          spell_rotary,
          {"theta", "rope_scaling", "unturned_every", "window", "full_every"}};
}

// Reads what Gemma 2 and 3 share, and their windows: the last of every `every` layers has none.
void read_gemma(ConfigReader& reader, int64_t every) {
  read_rotary(reader);
  const json scalar = reader.value("query_pre_attn_scalar");
  if (!scalar.is_number() || scalar <= 0)
    return reader.unsupported("query_pre_attn_scalar", scalar, "a number above 0");
  if (!reader.get("score_scale").empty())
    reader.approximate("attention's scores have no factor for longer sequences (rope_type yarn)");
  if (scalar != reader.count("head_dim"))
    reader.add("score_scale", fmt::format("{}", 1 / std::sqrt(scalar.get<double>())));
  reader.add("embed_scale",
             fmt::format("{}", std::sqrt(static_cast<double>(reader.count("hidden")))));
  add_real("final_logit_softcapping", "logit_cap", reader);
  add_layer_windows(
      reader.value("sliding_window"),
      full_layers("sliding_attention", each_of(reader.count("layers"), every), reader), reader);
}

std::string write_gemma(const Keys& keys, OrderedJson& out) {
  const double scale = std::sqrt(real_of(keys, "hidden"));
  if (real_of(keys, "embed_scale") != scale) {
    return fmt::format("embed_scale={}, the root of hidden, found {}", scale,
                       of(keys, "embed_scale"));
  }
  const double scores = real_of(keys, "score_scale");
  double scalar = scores == 0 ? real_of(keys, "head_dim") : 1 / (scores * scores);
  if (std::abs(scalar / std::round(scalar) - 1) < 1e-12) scalar = std::round(scalar);
  out["query_pre_attn_scalar"] =
      scalar == std::round(scalar) ? OrderedJson(std::llround(scalar)) : OrderedJson(scalar);
  out["final_logit_softcapping"] = real_or_null(keys, "logit_cap");
  out["attn_logit_softcapping"] = real_or_null(keys, "score_cap");
  // Without a window in the model all layers are full, whatever the window's size.
  out["sliding_window"] = window_of(keys).is_null() ? json(4096) : window_of(keys);
  out["layer_types"] = layer_types_of(keys, "sliding_attention");
  return "";
}

std::vector<ConfigRow> gemma_rows() {
  std::vector<ConfigRow> rows = decoder_rows();
  std::erase_if(rows, [](const ConfigRow& row) { return row.theirs == "hidden_act"; });
  ConfigRow act = activation("hidden_activation");
  std::swap(act.values[0], act.values[1]);      // theirs is called gelu_pytorch_tanh
  const char* kTanh = "\"gelu_pytorch_tanh\"";  // files repeat it under the name that is not read
  return with(std::move(rows),
              {std::move(act), must_be("hidden_act", {kTanh}, kTanh), same("head_dim", "head_dim"),
               attention_bias(), implied("norms", "both"), implied("norms_shifted", "1"),
               must_be("use_bidirectional_attention", {"false", "null"})});
}

const Texts& gemma_keys() {
  static const Texts keys = {"theta",     "rope_scaling", "score_scale", "embed_scale",
                             "logit_cap", "score_cap",    "window",      "full_every"};
  return keys;
}

ModelType gemma2() {
  return {"gemma2",
          "llama",
          "Gemma2ForCausalLM",
          gemma_rows(),
          [](ConfigReader& reader) {
            read_gemma(reader, 2);
            add_real("attn_logit_softcapping", "score_cap", reader);
          },
          write_gemma,
          spell_rotary,
          gemma_keys()};
}

// Reads Gemma 3, whose layers with a window have a base of their own: rope_local_base_freq
// (transformers 4), or that of the object for sliding_attention (transformers 5).
void read_gemma3(ConfigReader& reader) {
  const json every = reader.value("sliding_window_pattern", "6");
  if (!every.is_number_integer() || every < 1)
    return reader.unsupported("sliding_window_pattern", every, "1, 2, ...");
  read_gemma(reader, every.get<int64_t>());
  const json theta = reader.value("rope_local_base_freq", "10000.0");
  if (reader.get("window_theta").empty())
    reader.add("window_theta", reader.text_of("rope_local_base_freq", theta));
  const json cap = reader.value("attn_logit_softcapping");
  if (cap.is_null()) return;
  reader.text_of("attn_logit_softcapping", cap);
  reader.remark(fmt::format(
      "attn_logit_softcapping {} is passed over, as transformers does for this type", shown(cap)));
}

std::string write_gemma3(const Keys& keys, OrderedJson& out) {
  if (of(keys, "score_cap") != "0")
    return fmt::format("score_cap=0, found {}", of(keys, "score_cap"));
  return write_gemma(keys, out);
}

// Writes the base of layers with a window for transformers 4, and one object of settings for each
// type of layer for transformers 5.
void spell_gemma3(const Keys& keys, OrderedJson& out) {
  spell_rotary(keys, out);
  const double own = real_of(keys, "window_theta");
  const double theta = own == 0 ? real_of(keys, "theta") : own;
  out["rope_local_base_freq"] = theta;
  const OrderedJson full = out["rope_parameters"];
  out["rope_parameters"] = {
      {"full_attention", full},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", theta}}}};
}

ModelType gemma3() {
  Texts own = gemma_keys();
  own.emplace_back("window_theta");
  return {"gemma3_text",       "llama",
          "Gemma3ForCausalLM", with(gemma_rows(), {implied("qk_norm", "1")}),
          read_gemma3,         write_gemma3,
          spell_gemma3,        own};
}

ModelType glm4() {
  return {"glm4",
          "llama",
          "Glm4ForCausalLM",
          with(decoder_rows(), {head_dim(), qkv_bias(), implied("norms", "both"),
                                implied("rotary_pairs", "neighbours")}),
          [](ConfigReader& reader) { read_partial_rotary(reader, "0.5"); },
          nullptr,
          spell_partial_rotary,
          {"theta", "rope_scaling", "rotary_dim"}};
}

// ---- mixtures

// Returns the rows of decoders whose blocks without experts have a width of their own.
std::vector<ConfigRow> two_widths() {
  std::vector<ConfigRow> rows = decoder_rows();
  std::erase_if(rows, [](const ConfigRow& row) { return row.theirs == "intermediate_size"; });
  return with(std::move(rows),
              {same("intermediate_size", "dense_ffn"), same("moe_intermediate_size", "ffn")});
}

// Reads which layers of Qwen 3 have no experts. Layers at the beginning are exact.
void read_dense_layers(ConfigReader& reader) {
  const json dense = reader.value("mlp_only_layers");
  if (dense.is_null() || dense.empty()) return;
  if (!dense.is_array())
    return reader.unsupported("mlp_only_layers", dense, "null, a list of layers");
  reader.add("dense_layers", fmt::format("{}", dense.size()));
  const bool sparse = reader.get("experts_every") != "1";
  for (size_t i = 0; i < dense.size(); ++i) {
    if (dense[i] != i || sparse) {
      return reader.approximate(
          fmt::format("the {} blocks without experts are the first, not those of mlp_only_layers",
                      dense.size()));
    }
  }
}

std::string write_dense_layers(const Keys& keys, OrderedJson& out) {
  const auto dense = number(of(keys, "dense_layers")).get<int64_t>();
  if (dense > 0 && of(keys, "experts_every") != "1") {
    return fmt::format("dense_layers=0 beside experts_every={}, found {}",
                       of(keys, "experts_every"), dense);
  }
  out["mlp_only_layers"] = OrderedJson::array();
  for (int64_t i = 0; i < dense; ++i) out["mlp_only_layers"].push_back(i);
  return "";
}

void read_qwen3_moe(ConfigReader& reader) {
  read_rotary(reader);
  const json uses = reader.value("use_sliding_window"), window = reader.value("sliding_window");
  if (!uses.is_boolean()) return reader.unsupported("use_sliding_window", uses, "true, false");
  if (uses.get<bool>()) {
    add_window(window, reader);
  } else {
    reader.given("max_window_layers");
  }
  read_experts(reader);
  read_dense_layers(reader);
}

std::string write_qwen3_moe(const Keys& keys, OrderedJson& out) {
  out["use_sliding_window"] = !window_of(keys).is_null();
  out["sliding_window"] = window_of(keys);
  write_balance(keys, out);
  return write_dense_layers(keys, out);
}

ModelType qwen3_moe() {
  return {
      "qwen3_moe",
      "mixtral",
      "Qwen3MoeForCausalLM",
      with(two_widths(),
           {head_dim(), attention_bias(), implied("qk_norm", "1"),
            same("num_local_experts", "experts"), same("num_experts_per_tok", "top_k"),
            boolean("norm_topk_prob", "normalize"), same("decoder_sparse_step", "experts_every")}),
      read_qwen3_moe,
      write_qwen3_moe,
      spell_rotary,
      {"theta", "rope_scaling", "window", "balance", "dense_layers"}};
}

// Adds the distance of the layers that have full attention, the first of which gives it.
void add_full_every(const std::vector<bool>& full, ConfigReader& reader) {
  const auto first = std::find(full.begin(), full.end(), true);
  if (first == full.end()) return;
  const int64_t every = first - full.begin() + 1;
  reader.add("full_every", fmt::format("{}", every));
  if (full != each_of(static_cast<int64_t>(full.size()), every)) {
    reader.approximate(
        fmt::format("{} attends to all tokens, not those of layer_types", every_block(every)));
  }
}

// Returns the list layer_types of layers at equal distances with full attention among `other` ones.
Texts types_of_every(const Keys& keys, const char* other) {
  const auto layers = number(of(keys, "layers")).get<int64_t>(),
             every = number(of(keys, "full_every")).get<int64_t>();
  Texts types;
  for (const bool full : each_of(layers, every))
    types.emplace_back(full ? "full_attention" : other);
  return types;
}

// Reads Qwen 3 Next. The last of every full_attention_interval layers attends to all tokens, the
// others have a DeltaNet.
void read_qwen3_next(ConfigReader& reader) {
  read_partial_rotary(reader, "0.25");
  read_experts(reader);
  read_dense_layers(reader);
  const json interval = reader.value("full_attention_interval", "4");
  if (!interval.is_number_integer() || interval < 1)
    return reader.unsupported("full_attention_interval", interval, "1, 2, ...");
  const std::vector<bool> otherwise = each_of(reader.count("layers"), interval.get<int64_t>());
  add_full_every(full_layers("linear_attention", otherwise, reader), reader);
}

std::string write_qwen3_next(const Keys& keys, OrderedJson& out) {
  if (of(keys, "delta_heads") == "0") return "delta_heads above 0, found 0";
  out["layer_types"] = types_of_every(keys, "linear_attention");
  write_balance(keys, out);
  return write_dense_layers(keys, out);
}

ModelType qwen3_next() {
  std::vector<ConfigRow> rows = two_widths();
  std::erase_if(rows, [](const ConfigRow& row) { return row.theirs == "hidden_act"; });
  // Theirs has this activation behind the convolution too, where ours has silu.
  const ConfigRow act = {"hidden_act",
                         "",
                         "",
                         false,
                         {{"\"silu\"", "activation=silu"}, {"\"swish\"", "activation=silu"}}};
  return {
      "qwen3_next",
      "mixtral",
      "Qwen3NextForCausalLM",
      with(std::move(rows),
           {act, head_dim(), attention_bias(), must_be("use_sliding_window", {"false"}, "false"),
            implied("qk_norm", "1"), implied("norms_shifted", "1"), implied("attn_gate", "1"),
            same("linear_num_key_heads", "delta_heads"),
            same("linear_num_value_heads", "delta_value_heads"),
            same("linear_key_head_dim", "delta_head_dim"),
            same("linear_value_head_dim", "delta_value_dim"),
            same("linear_conv_kernel_dim", "delta_conv"), same("num_experts", "experts"),
            same("num_experts_per_tok", "top_k"), boolean("norm_topk_prob", "normalize"),
            same("decoder_sparse_step", "experts_every"),
            same("shared_expert_intermediate_size", "shared_ffn"), implied("shared_gate", "1")}),
      read_qwen3_next,
      write_qwen3_next,
      spell_partial_rotary,
      {"theta", "rope_scaling", "rotary_dim", "balance", "dense_layers", "full_every"}};
}

// Reads the shared MLP, as wide as n_shared_experts experts, and layers that predict further tokens,
// which transformers does not build either.
void read_shared(ConfigReader& reader) {
  const int64_t width = reader.count("ffn");
  const json shared = reader.value("n_shared_experts");
  if (!shared.is_null() && !shared.is_number_integer())
    return reader.unsupported("n_shared_experts", shared, "null, 0, 1, 2, ...");
  if (!shared.is_null() && shared != 0 && width != 0)
    reader.add("shared_ffn", fmt::format("{}", shared.get<int64_t>() * width));
  const json further = reader.value("num_nextn_predict_layers", "0");
  if (!further.is_null() && (!further.is_number_integer() || further < 0))
    return reader.unsupported("num_nextn_predict_layers", further, "null, 0, 1, 2, ...");
  if (!further.is_null() && further != 0) {
    reader.remark(
        fmt::format("layers that predict further tokens are left out, as in transformers, unless "
                    "the model's keys say mtp={}",
                    further.dump()),
        "mtp");
  }
}

std::string write_shared(const Keys& keys, OrderedJson& out) {
  const auto shared = number(of(keys, "shared_ffn")).get<int64_t>(),
             width = number(of(keys, "ffn")).get<int64_t>();
  if (shared % width != 0)
    return fmt::format("shared_ffn as a multiple of ffn={}, found {}", width, shared);
  out["n_shared_experts"] = shared / width;
  out["num_nextn_predict_layers"] = number(of(keys, "mtp"));
  return "";
}

// Returns the rows of mixtures whose router is that of DeepSeek-V3.
std::vector<ConfigRow> sigmoid_rows() {
  return with(two_widths(),
              {same("n_routed_experts", "experts"), same("num_experts_per_tok", "top_k"),
               same("first_k_dense_replace", "dense_layers"),
               boolean("norm_topk_prob", "normalize"), implied("router", "sigmoid"),
               implied("choice_bias", "1"), implied("group_best", "2"), same("n_group", "groups"),
               same("topk_group", "top_groups"), real("routed_scaling_factor", "route_scale")});
}

const Texts& sigmoid_keys() {
  static const Texts keys = {"theta", "rope_scaling", "shared_ffn", "balance", "mtp", "mtp_loss"};
  return keys;
}

void read_deepseek_v3(ConfigReader& reader) {
  const json plain = reader.value("qk_nope_head_dim"), turned = reader.value("qk_rope_head_dim");
  for (const json* size : {&plain, &turned}) {
    if (!size->is_number_integer() || *size < 1 || *size > kMaxModelSize) {
      return reader.fail(
          "qk_nope_head_dim and qk_rope_head_dim must be whole numbers of at least 1");
    }
  }
  reader.given("head_dim");  // theirs is that of the turned elements
  reader.add("head_dim", fmt::format("{}", plain.get<int64_t>() + turned.get<int64_t>()));
  reader.add("rope_dim", fmt::format("{}", turned.get<int64_t>()));
  read_rotary(reader);
  read_experts(reader);
  read_shared(reader);
  if (reader.get("eps") != "1e-06")
    reader.approximate("norms of latent numbers have the epsilon of the others, not 1e-06");
}

std::string write_deepseek_v3(const Keys& keys, OrderedJson& out) {
  const auto turned = number(of(keys, "rope_dim")).get<int64_t>(),
             all = number(of(keys, "head_dim")).get<int64_t>();
  if (turned == 0) return "rope_dim above 0, found 0";
  if (real_of(keys, "eps") != 1e-6) return fmt::format("eps=1e-06, found {}", of(keys, "eps"));
  if (of(keys, "balance") != "0") return fmt::format("balance=0, found {}", of(keys, "balance"));
  out["qk_nope_head_dim"] = all - turned;
  out["qk_rope_head_dim"] = turned;
  out["head_dim"] = turned;
  if (of(keys, "q_rank") == "0") out["q_lora_rank"] = nullptr;
  return write_shared(keys, out);
}

ModelType deepseek_v3() {
  Texts own = sigmoid_keys();
  own.insert(own.end(), {"head_dim", "rope_dim"});
  return {"deepseek_v3",
          "mixtral",
          "DeepseekV3ForCausalLM",
          with(sigmoid_rows(),
               {same_or_null("q_lora_rank", "q_rank"),
                same("kv_lora_rank", "kv_rank"),
                same("v_head_dim", "value_dim"),
                without_bias(),
                must_be("moe_layer_freq", {"1"}, "1"),
                must_be("scoring_func", {"\"sigmoid\""}, "\"sigmoid\""),
                must_be("topk_method", {"\"noaux_tc\""}, "\"noaux_tc\""),
                {"rope_interleave",
                 "",
                 "",
                 false,
                 {{"true", "rotary_pairs=neighbours"}, {"false", "rotary_pairs=halves"}}}}),
          read_deepseek_v3,
          write_deepseek_v3,
          spell_rotary,
          own};
}

ModelType glm4_moe() {
  Texts own = sigmoid_keys();
  own.emplace_back("rotary_dim");
  return {"glm4_moe",
          "mixtral",
          "Glm4MoeForCausalLM",
          with(sigmoid_rows(), {head_dim(), qkv_bias(), boolean("use_qk_norm", "qk_norm")}),
          [](ConfigReader& reader) {
            // Theirs rounds the width of a head down where nothing states it.
            const int64_t heads = reader.count("heads");
            if (reader.get("head_dim").empty() && heads > 0)
              reader.add("head_dim", fmt::format("{}", reader.count("hidden") / heads));
            read_partial_rotary(reader, "0.5");
            read_experts(reader);
            read_shared(reader);
          },
          [](const Keys& keys, OrderedJson& out) -> std::string {
            if (of(keys, "balance") != "0")
              return fmt::format("balance=0, found {}", of(keys, "balance"));
            return write_shared(keys, out);
          },
          spell_partial_rotary,
          own};
}

void read_gpt_oss(ConfigReader& reader) {
  read_rotary(reader);
  read_experts(reader);
  add_layer_windows(reader.value("sliding_window"),
                    full_layers("sliding_attention", each_of(reader.count("layers"), 2), reader),
                    reader);
}

std::string write_gpt_oss(const Keys& keys, OrderedJson& out) {
  out["sliding_window"] = window_of(keys).is_null() ? json(128) : window_of(keys);
  out["layer_types"] = layer_types_of(keys, "sliding_attention");
  write_balance(keys, out);
  return "";
}

ModelType gpt_oss() {
  return {"gpt_oss",
          "mixtral",
          "GptOssForCausalLM",
          with(decoder_rows(),
               {same("head_dim", "head_dim"), attention_bias(),
                same("num_local_experts", "experts"), same("num_experts_per_tok", "top_k"),
                implied("normalize", "1"), implied("router_bias", "1"), implied("sinks", "1"),
                implied("expert_bias", "1"), implied("up_shift", "1"),
                real("swiglu_alpha", "gate_alpha"), real("swiglu_limit", "gate_limit")}),
          read_gpt_oss,
          write_gpt_oss,
          spell_rotary,
          {"theta", "rope_scaling", "window", "full_every", "balance"}};
}

// Reads Llama 4. Its layers without positions attend to all tokens, the others to their chunk.
void read_llama4(ConfigReader& reader) {
  read_rotary(reader);
  read_experts(reader);
  const int64_t layers = reader.count("layers"), step = reader.count("experts_every");
  const json mixtures = reader.value("moe_layers");
  const auto is_layer = [](const json& each) { return each.is_number_integer(); };
  if (!mixtures.is_null() &&
      (!mixtures.is_array() || !std::all_of(mixtures.begin(), mixtures.end(), is_layer)))
    return reader.unsupported("moe_layers", mixtures, "null, a list of layers");
  if (mixtures.is_array()) {
    std::vector<bool> given(static_cast<size_t>(layers), false);
    for (const json& layer : mixtures) {
      if (layer >= 0 && layer < layers) given[layer.get<size_t>()] = true;
    }
    if (given != each_of(layers, step)) {
      reader.approximate(fmt::format("{} has experts, not those of moe_layers", every_block(step)));
    }
  }
  add_unturned(reader);
  const json chunk = reader.value("attention_chunk_size"),
             tuned = reader.value("attn_temperature_tuning"), floor = reader.value("floor_scale"),
             rise = reader.value("attn_scale");
  // Published files also have a number in place of true.
  const bool rises = tuned == true || (tuned.is_number() && tuned != 0);
  if (rises && !reader.get("unturned_every").empty()) {
    reader.add("scores_rise_at", reader.text_of("floor_scale", floor));
    reader.add("scores_rise", reader.text_of("attn_scale", rise));
  }
  if (chunk.is_null()) return;
  if (!chunk.is_number_integer() || chunk < 2)
    return reader.unsupported("attention_chunk_size", chunk, "null, 2, 3, ...");
  const int64_t unturned = reader.count("unturned_every");
  const std::vector<bool> full =
      full_layers("chunked_attention", each_of(layers, unturned), reader);
  if (std::count(full.begin(), full.end(), true) == layers) return;
  reader.add("chunk", chunk.dump());
  const int64_t seq = reader.count("seq"), size = reader.count("chunk");
  if (size > 0 && seq > size && seq % size != 0) {
    reader.add("seq", fmt::format("{}", seq - seq % size));
    reader.remark(fmt::format("sequences have {} of {} tokens, a multiple of "
                              "attention_chunk_size={}",
                              seq - seq % size, seq, size),
                  "seq");
  }
  add_full_every(full, reader);
}

std::string write_llama4(const Keys& keys, OrderedJson& out) {
  const bool rises = of(keys, "scores_rise_at") != "0", chunks = of(keys, "chunk") != "0";
  write_unturned(keys, out);
  write_balance(keys, out);
  out["attn_temperature_tuning"] = rises;
  if (rises) {
    out["floor_scale"] = number(of(keys, "scores_rise_at"));
    out["attn_scale"] = real_of(keys, "scores_rise");
  }
  out["attention_chunk_size"] = chunks ? number(of(keys, "chunk")) : json(nullptr);
  out["layer_types"] = types_of_every(keys, chunks ? "chunked_attention" : "full_attention");
  return "";
}

ModelType llama4() {
  return {
      "llama4_text",
      "mixtral",
      "Llama4ForCausalLM",
      with(decoder_rows(), {same("intermediate_size", "shared_ffn"),
                            implied("shared_ffn", "=ffn"),
                            same("intermediate_size_mlp", "dense_ffn"),
                            same("head_dim", "head_dim"),
                            attention_bias(),
                            same("num_local_experts", "experts"),
                            same("num_experts_per_tok", "top_k"),
                            same("interleave_moe_layer_step", "experts_every"),
                            implied("normalize", "0"),
                            implied("router", "sigmoid"),
                            implied("weigh_before", "1"),
                            implied("rotary_pairs", "neighbours"),
                            {"use_qk_norm",
                             "",
                             "",
                             false,
                             {{"true", "qk_norm=1,qk_norm_over=turned"}, {"false", "qk_norm=0"}}},
                            must_be("router_jitter_noise", {"0.0"})}),
      read_llama4,
      write_llama4,
      spell_rotary,
      {"theta", "rope_scaling", "unturned_every", "scores_rise_at", "scores_rise", "chunk",
       "full_every", "balance"}};
}

// ---- state space

// Reads Mamba-2: blocks of state space alone. Its heads are as many as make expand times its width.
void read_mamba2(ConfigReader& reader) {
  reader.add("pattern", "M");
  const json expand = reader.value("expand"), width = reader.value("head_dim");
  const int64_t heads = reader.count("ssm_heads"), hidden = reader.count("hidden");
  if (!expand.is_number() || !width.is_number() ||
      expand.get<double>() * static_cast<double>(hidden) !=
          static_cast<double>(heads) * width.get<double>()) {
    return reader.fail(fmt::format(
        "expand: expected expand * hidden_size = num_heads * head_dim, found {} * {} and {} * {}",
        shown(expand), hidden, heads, shown(width)));
  }
  for (const char* key : {"time_step_rank", "time_step_min", "time_step_max", "time_step_floor",
                          "rescale_prenorm_residual", "residual_in_fp32"})
    reader.given(key);  // they concern initial values, and streams in 16 bits
}

std::string write_mamba2(const Keys& keys, OrderedJson& out) {
  const std::string& pattern = of(keys, "pattern");
  if (pattern.find_first_not_of('M') != std::string::npos)
    return fmt::format("a pattern of M alone, found {}", pattern);
  if (of(keys, "mtp") != "0") return fmt::format("mtp=0, found {}", of(keys, "mtp"));
  const double width = real_of(keys, "ssm_heads") * real_of(keys, "ssm_head_dim"),
               expand = width / real_of(keys, "hidden");
  if (expand != std::floor(expand))
    return fmt::format("ssm_heads * ssm_head_dim as a multiple of hidden, found {}", width);
  out["expand"] = std::llround(expand);
  return "";
}

ModelType mamba2() {
  return {"mamba2",
          "nemotron_h",
          "Mamba2ForCausalLM",
          {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
           same("vocab_size", "vocab"), same("num_heads", "ssm_heads"),
           same("head_dim", "ssm_head_dim"), same("n_groups", "ssm_groups"),
           same("state_size", "state"), same("conv_kernel", "conv"), same("chunk_size", "chunk"),
           real("layer_norm_epsilon", "eps"), boolean("tie_word_embeddings", "tied"),
           must_be("hidden_act", {"\"silu\""}), must_be("use_bias", {"false"}),
           must_be("use_conv_bias", {"true"}),
           must_be("time_step_limit", {R"([0.0, {"__float__": "Infinity"}])"}),
           implied("heads", "1"), implied("kv_heads", "1")},
          read_mamba2,
          write_mamba2,
          nullptr,
          // Keys of blocks that the pattern does not have.
          {"pattern", "heads", "kv_heads", "head_dim", "ffn", "experts", "top_k", "expert_ffn",
           "shared_ffn", "latent", "balance", "z_loss", "mtp_pattern", "mtp_loss"}};
}

}  // namespace

std::vector<ModelType> recent_decoders() {
  std::vector<ModelType> types = {phi3(),   olmo2(),     smollm3(),     gemma2(),   gemma3(),
                                  glm4(),   qwen3_moe(), deepseek_v3(), glm4_moe(), gpt_oss(),
                                  llama4(), mamba2(),    qwen3_next()};
  // The row of a padding token would not be trained, and its default may lie outside of the table.
  for (ModelType& type : types) type.also = {{"pad_token_id", nullptr}};
  return types;
}

}  // namespace tessera::huggingface
