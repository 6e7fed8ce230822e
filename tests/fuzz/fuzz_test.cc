// Damages every kind of file that Tessera reads and others write, 1,000 times each (fuzz.h says
// what must hold). Files that are taken are then used: arrays are read, documents looked up, models
// built, folders imported.
#include "fuzz.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/data/array_file.h"
#include "tessera/data/click_file.h"
#include "tessera/data/corpus.h"
#include "tessera/data/criteo.h"
#include "tessera/data/reuse_law.h"
#include "tessera/data/test_files.h"
#include "tessera/data/token_file.h"
#include "tessera/import/dcp/metadata.h"
#include "tessera/import/dcp/source.h"
#include "tessera/import/huggingface/folder.h"
#include "tessera/import/huggingface/names.h"
#include "tessera/import/tiles.h"
#include "tessera/models/model.h"
#include "tessera/network/readers.h"
#include "tessera/orchestrate/launch.h"
#include "tessera/report/slow_rank.h"
#include "tessera/simulate/rank_times.h"
#include "tessera/sparse/cache/replay.h"
#include "tessera/sparse/cache/row_store.h"
#include "tessera/sparse/graphs/read.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/checksum.h"
#include "tessera/state/safetensors.h"
#include "tessera/test/source_dir.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// ---- data

// The bytes of a file with six volumes and their labels.
std::string hdf5_of_samples() {
  const std::string folder = fs::temp_directory_path() / fmt::format("tessera_h5_{}", ::getpid());
  fs::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + name, std::ios::binary) << bytes;
    return folder + name;
  };
  const auto volumes =
      open_array_file({write("/x.npy", npy("<i2", "(6, 1, 4, 4, 4)", std::string(768, '\1'))), ""});
  const auto labels =
      open_array_file({write("/y.npy", npy("<f4", "(6, 3)", std::string(72, '\2'))), ""});
  EXPECT_TRUE(volumes && labels);
  EXPECT_TRUE(
      write_hdf5(folder + "/u.h5", {{"volumes", volumes->get()}, {"labels", labels->get()}}));
  std::ifstream in(folder + "/u.h5", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  in.close();
  fs::remove_all(folder);
  return bytes;
}

// Opens the file as a run would, and reads sequences of it.
Status read_corpus(const std::string& path, TokenFormat format, bool padded) {
  TokenCorpus::Source source;
  source.paths = {path};
  source.format = format;
  source.padded = padded;
  source.end_of_document = 3;
  TESSERA_TRY(const TokenCorpus corpus, TokenCorpus::open({source}, {"data", 9, 1 << 30}));
  std::vector<int64_t> tokens(9);
  for (int64_t sequence = 0; sequence < 8; ++sequence)
    TESSERA_TRY_VOID(corpus.read(1, 1, sequence, 0, 9, tokens.data()));
  return {};
}

std::vector<uint16_t> some_tokens() {
  std::vector<uint16_t> tokens(60);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i % 7);
  return tokens;
}

TEST(FuzzData, npy) {
  Fuzz("npy", {{"a.npy", npy("<u2", "(60,)", bytes_of(some_tokens()))}})
      .run([](const std::string& folder) {
        return read_corpus(folder + "/a.npy", TokenFormat::kNpy, false);
      });
}

// The times of the ranks of a run: what is taken can be drawn.
TEST(FuzzData, rank_times) {
  std::string lines =
      to_text(WatchStart{"gpt:layers=2", "serial", 8, "float32", "adamw", "mpi", 2}) + "\n";
  for (int64_t step = 1; step <= 3; ++step) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      const RankTimes times{step,
                            rank,
                            0.5,
                            {{"einsum", "einsum.float32.nt 1 2 3 4", 4, 0.25}},
                            {{"all_reduce dp", {0, 1}, 4096, 1, 0.125}},
                            {{"all_reduce dp", "w.grad", 1 - rank, 1, 0.125}}};
      lines += to_text(times) + "\n";
    }
  }
  Fuzz("rank_times", {{"ranks.jsonl", lines}}).run([](const std::string& folder) -> Status {
    TESSERA_TRY_VOID(watched_of(folder + "/ranks.jsonl"));
    TESSERA_TRY(const WatchReport report, watch_report(folder + "/ranks.jsonl", {}));
    EXPECT_FALSE(draw(report, "").empty());
    return {};
  });
}

