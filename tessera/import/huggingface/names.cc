#include "tessera/import/huggingface/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/models/huggingface/huggingface.h"

namespace tessera {
namespace {

// The blocks of our model to which a row applies. The number of a block in their names is counted
// from the first of these blocks.
enum class Blocks : uint8_t { kAll, kFirstHalf, kSecondHalf };

// A row of the table of a family (names.h). If several rows fit a tensor, the first one applies.
struct NameRow {
  std::string ours, theirs, layout = "";
  Blocks blocks = Blocks::kAll;
  std::string beside = "";  // the row applies only to models that also have this tensor
  // Ends of the names of our tensors, of the same block, whose rows follow each other in their array:
  // once, or for each index of the dim `each`, which all of them have.
  std::vector<std::string> fused = {};
  std::string each = "";
};

struct TypeNames {
  std::vector<std::string> types;  // model types with these names
  std::vector<NameRow> rows;
  HuggingFaceFiles files;
};

constexpr std::string_view kQuery = "(heads group head_dim) hidden",
                           kKey = "(heads head_dim) hidden", kOut = "hidden (heads group head_dim)",
                           kQueryBias = "(heads group head_dim)", kKeyBias = "(heads head_dim)",
                           kUp = "ffn hidden", kDown = "hidden ffn", kQueryHeads = "(heads group)";

// Adds the rows of a product and its bias.
void add(std::vector<NameRow>& rows, const std::string& ours, const std::string& theirs,
         std::string_view weight = "", std::string_view bias = "", Blocks blocks = Blocks::kAll) {
  rows.push_back({ours + ".weight", theirs + ".weight", std::string(weight), blocks});
  rows.push_back({ours + ".bias", theirs + ".bias", std::string(bias), blocks});
}

TypeNames gpt() {
  TypeNames names{{"gpt2"},
                  {{"embed.token.weight", "transformer.wte.weight"},
                   {"embed.position.weight", "transformer.wpe.weight"},
                   {"head.weight", "lm_head.weight"}},
                  {{{"transformer.", ""}},
                   {".attn.bias", ".attn.masked_bias"},
                   {{"lm_head.weight", "transformer.wte.weight", "tied"}}}};
  std::vector<NameRow>& rows = names.rows;
  const std::string ours = "blocks.*.", theirs = "transformer.h.*.";
  add(rows, "final.ln", "transformer.ln_f");
  add(rows, ours + "ln_1", theirs + "ln_1");
  add(rows, ours + "ln_2", theirs + "ln_2");
  // GPT-2's weights of products are [in, out], as ours are.
  const std::string fused = theirs + "attn.c_attn";
  add(rows, ours + "attn.q", fused, "hidden (1/3 heads group head_dim)",
      "(1/3 heads group head_dim)");
  add(rows, ours + "attn.k", fused, "hidden (2/3 heads head_dim)", "(2/3 heads head_dim)");
  add(rows, ours + "attn.v", fused, "hidden (3/3 heads head_dim)", "(3/3 heads head_dim)");
  add(rows, ours + "attn.out", theirs + "attn.c_proj", "(heads group head_dim) hidden");
  add(rows, ours + "mlp.up", theirs + "mlp.c_fc");
  add(rows, ours + "mlp.down", theirs + "mlp.c_proj");
  return names;
}

// Returns the rows that are equal for Llama and its relatives: all rows outside the blocks, and all
// rows of a block except the MLP's.
std::vector<NameRow> llama_rows() {
  std::vector<NameRow> rows = {{"embed.token.weight", "model.embed_tokens.weight"},
                               {"final.ln.weight", "model.norm.weight"},
                               {"head.weight", "lm_head.weight"}};
  const std::string ours = "blocks.*.", theirs = "model.layers.*.";
  rows.push_back({ours + "ln_1.weight", theirs + "input_layernorm.weight"});
  rows.push_back({ours + "ln_2.weight", theirs + "post_attention_layernorm.weight"});
  rows.push_back({ours + "attn.q_head_norm.weight", theirs + "self_attn.q_norm.weight"});
  rows.push_back({ours + "attn.k_head_norm.weight", theirs + "self_attn.k_norm.weight"});
  add(rows, ours + "attn.q", theirs + "self_attn.q_proj", kQuery, kQueryBias);
  add(rows, ours + "attn.k", theirs + "self_attn.k_proj", kKey, kKeyBias);
  add(rows, ours + "attn.v", theirs + "self_attn.v_proj", kKey, kKeyBias);
  add(rows, ours + "attn.out", theirs + "self_attn.o_proj", kOut);
  return rows;
}

// Returns the rules of Llama and its relatives. The language model of a file with images has its names
// behind a prefix, which versions of transformers spell in two ways.
HuggingFaceFiles llama_files() {
  HuggingFaceFiles files = {{{"model.", "language_model.model."},
                             {"model.", "model.language_model."},
                             {"lm_head.", "language_model.lm_head."}},
                            {".rotary_emb.inv_freq"},
                            {{"lm_head.weight", "model.embed_tokens.weight", "tied"}}};
  for (const char* part : {"vision_tower.", "vision_model.", "multi_modal_projector."}) {
    files.unused.push_back(fmt::format("{}*", part));
    files.unused.push_back(fmt::format("model.{}*", part));
  }
  return files;
}

constexpr const char* kOurMlp = "blocks.*.mlp.";
constexpr const char* kTheirMlp = "model.layers.*.mlp.";

// Adds the rows of a gated MLP of three arrays.
void add_mlp(std::vector<NameRow>& rows, const std::string& ours, const std::string& theirs) {
  rows.push_back({ours + "gate.weight", theirs + "gate_proj.weight", std::string(kUp)});
  rows.push_back({ours + "up.weight", theirs + "up_proj.weight", std::string(kUp)});
  rows.push_back({ours + "down.weight", theirs + "down_proj.weight", std::string(kDown)});
}
// Adds the rows of a gated MLP whose first two products are one array.
void add_fused_mlp(std::vector<NameRow>& rows) {
  const std::string ours = kOurMlp, theirs = kTheirMlp;
  rows.push_back({ours + "gate.weight", theirs + "gate_up_proj.weight", "(1/2 ffn) hidden"});
  rows.push_back({ours + "up.weight", theirs + "gate_up_proj.weight", "(2/2 ffn) hidden"});
  rows.push_back({ours + "down.weight", theirs + "down_proj.weight", std::string(kDown)});
}
// Adds the rows of experts that have three arrays each, of their router, and of a shared MLP, whose
// scope is `shared`.
void add_experts(std::vector<NameRow>& rows, const std::string& shared = "shared_experts.") {
  const std::string ours = "blocks.*.moe.", theirs = kTheirMlp;
  rows.push_back({ours + "router.weight", theirs + "gate.weight", "experts hidden"});
  rows.push_back({ours + "route.bias", theirs + "gate.e_score_correction_bias"});
  add_mlp(rows, ours + "shared.", theirs + shared);
  add_mlp(rows, ours, theirs + "experts.#.");
}

// Adds the names of blocks that predict further tokens. Their token table and head are copies.
void add_further(TypeNames& names) {
  const std::string ours = "blocks.*.", theirs = "model.layers.*.";
  for (const auto& [name, other] : {std::pair{ours + "token_norm", "enorm"},
                                    {ours + "state_norm", "hnorm"},
                                    {"final.*", "shared_head.norm"}})
    names.rows.push_back({name + ".weight", theirs + other + ".weight"});
  names.rows.push_back(
      {ours + "token.weight", theirs + "eh_proj.weight", "hidden_out (1/2 hidden)"});
  names.rows.push_back(
      {ours + "state.weight", theirs + "eh_proj.weight", "hidden_out (2/2 hidden)"});
  names.files.copies.push_back({theirs + "embed_tokens.weight", "model.embed_tokens.weight"});
  names.files.copies.push_back({theirs + "shared_head.head.weight", "lm_head.weight"});
  names.files.further = "eh_proj.weight";
}

// Returns the rows of norms of a block, by the ends of their names. A row of llama_rows() applies
// where none of these does.
std::vector<NameRow> norm_rows(
    const std::vector<std::pair<std::string, std::string>>& ours_and_theirs) {
  std::vector<NameRow> rows;
  for (const auto& [ours, theirs] : ours_and_theirs)
    rows.push_back({"blocks.*." + ours + ".weight", "model.layers.*." + theirs + ".weight"});
  return rows;
}

// Returns a table of decoders: `first` rows, and those of Llama.
TypeNames decoder(std::vector<std::string> types, std::vector<NameRow> first = {}) {
  TypeNames names{std::move(types), std::move(first), llama_files()};
  const std::vector<NameRow> rest = llama_rows();
  names.rows.insert(names.rows.end(), rest.begin(), rest.end());
  return names;
}

TypeNames llama() {
  TypeNames names = decoder({"llama", "mistral", "qwen2", "qwen3", "smollm3"});
  add_mlp(names.rows, kOurMlp, kTheirMlp);
  return names;
}

TypeNames gemma() {
  TypeNames names =
      decoder({"gemma2", "gemma3_text"}, norm_rows({{"ln_1_after", "post_attention_layernorm"},
                                                    {"ln_2", "pre_feedforward_layernorm"},
                                                    {"ln_2_after", "post_feedforward_layernorm"}}));
  add_mlp(names.rows, kOurMlp, kTheirMlp);
  return names;
}

TypeNames olmo2() {
  std::vector<NameRow> first = norm_rows(
      {{"ln_1_after", "post_attention_layernorm"}, {"ln_2_after", "post_feedforward_layernorm"}});
  for (const auto& [name, layout] : {std::pair{"q", kQueryBias}, std::pair{"k", kKeyBias}}) {
    first.push_back({fmt::format("blocks.*.attn.{}_head_norm.weight", name),
                     fmt::format("model.layers.*.self_attn.{}_norm.weight", name),
                     std::string(layout)});
  }
  TypeNames names = decoder({"olmo2"}, std::move(first));
  add_mlp(names.rows, kOurMlp, kTheirMlp);
  return names;
}

TypeNames glm4() {
  TypeNames names = decoder({"glm4"}, norm_rows({{"ln_1_after", "post_self_attn_layernorm"},
                                                 {"ln_2_after", "post_mlp_layernorm"}}));
  add_fused_mlp(names.rows);
  return names;
}

TypeNames phi3() {
  std::vector<NameRow> first;
  for (const auto& [name, layout] :
       {std::pair{"q", kQuery}, std::pair{"k", kKey}, std::pair{"v", kKey}}) {
    first.push_back({fmt::format("blocks.*.attn.{}.weight", name),
                     "model.layers.*.self_attn.qkv_proj.weight",
                     std::string(layout),
                     Blocks::kAll,
                     "",
                     {"attn.q.weight", "attn.k.weight", "attn.v.weight"}});
  }
  TypeNames names = decoder({"phi3"}, std::move(first));
  add_fused_mlp(names.rows);
  return names;
}

TypeNames mixtral() {
  TypeNames names = decoder({"mixtral"});
  const std::string ours = "blocks.*.moe.", theirs = "model.layers.*.block_sparse_moe.";
  names.rows.push_back({ours + "router.weight", theirs + "gate.weight", "experts hidden"});
  const std::string expert = theirs + "experts.#.";
  names.rows.push_back({ours + "gate.weight", expert + "w1.weight", std::string(kUp)});
  names.rows.push_back({ours + "down.weight", expert + "w2.weight", std::string(kDown)});
  names.rows.push_back({ours + "up.weight", expert + "w3.weight", std::string(kUp)});
  return names;
}

TypeNames mixtures() {
  TypeNames names = decoder({"qwen3_moe", "glm4_moe"});
  add_mlp(names.rows, kOurMlp, kTheirMlp);
  add_experts(names.rows);
  add_further(names);
  return names;
}

// Returns the names of latent attention: queries by way of q_a and q_b, keys and values by way of kv_a, which also has
// the elements of keys that carry positions, and kv_b, which has both of each head.
TypeNames deepseek() {
  const std::string ours = "blocks.*.attn.", theirs = "model.layers.*.self_attn.";
  const std::vector<std::string> first_products = {"attn.kv_down.weight", "attn.k_rope.weight"};
  const std::string both = theirs + "kv_a_proj_with_mqa.weight";
  std::vector<NameRow> first = {
      {ours + "q_down.weight", theirs + "q_a_proj.weight", "rank hidden"},
      {ours + "q_norm.weight", theirs + "q_a_layernorm.weight"},
      {ours + "q.weight", theirs + "q_b_proj.weight", "(heads group head_dim) rank", Blocks::kAll,
       ours + "q_down.weight"},
      {ours + "kv_down.weight", both, "rank hidden", Blocks::kAll, "", first_products},
      {ours + "k_rope.weight", both, "head_dim hidden", Blocks::kAll, "", first_products},
      {ours + "kv_norm.weight", theirs + "kv_a_layernorm.weight"},
      {ours + "k.weight",
       theirs + "kv_b_proj.weight",
       "(heads head_dim) rank",
       Blocks::kAll,
       "",
       {"attn.k.weight", "attn.v.weight"},
       "heads"},
      {ours + "v.weight",
       theirs + "kv_b_proj.weight",
       "(heads value_dim|head_dim) rank",
       Blocks::kAll,
       "",
       {"attn.k.weight", "attn.v.weight"},
       "heads"},
      {ours + "out.weight", theirs + "o_proj.weight", "hidden (heads group value_dim|head_dim)"}};
  TypeNames names = decoder({"deepseek_v3"}, std::move(first));
  add_mlp(names.rows, kOurMlp, kTheirMlp);
  add_experts(names.rows);
  add_further(names);
  return names;
}

TypeNames gpt_oss() {
  TypeNames names = decoder(
      {"gpt_oss"},
      {{"blocks.*.attn.sinks.weight", "model.layers.*.self_attn.sinks", std::string(kQueryHeads)}});
  std::vector<NameRow>& rows = names.rows;
  const std::string ours = "blocks.*.moe.", theirs = kTheirMlp, experts = theirs + "experts.";
  add(rows, ours + "router", theirs + "router", "experts hidden", "experts");
  for (const auto& [name, number] : {std::pair{"gate", 1}, std::pair{"up", 2}}) {
    rows.push_back({ours + name + ".weight", experts + "gate_up_proj",
                    fmt::format("experts hidden (ffn {}/2)", number)});
    rows.push_back({ours + name + ".bias", experts + "gate_up_proj_bias",
                    fmt::format("experts (ffn {}/2)", number)});
  }
  rows.push_back({ours + "down.weight", experts + "down_proj", "experts ffn hidden"});
  rows.push_back({ours + "down.bias", experts + "down_proj_bias", "experts hidden"});
  return names;
}

TypeNames bert() {
  TypeNames names{{"bert"},
                  {{"embed.token.weight", "bert.embeddings.word_embeddings.weight"},
                   {"embed.position.weight", "bert.embeddings.position_embeddings.weight"},
                   {"embed.type.weight", "bert.embeddings.token_type_embeddings.weight"},
                   {"head.bias", "cls.predictions.bias"}},
                  {{{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}},
                   {"embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias",
                    "cls.seq_relationship.weight", "cls.seq_relationship.bias"},
                   {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                    {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
                   {{"mask", "mask_token", "[MASK]"}}}};
  std::vector<NameRow>& rows = names.rows;
  add(rows, "embed.ln", "bert.embeddings.LayerNorm");
  add(rows, "final.linear", "cls.predictions.transform.dense", "features hidden");
  add(rows, "final.ln", "cls.predictions.transform.LayerNorm");
  const std::string ours = "blocks.*.", theirs = "bert.encoder.layer.*.";
  add(rows, ours + "attn.q", theirs + "attention.self.query", kQuery, kQueryBias);
  add(rows, ours + "attn.k", theirs + "attention.self.key", kKey, kKeyBias);
  add(rows, ours + "attn.v", theirs + "attention.self.value", kKey, kKeyBias);
  add(rows, ours + "attn.out", theirs + "attention.output.dense", kOut);
  add(rows, ours + "ln_1", theirs + "attention.output.LayerNorm");
  add(rows, ours + "mlp.up", theirs + "intermediate.dense", kUp);
  add(rows, ours + "mlp.down", theirs + "output.dense", kDown);
  add(rows, ours + "ln_2", theirs + "output.LayerNorm");
  return names;
}

TypeNames vit() {
  TypeNames names{{"vit"},
                  {{"embed.class.weight", "vit.embeddings.cls_token", "1 seq hidden"},
                   {"embed.position.weight", "vit.embeddings.position_embeddings", "1 seq hidden"}},
                  {{}, {"vit.pooler.dense.weight", "vit.pooler.dense.bias"}, {}}};
  std::vector<NameRow>& rows = names.rows;
  add(rows, "embed.patch", "vit.embeddings.patch_embeddings.projection", "hidden channels y x");
  add(rows, "final.ln", "vit.layernorm");
  add(rows, "head", "classifier", "classes hidden");
  const std::string ours = "blocks.*.", theirs = "vit.encoder.layer.*.";
  add(rows, ours + "attn.q", theirs + "attention.attention.query", kQuery, kQueryBias);
  add(rows, ours + "attn.k", theirs + "attention.attention.key", kKey, kKeyBias);
  add(rows, ours + "attn.v", theirs + "attention.attention.value", kKey, kKeyBias);
  add(rows, ours + "attn.out", theirs + "attention.output.dense", kOut);
  add(rows, ours + "ln_1", theirs + "layernorm_before");
  add(rows, ours + "mlp.up", theirs + "intermediate.dense", kUp);
  add(rows, ours + "mlp.down", theirs + "output.dense", kDown);
  add(rows, ours + "ln_2", theirs + "layernorm_after");
  return names;
}

// Adds the rows of the blocks of a stack (encoder or decoder). In their names layer.0 is
// self-attention, layer.1 of the decoder is attention to the encoder, and the last layer is the
// MLP.
void add_stack(std::vector<NameRow>& rows, const std::string& stack, Blocks blocks) {
  const std::string ours = "blocks.*.", theirs = stack + ".block.*.layer.";
  const bool decoder = blocks == Blocks::kSecondHalf;
  const auto weight = [&](const std::string& name, const std::string& other,
                          std::string_view layout = "") {
    rows.push_back(
        {ours + name + ".weight", theirs + other + ".weight", std::string(layout), blocks});
  };
  const auto attention = [&](const std::string& scope, const std::string& other) {
    weight(scope + "q", other + "q", kQuery);
    weight(scope + "k", other + "k", kKey);
    weight(scope + "v", other + "v", kKey);
    weight(scope + "out", other + "o", kOut);
  };
  rows.push_back({stack + ".relative.weight",
                  stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"});
  weight("ln_1", "0.layer_norm");
  attention("attn.", "0.SelfAttention.");
  if (decoder) {
    weight("ln_cross", "1.layer_norm");
    attention("attn.cross.", "1.EncDecAttention.");
  }
  const std::string last = decoder ? "2." : "1.", mlp = last + "DenseReluDense.";
  weight("ln_2", last + "layer_norm");
  weight("mlp.gate", mlp + "wi_0", kUp);
  weight("mlp.up", mlp + "wi_1", kUp);
  rows.back().beside = "blocks.*.mlp.gate.weight";
  weight("mlp.up", mlp + "wi", kUp);
  weight("mlp.down", mlp + "wo", kDown);
}

TypeNames t5() {
  TypeNames names{{"t5"},
                  {{"embed.token.weight", "shared.weight"},
                   {"encoder.ln.weight", "encoder.final_layer_norm.weight"},
                   {"final.ln.weight", "decoder.final_layer_norm.weight"},
                   {"head.weight", "lm_head.weight"}},
                  {{},
                   {"EncDecAttention.relative_attention_bias.weight"},
                   {{"encoder.embed_tokens.weight", "shared.weight"},
                    {"decoder.embed_tokens.weight", "shared.weight"},
                    {"lm_head.weight", "shared.weight", "tied", true}}}};
  add_stack(names.rows, "encoder", Blocks::kFirstHalf);
  add_stack(names.rows, "decoder", Blocks::kSecondHalf);
  return names;
}

TypeNames llama4() {
  TypeNames names = decoder({"llama4_text"});
  std::vector<NameRow>& rows = names.rows;
  const std::string ours = "blocks.*.moe.", theirs = "model.layers.*.feed_forward.",
                    experts = theirs + "experts.";
  add_mlp(rows, kOurMlp, theirs);
  add_mlp(rows, ours + "shared.", theirs + "shared_expert.");
  rows.push_back({ours + "router.weight", theirs + "router.weight", "experts hidden"});
  rows.push_back({ours + "gate.weight", experts + "gate_up_proj", "experts hidden (1/2 ffn)"});
  rows.push_back({ours + "up.weight", experts + "gate_up_proj", "experts hidden (2/2 ffn)"});
  rows.push_back({ours + "down.weight", experts + "down_proj", "experts ffn hidden"});
  return names;
}

TypeNames mamba2() {
  TypeNames names{{"mamba2"},
                  {{"embed.token.weight", "backbone.embeddings.weight"},
                   {"final.ln.weight", "backbone.norm_f.weight"},
                   {"head.weight", "lm_head.weight"},
                   {"blocks.*.ln_1.weight", "backbone.layers.*.norm.weight"}},
                  {{}, {}, {{"lm_head.weight", "backbone.embeddings.weight", "tied"}}}};
  const std::string ours = "blocks.*.ssm.", theirs = "backbone.layers.*.mixer.";
  constexpr const char* kValues = "(heads group head_dim)";
  constexpr const char* kOfHeads = "(heads group)";
  constexpr const char* kStates = "(heads state)";
  std::vector<std::string> products, weights, biases;
  for (const char* name : {"z", "x", "b", "c", "dt"})
    products.push_back(fmt::format("ssm.{}.weight", name));
  for (const char* name : {"x", "b", "c"}) {
    weights.push_back(fmt::format("ssm.{}_conv.weight", name));
    biases.push_back(fmt::format("ssm.{}_conv.bias", name));
  }
  const auto row = [&](const std::string& name, const std::string& other, const std::string& layout,
                       const std::vector<std::string>& fused = {}) {
    names.rows.push_back({ours + name, theirs + other, layout, Blocks::kAll, "", fused});
  };
  for (const auto& [name, dims] :
       {std::pair{"z", kValues}, std::pair{"x", kValues}, std::pair{"b", kStates},
        std::pair{"c", kStates}, std::pair{"dt", kOfHeads}}) {
    row(fmt::format("{}.weight", name), "in_proj.weight", fmt::format("{} hidden", dims), products);
    row(fmt::format("{}_conv.weight", name), "conv1d.weight", fmt::format("{} 1 taps", dims),
        weights);
    row(fmt::format("{}_conv.bias", name), "conv1d.bias", dims, biases);
  }
  row("dt.bias", "dt_bias", kOfHeads);
  row("a_exp.weight", "A_log", kOfHeads);
  row("scan.weight", "D", kOfHeads);
  row("gain.weight", "norm.weight", "(heads width)");
  row("out.weight", "out_proj.weight", "hidden (heads width)");
  return names;
}

// Returns the names of gated DeltaNets beside attention with a gate. Queries and gates are one array,
// and so are the four products of a DeltaNet, and its two rates: all of them head by head.
TypeNames qwen3_next() {
  TypeNames names = decoder({"qwen3_next"});
  std::vector<NameRow> first;
  const auto row = [&](const std::string& ours, const std::string& theirs,
                       std::string_view layout = "", const std::vector<std::string>& fused = {},
                       const std::string& each = "") {
    first.push_back({"blocks.*." + ours, "model.layers.*." + theirs, std::string(layout),
                     Blocks::kAll, "", fused, each});
  };
  for (const auto& [name, number] : {std::pair{"q", 1}, std::pair{"gate", 2}}) {
    const std::string rows = fmt::format("(heads group {}/2 head_dim)", number);
    row(fmt::format("attn.{}.weight", name), "self_attn.q_proj.weight", rows + " hidden");
    row(fmt::format("attn.{}.bias", name), "self_attn.q_proj.bias", rows);
  }
  const std::string theirs = "linear_attn.";
  constexpr const char* kStates = "(heads state)";
  constexpr const char* kValues = "(heads group head_dim)";
  const std::vector<std::string> products = {"ssm.q.weight", "ssm.k.weight", "ssm.v.weight",
                                             "ssm.z.weight"},
                                 taps = {"ssm.q_conv.weight", "ssm.k_conv.weight",
                                         "ssm.v_conv.weight"};
  for (const auto& [name, dims] : {std::pair{"q", kStates}, std::pair{"k", kStates},
                                   std::pair{"v", kValues}, std::pair{"z", kValues}}) {
    row(fmt::format("ssm.{}.weight", name), theirs + "in_proj_qkvz.weight",
        fmt::format("{} hidden", dims), products, "heads");
    row(fmt::format("ssm.{}_conv.weight", name), theirs + "conv1d.weight",
        fmt::format("{} 1 taps", dims), taps);
  }
  row("ssm.beta.weight", theirs + "in_proj_ba.weight", "(heads 1/2 group) hidden");
  row("ssm.dt.weight", theirs + "in_proj_ba.weight", "(heads 2/2 group) hidden");
  row("ssm.dt.bias", theirs + "dt_bias", kQueryHeads);
  row("ssm.a_exp.weight", theirs + "A_log", kQueryHeads);
  row("ssm.norm.weight", theirs + "norm.weight");
  row("ssm.out.weight", theirs + "out_proj.weight", kOut);
  row("moe.shared_gate.weight", "mlp.shared_expert_gate.weight", "1 hidden");
  names.rows.insert(names.rows.begin(), first.begin(), first.end());
  add_mlp(names.rows, kOurMlp, kTheirMlp);
  add_experts(names.rows, "shared_expert.");
  names.files.unused.emplace_back("mtp.*");  // layers that predict further tokens
  return names;
}

const std::vector<TypeNames>& tables() {
  static const std::vector<TypeNames> all = {
      gpt(),      llama(),   gemma(),  olmo2(),  glm4(),       phi3(), mixtral(), mixtures(),
      deepseek(), gpt_oss(), llama4(), mamba2(), qwen3_next(), bert(), vit(),     t5()};
  return all;
}

const TypeNames* find_table(std::string_view type) {
  for (const TypeNames& names : tables()) {
    if (std::find(names.types.begin(), names.types.end(), type) != names.types.end()) return &names;
  }
  return nullptr;
}

// The blocks that predict further tokens are called mtp_0, mtp_1, ... here.
constexpr std::string_view kFurther = "mtp_";

// Returns the part of the name that the pattern's `*` matches, which must be a number, also behind
// kFurther, or "" if the pattern has no `*`. Returns no value if name and pattern do not match.
std::optional<std::string> star_of(const std::string& pattern, const std::string& name) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos)
    return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  if (name.size() <= head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail))
    return std::nullopt;
  const std::string text = name.substr(head.size(), name.size() - head.size() - tail.size());
  const std::string_view digits =
      std::string_view(text).substr(text.starts_with(kFurther) ? kFurther.size() : 0);
  return parse_int(digits) ? std::optional<std::string>(text) : std::nullopt;
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  const size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// The texts that stand for a block in our names and in theirs; "" outside the blocks.
struct BlockNames {
  std::string ours, theirs;
};

// Returns the names of the tensor's block if the row applies to the tensor, else no value. `blocks` is the
// number of the model's numbered blocks, behind which they count those for further tokens.
std::optional<BlockNames> block_in(const NameRow& row, const std::string& name, int64_t blocks,
                                   const std::map<std::string, const Tensor*>& parameters) {
  const auto star = star_of(row.ours, name);
  if (!star) return std::nullopt;
  if (star->empty()) return BlockNames{};
  if (!row.beside.empty() && !parameters.contains(replaced(row.beside, "*", *star)))
    return std::nullopt;
  if (star->starts_with(kFurther))
    return BlockNames{*star, std::to_string(blocks + *parse_int(star->substr(kFurther.size())))};
  const int64_t number = *parse_int(*star), half = blocks / 2;
  const bool second = row.blocks == Blocks::kSecondHalf;
  if (row.blocks != Blocks::kAll && second != (number >= half)) return std::nullopt;
  return BlockNames{*star, std::to_string(second ? number - half : number)};
}

using Parameters = std::map<std::string, const Tensor*>;

// Returns another tensor of the same block, by the end of its name.
const Tensor& neighbour(const Tensor& tensor, const std::string& block, const std::string& end,
                        const Parameters& parameters) {
  const auto found = parameters.find(fmt::format("blocks.{}.{}", block, end));
  TESSERA_CHECK(found != parameters.end(), "{}: no neighbour '{}'", tensor.name, end);
  return *found->second;
}

// A tensor for which a view is made, its block, and the model's parameters.
struct Placed {
  const Tensor& tensor;
  const BlockNames& block;
  const Parameters& parameters;

  // Returns the number of the dim that a word names, or -1. A word "a|b" names the first of them
  // that the tensor has.
  int dim(const std::string& word) const {
    for (const std::string& name : split_text(word, '|')) {
      const auto found = std::find_if(tensor.dims.begin(), tensor.dims.end(),
                                      [&](const Dim& one) { return one.name == name; });
      if (found != tensor.dims.end()) return static_cast<int>(found - tensor.dims.begin());
    }
    return -1;
  }
};

// Adds one dim of their array to the view. `text` is a dim of a layout without its brackets: "a",
// "1", "a b" or "1/3 a b".
void add_dim(const std::string& text, const Placed& placed, TensorView& view) {
  int64_t size = 1;
  for (const std::string& word : split_text(text, ' ')) {
    if (word == "1") continue;
    const size_t slash = word.find('/');
    if (slash != std::string::npos) {
      view.starts.push_back(*parse_int(word.substr(0, slash)) - 1);
      view.dims.push_back(TensorView::kPart);
      view.split_shape.push_back(*parse_int(word.substr(slash + 1)));
    } else {
      const int dim = placed.dim(word);
      TESSERA_CHECK(dim >= 0, "{}: layout: dim '{}'", placed.tensor.name, word);
      view.starts.push_back(0);
      view.dims.push_back(dim);
      view.split_shape.push_back(placed.tensor.dims[static_cast<size_t>(dim)].size);
    }
    size *= view.split_shape.back();
  }
  view.array_shape.push_back(size);
}

// Counts the elements of other tensors that their array has too, before and after ours.
void add_fused(const NameRow& row, const Placed& placed, TensorView& view) {
  int64_t of_row = 1, before = 0, all = 0;
  for (size_t d = 1; d < view.array_shape.size(); ++d) of_row *= view.array_shape[d];
  for (const std::string& name : row.fused) {
    const Tensor& other = neighbour(placed.tensor, placed.block.ours, name, placed.parameters);
    if (&other == &placed.tensor) before = all;
    all += other.elements();
  }
  const int each = placed.dim(row.each);
  const int64_t times = row.each.empty() ? 1 : placed.tensor.dims[static_cast<size_t>(each)].size;
  view.first = before / times;
  view.run = placed.tensor.elements() / times;
  view.period = all / times;
  view.array_shape[0] = all / of_row;
}

std::string layout_of(const NameRow& row, const Tensor& tensor) {
  if (!row.layout.empty()) return row.layout;
  std::vector<std::string> names;
  for (const Dim& dim : tensor.dims) names.push_back(dim.name);
  return join(names, " ");
}

// The most arrays of a folder. The limit is needed because each expert has its own arrays and a
// config.json may state any number of experts.
constexpr int64_t kMostArrays = 1'000'000;

TensorView make_view(const NameRow& row, const Placed& placed) {
  const Tensor& tensor = placed.tensor;
  TensorView view;
  view.name = tensor.name;
  view.shape = tensor.shape();
  const std::string name = replaced(row.theirs, "*", placed.block.theirs);
  view.stacked = name.find('#') != std::string::npos;
  const int64_t arrays = view.stacked ? view.shape.front() : 1;
  for (int64_t i = 0; i < arrays; ++i)
    view.arrays.push_back(replaced(name, "#", std::to_string(i)));
  std::string layout = layout_of(row, tensor);
  while (!layout.empty()) {
    const bool group = layout.front() == '(';
    const size_t end = group ? layout.find(')') : std::min(layout.find(' '), layout.size());
    add_dim(group ? layout.substr(1, end - 1) : layout.substr(0, end), placed, view);
    layout = trim(std::string_view(layout).substr(std::min(end + (group ? 1 : 0), layout.size())));
  }
  if (!row.fused.empty()) add_fused(row, placed, view);
  return view;
}

}  // namespace

Box TensorView::box(const Box& region) const {
  Box out;
  for (size_t d = 0; d < dims.size(); ++d) {
    Interval place = dims[d] == kPart ? Interval{0, 1} : region.dims[static_cast<size_t>(dims[d])];
    place.begin += starts[d];
    out.dims.push_back(place);
  }
  return out;
}

std::vector<ByteRange> TensorView::ranges(const Box& box, int64_t bytes_per_element) const {
  std::vector<ByteRange> own = byte_ranges(split_shape, bytes_per_element, box);
  if (period == 0) return own;
  const int64_t length = run * bytes_per_element;
  std::vector<ByteRange> all;
  for (ByteRange left : own) {
    while (left.bytes > 0) {
      const int64_t inside = left.begin % length, bytes = std::min(left.bytes, length - inside);
      all.push_back({(left.begin / length * period + first) * bytes_per_element + inside, bytes});
      left = {left.begin + bytes, left.bytes - bytes};
    }
  }
  return all;
}

bool TensorView::same_order() const {
  int last = -1;
  for (const int dim : dims) {
    if (dim == kPart) continue;
    if (dim < last) return false;
    last = dim;
  }
  return true;
}

Result<std::string> huggingface_type_of(const Model& model) {
  if (!model.huggingface_type.empty()) return model.huggingface_type;
  TESSERA_TRY(const std::string text, huggingface_config(model.spec, DType::kFloat32));
  TESSERA_TRY(const HuggingFaceModel written, parse_huggingface_config(text, "config.json"));
  return written.type;
}

Result<std::vector<TensorView>> huggingface_views(const Model& model) {
  TESSERA_TRY(const std::string type, huggingface_type_of(model));
  const TypeNames* table = find_table(type);
  if (table == nullptr) {
    std::vector<std::string> known;
    for (const TypeNames& names : tables())
      known.insert(known.end(), names.types.begin(), names.types.end());
    return invalid_input(
        fmt::format("model '{}': expected a model type whose arrays have names here ({}), found {}",
                    model.family, join(known, ", "), type));
  }
  Parameters parameters;
  int64_t blocks = 0;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    parameters[tensor.name] = &tensor;
    const std::vector<std::string> parts = split_text(tensor.name, '.');
    if (parts.size() > 1 && parts[0] == "blocks")
      blocks = std::max(blocks, parse_int(parts[1]).value_or(-1) + 1);
  }
  std::vector<TensorView> views;
  int64_t arrays = 0;
  for (const Tensor& tensor : model.graph.tensors()) {
    if (tensor.role != Role::kParameter) continue;
    const size_t before = views.size();
    for (const NameRow& row : table->rows) {
      const auto block = block_in(row, tensor.name, blocks, parameters);
      if (!block) continue;
      arrays += row.theirs.find('#') == std::string::npos ? 1 : tensor.dims.front().size;
      if (arrays > kMostArrays) {
        return invalid_input(fmt::format(
            "model '{}': expected at most {} arrays in files of Hugging Face, found more "
            "by the experts of '{}'",
            model.family, kMostArrays, tensor.name));
      }
      views.push_back(make_view(row, {tensor, *block, parameters}));
      break;
    }
    if (views.size() == before) {
      return invalid_input(fmt::format(
          "model '{}': parameter '{}': expected one that Hugging Face's models have too",
          model.family, tensor.name));
    }
  }
  return views;
}

const HuggingFaceFiles* huggingface_files(const Model& model) {
  const Result<std::string> type = huggingface_type_of(model);
  const TypeNames* names = type ? find_table(*type) : nullptr;
  return names == nullptr ? nullptr : &names->files;
}

}  // namespace tessera
