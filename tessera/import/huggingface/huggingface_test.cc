// Tests folders of Hugging Face: names and layouts, reading by regions, import and export, bad
// input. tests/huggingface tests that the models then compute the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/base/text.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/huggingface/source.h"
#include "tessera/import/new_folder.h"
#include "tessera/import/tiles.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

// Returns the text of a config.json for a small model of each type, by type.
std::map<std::string, std::string> configurations() {
  const std::string decoder =
      R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 6,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12,
         "vocab_size": 37})";
  const std::string encoder =
      R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4)";
  const std::string t5 = R"({"model_type": "t5", "d_model": 16, "d_kv": 6, "d_ff": 24,
      "num_layers": 2, "num_heads": 4, "vocab_size": 37, "feed_forward_proj": )";
  return {
      {"gpt2", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4,
                   "n_positions": 12, "vocab_size": 37})"},
      {"llama", R"({"model_type": "llama", )" + decoder},
      {"llama_bias", R"({"model_type": "llama", "attention_bias": true, )" + decoder},
      {"mixtral", R"({"model_type": "mixtral", "num_local_experts": 4, )" + decoder},
      {"qwen3", R"({"model_type": "qwen3", "tie_word_embeddings": true, )" + decoder},
      {"bert", R"({"model_type": "bert", "vocab_size": 37, "max_position_embeddings": 12, )" +
                   encoder + "}"},
      {"vit", R"({"model_type": "vit", "image_size": 8, "patch_size": 4, )" + encoder + "}"},
      {"t5", t5 + R"("relu"})"},
      {"t5_gated", t5 + R"("gated-gelu", "tie_word_embeddings": false})"},
  };
}

class Folders : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("tessera_huggingface_test.{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Model model_of(const std::string& name) {
    fs::create_directories(path(name));
    const std::string config = path(name) + "/config.json";
    EXPECT_TRUE(write_file(config, configurations().at(name)));
    auto model = build_model(config, 1);
    EXPECT_TRUE(model) << model.error().message;
    return model ? std::move(*model) : Model{};
  }

  // Makes a folder of a model whose numbers are 0, 1, 2, ... in the order of the file.
  Model make(const std::string& name) {
    Model model = model_of(name);
    const auto views = huggingface_views(model);
    EXPECT_TRUE(views) << views.error().message;
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const TensorView& view : *views) {
      for (const std::string& array : view.arrays) shapes[array] = view.array_shape;
    }
    write(name, shapes);
    return model;
  }

  void write(const std::string& name, const std::map<std::string, std::vector<int64_t>>& shapes) {
    std::vector<ArrayEntry> entries;
    for (const auto& [array, shape] : shapes) entries.push_back({array, DType::kFloat32, shape});
    const std::string file = path(name) + "/model.safetensors";
    fs::remove(file);
    auto writer = SafetensorsWriter::create(file, std::move(entries));
    ASSERT_TRUE(writer) << writer.error().message;
    float next = 0;
    for (size_t i = 0; i < writer->arrays().size(); ++i) {
      std::vector<float> values(static_cast<size_t>(writer->arrays()[i].bytes / 4));
      for (float& value : values) value = next++;
      ASSERT_TRUE(writer->write(i, 0, writer->arrays()[i].bytes,
                                reinterpret_cast<const std::byte*>(values.data())));
    }
    ASSERT_TRUE(writer->finish());
  }

  fs::path folder_;
};

std::vector<float> read_all(const TensorSource& source, const SourceArray& array,
                            const Box& region) {
  std::vector<float> values(static_cast<size_t>(region.volume()));
  const Status read =
      source.read(array, region, DType::kFloat32, reinterpret_cast<std::byte*>(values.data()));
  EXPECT_TRUE(read) << read.error().message;
  return values;
}

// Calls f(index in the region, row-major, global index) for each element.
template <class F>
void each_index(const std::vector<int64_t>& shape, const Box& region, F&& f) {
  const std::vector<int64_t> strides = row_major_strides(shape);
  std::vector<int64_t> at(region.rank(), 0);
  for (int64_t i = 0; i < region.volume(); ++i) {
    int64_t global = 0;
    for (size_t d = 0; d < at.size(); ++d) global += (region.dims[d].begin + at[d]) * strides[d];
    f(static_cast<size_t>(i), static_cast<size_t>(global));
    for (size_t d = at.size(); d-- > 0 && ++at[d] == region.dims[d].size;) at[d] = 0;
  }
}

