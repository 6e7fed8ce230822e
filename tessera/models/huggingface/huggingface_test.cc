// Tests configurations of Hugging Face in both directions. model_test.cc also tests the meaning of
// single keys; tests/huggingface tests that the functions are equal.
#include "tessera/models/huggingface/huggingface.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/models/huggingface/huggingface_defaults.h"
#include "tessera/models/model.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

std::string spec_of(const HuggingFaceModel& model) {
  std::string text = model.family + ":";
  for (const auto& [key, value] : model.arguments) text += fmt::format("{}={},", key, value);
  text.pop_back();
  const auto built = build_model(text, 1);
  return built ? built->spec : built.error().message;
}

std::string read(const std::string& text) {
  const auto model = parse_huggingface_config(text, "config.json");
  return model ? spec_of(*model) : model.error().message;
}

std::string written(const std::string& spec) {
  const auto model = build_model(spec, 1);
  if (!model) return model.error().message;
  const auto text = huggingface_config(model->spec, DType::kFloat32);
  return text ? *text : text.error().message;
}

const std::string kDecoder =
    R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
       "num_key_value_heads": 2, "max_position_embeddings": 12, "vocab_size": 37)";
const std::string kEncoder =
    R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4)";
const std::string kT5 = R"({"model_type": "t5", "d_model": 16, "d_kv": 6, "d_ff": 24,
                            "num_layers": 2, "num_heads": 4, "vocab_size": 37)";

std::vector<std::string> configurations() {
  return {
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 12,
          "vocab_size": 37, "activation_function": "gelu"})",
      R"({"model_type": "llama", "attention_bias": true, "tie_word_embeddings": true, )" +
          kDecoder + "}",
      R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}, )" +
          kDecoder + "}",
      R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, )" + kDecoder +
          "}",
      R"({"model_type": "mistral", "sliding_window": 5, )" + kDecoder + "}",
      R"({"model_type": "mixtral", "num_local_experts": 4, )" + kDecoder + "}",
      R"({"model_type": "qwen2", "rope_theta": 1000000.0, )" + kDecoder + "}",
      R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 5,
          "max_window_layers": 0, )" +
          kDecoder + "}",
      R"({"model_type": "qwen3", "head_dim": 6, )" + kDecoder + "}",
      R"({"model_type": "bert", "vocab_size": 37, "max_position_embeddings": 12, )" + kEncoder +
          "}",
      R"({"model_type": "bert", "vocab_size": 37, "mask_token_id": 3, )" + kEncoder + "}",
      R"({"model_type": "vit", "image_size": 8, "patch_size": 4, "num_labels": 5, )" + kEncoder +
          "}",
      kT5 + "}",
      kT5 + R"(, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})",
      R"({"model_type": "phi3", "sliding_window": 5, "partial_rotary_factor": 0.5, )" + kDecoder +
          "}",
      R"({"model_type": "phi3", "original_max_position_embeddings": 8, "rope_scaling":
          {"type": "longrope", "short_factor": [1.25], "long_factor": [2.0]},
          "partial_rotary_factor": 0.5, )" +
          kDecoder + "}",
      R"({"model_type": "olmo2", "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
          "factor": 8.0, "original_max_position_embeddings": 8192}, )" +
          kDecoder + "}",
      R"({"model_type": "smollm3", "no_rope_layer_interval": 2, )" + kDecoder + "}",
      R"({"model_type": "gemma2", "head_dim": 6, "query_pre_attn_scalar": 9,
          "final_logit_softcapping": null, )" +
          kDecoder + "}",
      R"({"model_type": "gemma3_text", "head_dim": 6, "query_pre_attn_scalar": 6,
          "sliding_window_pattern": 2, )" +
          kDecoder + "}",
      R"({"model_type": "glm4", "head_dim": 8, )" + kDecoder + "}",
      R"({"model_type": "qwen3_moe", "head_dim": 6, "num_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 12, "mlp_only_layers": [0], )" +
          kDecoder + "}",
      R"({"model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 3,
          "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "kv_lora_rank": 8,
          "q_lora_rank": null, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
          "moe_intermediate_size": 12, "rope_parameters": {"rope_type": "yarn",
          "rope_theta": 10000.0, "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 0.7,
          "original_max_position_embeddings": 8192}, )" +
          kDecoder + "}",
      R"({"model_type": "glm4_moe", "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 12, "use_qk_norm": true, )" +
          kDecoder + "}",
      R"({"model_type": "gpt_oss", "head_dim": 8, "num_local_experts": 4, "sliding_window": 5,
          "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0,
          "truncate": false, "original_max_position_embeddings": 8}, )" +
          kDecoder + "}",
      R"({"model_type": "llama4_text", "head_dim": 6, "num_local_experts": 4,
          "interleave_moe_layer_step": 2, "intermediate_size_mlp": 20, "attention_chunk_size": 4,
          "no_rope_layer_interval": 2, )" +
          kDecoder + "}",
      R"({"model_type": "mamba2", "hidden_size": 16, "num_heads": 8, "head_dim": 4, "state_size": 6,
          "n_groups": 2, "num_hidden_layers": 2, "vocab_size": 37,
          "time_step_limit": [0.0, {"__float__": "Infinity"}]})",
      R"({"model_type": "qwen3_next", "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 12, "shared_expert_intermediate_size": 10,
          "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, )" +
          kDecoder + "}",
  };
}

