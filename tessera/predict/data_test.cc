// Checks that the program's data files are well formed, and that others are refused with the line.
#include <gtest/gtest.h>

#include "tessera/cluster/generation.h"
#include "tessera/cost/constants.h"
#include "tessera/cost/style_data.h"
#include "tessera/models/architecture_table.h"
#include "tessera/predict/assumptions.h"
#include "tessera/predict/constants.h"
#include "tessera/predict/framework.h"
#include "tessera/predict/machine.h"

namespace tessera {
namespace {

template <class Value>
std::string message(const Result<Value>& result) {
  return result ? "" : result.error().message;
}

using Parse = std::string (*)(std::string_view text);
struct File {
  std::string name;
  std::string_view text;
  Parse parse;
};
std::vector<File> files() {
  return {{"frameworks", text_of(predict_data(), "frameworks"),
           [](std::string_view text) { return message(parse_frameworks(text, "f.toml")); }},
          {"machines", text_of(predict_data(), "machines"),
           [](std::string_view text) { return message(check_machines(text, "f.toml")); }},
          {"architectures", text_of(model_data(), "architectures"),
           [](std::string_view text) { return message(parse_architectures(text, "f.toml")); }},
          {"assumptions", text_of(predict_data(), "assumptions"),
           [](std::string_view text) { return message(parse_assumptions(text, "f.toml")); }},
          {"constants", text_of(predict_data(), "constants"),
           [](std::string_view text) { return message(parse_constants(text, "f.toml")); }},
          {"styles", text_of(cost_data(), "styles"),
           [](std::string_view text) { return message(parse_styles(text, "f.toml")); }},
          {"cost constants", text_of(cost_data(), "constants"),
           [](std::string_view text) { return message(parse_cost_constants(text, "f.toml")); }},
          {"generations", text_of(cluster_data(), "generations"),
           [](std::string_view text) { return message(parse_generations(text, "f.toml")); }}};
}

TEST(Data, of_the_program_is_well_formed) {
  for (const File& file : files()) EXPECT_EQ(file.parse(file.text), "") << file.name;
}

// Each origin in turn loses its kind, or its source, reason or rows.
TEST(Data, without_kind_or_source_is_refused_with_its_line) {
  for (const File& file : files()) {
    SCOPED_TRACE(file.name);
    int tried = 0;
    for (const std::string_view key : {"\nkind = ", "\nsource = ", "\nreason = ", "\nrows = \""}) {
      const size_t at = file.text.find(key);
      if (at == std::string_view::npos) continue;
      std::string text(file.text);
      text.erase(at + 1, text.find('\n', at + 1) - at);
      const std::string said = file.parse(text);
      EXPECT_EQ(said.find("f.toml:"), 0U) << key << said;
      EXPECT_NE(said.find("needs the key"), std::string::npos) << key << said;
      ++tried;
    }
    EXPECT_GE(tried, 2);
  }
}

TEST(Data, with_an_unknown_key_is_refused_with_its_line) {
  for (const File& file : files()) {
    SCOPED_TRACE(file.name);
    std::string text(file.text);
    const size_t at = text.find("\nkind = ");
    ASSERT_NE(at, std::string::npos);
    text.insert(at + 1, "no_such_key = 1\n");
    const auto line =
        2 + std::count(file.text.begin(), file.text.begin() + static_cast<int64_t>(at), '\n');
    const std::string said = file.parse(text);
    EXPECT_NE(said.find("no_such_key"), std::string::npos) << said;
    // Options of styles and frameworks, and columns, are told at their table.
    EXPECT_EQ(said.find("f.toml:"), 0U) << said;
    EXPECT_LE(std::abs(std::stol(said.substr(7)) - line), 400) << said;
  }
}

TEST(Data, refers_to_what_is_there) {
  const auto said = [](std::string_view text) { return message(parse_frameworks(text, "f.toml")); };
  const std::string_view origin = "kind = \"assumption\"\nreason = \"r\"\n";
  const auto with = [&](std::string text) { return said(text + std::string(origin)); };
  EXPECT_NE(said("[[framework]]\nname = \"a\"\nlike = \"b\"\nstyle = \"fsdp\"\n")
                .find("f.toml:3: 'like'"),
            std::string::npos);
  EXPECT_NE(said("[[framework]]\nname = \"a\"\nstyle = \"fdsp\"\n").find("f.toml:3: 'style'"),
            std::string::npos);
  EXPECT_NE(with("[[source]]\nwords = [\"x\"]\nframework = \"b\"\n").find("f.toml:3: 'framework'"),
            std::string::npos);
  EXPECT_NE(with("[[guess]]\nwhen = [\"lat\"]\nframework = \"b\"\n").find("found 'lat'"),
            std::string::npos);
}

TEST(Data, names_of_models_end_where_another_word_begins) {
  EXPECT_EQ(find_architecture("Llama3-70B-Instruct")->layers, 80);
  EXPECT_EQ(find_architecture("Phi-4")->hidden, 5120);
  EXPECT_FALSE(find_architecture("Phi-4-mini"));
  EXPECT_FALSE(find_architecture("Bloomberg-50B"));
  EXPECT_FALSE(find_architecture("Llama3-700B"));
  EXPECT_EQ(find_architecture("DeepSeek-V3.2")->hidden, 7168);
  EXPECT_EQ(form_of_series("Llama9-3B"), Form::kLlama);
  EXPECT_EQ(form_of_series("QwenMoE-3B"), Form::kLlama);
  EXPECT_FALSE(form_of_series("Bloomberg-50B"));
  EXPECT_FALSE(form_of_series("Optimus-2D"));
}

TEST(Data, names_of_sources_are_words_or_whole) {
  std::string reason;
  Row row;
  row.gpu = "A100-80GB";
  row.source = "Olmsted's ZeRO study";
  EXPECT_EQ(framework_of(row, reason).name, "deepspeed");
  row.source = "Nonzero initialisation";  // no word begins with "zero"
  EXPECT_TRUE(framework_of(row, reason).guessed);
  row.source = "VTRAIN measured SINGLE-node set";
  EXPECT_EQ(framework_of(row, reason).name, "vtrain-node");
  EXPECT_FALSE(framework_of(row, reason).guessed);
}

TEST(Rows, WordsTellLowRankFactors) {
  struct Said {
    const char* text;
    bool trains;
    int64_t rank;  // 0: not said
  };
  for (const Said& said : {Said{"LoRA fine-tuning (rank 16), 14.7 samples/s", true, 16},
                           {"Llama2-70B-LoRA", true, 0},
                           {"llama2_70b_lora", true, 0},
                           {"low-rank adapters, r=8", true, 8},
                           {"QLoRA r 64", true, 64},
                           {"full fine-tuning, not LoRA", false, 0},
                           {"without LoRA", false, 0},
                           {"no lora", false, 0},
                           {"floral patterns", false, 0},
                           {"explorations", false, 0},
                           {"rank 3 of 8 nodes", false, 0},
                           {"", false, 0}}) {
    const StatedLowRank found = low_rank_in(said.text);
    EXPECT_EQ(found.trains, said.trains) << said.text;
    EXPECT_EQ(found.rank.value_or(0), said.rank) << said.text;
  }
  EXPECT_TRUE(low_rank_in("QLoRA").narrow_base);
  EXPECT_FALSE(low_rank_in("LoRA").narrow_base);
}

TEST(Rows, dtypes_and_recompute_are_types) {
  const std::pair<const char*, Arithmetic> dtypes[] = {{"bf16", Arithmetic::kBf16},
                                                       {"fp16", Arithmetic::kFp16},
                                                       {"amp", Arithmetic::kFp16},
                                                       {"mxfp8", Arithmetic::kFp8},
                                                       {"nvfp4", Arithmetic::kFp4},
                                                       {"fp32", Arithmetic::kFp32},
                                                       {"TF32", Arithmetic::kTf32},
                                                       {"bfloat16", Arithmetic::kBf16},
                                                       {"fp8(current scaling)", Arithmetic::kFp8}};
  for (const auto& [text, arithmetic] : dtypes) EXPECT_EQ(StatedDtype(text).arithmetic, arithmetic);
  EXPECT_TRUE(StatedDtype("fp16/bf16").either);
  EXPECT_FALSE(StatedDtype("fp16").either);
  EXPECT_FALSE(StatedDtype("posit").arithmetic);
  EXPECT_EQ(StatedRecompute("none").what, Recompute::kNone);
  EXPECT_EQ(StatedRecompute("selective(attention)").what, Recompute::kSelective);
  EXPECT_EQ(StatedRecompute("core_attn+layernorm").what, Recompute::kSelective);
  EXPECT_EQ(StatedRecompute("full").what, Recompute::kFull);
  EXPECT_FALSE(StatedRecompute("sometimes").known);
  EXPECT_FALSE(StatedRecompute("").what);
}

}  // namespace
}  // namespace tessera