// Matrices and lists of edges: a graph that is taken keeps its invariants.
TEST(FuzzData, graphs) {
  using namespace sparse;
  std::string matrix =
      "%%MatrixMarket matrix coordinate real symmetric\n% a ring\n24 24 24\n2 1 0.5\n24 1 2\n";
  std::string edges, features, labels, split;
  for (int i = 0; i < 24; ++i) {
    if (i >= 2) matrix += fmt::format("{} {} 1.5\n", i + 1, i);
    if (i < 23) edges += fmt::format("{}\t{}\n", i, i + 1);
    features += fmt::format("{}\t{} {}\n", i, i % 5, i % 5 + 3);
    labels += fmt::format("{}\t{}\n", i, i % 3);
    split += fmt::format("{}\t{}\n", i, i < 6 ? "train" : i < 12 ? "val" : "test");
  }
  Fuzz("graphs", {{"ring.mtx", matrix},
                  {"ring_edges.tsv", edges},
                  {"ring_features.tsv", features},
                  {"ring_labels.tsv", labels},
                  {"ring_split.tsv", split}})
      .run([](const std::string& folder) -> Status {
        TESSERA_TRY(const CsrGraph graph, read_matrix_market(folder + "/ring.mtx"));
        const Status ring = check(graph, {.sorted = true, .symmetric = true});
        EXPECT_TRUE(ring) << ring.error().message;
        TESSERA_TRY(const NodeData nodes, read_node_data(folder, "ring"));
        const Status both = check(nodes.graph, {.sorted = true, .symmetric = true});
        EXPECT_TRUE(both) << both.error().message;
        EXPECT_TRUE(check(nodes.features, {.sorted = true}));
        return {};
      });
}

// Heads promise arrays of any shape and type: every element that they promise is there.
TEST(FuzzData, npy_of_samples) {
  Fuzz("npy_of_samples", {{"f4.npy", npy("<f4", "(6, 3, 5)", std::string(360, '\1'))},
                          {"i8.npy", npy("<i8", "(9,)", std::string(72, '\1'))},
                          {"u1.npy", npy("|u1", "(5, 4, 4, 1)", std::string(80, '\1'))}})
      .run([](const std::string& folder) -> Status {
        for (const char* name : {"/f4.npy", "/i8.npy", "/u1.npy"}) {
          TESSERA_TRY(const MappedFile file, MappedFile::open(folder + name));
          TESSERA_TRY(const NpyHeader header, read_npy_header(file.bytes(), file.size()));
          with_number(header.number, [&](auto type) {
            using T = decltype(type);
            double largest_value = 0;
            for (int64_t i = 0; i < header.volume(); ++i) {
              const T value = read_number<T>(file.bytes() + header.offset +
                                             i * static_cast<int64_t>(sizeof(T)));
              largest_value = std::max(largest_value, static_cast<double>(value));
            }
            return largest_value;
          });
        }
        return {};
      });
}

// A dataset's head may promise anything; the promised data is read sample by sample, as in a run.
Status read_samples(const std::string& path, const char* dataset) {
  constexpr int64_t kMostBytes = 1 << 20;
  TESSERA_TRY(const auto array, open_array_file({path, dataset}));
  Box box = Box::whole(array->shape());
  box.dims[0].size = 1;
  const int64_t bytes = box.volume() * number_bytes(array->number());
  if (bytes > kMostBytes) return invalid_input("a model has no samples of this size");
  std::vector<std::byte> numbers(static_cast<size_t>(bytes));
  for (int64_t sample = 0; sample < std::min<int64_t>(array->shape()[0], 8); ++sample) {
    box.dims[0].begin = sample;
    TESSERA_TRY_VOID(array->read(box, numbers.data()));
  }
  return {};
}