TEST_F(Folders, EveryNumberOfTheirsIsOneOfOurs) {
  for (const auto& [name, text] : configurations()) {
    const Model model = make(name);
    const auto source = open_huggingface(path(name), model);
    ASSERT_TRUE(source) << source.error().message;
    std::vector<float> all;
    for (const SourceArray& array : (*source)->arrays()) {
      const std::vector<float> values = read_all(**source, array, Box::whole(array.shape));
      all.insert(all.end(), values.begin(), values.end());
    }
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i)) << name;
    EXPECT_GT(all.size(), 4000U);
  }
}

TEST_F(Folders, LayoutsOfProductsByHand) {
  const Model model = make("gpt2");
  const auto source = open_huggingface(path("gpt2"), model);
  ASSERT_TRUE(source) << source.error().message;
  const auto files = open_safetensors(path("gpt2"));
  const SourceArray* fused = (*files)->find("transformer.h.1.attn.c_attn.weight");
  const std::vector<float> theirs = read_all(**files, *fused, Box::whole(fused->shape));
  // The key of input 5, head 2, feature 3 is in row 5, in the second 16 columns of 48.
  const SourceArray* key = (*source)->find("blocks.1.attn.k.weight");
  ASSERT_EQ(key->shape, (std::vector<int64_t>{16, 4, 4}));
  EXPECT_EQ(read_all(**source, *key, Box({{5, 1}, {2, 1}, {3, 1}}))[0],
            theirs[5 * 48 + 16 + 2 * 4 + 3]);

  const Model mixtral = make("mixtral");
  const auto mixture = open_huggingface(path("mixtral"), mixtral);
  ASSERT_TRUE(mixture) << mixture.error().message;
  const auto expert_files = open_safetensors(path("mixtral"));
  const SourceArray* w2 =
      (*expert_files)->find("model.layers.0.block_sparse_moe.experts.3.w2.weight");
  const SourceArray* down = (*mixture)->find("blocks.0.moe.down.weight");
  ASSERT_EQ(down->shape, (std::vector<int64_t>{4, 24, 16}));
  EXPECT_EQ(read_all(**mixture, *down, Box({{3, 1}, {20, 1}, {7, 1}}))[0],
            read_all(**expert_files, *w2, Box({{7, 1}, {20, 1}}))[0]);
}

TEST_F(Folders, RegionsHoldWhatTheWholeHoldsAndOnlyTheirBytesAreRead) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (const auto& [name, text] : configurations()) {
    const Model model = make(name);
    const auto source = open_huggingface(path(name), model);
    ASSERT_TRUE(source) << source.error().message;
    for (const SourceArray& array : (*source)->arrays()) {
      const std::vector<float> whole = read_all(**source, array, Box::whole(array.shape));
      for (int trial = 0; trial < 3; ++trial) {
        Box region;
        for (const int64_t size : array.shape) {
          const int64_t begin = draw(size);
          region.dims.push_back({begin, 1 + draw(size - begin)});
        }
        const int64_t before = (*source)->bytes_read();
        const std::vector<float> part = read_all(**source, array, region);
        EXPECT_EQ((*source)->bytes_read() - before, region.volume() * 4) << array.name;
        each_index(array.shape, region, [&](size_t local, size_t global) {
          ASSERT_EQ(part[local], whole[global]) << name << " " << array.name;
        });
      }
    }
  }
}

