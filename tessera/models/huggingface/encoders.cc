// The rows of GPT-2, BERT, ViT and T5.
#include <fmt/format.h>

#include "tessera/models/huggingface/rows.h"

namespace tessera::huggingface {
namespace {

ModelType gpt2() {
  return {"gpt2",
          "gpt",
          "GPT2LMHeadModel",
          {same("n_layer", "layers"), same("n_embd", "hidden"), same("n_head", "heads"),
           implied("kv_heads", "=heads"), same("n_positions", "seq"), same("vocab_size", "vocab"),
           same_or_null("n_inner", "ffn"), real("layer_norm_epsilon", "eps"),
           boolean("tie_word_embeddings", "tied"), must_be("scale_attn_weights", {"true"}),
           must_be("scale_attn_by_inverse_layer_idx", {"false"}),
           must_be("add_cross_attention", {"false"}), must_be("is_causal", {"true"}, "true"),
           activation("activation_function")}};
}

ModelType bert() {
  return {"bert",
          "bert",
          "BertForMaskedLM",
          {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
           same("num_attention_heads", "heads"), same("max_position_embeddings", "seq"),
           same("vocab_size", "vocab"), same("intermediate_size", "ffn"),
           same("type_vocab_size", "types"), real("layer_norm_eps", "eps"),
           same_or_null("mask_token_id", "mask", "null"), must_be("tie_word_embeddings", {"true"}),
           must_be("position_embedding_type", {"\"absolute\""}, "\"absolute\""),
           must_be("is_decoder", {"false"}), must_be("add_cross_attention", {"false"}),
           activation("hidden_act")}};
}

// Reads the number of classes: the number of names in id2label, or num_labels, or without both 2. A
// single class is refused, because transformers then uses the loss of a regression.
void read_vit(ConfigReader& reader) {
  const json names = reader.value("id2label"), count = reader.value("num_labels", "null");
  const bool named = names.is_object();
  const std::string classes = named             ? fmt::format("{}", names.size())
                              : count.is_null() ? "2"
                                                : reader.text_of("num_labels", count);
  if (named && !count.is_null() && reader.text_of("num_labels", count) != classes)
    return reader.unsupported("num_labels", count, classes + ", names in id2label");
  if (classes == "1") return reader.unsupported("num_labels", 1, "2, 3, ...");
  reader.add("classes", classes);
}

std::string write_vit(const Keys& keys, OrderedJson& out) {
  const auto classes = number(of(keys, "classes")).get<int64_t>();
  OrderedJson names = OrderedJson::object(), numbers = OrderedJson::object();
  for (int64_t i = 0; i < classes; ++i) {
    const std::string name = fmt::format("LABEL_{}", i);
    names[fmt::format("{}", i)] = name;
    numbers[name] = i;
  }
  out["id2label"] = std::move(names);
  out["label2id"] = std::move(numbers);
  return "";
}

ModelType vit() {
  return {"vit",
          "vit",
          "ViTForImageClassification",
          {same("num_hidden_layers", "layers"), same("hidden_size", "hidden"),
           same("num_attention_heads", "heads"), same("image_size", "image"),
           same("patch_size", "patch"), same("num_channels", "channels"),
           same("intermediate_size", "ffn"), real("layer_norm_eps", "eps"),
           must_be("qkv_bias", {"true"}),
           must_be("problem_type", {"null", "\"single_label_classification\""}),
           implied("pool", "class"), activation("hidden_act")},
          read_vit,
          write_vit,
          nullptr,
          {"classes"}};
}

// Reads T5. If the file does not say whether the head's input is divided, a tied head divides it.
// Keys that older versions derived from feed_forward_proj are read if the file has them.
void read_t5(ConfigReader& reader) {
  const json layers = number(reader.get("layers")), decoder = reader.value("num_decoder_layers");
  if (!decoder.is_null() && decoder != layers)
    reader.unsupported("num_decoder_layers", decoder, reader.get("layers") + ", num_layers");
  if (reader.get("scaled_head").empty()) reader.add("scaled_head", reader.get("tied"));
  if (reader.given("dense_act_fn") != nullptr) reader.read(activation("dense_act_fn"));
  if (reader.given("is_gated_act") != nullptr) reader.read(boolean("is_gated_act", "gated"));
}

std::string write_t5(const Keys& keys, OrderedJson& out) {
  out["num_decoder_layers"] = number(of(keys, "layers"));
  return "";
}

// Spells whether the head's input is divided. transformers 4 divides it if the head is tied, 5 if
// scale_decoder_outputs is true; 5 also ties the head if the file has no other head.
void spell_t5(const Keys& keys, OrderedJson& out) {
  const bool scaled = of(keys, "scaled_head") == "1";
  out["scale_decoder_outputs"] = scaled;
  out["tie_word_embeddings"] = scaled;
}

ModelType t5() {
  return {"t5",
          "t5",
          "T5ForConditionalGeneration",
          {same("num_layers", "layers"),
           same("d_model", "hidden"),
           same("num_heads", "heads"),
           same("d_kv", "head_dim"),
           same("n_positions", "source", "512"),
           same("n_positions", "seq", "512"),
           same("vocab_size", "vocab"),
           same("d_ff", "ffn"),
           same("relative_attention_num_buckets", "buckets"),
           same("relative_attention_max_distance", "max_distance"),
           real("layer_norm_epsilon", "eps"),
           {"tie_word_embeddings",
            "",
            "true",
            false,
            {{"true", "tied=1"}, {"false", "tied=0"}, {"null", "tied=1"}}},
           {"scale_decoder_outputs", "scaled_head", "null", true, {}, Written::kBoolean},
           must_be("is_causal", {"true"}, "true"),
           {"feed_forward_proj",
            "",
            "",
            false,
            {{"\"relu\"", "gated=0,activation=relu"},
             {"\"gelu\"", "gated=0,activation=gelu_erf"},
             {"\"silu\"", "gated=0,activation=silu"},
             {"\"gelu_new\"", "gated=0,activation=gelu"},
             {"\"gated-gelu\"", "gated=1,activation=gelu"},
             {"\"gated-gelu_new\"", "gated=1,activation=gelu"},
             {"\"gated-silu\"", "gated=1,activation=silu"},
             {"\"gated-relu\"", "gated=1,activation=relu"}}},
           implied("scaled_scores", "0")},
          read_t5,
          write_t5,
          spell_t5};
}

}  // namespace

std::vector<ModelType> gpts() { return {gpt2()}; }
std::vector<ModelType> encoders() { return {bert(), vit(), t5()}; }

}  // namespace tessera::huggingface