TEST(FuzzData, hdf5) {
  if (!have_hdf5()) GTEST_SKIP() << "built without HDF5";
  Fuzz fuzz("hdf5", {{"u.h5", hdf5_of_samples()}});
  fuzz.run([](const std::string& folder) -> Status {
    TESSERA_TRY_VOID(read_samples(folder + "/u.h5", "volumes"));
    return read_samples(folder + "/u.h5", "labels");
  });
}

TEST(FuzzData, raw_tokens) {
  Fuzz("raw_tokens", {{"a.bin", bytes_of(some_tokens())}}).run([](const std::string& folder) {
    const Status wide = read_corpus(folder + "/a.bin", TokenFormat::kUint32, false);
    const Status narrow = read_corpus(folder + "/a.bin", TokenFormat::kUint16, true);
    return narrow ? wide : narrow;
  });
}

TEST(FuzzData, megatron_pairs) {
  Fuzz("megatron_pairs",
       {{"a.idx", megatron_index({20, 1, 14, 25})}, {"a.bin", bytes_of(some_tokens())}})
      .run([](const std::string& folder) -> Status {
        TESSERA_TRY_VOID(read_corpus(folder + "/a.idx", TokenFormat::kMegatron, true));
        return read_corpus(folder + "/a.bin", TokenFormat::kMegatron, false);
      });
}

// ---- clicks and rows

std::string some_clicks() {
  const std::string path =
      (fs::temp_directory_path() / fmt::format("tessera_fuzz_clicks_{}", ::getpid())).string();
  auto writer = ClickWriter::create(path, {2, {{"ads", 10, 3}, {"pages", 300, 1}}});
  EXPECT_TRUE(writer) << writer.error().message;
  for (uint32_t i = 0; i < 300; ++i) {
    const std::vector<float> dense{static_cast<float>(i), -1};
    const std::vector<std::vector<uint32_t>> bags{std::vector<uint32_t>(i % 4, i % 10), {i}};
    EXPECT_TRUE(writer->add(i % 3 == 0, dense, bags));
  }
  EXPECT_TRUE(writer->close());
  std::string bytes = *read_file(path);
  fs::remove(path);
  return bytes;
}

TEST(FuzzClicks, clicks) {
  Fuzz("clicks", {{"a.clicks", some_clicks()}}).run([](const std::string& folder) -> Status {
    TESSERA_TRY(const ClickFile file, ClickFile::open(folder + "/a.clicks"));
    ClickBatch batch;
    for (int64_t step = 1; step < 4 && file.samples() > 0; ++step) {
      std::vector<int64_t> samples;
      for (int64_t i = 0; i < 7; ++i) samples.push_back((7 * step + i) % file.samples());
      file.read(samples, batch);
      for (size_t f = 0; f < batch.bags.size(); ++f) {
        padded(batch.bags[f], file.schema().features[f].bag);
      }
    }
    return {};
  });
}

TEST(FuzzClicks, criteo) {
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    lines += "1";
    for (int field = 0; field < 13; ++field) lines += fmt::format("\t{}", field == i ? "" : "17");
    for (int field = 0; field < 26; ++field) lines += field == i ? "\t" : "\t68fd1e64";
    lines += "\n";
  }
  Fuzz("criteo", {{"day.txt", lines}}).run([](const std::string& folder) -> Status {
    TESSERA_TRY_VOID(convert_criteo({folder + "/day.txt"}, {100}, folder + "/out.clicks"));
    return {};
  });
}