TEST_F(Folders, ImportThenExportGivesTheSameFile) {
  for (const auto& [name, text] : configurations()) {
    make(name);
    const std::string ours = path(name + "_ours"), back = path(name + "_back");
    const auto done = import_huggingface({path(name), ours, {}});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->model, ours + "/config.json");
    const auto exported = export_huggingface({done->weights, done->model, back});
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(exported->parameters, done->parameters);
    // Keys that versions of transformers spell in two ways are added.
    Json config = Json::parse(*read_file(back + "/config.json"));
    const Json theirs = Json::parse(text);
    for (const auto& [key, value] : theirs.items()) {
      EXPECT_EQ(config[key], value) << name << " " << key;
      config.erase(key);
    }
    for (const auto& [key, value] : config.items()) {
      EXPECT_THAT(key, testing::AnyOf("rope_theta", "rope_parameters", "tie_word_embeddings",
                                      "scale_decoder_outputs"));
    }
    const auto before = open_safetensors(path(name)), after = open_safetensors(back);
    ASSERT_EQ((*before)->arrays().size(), (*after)->arrays().size());
    for (const SourceArray& array : (*before)->arrays()) {
      const SourceArray* other = (*after)->find(array.name);
      ASSERT_NE(other, nullptr) << array.name;
      ASSERT_EQ(other->shape, array.shape);
      EXPECT_EQ(read_all(**before, array, Box::whole(array.shape)),
                read_all(**after, *other, Box::whole(array.shape)));
    }
  }
}

TEST_F(Folders, SpellingsCopiesAndArraysOfNoUse) {
  const Model model = make("gpt2");
  const auto views = huggingface_views(model);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TensorView& view : *views) {
    for (const std::string& array : view.arrays)
      shapes[array.substr(std::string("transformer.").size())] = view.array_shape;
  }
  shapes["h.0.attn.bias"] = {1, 1, 12, 12};  // a mask
  write("gpt2", shapes);
  EXPECT_TRUE(open_huggingface(path("gpt2"), model)) << "as the first published files";

  shapes["lm_head.weight"] = {37, 16};
  write("gpt2", shapes);
  const auto other = open_huggingface(path("gpt2"), model);  // an import asks so with tied=0
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            path("gpt2") +
                ": 'lm_head.weight': expected the values of transformer.wte.weight, which "
                "config.json ties to it (tie_word_embeddings), found others");
}

TEST_F(Folders, BadInputIsOneLineAndNothingIsWritten) {
  make("llama");
  const std::string out = path("out"), source = path("llama");
  const auto error = [&](const std::map<std::string, std::vector<int64_t>>& changes,
                         const std::string& without = "") {
    const auto views = huggingface_views(model_of("llama"));
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const TensorView& view : *views) {
      for (const std::string& array : view.arrays) shapes[array] = view.array_shape;
    }
    shapes.erase(without);
    for (const auto& [array, shape] : changes) shapes[array] = shape;
    write("llama", shapes);
    const auto done = import_huggingface({source, out, {}});
    EXPECT_FALSE(done);
    EXPECT_FALSE(fs::exists(out));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
    return done ? "" : done.error().message;
  };
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_EQ(error({{q, {16, 24}}}), source + ": '" + q +
                                        "': expected [24, 16] (blocks.1.attn.q.weight), found "
                                        "[16, 24]");
  EXPECT_EQ(error({}, q),
            source + ": '" + q + "': expected [24, 16] (blocks.1.attn.q.weight), found none");
  EXPECT_EQ(error({{"model.layers.0.self_attn.q_proj.bias", {24}}}),
            source +
                ": 'model.layers.0.self_attn.q_proj.bias': expected only arrays of the model that "
                "config.json describes, found float32 of shape [24]");
  make("llama");
  fs::create_directories(out);
  const auto taken = import_huggingface({source, out, {}});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().message, out + ": expected a folder that does not exist yet, found one");
  fs::remove(out);
  const auto wrong = export_huggingface({source, "llama:layers=2,hidden=16,heads=4", out});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            source + ": 'embed.token.weight': expected [32000, 16], found none");
  EXPECT_FALSE(fs::exists(out));
}

// Returns the shapes of their arrays, by name.
std::map<std::string, std::vector<int64_t>> shapes_of(const Model& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const auto views = huggingface_views(model);
  EXPECT_TRUE(views) << views.error().message;
  for (const TensorView& view : *views) {
    for (const std::string& array : view.arrays) shapes[array] = view.array_shape;
  }
  return shapes;
}