TEST(HuggingFaceConfig, WhatIsWrittenReadsAsTheSameModelOfTheSameType) {
  for (const std::string& text : configurations()) {
    const std::string spec = read(text), again = written(spec);
    ASSERT_FALSE(Json::parse(again, nullptr, false).is_discarded()) << spec << ": " << again;
    EXPECT_EQ(read(again), spec);
    EXPECT_EQ(Json::parse(again)["model_type"], Json::parse(text)["model_type"]);
    EXPECT_EQ(Json::parse(again)["dtype"], "float32");
  }
}

TEST(HuggingFaceConfig, EveryTypeIsAmongTheConfigurationsAbove) {
  std::vector<std::string> types;
  for (const std::string& text : configurations()) {
    const std::string type = Json::parse(text)["model_type"];
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_EQ(types, huggingface_written_types());
}

// Each key of a type's configuration class in transformers is read, or the script that makes the
// table (scripts/huggingface_defaults.py) gives a reason why not.
TEST(HuggingFaceConfig, EveryKeyOfTheClassesIsRead) {
  const Json defaults = Json::parse(huggingface_defaults());
  ASSERT_EQ(defaults.size(), huggingface_model_types().size());
  for (const std::string& type : huggingface_model_types()) {
    const std::vector<std::string> read = huggingface_keys(type);
    for (const auto& [key, value] : defaults[type].items()) {
      if (key.front() == '(') continue;
      EXPECT_THAT(read, testing::Contains(key)) << type;
    }
  }
}

TEST(HuggingFaceConfig, AKeyThatIsLeftOutHasTheDefaultOfItsType) {
  const Json defaults = Json::parse(huggingface_defaults());
  for (const std::string& type : huggingface_model_types()) {
    Json all = defaults[type];
    all.erase("(other names)");
    all["model_type"] = type;
    Json least = {{"model_type", type}};
    // Llama 4 has more positions by default than its family computes exactly.
    const bool shorter = all.contains("floor_scale");
    if (shorter) least["max_position_embeddings"] = all["max_position_embeddings"] = 4096;
    const std::string spec = read(all.dump());
    ASSERT_THAT(spec, AnyOf(HasSubstr(":layers="), HasSubstr(",layers="))) << type;
    EXPECT_EQ(read(least.dump()), spec);
    for (const auto& [key, value] : defaults[type].items()) {
      if (key.front() == '(' || (shorter && key == "max_position_embeddings")) continue;
      Json without = all;
      without.erase(key);
      EXPECT_EQ(read(without.dump()), spec) << type << " " << key;
    }
  }
  EXPECT_THAT(read(R"({"model_type": "mixtral"})"), HasSubstr(",theta=1000000,"));
  EXPECT_THAT(read(R"({"model_type": "mixtral"})"), HasSubstr(",eps=1e-05,"));
  EXPECT_THAT(read(R"({"model_type": "llama"})"), HasSubstr(",theta=10000,"));
  EXPECT_THAT(read(R"({"model_type": "qwen3"})"), HasSubstr(",head_dim=128,"));
  EXPECT_THAT(read(R"({"model_type": "mistral"})"), HasSubstr(",window=4096,"));
  EXPECT_THAT(read(R"({"model_type": "mixtral"})"), HasSubstr(",window=0,"));
}

// Returns the sentences about a llama with `keys` more, or the error.
std::string sentences_of(const std::string& keys) {
  const auto model = parse_huggingface_config(
      R"({"model_type": "llama", )" + kDecoder + ", " + keys + "}", "config.json");
  return model ? join(model->approximations, "; ") : model.error().message;
}

TEST(HuggingFaceConfig, UnknownKeysAreNamed) {
  EXPECT_EQ(sentences_of(R"("hiden_size": 3)"),
            "the key hiden_size = 3 is unknown and not read (nearest: hidden_size)");
  EXPECT_THAT(sentences_of(R"("window": {"size": 3}, "skip": false)"),
              AllOf(HasSubstr("; the key window = an object is unknown and not read"),
                    HasSubstr("the key skip = false is unknown and not read")));
  // The file's own keys, those of generation, and keys without a value say nothing of the model.
  EXPECT_EQ(
      sentences_of(R"("_name_or_path": "x", "torch_dtype": "float16", "top_p": 0.5, "a": null)"),
      "");
  EXPECT_EQ(sentences_of(R"("pruned_heads": {}, "is_decoder": false)"), "");
  EXPECT_THAT(sentences_of(R"("pruned_heads": {"0": [1]})"), HasSubstr("the key pruned_heads"));
  EXPECT_EQ(sentences_of(R"("rope_scaling": {"type": "linear", "factor": 2.0, "factr": 4.0})"),
            "the key rope_parameters.factr = 4.0 is unknown and not read (nearest: factor)");
  const auto model = parse_huggingface_config(
      R"({"model_type": "llama", )" + kDecoder + R"(, "skip": 1})", "config.json");
  ASSERT_TRUE(model);
  EXPECT_THAT(check_exact(*model, "config.json").error().message,
              AllOf(HasSubstr("expected a model that can be computed exactly"),
                    HasSubstr("the key skip = 1 is unknown and not read")));
}

TEST(HuggingFaceConfig, AnInfiniteNumberMayBeABareWord) {
  const std::string known = read(R"({"model_type": "mamba2"})");
  EXPECT_THAT(known, HasSubstr(":pattern=MMM"));
  EXPECT_EQ(read(R"({"model_type": "mamba2", "time_step_limit": [0.0, Infinity]})"), known);
  EXPECT_THAT(read(R"({"model_type": "mamba2", "time_step_limit": [0.0, 1.0]})"),
              HasSubstr("time_step_limit a list is not supported"));
}

TEST(HuggingFaceConfig, ChangesLeaveOtherKeysAsTheyWere) {
  const auto tied = [](const std::string& text, const std::string& value) {
    const auto changed = change_huggingface_config(text, "config.json", {{"tied", value}});
    return changed ? *changed : changed.error().message;
  };
  // The keys whose defaults follow from the tied head are written out.
  const std::string before = read(kT5 + "}"), after = read(tied(kT5 + "}", "0"));
  EXPECT_THAT(before, HasSubstr(",tied=1,gated=0,activation=relu,scaled_scores=0,scaled_head=1,"));
  EXPECT_THAT(after, HasSubstr(",tied=0,gated=0,activation=relu,scaled_scores=0,scaled_head=1,"));
  EXPECT_EQ(Json::parse(tied(kT5 + "}", "0"))["scale_decoder_outputs"], true);
  const std::string llama =
      R"({"model_type": "llama", "tie_word_embeddings": true, "x": 3, )" + kDecoder + "}";
  const Json changed = Json::parse(tied(llama, "0"));
  EXPECT_EQ(changed["tie_word_embeddings"], false);
  EXPECT_EQ(changed["x"], 3);
  EXPECT_EQ(changed.size(), Json::parse(llama).size());
  const auto none = change_huggingface_config(configurations()[0], "config.json", {{"dtype", "x"}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "config.json: expected keys that can say dtype=x, found none");
}

TEST(HuggingFaceConfig, BothSpellingsOfRotaryPositionsAreWritten) {
  const std::string old = configurations()[2];
  const auto model = build_model(read(old), 1);
  ASSERT_TRUE(model) << model.error().message;
  const auto text = spell_huggingface_config(old, "config.json", model->spec, DType::kFloat32);
  ASSERT_TRUE(text) << text.error().message;
  const Json json = Json::parse(*text);
  EXPECT_EQ(json["rope_theta"], 10000);
  EXPECT_EQ(json["rope_scaling"]["factor"], 8);
  Json both = json["rope_scaling"];
  both["rope_theta"] = 10000;
  EXPECT_EQ(json["rope_parameters"], both);
  const std::string gpt = configurations()[0];
  EXPECT_EQ(*spell_huggingface_config(gpt, "config.json", read(gpt), DType::kFloat32), gpt);
}

// Their coefficient multiplies one balance over all layers, which is top_k if all experts get the
// same load.
TEST(HuggingFaceConfig, TheRoutersLossIsThereWhereItIsAskedFor) {
  const std::string mixtral =
      R"({"model_type": "mixtral", "router_aux_loss_coef": 0.5, )" + kDecoder;
  EXPECT_THAT(read(mixtral + "}"), HasSubstr(",balance=0,"));
  EXPECT_THAT(read(mixtral + R"(, "output_router_logits": false})"), HasSubstr(",balance=0,"));
  const std::string asked =
      mixtral + R"(, "num_experts_per_tok": 3, "output_router_logits": true})";
  EXPECT_THAT(read(asked), HasSubstr(",balance=0.75,"));
  const Json out = Json::parse(written(read(asked)));
  EXPECT_EQ(out["output_router_logits"], true);
  EXPECT_EQ(out["router_aux_loss_coef"], 0.5);
}

TEST(HuggingFaceConfig, KeysThatRowsCannotSay) {
  EXPECT_THAT(read(configurations()[5]), HasSubstr(",capacity_factor=2,"));
  EXPECT_THAT(read(kT5 + "}"), HasSubstr(",tied=1,gated=0,activation=relu,scaled_scores=0,"
                                         "scaled_head=1,"));
  EXPECT_THAT(read(kT5 + R"(, "tie_word_embeddings": false})"),
              HasSubstr(",tied=0,gated=0,activation=relu,scaled_scores=0,scaled_head=0,"));
  EXPECT_THAT(read(kT5 + R"(, "scale_decoder_outputs": false})"), HasSubstr(",scaled_head=0,"));
  EXPECT_EQ(read(kT5 + R"(, "num_decoder_layers": 3})"),
            "config.json: num_decoder_layers 3 is not supported (supported: 2, num_layers)");
  const std::string vit = R"({"model_type": "vit", "image_size": 8, "patch_size": 4, )" + kEncoder;
  EXPECT_THAT(read(vit + R"(, "id2label": {"0": "a", "1": "b", "2": "c"}})"),
              HasSubstr(",classes=3,"));
  EXPECT_THAT(read(vit + "}"), HasSubstr(",classes=2,"));
}

TEST(HuggingFaceConfig, ScaledRotaryTablesHaveATextAndAreVerified) {
  const std::string small = "llama:layers=1,hidden=8,heads=2,seq=4,vocab=16,rope_scaling=";
  for (const std::string scaling : {"1", "4", "8-1-4-8192", "32-4096-32-1-2"}) {
    const auto model = build_model(small + scaling, 1);
    ASSERT_TRUE(model) << model.error().message;
    const std::string text = to_text(model->graph);
    EXPECT_EQ(text.find("rotary_cos(10000.0)(") != std::string::npos, scaling != "1");
    const auto again = parse_graph(text);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, model->graph);
  }
  EXPECT_EQ(build_model(small + "8-4-1-8192", 1).error().message,
            "model 'llama': rope_scaling must be a factor, or factor-low-high-positions with high "
            "above low, or factor-positions-fast-slow-whole with fast above slow and whole 1 or 2");
  std::string text = to_text(build_model(small + "4", 1)->graph);
  const size_t at = text.find("rotary_cos(10000.0)(4)");
  ASSERT_NE(at, std::string::npos);
  const auto odd = parse_graph(text.replace(at, 22, "rotary_cos(10000.0)(4 2)"));
  ASSERT_FALSE(odd);
  EXPECT_THAT(odd.error().message,
              HasSubstr("expected no sizes of rotary_cos, or of rotary tables"));
}

TEST(HuggingFaceConfig, DamagedTextsAreReadOrRefusedInOneLine) {
  std::mt19937 random(5);
  const auto below = [&](size_t most) { return random() % std::max<size_t>(most, 1); };
  const std::vector<std::string> pieces = {
      "null", "-1", "1e999", "\"\"", "[]", "{}", "true", "0", "99999999999999999999"};
  int refused = 0;
  for (const std::string& text : configurations()) {
    for (int trial = 0; trial < 120; ++trial) {
      std::string damaged = text;
      for (size_t edits = 1 + below(3); edits > 0; --edits) {
        const size_t at = below(damaged.size());
        switch (below(3)) {
          case 0: damaged[at] = static_cast<char>(below(256)); break;
          case 1: damaged.erase(at, below(8)); break;
          default: {  // another value behind a colon
            const size_t colon = damaged.find(':', at);
            if (colon == std::string::npos) break;
            const size_t end = damaged.find_first_of(",}", colon);
            damaged.replace(colon + 1, end == std::string::npos ? end : end - colon - 1,
                            pieces[below(pieces.size())]);
          }
        }
      }
      const auto model = parse_huggingface_config(damaged, "config.json");
      if (model) continue;
      ++refused;
      EXPECT_EQ(model.error().message.find('\n'), std::string::npos) << damaged;
      EXPECT_TRUE(model.error().message.starts_with("config.json: ")) << model.error().message;
    }
  }
  EXPECT_GT(refused, 300);
}

// Returns a configuration of a model type with these keys and those of a decoder.
std::string decoder(const std::string& type, const std::string& keys) {
  return fmt::format(R"({{"model_type": "{}", {}, {}}})", type, keys, kDecoder);
}

TEST(HuggingFaceConfig, TheConvolutionOfDeltaNetsHasSilu) {
  const std::string sizes = R"("num_experts": 4, "num_experts_per_tok": 2, "hidden_act": )";
  EXPECT_THAT(read(decoder("qwen3_next", sizes + R"("swish")")), HasSubstr("activation=silu"));
  EXPECT_EQ(read(decoder("qwen3_next", sizes + R"("gelu")")),
            "config.json: hidden_act \"gelu\" is not supported (supported: \"silu\", \"swish\")");
}

TEST(HuggingFaceConfig, ScoresOfGemma3HaveNoCap) {
  const std::string keys = R"("head_dim": 6, "attn_logit_softcapping": 3.0)";
  EXPECT_THAT(read(decoder("gemma2", keys)), HasSubstr("score_cap=3,"));
  const auto model = parse_huggingface_config(decoder("gemma3_text", keys), "config.json");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(spec_of(*model), HasSubstr("score_cap=0,"));
  EXPECT_THAT(remarks_of(*model, {}), ElementsAre("attn_logit_softcapping 3.0 is passed over, as "
                                                  "transformers does for this type"));
  EXPECT_TRUE(check_exact(*model, "config.json"));
}

TEST(HuggingFaceConfig, KeysOfRotarySettingsAreCheckedInEveryGroup) {
  const auto sentences = [](const std::string& groups) {
    const std::string keys = R"("head_dim": 6, "rope_parameters": {"full_attention": {}, )";
    const auto model =
        parse_huggingface_config(decoder("gemma3_text", keys + groups + "}"), "config.json");
    return model ? join(model->approximations, "; ") : model.error().message;
  };
  EXPECT_EQ(sentences(R"("sliding_attention": {"rope_theta": 5.0})"), "");
  EXPECT_THAT(sentences(R"("slidng_attention": {})"),
              HasSubstr("the key rope_parameters.slidng_attention = "));
  EXPECT_EQ(sentences(R"("sliding_attention": {"rope_thta": 5.0})"),
            "the key rope_parameters.sliding_attention.rope_thta = 5.0 is unknown and not read "
            "(nearest: rope_theta)");
  EXPECT_EQ(sentences(R"("sliding_attention": 3)"),
            "config.json: rope_parameters.sliding_attention must be an object, found 3");
  EXPECT_EQ(sentences(R"("sliding_attention": {"factor": "x"})"),
            "config.json: rope_parameters.sliding_attention.factor must be a number, found \"x\"");
}

TEST(HuggingFaceConfig, SequencesOfLlama4EndWithAChunk) {
  const auto model = parse_huggingface_config(
      decoder("llama4_text", R"("head_dim": 6, "num_local_experts": 4, "attention_chunk_size": 5)"),
      "config.json");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(spec_of(*model), AllOf(HasSubstr("seq=10,"), HasSubstr("chunk=5,")));
  EXPECT_THAT(remarks_of(*model, {}),
              ElementsAre("sequences have 10 of 12 tokens, a multiple of attention_chunk_size=5"));
  EXPECT_THAT(remarks_of(*model, {{"seq", "5"}}), IsEmpty());
}

TEST(HuggingFaceConfig, OnlyTheTurnedPartOfAHeadIsEven) {
  const std::string keys = R"("n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
      "topk_group": 2, "qk_nope_head_dim": 5, "qk_rope_head_dim": )";
  EXPECT_THAT(read(decoder("deepseek_v3", keys + "2")), HasSubstr("rope_dim=2,"));
  EXPECT_THAT(read(decoder("deepseek_v3", keys + "3")), HasSubstr("must be even"));
}