TEST(FuzzClicks, reuse) {
  const std::string good =
      "a.pt\nLocality stats after processing 1 batches of size 8\nAvg # of indices: 100\n"
      "Avg # of unique cols: 40\nAvg col size: 2.5\nHistogram of col sizes:\n(0, 1]: 0.5\n"
      "(1, 2]: 0.3\n(2+: 0.2\n[0, 1, 2]\nRatio of index distribution at different column sizes:\n"
      "(0, 1]: 0.2\n(1, 2]: 0.24\n(2+: 0.56\n";
  Fuzz("reuse", {{"a.txt", good}}).run([](const std::string& folder) -> Status {
    TESSERA_TRY(const auto sections, read_reuse(folder + "/a.txt"));
    const RowDraw draw(ReuseLaw::fit(sections.front()), 100);
    EXPECT_LT(draw({1, 2}, 3), 100);
    return {};
  });
}

TEST(FuzzRows, traces) {
  Fuzz("traces", {{"a.txt", "# ids\n1 2 3\n\n7 7 1\n9\n"}}).run([](const std::string& folder) {
    return sparse::read_lookup_trace(folder + "/a.txt").map([](const auto&) {});
  });
}

TEST(FuzzRows, rows) {
  const std::string path =
      (fs::temp_directory_path() / fmt::format("tessera_fuzz_rows_{}", ::getpid())).string();
  EXPECT_TRUE(sparse::FileRows::open(path, {6, 4}));
  const std::string good = *read_file(path);
  fs::remove(path);
  Fuzz("rows", {{"a.rows", good}}).run([](const std::string& folder) -> Status {
    TESSERA_TRY(const auto store, sparse::FileRows::open(folder + "/a.rows", {6, 4}));
    std::vector<std::byte> row(4);
    for (int64_t i = 0; i < 6; ++i) TESSERA_TRY_VOID(store->read(i, row.data()));
    return store->write(5, row.data());
  });
}

// ---- state

// Arrays whose bytes count up.
std::string safetensors(const std::vector<ArrayEntry>& arrays,
                        const std::map<std::string, std::string>& metadata = {}) {
  const SafetensorsLayout layout = layout_safetensors(arrays, metadata);
  std::string bytes = layout.head;
  while (static_cast<int64_t>(bytes.size()) < layout.bytes)
    bytes += static_cast<char>(bytes.size() % 60);
  return bytes;
}

Status read_all(const TensorSource& source) {
  std::vector<std::byte> data;
  for (const SourceArray& array : source.arrays()) {
    const Box whole = Box::whole(array.shape);
    data.resize(static_cast<size_t>(whole.volume() * dtype_bytes(array.dtype)));
    TESSERA_TRY_VOID(source.read(array, whole, array.dtype, data.data()));
  }
  return {};
}

TEST(FuzzState, safetensors) {
  const std::string good = safetensors({{"w", DType::kFloat32, {4, 3}},
                                        {"b", DType::kInt64, {3}},
                                        {"c", DType::kBool, {5}},
                                        {"scalar", DType::kBFloat16, {}}},
                                       {{"format", "pt"}});
  Fuzz("safetensors", {{"a.safetensors", good}}).run([](const std::string& folder) -> Status {
    TESSERA_TRY(const auto source, open_safetensors(folder + "/a.safetensors"));
    return read_all(*source);
  });
}

TEST(FuzzState, folders_of_safetensors) {
  Fuzz("folders_of_safetensors",
       {{"model.safetensors.index.json",
         R"({"metadata": {"total_size": 32}, "weight_map": {"a": "1.safetensors",)"
         R"( "b": "2.safetensors"}})"},
        {"1.safetensors", safetensors({{"a", DType::kFloat32, {4}}})},
        {"2.safetensors", safetensors({{"b", DType::kFloat64, {2}}})}})
      .run([](const std::string& folder) -> Status {
        TESSERA_TRY(const auto source, open_source(folder));
        return read_all(*source);
      });
}

// A checkpoint of two ranks: its manifest, and its shards.
struct SmallCheckpoint {
  Manifest manifest;
  std::vector<FuzzFile> files;
};

// Returns the text with its right checksum: 16 digits behind {"checksum":".
std::string sealed(std::string text) {
  constexpr size_t kBegin = 13, kDigits = 16;
  if (text.size() < kBegin + kDigits) return text;
  text.replace(kBegin, kDigits, std::string(kDigits, '0'));
  return text.replace(kBegin, kDigits, checksum_text(checksum(text)));
}