// The configuration ties a head that has its own values in the files, or the reverse.
TEST_F(Folders, ArraysSayWhetherTheHeadIsTied) {
  for (const std::string name : {"qwen3", "gpt2", "t5"}) {
    auto shapes = shapes_of(model_of(name));
    shapes["lm_head.weight"] = {37, 16};
    write(name, shapes);  // with other values than the table
    const auto done = import_huggingface({path(name), path(name + "_ours"), {}});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->notes,
              std::vector<std::string>{
                  "the arrays of the files say tied=0, which config.json does not, and "
                  "count, as in transformers"});
    const auto model = build_model(done->model, 1);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_THAT(model->spec, HasSubstr(",tied=0,"));
    EXPECT_EQ(model->spec.find(",scaled_head=1,") != std::string::npos, name == "t5");
    EXPECT_NE((*open_source(done->weights))->find("head.weight"), nullptr);
  }
  // A head that is missing is tied in T5, whose input is then not divided: version 4 reads this
  // with the head written once more.
  auto shapes = shapes_of(model_of("t5_gated"));
  ASSERT_EQ(shapes.erase("lm_head.weight"), 1U);
  write("t5_gated", shapes);
  const auto done = import_huggingface({path("t5_gated"), path("ours"), {}});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(build_model(done->model, 1)->spec,
              testing::AllOf(HasSubstr(",tied=1,"), HasSubstr(",scaled_head=0,")));
  const auto exported = export_huggingface({done->weights, done->model, path("back")});
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->parameters, done->parameters);
  EXPECT_EQ(exported->arrays, done->arrays + 1);
  const auto back = open_safetensors(path("back"));
  const SourceArray *head = (*back)->find("lm_head.weight"),
                    *table = (*back)->find("shared.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(read_all(**back, *head, Box::whole({37, 16})),
            read_all(**back, *table, Box::whole({37, 16})));
  EXPECT_THAT(*read_file(path("back") + "/config.json"),
              HasSubstr("\"tie_word_embeddings\": false"));
  const auto again = import_huggingface({path("back"), path("again"), {}});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(build_model(again->model, 1)->spec, build_model(done->model, 1)->spec);
}

TEST_F(Folders, ATiedArrayMayStandUnderTheNameOfItsCopy) {
  const Model model = model_of("qwen3");
  auto shapes = shapes_of(model);
  shapes.erase("model.embed_tokens.weight");
  const auto missing = [&] {
    write("qwen3", shapes);
    const auto source = open_huggingface(path("qwen3"), model);
    return source ? "" : source.error().message;
  };
  EXPECT_THAT(missing(), HasSubstr("'model.embed_tokens.weight': expected [37, 16]"));
  shapes["lm_head.weight"] = {37, 16};
  EXPECT_EQ(missing(), "");
  // This does not hold if the model has both.
  const Model both = make("llama");
  shapes = shapes_of(both);
  shapes.erase("model.embed_tokens.weight");
  write("llama", shapes);
  EXPECT_FALSE(open_huggingface(path("llama"), both));
}

TEST_F(Folders, OneFileIsReadAloneBesideOthers) {
  make("llama");
  std::filesystem::copy(path("llama") + "/model.safetensors",
                        path("llama") + "/model-2.safetensors");
  ASSERT_TRUE(write_file(path("llama") + "/model.safetensors.index.json",
                         R"({"weight_map": {"x": "model-00001-of-00002.safetensors"}})"));
  const auto done = import_huggingface({path("llama"), path("ours"), {}});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->notes, std::vector<std::string>{
                             "model.safetensors is read alone, as transformers does, and not "
                             "model-2.safetensors"});
}

