// Tests what planning reads from configurations of published models. The files in
// tests/models/configs have the values of the hub's config.json; the number of parameters of each
// is that of transformers 5.23 (AutoModelForCausalLM.from_config on the meta device).
#include "tessera/models/planning_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/models/huggingface/huggingface.h"
#include "tessera/models/model.h"
#include "tessera/test/source_dir.h"

namespace tessera::planning_model_test {
namespace {

using Json = nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string config(const std::string& name) {
  return std::string(TESSERA_SOURCE_DIR) + "/tests/models/configs/" + name + ".json";
}

// Reads a configuration that differs from a published one in some keys. A null key is taken out.
Result<PlanningModel> changed(const std::string& name, const Json& changes,
                              const std::string& keys = "") {
  Json text = Json::parse(*read_file(config(name)));
  if (!changes.is_null()) text.merge_patch(changes);
  // Tests run at the same time in processes of their own.
  const std::string folder =
      testing::TempDir() + "/tessera_planning_model_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/config.json";
  TESSERA_TRY_VOID(write_file(path, text.dump()));
  return read_for_planning(path + keys);
}

std::vector<std::string> sentences(const std::string& name, const Json& changes) {
  const auto model = changed(name, changes);
  return model ? model->approximations : std::vector<std::string>{model.error().message};
}

std::string spec_of(const std::string& name, const Json& changes) {
  const auto model = changed(name, changes);
  return model ? model->spec : model.error().message;
}

// A file of tests/models/configs. `missing` is the share of parameters that our model lacks (or has
// too many, if negative), at most, because of what it approximates; 0: the numbers are equal.
struct Published {
  std::string name;
  int64_t parameters;
  double share;
};
std::vector<Published> published() {
  return {{"qwen3_moe", 30'532'122'624, 0},
          {"deepseek_v3", 671'026'404'352, 0.00000003},
          {"deepseek_v2", 15'706'484'224, 0.005},
          {"gpt_oss", 20'914'757'184, 0},
          {"gemma2", 9'241'705'984, 0},
          {"gemma3", 11'766'034'176, 0},
          {"gemma3_text", 999'885'952, 0},
          {"olmo2", 7'298'617'344, 0},
          {"phi3", 3'821'079'552, 0},
          {"glm4", 9'400'279'040, 0},
          {"llama4", 107'769'861'120, 0},
          {"nemotron", 4'190'509'056, 0.0001},
          {"smollm3", 3'075'098'624, 0},
          {"qwen3_next", 79'674'391'296, 0}};
}

TEST(PlanningModel, HasTheParametersOfThePublishedModel) {
  for (const Published& one : published()) {
    const auto read = read_for_planning(config(one.name) + ":seq=16");
    ASSERT_TRUE(read) << read.error().message;
    const auto model = build_model(read->spec, 1);
    ASSERT_TRUE(model) << one.name << ": " << model.error().message;
    const auto count = static_cast<double>(parameter_count(model->graph)),
               theirs = static_cast<double>(one.parameters);
    EXPECT_LE(std::abs(count - theirs), one.share * theirs)
        << fmt::format("{}: {:.0f}, {:+.6f} %", one.name, count, (count / theirs - 1) * 100);
  }
}

TEST(PlanningModel, EveryTypeThatIsOnlyReadHasAPublishedFile) {
  std::vector<std::string> named;
  for (const Published& one : published()) {
    const Json text = Json::parse(*read_file(config(one.name)));
    named.push_back(text.contains("text_config") ? text["text_config"]["model_type"]
                                                 : text["model_type"]);
  }
  const auto written = huggingface_written_types();
  for (const std::string& type : huggingface_model_types()) {
    if (std::find(written.begin(), written.end(), type) != written.end()) continue;
    EXPECT_THAT(named, Contains(type));
  }
}

TEST(PlanningModel, SaysWhatIsOnlyNear) {
  EXPECT_THAT(sentences("qwen3_moe", {}),
              ElementsAre("tokens are spread evenly over the experts (capacity_factor=1)"));
  for (const char* exact : {"olmo2", "phi3", "gemma2", "gemma3_text", "glm4", "smollm3"})
    EXPECT_THAT(sentences(exact, {}), IsEmpty()) << exact;
  for (const char* mixture : {"deepseek_v3", "gpt_oss", "qwen3_next"}) {
    EXPECT_THAT(sentences(mixture, {}),
                ElementsAre("tokens are spread evenly over the experts (capacity_factor=1)"));
  }
  EXPECT_THAT(sentences("gemma3", {}), IsEmpty());
  EXPECT_THAT(changed("gemma3", {})->remarks,
              ElementsAre("only the language model of text_config is read, not vision_config"));
  EXPECT_THAT(sentences("deepseek_v2", {}),
              Contains("heads have 160 numbers for scores and for values, not 192 and 128"));
  EXPECT_THAT(changed("deepseek_v3", {})->remarks,
              ElementsAre("layers that predict further tokens are left out, as in transformers, "
                          "unless the model's keys say mtp=1"));
  EXPECT_THAT(lines_of(*changed("deepseek_v3", {})), Contains(HasSubstr("note: layers that")));
  std::vector<int> turned(36, 1);
  turned[4] = turned[20] = 0;
  EXPECT_THAT(sentences("smollm3", {{"no_rope_layers", turned}}),
              ElementsAre("every 5th block has no rotary positions, not those of no_rope_layers"));
  EXPECT_THAT(sentences("smollm3", {{"no_rope_layers", std::vector<int>(36, 1)}}), IsEmpty());
}

TEST(PlanningModel, ReadsSizesThatNoCountShows) {
  EXPECT_THAT(spec_of("qwen3_moe", {}), HasSubstr(",experts=128,top_k=8,normalize=1,"));
  EXPECT_THAT(spec_of("qwen3_moe", {}), HasSubstr(",capacity_factor=1,"));
  EXPECT_THAT(spec_of("gpt_oss", {}), HasSubstr(",window=128,full_every=2"));
  EXPECT_THAT(spec_of("gemma2", {}), HasSubstr(",window=4096,full_every=2"));
  EXPECT_THAT(spec_of("gemma3", {}), HasSubstr(",window=1024,full_every=6"));
  EXPECT_THAT(spec_of("gemma3_text", {}), HasSubstr(",window=512,full_every=6"));
  EXPECT_THAT(spec_of("gemma3_text", {}), HasSubstr("activation=gelu"));
  EXPECT_THAT(spec_of("gemma3", {}), HasSubstr(",rope_scaling=8"));
  EXPECT_THAT(spec_of("llama4", {}), HasSubstr(",chunk=8192,full_every=4"));
  EXPECT_THAT(spec_of("phi3", {}), HasSubstr("window=2047"));
  EXPECT_THAT(spec_of("nemotron", {}), HasSubstr("activation=relu2"));
  EXPECT_THAT(spec_of("deepseek_v3", {}), HasSubstr(",kv_rank=512,value_dim=128,"));
  EXPECT_THAT(spec_of("deepseek_v3", {}), HasSubstr(",head_dim=192,rope_dim=64,"));
  EXPECT_THAT(spec_of("deepseek_v2", {}), HasSubstr(",kv_rank=576"));
  EXPECT_THAT(spec_of("gemma2", {{"query_pre_attn_scalar", 144}}), HasSubstr("score_scale=0.0833"));
  EXPECT_THAT(spec_of("gemma2", {}), Not(HasSubstr("score_scale")));
  EXPECT_THAT(spec_of("phi3", {{"partial_rotary_factor", 0.75}}), HasSubstr(",rotary_dim=72"));
  EXPECT_THAT(spec_of("smollm3", {}), HasSubstr(",unturned_every=4"));
  EXPECT_THAT(spec_of("gpt_oss", {}), HasSubstr(",rope_scaling=32-4096-32-1-2,score_scale="));
  EXPECT_THAT(spec_of("deepseek_v2", {}), Not(HasSubstr("q_rank=")));
  EXPECT_THAT(spec_of("olmo2", {}), HasSubstr(",norms=after"));
}

// Llama 4 Maverick has experts in every other block, Qwen 3 may have blocks without.
TEST(PlanningModel, ReadsBlocksWithoutExperts) {
  const Json maverick = {
      {"text_config", {{"interleave_moe_layer_step", 2}, {"num_local_experts", 128}}}};
  const auto read = changed("llama4", maverick, ":seq=16");
  ASSERT_TRUE(read) << read.error().message;
  const auto model = build_model(read->spec, 1);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(parameter_count(model->graph), 400'711'848'960);  // transformers 5.23, as above
  EXPECT_THAT(spec_of("qwen3_moe", {{"mlp_only_layers", {0, 1}}}), HasSubstr(",dense_layers=2"));
  EXPECT_THAT(sentences("qwen3_moe", {{"mlp_only_layers", {0, 1}}}).size(), 1);
  EXPECT_THAT(sentences("qwen3_moe", {{"mlp_only_layers", {3}}}),
              Contains("the 1 blocks without experts are the first, not those of mlp_only_layers"));
}

TEST(PlanningModel, ScalingsOfRotaryPositionsThatAreNotComputedAreSaid) {
  const auto scaled = [](const Json& scaling) {
    return sentences("phi3", {{"rope_scaling", scaling}});
  };
  for (const char* key : {"rope_type", "type"}) {
    EXPECT_THAT(scaled({{key, "dynamic"}, {"factor", 4.0}}),
                ElementsAre("rotary frequencies are not scaled (rope_type \"dynamic\")"));
  }
  EXPECT_THAT(scaled({{"rope_type", "linear"}, {"factor", 4.0}}), IsEmpty());
  EXPECT_THAT(scaled({{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192}}),
              IsEmpty());
  // YaRN's factor is one of whole scores here, and of the turned elements in transformers.
  const Json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8192}};
  EXPECT_THAT(sentences("olmo2", {{"rope_scaling", yarn}}), IsEmpty());
  EXPECT_THAT(sentences("glm4", {{"rope_scaling", yarn}}),
              ElementsAre(HasSubstr("elements that positions do not turn have YaRN's factor")));
  EXPECT_THAT(sentences("olmo2", {{"partial_rotary_factor", 0.75}}),
              ElementsAre("rotary positions turn whole heads (partial_rotary_factor 0.75)"));
}

// Compares files of one model as transformers 4 and 5 spell it.
TEST(PlanningModel, ReadsBothSpellings) {
  const Json five = {{"rope_theta", nullptr},
                     {"rope_scaling", nullptr},
                     {"rope_local_base_freq", nullptr},
                     {"torch_dtype", nullptr},
                     {"dtype", "bfloat16"},
                     {"rope_parameters",
                      {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
                       {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}};
  const auto sorted = [](std::string spec) {
    std::vector<std::string> keys = split_text(spec, ',');
    std::sort(keys.begin(), keys.end());
    return keys;
  };
  EXPECT_EQ(sorted(spec_of("gemma3_text", five)), sorted(spec_of("gemma3_text", {})));
  EXPECT_EQ(sentences("gemma3_text", five), sentences("gemma3_text", {}));
  const Json yarn = {{"rope_theta", nullptr},
                     {"rope_scaling", nullptr},
                     {"rope_parameters",
                      {{"rope_type", "yarn"},
                       {"rope_theta", 10000.0},
                       {"factor", 40.0},
                       {"mscale", 1.0},
                       {"mscale_all_dim", 1.0},
                       {"original_max_position_embeddings", 4096}}}};
  EXPECT_EQ(spec_of("deepseek_v3", yarn), spec_of("deepseek_v3", {}));
  EXPECT_EQ(sentences("deepseek_v3", yarn), sentences("deepseek_v3", {}));
}

TEST(PlanningModel, KeysOfTheTextCome) {
  const auto model = changed("qwen3_moe", {}, ":capacity_factor=2,seq=4096");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->spec, HasSubstr(",capacity_factor=2,"));
  EXPECT_THAT(model->approximations, IsEmpty());
  EXPECT_THAT(lines_of(*model), IsEmpty());
  EXPECT_EQ(read_for_planning("gpt:layers=2")->spec, "gpt:layers=2");
  EXPECT_THAT(lines_of(*read_for_planning("gpt:layers=2")), IsEmpty());
}

TEST(PlanningModel, SaysALongLengthOfSequences) {
  const auto lines = [](int64_t positions, const std::string& keys = "") {
    return lines_of(*changed("phi3", {{"max_position_embeddings", positions}}, keys));
  };
  EXPECT_THAT(lines(131'072), ElementsAre("sequence length 131,072 from config.json; say :seq=4096 "
                                          "for shorter ones"));
  EXPECT_THAT(lines(8192), IsEmpty());
  EXPECT_THAT(lines(131'072, ":seq=131072"), IsEmpty());
}

TEST(PlanningModel, ReadsTheDtypeOfTheFile) {
  EXPECT_EQ(*stored_dtype(config("qwen3_moe")), DType::kBFloat16);
  EXPECT_EQ(*stored_dtype(config("gemma3") + ":seq=128"), DType::kBFloat16);
  EXPECT_EQ(*stored_dtype(config("olmo2")), DType::kFloat32);
  EXPECT_EQ(*stored_dtype(config("gpt_oss")), std::nullopt);
  EXPECT_EQ(*stored_dtype("gpt:layers=2"), std::nullopt);
  EXPECT_EQ(changed("phi3", {{"torch_dtype", nullptr}, {"dtype", "float16"}})->stored_dtype,
            DType::kFloat16);
  EXPECT_EQ(changed("phi3", {{"torch_dtype", "auto"}})->stored_dtype, std::nullopt);
  const Json inner = {{"torch_dtype", nullptr}, {"text_config", {{"dtype", "float16"}}}};
  EXPECT_EQ(changed("gemma3", inner)->stored_dtype, DType::kFloat16);
  EXPECT_FALSE(stored_dtype("/no/such/config.json"));
}

// Commands that compute with weights demand an exact model, and say what is missing.
TEST(PlanningModel, BuildingDemandsAnExactOne) {
  const auto error = [](const std::string& name) {
    const auto model = build_model(config(name) + ":layers=4,seq=16", 1);
    return model ? "" : model.error().message.substr(config(name).size());
  };
  EXPECT_THAT(error("nemotron"),
              HasSubstr(": expected a model that can be computed exactly, found one that is "
                        "approximated: norms are RMS norms, not layer norms with biases"));
  for (const char* name : {"deepseek_v2", "nemotron"}) {
    EXPECT_THAT(error(name), HasSubstr("found one that is approximated: ")) << name;
  }
  for (const char* name : {"deepseek_v3", "gpt_oss", "gemma2", "gemma3", "gemma3_text", "llama4",
                           "glm4", "smollm3", "olmo2"}) {
    EXPECT_EQ(error(name), "") << name;
  }
  EXPECT_EQ(error("phi3"), "");
  // Exact is a mixture with a slot for each token: 128 / 8 times the fair share.
  const auto mixture = build_model(config("qwen3_moe") + ":layers=2,seq=16", 1);
  ASSERT_TRUE(mixture) << mixture.error().message;
  EXPECT_THAT(mixture->spec, HasSubstr(",capacity_factor=16,"));
}

TEST(PlanningModel, WhatIsWrongInAFileIsOneLine) {
  EXPECT_THAT(spec_of("gemma3", {{"text_config", {{"model_type", "opt"}}}}),
              HasSubstr("config.json: model_type 'gemma3' is not supported, the nearest is "));
  EXPECT_THAT(spec_of("phi3", {{"num_attention_heads", 7}}),
              HasSubstr("config.json: model 'llama': heads=7 must be a multiple of kv_heads=32"));
  EXPECT_THAT(spec_of("deepseek_v2", {{"v_head_dim", "x"}}),
              HasSubstr("v_head_dim and kv_lora_rank must be whole numbers of at least 1"));
  EXPECT_THAT(
      spec_of("gpt_oss", {{"layer_types", {"full_attention"}}}),
      HasSubstr("layer_types: expected \"full_attention\" or \"sliding_attention\" for each "
                "of 24 layers"));
  EXPECT_THAT(spec_of("llama4", {{"text_config", {{"attention_chunk_size", -1}}}}),
              HasSubstr("attention_chunk_size -1 is not supported (supported: null, 2, 3, ...)"));
  EXPECT_THAT(spec_of("phi3", {{"hidden_act", "tanh"}}), HasSubstr("hidden_act \"tanh\" is not"));
}

}  // namespace
}  // namespace tessera::planning_model_test