SmallCheckpoint make_checkpoint() {
  const std::string folder =
      (fs::temp_directory_path() / fmt::format("tessera_fuzz_made_{}", ::getpid())).string();
  SmallCheckpoint made;
  Manifest& manifest = made.manifest;
  manifest.step = 5;
  manifest.ranks = 2;
  manifest.model = "gpt:layers=1";
  manifest.plan = "serial";
  manifest.run = "steps = 100\n";
  manifest.tensors = {{"w", "parameter", DType::kFloat32, {4, 6}, {}},
                      {"optimizer.m.w", "optimizer_state", DType::kFloat32, {4, 6}, {}},
                      {"optimizer.loss_scale", "loss_scale", DType::kFloat32, {}, {}}};
  const Box left({{0, 4}, {0, 2}}), right({{0, 4}, {2, 4}});
  const std::vector<std::vector<ShardPart>> parts = {{{0, left}, {1, left}, {2, Box{}}},
                                                     {{0, right}, {1, right}}};
  FileSystem disk;
  EXPECT_TRUE(begin_checkpoint(disk, folder, 5));
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < 2; ++rank) {
    const auto& list = parts[static_cast<size_t>(rank)];
    auto report = write_shard(disk, folder, 5, plan_shard(rank, manifest.tensors, list),
                              [](size_t, int64_t, std::span<std::byte> out) -> Status {
                                std::fill(out.begin(), out.end(), std::byte{0});
                                return {};
                              });
    EXPECT_TRUE(report);
    if (report) reports.push_back(*report);
  }
  add_shards(manifest, parts, reports);
  EXPECT_TRUE(commit_checkpoint(disk, folder, manifest));
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint_path(folder, 5))) {
    const std::string name = entry.path().filename().string();
    made.files.push_back({name, *read_file(entry.path().string())});
    if (name == kManifestName) made.files.back().seal = sealed;
  }
  fs::remove_all(folder);
  return made;
}

TEST(FuzzState, checkpoints) {
  Fuzz("checkpoints", make_checkpoint().files).run([](const std::string& folder) -> Status {
    TESSERA_TRY(const auto source, open_checkpoint(folder));
    TESSERA_TRY_VOID(read_all(*source));
    const std::vector<Damage> damage = find_damage(folder, source->manifest());
    if (damage.empty()) return {};
    return check_failed(damage.front().to_string());
  });
}

TEST(FuzzState, manifests) {
  std::vector<FuzzFile> files = make_checkpoint().files;
  std::erase_if(files, [](const FuzzFile& file) { return file.name != kManifestName; });
  Fuzz("manifests", files).run([](const std::string& folder) -> Status {
    const std::string path = folder + "/" + std::string(kManifestName);
    TESSERA_TRY(const std::string text, read_file(path));
    TESSERA_TRY(const Manifest manifest, parse_manifest(text, path));
    EXPECT_EQ(why_invalid(manifest), "");
    return {};
  });
}

// ---- torch.distributed.checkpoint