TEST(HuggingFaceConfig, ValuesOfOtherTypesAreOneLine) {
  struct Wrong {
    std::string type, keys, message;
  };
  const std::string yarn = R"("rope_parameters": {"rope_type": "yarn", "factor": 2.0, )";
  const std::vector<Wrong> all = {
      {"llama4_text", R"("moe_layers": "abc")",
       "moe_layers \"abc\" is not supported (supported: null, a list of layers)"},
      {"llama4_text", R"("no_rope_layers": "abc")",
       "no_rope_layers \"abc\" is not supported (supported: null, a list of 0 and 1)"},
      {"smollm3", R"("no_rope_layers": {})", "no_rope_layers an object"},
      {"smollm3", R"("no_rope_layers": [1, 2])", "no_rope_layers a list"},
      {"llama", yarn + R"("attention_factor": "x"})",
       "rope_parameters.attention_factor must be a number, found \"x\""},
      {"llama", yarn + R"("truncate": 3})", "rope_parameters.truncate must be a boolean, found 3"},
      {"llama", R"("rope_parameters": {"rope_type": "default", "short_factor": 3})",
       "rope_parameters.short_factor must be a list, found 3"},
      {"mixtral", R"("num_experts_per_tok": true)",
       "num_experts_per_tok must be a number, found true"},
      {"llama", R"("tie_word_embeddings": "yes")",
       "tie_word_embeddings must be a boolean, found \"yes\""},
      {"glm4_moe", R"("num_nextn_predict_layers": [3])", "num_nextn_predict_layers a list"},
      {"glm4_moe", R"("num_nextn_predict_layers": -4)",
       "num_nextn_predict_layers -4 is not supported (supported: null, 0, 1, 2, ...)"},
      {"glm4_moe", R"("num_nextn_predict_layers": "")", "num_nextn_predict_layers \"\""},
  };
  for (const Wrong& wrong : all)
    EXPECT_THAT(read(decoder(wrong.type, wrong.keys)), HasSubstr("config.json: " + wrong.message));
}

