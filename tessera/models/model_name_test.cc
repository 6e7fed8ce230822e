#include "tessera/models/model_name.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tessera/base/text.h"
#include "tessera/models/architecture.h"
#include "tessera/models/architecture_text.h"
#include "tessera/models/families.h"
#include "tessera/models/model.h"
#include "tessera/models/model_title.h"

namespace tessera::model_name_test {
namespace {

namespace fs = std::filesystem;
using Kind = ModelName::Kind;

ModelName resolved(std::string_view text) {
  auto named = resolve_model(text);
  EXPECT_TRUE(named.has_value()) << (named ? "" : named.error().message);
  return named ? *named : ModelName{};
}

std::string error_of(std::string_view text) {
  const auto named = resolve_model(text);
  return named ? "no error: " + named->call + named->path : named.error().message;
}

class InFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tessera_model_name_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    EXPECT_TRUE(write_file(path.string(), text));
    return path.string();
  }
  fs::path folder_;
};

constexpr const char* kConfig = R"({"model_type": "llama", "num_hidden_layers": 2,
  "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 32})";

TEST(ModelName, PublishedNamesInTheSpellingsOfPeople) {
  const std::string call = resolved("llama-3-8b").call;
  EXPECT_TRUE(call.starts_with("llama:layers=32,hidden=4096,heads=32,seq=8192,vocab=128256"))
      << call;
  for (const char* name : {"meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3-8B", "Llama-3-8B",
                           "LLAMA3-8B", "Meta-Llama-3-8B-Instruct", " llama_3_8b "}) {
    const ModelName named = resolved(name);
    EXPECT_EQ(named.kind, Kind::kCall) << name;
    EXPECT_EQ(named.call, call) << name;
  }
  EXPECT_EQ(resolved("meta-llama/Meta-Llama-3-8B").title, "Meta-Llama-3-8B");
  EXPECT_EQ(resolved("Llama-3-8B:seq=4096,layers=2").call, call);
  EXPECT_EQ(resolved("Llama-3-8B:seq=4096,layers=2").changes, ":seq=4096,layers=2");
  EXPECT_EQ(resolved("deepseek-ai/DeepSeek-V3").remark,
            "heads of 160 for both scores (192) and values (128)");
  EXPECT_EQ(resolved("Qwen/Qwen2.5-7B-Instruct").remark, "no biases of queries, keys and values");
  EXPECT_EQ(resolved("meta-llama/Llama-4-Maverick").remark,
            "experts in the last half of the blocks, not in every other one; attention to all "
            "tokens, not in chunks; no norms of heads");
  EXPECT_EQ(resolved("llama-3-8b").remark, "");
}

// The parameter counts are those that the publishers state.
TEST(ModelName, PublishedNamesHaveThePublishedParameters) {
  for (const auto& [name, parameters] :
       {std::pair{"Llama-3-8B", 8.03e9}, std::pair{"Qwen2.5-7B", 7.62e9},
        std::pair{"mistralai/Mixtral-8x7B-v0.1", 46.7e9}, std::pair{"gpt2-xl", 1.558e9},
        std::pair{"google-bert/bert-large-uncased", 0.335e9}}) {
    const auto model = build_model(name, 1);
    ASSERT_TRUE(model.has_value()) << name << model.error().message;
    EXPECT_NEAR(static_cast<double>(parameter_count(model->graph)) / parameters, 1, .01) << name;
  }
}

// Each name of the table is a MODEL: it gives a text whose family takes all its keys.
TEST(ModelName, EveryNameOfTheTableBuilds) {
  size_t built = 0;
  for (const std::string& title : architecture_titles()) {
    const auto known = find_architecture(title);
    ASSERT_TRUE(known.has_value()) << title;
    EXPECT_EQ(known->title, title);
    Architecture small = *known;  // with the published widths, but of one layer, which is quick
    const bool cuts = small.form != Form::kSwin && small.form != Form::kConvolution;
    if (cuts && small.form != Form::kHybrid) cut_to_layers(small, small.dense_layers > 0 ? 2 : 1);
    const auto text = architecture_text(small);
    ASSERT_TRUE(text.has_value()) << title << text.error().message;
    const auto model = build_model(*text, 1);
    EXPECT_TRUE(model.has_value()) << title << ": " << (model ? "" : model.error().message);
    ++built;
  }
  EXPECT_GE(built, 270U);
}