std::string bytes_of_golden(const std::string& name) {
  std::ifstream in(TESSERA_SOURCE_DIR "/tests/dcp/golden/" + name, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  EXPECT_FALSE(bytes.empty()) << name;
  return bytes;
}

TEST(FuzzDcp, distcp_metadata) {
  Fuzz("distcp metadata", {{".metadata", bytes_of_golden("torch_save/.metadata")}})
      .run([](const std::string& folder) -> Status {
        TESSERA_TRY(const std::string bytes, read_file(folder + "/.metadata"));
        TESSERA_TRY(const dcp::Metadata metadata, dcp::parse_metadata(bytes, ".metadata"));
        TESSERA_TRY_VOID(dcp::parse_metadata(dcp::metadata_text(metadata), "written"));
        return {};
      });
}

// Checkpoints of Megatron Core have such a file besides arrays.
TEST(FuzzDcp, common_pt) {
  Fuzz("common.pt", {{"common.pt", bytes_of_golden("common.pt")}})
      .run([](const std::string& folder) -> Status {
        TESSERA_TRY(const dcp::File file, dcp::File::open(folder + "/common.pt"));
        TESSERA_TRY(const dcp::SavedValue value, dcp::SavedValue::open(file, 0, file.bytes()));
        value.numbers({"optimizer", "state", "common_step"});
        value.numbers({"optimizer", "param_groups", "0", "betas"});
        value.text({"content_metadata", "distrib_optim_sharding_type"});
        return {};
      });
}

// Folders that are taken are read, in one piece and by regions.
TEST(FuzzDcp, distcp) {
  for (const std::string layout : {"torch_save", "safetensors"}) {
    std::vector<FuzzFile> files;
    for (const char* name : {".metadata", "__0_0.distcp", "__1_0.distcp"})
      files.push_back({name, bytes_of_golden(layout + "/" + name)});
    Fuzz("distcp of " + layout, files).run([](const std::string& folder) -> Status {
      TESSERA_TRY(const auto source, dcp::open_dcp(folder));
      for (const std::string& object : source->objects()) {
        if (const auto value = source->object(object)) value->numbers({});
      }
      for (const SourceArray& array : source->arrays()) {
        Box region = Box::whole(array.shape);
        std::vector<std::byte> out(static_cast<size_t>(region.volume() * 8));
        TESSERA_TRY_VOID(source->read(array, region, DType::kFloat64, out.data()));
        if (region.empty() || region.rank() == 0) continue;
        region.dims[0] = {region.dims[0].size - 1, 1};
        TESSERA_TRY_VOID(source->read(array, region, array.dtype, out.data()));
      }
      return {};
    });
  }
}

// ---- models

const std::vector<FuzzFile>& configurations() {
  static const std::vector<FuzzFile> files = [] {
    const std::string decoder =
        R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 6,
           "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12,
           "vocab_size": 37, "tie_word_embeddings": false})";
    const std::string encoder =
        R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
           "num_attention_heads": 4, "hidden_act": "gelu")";
    return std::vector<FuzzFile>{
        {"gpt2/config.json", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4,
             "n_positions": 12, "vocab_size": 37, "activation_function": "gelu_new"})"},
        {"llama/config.json",
         R"({"model_type": "llama", "rope_parameters": {"rope_type": "llama3", "factor": 8.0,
             "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 50000.0,
             "original_max_position_embeddings": 64}, )" +
             decoder},
        {"mixtral/config.json", R"({"model_type": "mixtral", "num_local_experts": 4,
             "num_experts_per_tok": 2, "sliding_window": 5, )" +
                                    decoder},
        {"qwen3/config.json", R"({"model_type": "qwen3", "attention_bias": true, )" + decoder},
        {"bert/config.json",
         R"({"model_type": "bert", "vocab_size": 37, "max_position_embeddings": 12, )" + encoder +
             "}"},
        {"vit/config.json", R"({"model_type": "vit", "image_size": 8, "patch_size": 4,
             "id2label": {"0": "cat", "1": "dog"}, )" +
                                encoder + "}"},
        {"t5/config.json", R"({"model_type": "t5", "d_model": 16, "d_kv": 6, "d_ff": 24,
             "num_layers": 2, "num_heads": 4, "vocab_size": 37, "relative_attention_num_buckets": 8,
             "feed_forward_proj": "gated-gelu"})"},
        {"qwen3_next/config.json",
         R"({"model_type": "qwen3_next", "full_attention_interval": 2, "num_experts": 4,
             "num_experts_per_tok": 2, "moe_intermediate_size": 12, "linear_num_key_heads": 2,
             "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5,
             "shared_expert_intermediate_size": 10, "partial_rotary_factor": 1.0, )" +
             decoder}};
  }();
  return files;
}