TEST(HuggingFaceConfig, FurtherTokensAreLeftOutUnlessTheKeysSayThem) {
  const auto model = parse_huggingface_config(
      decoder("glm4_moe", R"("num_nextn_predict_layers": 2)"), "config.json");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(remarks_of(*model, {}), ElementsAre(HasSubstr("say mtp=2")));
  EXPECT_THAT(remarks_of(*model, {{"mtp", "1"}}), IsEmpty());
}

TEST(HuggingFaceConfig, TextConfigsHaveATypeOfTheirOwn) {
  EXPECT_THAT(read(R"({"model_type": "gemma3", "text_config": {"hidden_size": 16}})"),
              AllOf(HasSubstr("config.json: text_config: expected the key model_type with one of "),
                    HasSubstr(", found none")));
}

TEST(HuggingFaceConfig, OrdinalsAreEnglish) {
  const auto sentence = [](const std::string& layers) {
    const auto model = parse_huggingface_config(
        R"({"model_type": "smollm3", "hidden_size": 16, "num_attention_heads": 4,
            "num_hidden_layers": 4, "no_rope_layers": )" +
            layers + "}",
        "config.json");
    return model ? join(model->approximations, "; ") : model.error().message;
  };
  const std::string end = " has no rotary positions, not those of no_rope_layers";
  EXPECT_EQ(sentence("[0, 0, 0, 1]"), "every block" + end);
  EXPECT_EQ(sentence("[1, 0, 1, 1]"), "every 2nd block" + end);
  EXPECT_EQ(sentence("[1, 1, 0, 0]"), "every 3rd block" + end);
}