TEST_F(InFolder, FoldersAreTheirConfigurationOrGraph) {
  const std::string config = write("llama/config.json", kConfig);
  const std::string folder = (folder_ / "llama").string();
  EXPECT_EQ(resolved(folder).path, config);
  EXPECT_EQ(resolved(folder).kind, Kind::kConfig);
  EXPECT_EQ(resolved(folder + ":seq=16").changes, ":seq=16");
  EXPECT_EQ(config_file_of(folder + ":seq=16"), config);
  const auto by_folder = build_model(folder + ":seq=16", 2), by_file = build_model(config, 2);
  ASSERT_TRUE(by_folder.has_value() && by_file.has_value());
  EXPECT_EQ(by_folder->seq, 16);
  EXPECT_EQ(by_file->seq, 32);
  EXPECT_EQ(build_model(folder, 2)->spec, by_file->spec);

  const std::string graph = write("mine/model.graph", "graph");
  EXPECT_EQ(resolved((folder_ / "mine").string()).path, graph);
  EXPECT_TRUE(names_graph_file((folder_ / "mine").string()));
  fs::create_directories(folder_ / "none");
  const std::string none = (folder_ / "none").string();
  EXPECT_EQ(error_of(none),
            "the folder '" + none + "' holds no model: expected config.json or model.graph in it");
}

TEST_F(InFolder, FamiliesGoBeforeFoldersAndFoldersBeforeNames) {
  write("gpt/config.json", kConfig);
  write("Llama-3-8B/config.json", kConfig);
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(resolved("gpt").call, "gpt");
  EXPECT_EQ(resolved("./gpt").kind, Kind::kConfig);
  EXPECT_EQ(resolved("Llama-3-8B").kind, Kind::kConfig);
  EXPECT_EQ(resolved("meta-llama/Llama-3-8B").kind, Kind::kCall);
  fs::current_path(before);
}

TEST(ModelName, ArchivesAreReadByTheRegisteredReader) {
  EXPECT_EQ(read_archive("x.pt2", "", 0).error().message,
            "x.pt2: this command needs the weights of an archive: tessera import x.pt2 --out "
            "FOLDER, then FOLDER is the model");
  set_archive_reader(
      [](const std::string& path, const std::string& keys, int64_t batch) -> Result<std::string> {
        return invalid_input(fmt::format("read {}{} with {}", path, keys, batch));
      });
  EXPECT_EQ(build_model("a/x.pt2", 1).error().message, "read a/x.pt2 with 1");
  EXPECT_EQ(build_model("a/x.pt2:seq=64", 2).error().message, "read a/x.pt2:seq=64 with 2");
  set_archive_reader({});
  EXPECT_TRUE(names_graph_file("a/x.pt2"));
}

TEST(ModelName, ErrorsNameTheNearest) {
  constexpr const char* kKinds =
      " (a model is family:key=value, a config.json, .graph or .pt2, a folder with one, or a "
      "published name; tessera inspect --models)";
  EXPECT_EQ(error_of("lama-3-8b"),
            std::string("unknown model 'lama-3-8b', did you mean 'llama-3-8b'?") + kKinds);
  EXPECT_EQ(error_of("metal/Lamma-3-70B"),
            std::string("no folder 'metal/Lamma-3-70B' and no published model of this name, did "
                        "you mean 'llama-3-70b'?") +
                kKinds);
  EXPECT_TRUE(error_of("/models/Llama-3-8B").starts_with("no folder '/models/Llama-3-8B'"));
  EXPECT_TRUE(error_of("llama-3-8b(seq=4)").starts_with("unknown model 'llama-3-8b'"));
  EXPECT_EQ(error_of("yolo"),
            "the model 'yolo' is a detector, with heads over regions of images, "
            "which no family builds (tessera inspect --models)");
  EXPECT_EQ(error_of("my.graph:seq=4"),
            "'my.graph:seq=4': expected no keys after a graph, whose sizes its file fixes, found "
            "':seq=4'");
}

TEST(ModelTitle, NamesFamilyLayersAndParametersInThreeDigits) {
  EXPECT_EQ(model_title(*build_model("meta-llama/Meta-Llama-3-8B:seq=64", 1)),
            "Meta-Llama-3-8B: Llama, 32 layers, 8.03 B parameters");
  // 64 * 128 table, 64 * 32 positions, two blocks of 12 * 64^2 + 13 * 64, two norms of 2 * 64.
  EXPECT_EQ(64 * 128 + 64 * 32 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64, 110336);
  EXPECT_EQ(model_title(*build_model("gpt:layers=2,hidden=64,heads=4,seq=32,vocab=128", 1)),
            "GPT, 2 layers, 110 K parameters");
  EXPECT_EQ(model_title(*build_model("mlp:in=2,hidden=3,out=4,layers=1", 1)),
            "MLP, 1 layer, 25 parameters");
  EXPECT_EQ(model_title("llama:layers=32,hidden=4096", 8'030'261'248),
            "Llama, 32 layers, 8.03 B parameters");
  EXPECT_EQ(model_title("gpt:layers=1,hidden=8", 124'439'808), "GPT, 1 layer, 124 M parameters");
  EXPECT_EQ(model_title("folder/my.graph", 0), "my.graph");
  // A family without a written name would be shown by its key.
  for (const ModelFamily& family : all_families())
    EXPECT_NE(model_title(family.name + ":a=1", 0), family.name);
  EXPECT_NE(model_title(*build_model("DeepSeek-V3-4L:seq=64", 1)).find("(approximate: heads of"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::model_name_test