TEST(FuzzModels, configurations) {
  // A block takes about 100 KB, and there are at most 10,000 blocks.
  Fuzz fuzz("configurations", configurations(), 1 << 30);
  fuzz.run([whole = true](const std::string& folder) mutable -> Status {
    const bool all = std::exchange(whole, false);  // after the first round, only the damaged file
    for (const FuzzFile& file : configurations()) {
      const std::string path = folder + "/" + file.name;
      TESSERA_TRY(const std::string text, read_file(path));
      if (!all && text == file.good) continue;
      TESSERA_TRY(const Model model, build_model(path, 1));
      TESSERA_TRY_VOID(huggingface_views(model));
    }
    return {};
  });
}

TEST(FuzzModels, graph_files) {
  const auto model = build_model("gpt:layers=1,hidden=8,heads=2,seq=6,vocab=11", 2);
  ASSERT_TRUE(model);
  Fuzz("graph_files", {{"a.graph", to_text(model->graph)}}).run([](const std::string& folder) {
    const auto read = build_model(folder + "/a.graph", 2);
    return read ? Status() : tl::unexpected(read.error());
  });
}

// ---- folders of Hugging Face

std::string weights_of(const Model& model) {
  std::vector<ArrayEntry> entries;
  const auto views = huggingface_views(model);
  EXPECT_TRUE(views);
  for (const TensorView& view : *views) {
    for (const std::string& array : view.arrays)
      entries.push_back({array, DType::kFloat32, view.array_shape});
  }
  return safetensors(entries);
}

// Returns the folder of the configuration with this number, with more files.
std::vector<FuzzFile> huggingface_folder(size_t number, const std::vector<FuzzFile>& more) {
  const std::string config =
      (fs::temp_directory_path() / fmt::format("tessera_fuzz_{}.json", ::getpid())).string();
  FuzzFile file = configurations()[number];
  EXPECT_TRUE(write_file(config, file.good));
  const auto model = build_model(config, 1);
  fs::remove(config);
  EXPECT_TRUE(model) << model.error().message;
  std::vector<FuzzFile> files = {{"theirs/config.json", file.good},
                                 {"theirs/model.safetensors", weights_of(*model)}};
  files.insert(files.end(), more.begin(), more.end());
  return files;
}

Status there_and_back(const std::string& folder) {
  const std::string ours = folder + "/ours", back = folder + "/back";
  const auto done = import_huggingface({folder + "/theirs", ours, {}});
  if (!done) {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "something is left";
    return tl::unexpected(done.error());
  }
  const auto exported = export_huggingface({done->weights, done->model, back});
  fs::remove_all(ours);
  fs::remove_all(back);
  if (!exported) return tl::unexpected(exported.error());
  return {};
}

TEST(FuzzImport, folders_of_huggingface) {
  // Models as in `configurations`, and a tile.
  Fuzz("folders_of_huggingface",
       huggingface_folder(2, {{"theirs/tokenizer_config.json", R"({"model_max_length": 12})"}}),
       (1 << 30) + kTileBytes)
      .run(there_and_back);
}

// The folders are those of BERT, whose mask token is looked up in its tokenizer.
TEST(FuzzImport, tokenizers_of_huggingface) {
  Fuzz("tokenizers_of_huggingface",
       huggingface_folder(
           4, {{"theirs/tokenizer_config.json",
                R"({"mask_token": {"content": "<mask>"}, "added_tokens_decoder":
                    {"0": {"content": "[PAD]"}, "5": {"content": "[X]"}}})"},
               {"theirs/tokenizer.json",
                R"({"added_tokens": [{"id": 3, "content": "[X]"}], "model": {"vocab": {"a": 1}}})"},
               {"theirs/vocab.txt", "[PAD]\n[UNK]\n<mask>\r\n[X]\n"}}),
       (1 << 30) + kTileBytes)
      .run(there_and_back);
}