TEST(HuggingFaceConfig, NestingIsBounded) {
  for (const size_t depth : {size_t{100}, size_t{1'000'000}}) {
    const std::string deep = std::string(depth, '[') + std::string(depth, ']');
    const std::string text = "{\"model_type\": \"llama\", \"hidden_size\": " + deep + "}";
    const auto model = parse_huggingface_config(text, "config.json");
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().message,
              "config.json: expected a JSON object (a Hugging Face config.json)");
  }
  const auto model = parse_huggingface_config(
      R"({"model_type": "llama", "num_hidden_layers": [[1]]})", "config.json");
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("num_hidden_layers must be a number, found a list"),
            std::string::npos)
      << model.error().message;
}

TEST(HuggingFaceConfig, WhatNoModelTypeHasIsOneLine) {
  const std::string small = "layers=2,hidden=8,heads=4,seq=4,vocab=16";
  EXPECT_EQ(written("gpt:kv_heads=2," + small),
            "model 'gpt': expected what a model type of Hugging Face has: gpt2 has kv_heads=4, "
            "found 2");
  EXPECT_THAT(
      written("llama:lora=2," + small),
      HasSubstr("expected what a model type of Hugging Face has: llama has lora=0, found 2; "
                "mistral has lora=0, found 2; qwen2 has qkv_bias=1, found 0; "));
  EXPECT_EQ(written("mlp:in=4,hidden=8,out=3"),
            "model 'mlp': expected a family of one of Hugging Face's model types gpt2, llama, "
            "mistral, mixtral, qwen2, qwen3, bert, vit, t5, phi3, olmo2, smollm3, gemma2, "
            "gemma3_text, glm4, qwen3_moe, deepseek_v3, glm4_moe, gpt_oss, "
            "llama4_text, mamba2, qwen3_next");
  EXPECT_THAT(written("mixtral:kv_heads=2,ffn=8,top_k=1," + small),
              HasSubstr("mixtral has normalize=1, found 0"));
  EXPECT_THAT(written("t5:layers=2,hidden=16,heads=2,source=6,seq=4,vocab=17"),
              HasSubstr("t5 has scaled_scores=0, found 1"));
  EXPECT_THAT(written("gpt:dropout=0.1,eod=3," + small), HasSubstr("GPT2LMHeadModel"))
      << "what matters in training only is left out";
}

}  // namespace
}  // namespace tessera