TEST_F(Folders, TheMaskIsTheTokenizers) {
  make("bert");
  const auto mask = [&](const std::map<std::string, std::string>& files) -> std::string {
    for (const auto& [name, text] : files) EXPECT_TRUE(write_file(path("bert/" + name), text));
    fs::remove_all(path("ours"));
    const auto done = import_huggingface({path("bert"), path("ours"), {}});
    for (const auto& [name, text] : files) fs::remove(path("bert/" + name));
    if (!done) return done.error().message;
    const std::string spec = build_model(done->model, 1)->spec;
    const size_t at = spec.find(",mask=") + 6;
    return spec.substr(at, spec.find(',', at) - at);
  };
  EXPECT_EQ(mask({}), "36") << "the last one";
  EXPECT_EQ(mask({{"vocab.txt", "[PAD]\n[UNK]\n[MASK]\na\n"}}), "2");
  EXPECT_EQ(mask({{"vocab.txt", "[PAD]\r\n[MASK]\r\n"}}), "1");
  EXPECT_EQ(mask({{"vocab.txt", "[PAD]\n[UNK]\n"}}), "36");
  EXPECT_EQ(mask({{"tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "[MASK]"}]})"}}),
            "5");
  EXPECT_EQ(mask({{"tokenizer.json", R"({"model": {"vocab": {"[MASK]": 6}}})"}}), "6");
  EXPECT_EQ(mask({{"tokenizer.json", R"({"model": {"vocab": {"<m>": 7, "[MASK]": 6}}})"},
                  {"tokenizer_config.json", R"({"mask_token": {"content": "<m>"}})"}}),
            "7");
  EXPECT_EQ(mask({{"tokenizer_config.json",
                   R"({"added_tokens_decoder": {"8": {"content": "[MASK]"}}})"}}),
            "8");
  EXPECT_EQ(mask({{"special_tokens_map.json", R"({"mask_token": "<m>"})"},
                  {"added_tokens.json", R"({"<m>": 9})"}}),
            "9");
  EXPECT_EQ(mask({{"tokenizer.json", "no JSON"}}),
            path("bert") + "/tokenizer.json: expected a JSON object (of a tokenizer)");
  EXPECT_EQ(mask({{"vocab.txt", std::string(40, '\n') + "[MASK]\n"}}),
            "model 'bert': mask=40 must be below vocab=37");
}

TEST(Tiles, CoverABoxOnceWithinTheirSize) {
  const Box box({{3, 5}, {0, 7}, {2, 4}});
  for (const int64_t most : {1, 6, 28, 1000}) {
    std::vector<int> seen(static_cast<size_t>(8 * 7 * 6), 0);
    const Status done = for_each_tile(box, {1, 0, 2}, most, [&](const Box& tile) -> Status {
      EXPECT_LE(tile.volume(), most);
      each_index({8, 7, 6}, tile, [&](size_t, size_t global) { ++seen[global]; });
      return {};
    });
    ASSERT_TRUE(done);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), box.volume());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 8 * 7 * 6 - box.volume());
  }
}

TEST(Tiles, CopiesOfEveryElementSizeTranspose) {
  for (const int64_t bytes : {1, 2, 4, 8}) {
    std::vector<std::byte> in(static_cast<size_t>(6 * bytes)), out(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i);
    copy_strided({2, 3}, bytes, in.data(), {3, 1}, out.data(), {1, 2});
    for (size_t row = 0; row < 2; ++row) {
      for (size_t column = 0; column < 3; ++column) {
        EXPECT_EQ(std::memcmp(&in[(row * 3 + column) * static_cast<size_t>(bytes)],
                              &out[(column * 2 + row) * static_cast<size_t>(bytes)],
                              static_cast<size_t>(bytes)),
                  0);
      }
    }
  }
}

// Copies have every order of dims, are larger than the squares of a copy, and strides leave gaps.
TEST(Tiles, CopiesOfEveryOrderAreThoseElementByElement) {
  const std::vector<int64_t> shape = {3, 70, 1, 130};
  std::vector<int> order = {0, 1, 2, 3};
  int64_t gap = 1;  // then 2: every second element stays as it is
  std::vector<uint16_t> in(3 * 70 * 130);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i + 1);
  do {
    std::vector<int64_t> out_strides(4);
    int64_t stride = gap;
    for (size_t d = 4; d-- > 0;) {
      out_strides[static_cast<size_t>(order[d])] = stride;
      stride *= shape[static_cast<size_t>(order[d])];
    }
    std::vector<uint16_t> out(2 * in.size()), expected(out.size());
    const std::vector<int64_t> in_strides = row_major_strides(shape);
    each_index(shape, Box::whole(shape), [&](size_t, size_t global) {
      int64_t to = 0;
      for (size_t d = 0; d < 4; ++d)
        to += static_cast<int64_t>(global) / in_strides[d] % shape[d] * out_strides[d];
      expected[static_cast<size_t>(to)] = in[global];
    });
    copy_strided(shape, 2, reinterpret_cast<const std::byte*>(in.data()), in_strides,
                 reinterpret_cast<std::byte*>(out.data()), out_strides);
    ASSERT_EQ(out, expected) << order[0] << order[1] << order[2] << order[3];
  } while (std::next_permutation(order.begin(), order.end()) || ++gap == 2);
}

}  // namespace
}  // namespace tessera