TEST(FuzzImport, weights_that_are_exported) {
  const auto model = build_model("llama:layers=1,hidden=8,heads=2,ffn=12,seq=4,vocab=10", 1);
  ASSERT_TRUE(model);
  std::vector<ArrayEntry> arrays;
  for (const Tensor& tensor : model->graph.tensors()) {
    if (tensor.role == Role::kParameter)
      arrays.push_back({tensor.name, DType::kFloat32, tensor.shape()});
  }
  Fuzz("weights_that_are_exported", {{"model.safetensors", safetensors(arrays)}},
       kTileBytes + (16 << 20))
      .run([&](const std::string& folder) -> Status {
        const auto done =
            export_huggingface({folder + "/model.safetensors", model->spec, folder + "/theirs"});
        fs::remove_all(folder + "/theirs");
        EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "something is left";
        return done ? Status() : tl::unexpected(done.error());
      });
}

// ---- networks that others describe

// Returns a file of the readers' tests.
FuzzFile network_file(const std::string& name) {
  const auto text =
      read_file(fmt::format("{}/tessera/network/testdata/{}", TESSERA_SOURCE_DIR, name));
  EXPECT_TRUE(text);
  return {fs::path(name).filename().string(), text.value_or("")};
}

// Networks that are taken are checked, put together with themselves, and written as clusters.
TEST(FuzzNetworks, files_of_topologies) {
  const auto preset = load_cluster("dgx-h100");
  ASSERT_TRUE(preset);
  for (const char* name : {"topograph/small-tree.yaml", "topology.conf", "blocks.conf",
                           "addresses.txt", "ec2.json", "gcp.json", "nccl.xml"}) {
    const FuzzFile file = network_file(name);
    // A range of a few bytes may stand for as many nodes as a cluster can have.
    Fuzz(file.name, {file}, 256 << 20).run([&](const std::string& folder) -> Status {
      TESSERA_TRY(network::Network found, network::read_network(folder + "/" + file.name));
      TESSERA_TRY_VOID(network::check(found, "f"));
      if (found.nodes.empty() || found.nodes.size() > 1000) return {};
      const network::Network same = found;
      EXPECT_TRUE(network::merge(same, "a", "b", found));
      EXPECT_EQ(found, same);
      TESSERA_TRY(const Cluster cluster,
                  network::to_cluster(found, "net", {preset->parts.front().type}));
      EXPECT_TRUE(parse_cluster(to_toml(cluster), "net.toml"));
      return {};
    });
  }
}

TEST(FuzzNetworks, files_of_hosts) {
  Fuzz("files_of_hosts",
       {{"hosts", "# all\nnode1 slots=8\nnode2 i-0abc slots=4 max_slots=9\n\nnode10\n"}})
      .run([](const std::string& folder) -> Status {
        TESSERA_TRY(const std::string text, read_file(folder + "/hosts"));
        TESSERA_TRY_VOID(network::read_hosts(text, "hosts"));
        return {};
      });
}

// ---- runs

// A started process prints messages before it ends: its last error becomes a part of the launch's
// error and of a line of the log.
TEST(FuzzRuns, what_a_process_says) {
  class World : public LaunchWorld {
   public:
    explicit World(std::string file) : file_(std::move(file)) {}
    Result<int64_t> available_ranks() override { return 1; }
    Result<int64_t> saved_step() override { return -1; }
    Result<Ended> run(const LaunchTry&) override {
      return run_process({"sh", "-c", "cat '" + file_ + "' >&2; exit 3"}, {}, /*quiet=*/true);
    }
    Status log(const LaunchEvent& event) override {
      const std::string line = to_json_line(event, 0);
      EXPECT_EQ(line.find('\n'), line.size() - 1);
      EXPECT_LT(line.size(), 20'000U);
      return {};
    }

   private:
    std::string file_;
  };
  Fuzz("what_a_process_says", {{"said", "a line\ntessera: rank 1: all_reduce of 'x': lost\n"}})
      .run([first = true](const std::string& folder) mutable -> Status {
        if (std::exchange(first, false)) return {};  // undamaged, it is an error
        World world(folder + "/said");
        const auto done = launch({{"serial", 1}}, 1, world);
        return done ? Status() : tl::unexpected(done.error());
      });
}

}  // namespace
}  // namespace tessera
