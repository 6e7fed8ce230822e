// Tests checkpoints without training: ranks hold boxes of tensors whose elements are known.
// Oracles: the values, the bytes that were held, and, for losses, the rule that a checkpoint, once
// complete, is found whole whatever happens after it.
#include "tessera/state/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "tessera/state/safetensors.h"
#include "tessera/state/shares.h"
#include "tessera/state/test_memory_storage.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Holdings = std::vector<std::vector<HeldBox>>;  // by rank

struct Tensors {
  std::vector<ManifestTensor> all;
  Tensors() {
    add("embed", DType::kFloat32, {9, 4});
    add("blocks.0.w", DType::kFloat64, {6, 5});
    add("optimizer.m.blocks.0.w", DType::kBFloat16, {6, 5});
    add("optimizer.loss_scale", DType::kFloat32, {});
  }
  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    ManifestTensor tensor;
    tensor.name = name;
    tensor.role = name.starts_with("optimizer") ? "optimizer_state" : "parameter";
    tensor.dtype = dtype;
    tensor.shape = shape;
    all.push_back(std::move(tensor));
  }
};

// Returns bytes that depend on step, tensor, place and position alone.
std::vector<std::byte> values(const std::vector<ManifestTensor>& tensors, int64_t step,
                              const HeldBox& held) {
  const ManifestTensor& tensor = tensors[held.tensor];
  const int64_t bytes = dtype_bytes(tensor.dtype);
  const auto strides = row_major_strides(tensor.shape);
  std::vector<std::byte> out;
  std::vector<int64_t> at(held.box.rank(), 0);
  for (int64_t left = held.box.volume(); left > 0; --left) {
    int64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) index += (held.box.dims[d].begin + at[d]) * strides[d];
    for (int64_t byte = 0; byte < bytes; ++byte) {
      const int64_t mixed = (index * 8 + byte) * 37 + static_cast<int64_t>(held.tensor) * 11 + step;
      out.push_back(static_cast<std::byte>(mixed & 0x3f));
    }
    for (size_t d = at.size(); d-- > 0 && ++at[d] == held.box.dims[d].size;) at[d] = 0;
  }
  return out;
}

// Cuts each tensor along one dim, or gives all of it to every rank.
Holdings cut(const std::vector<ManifestTensor>& tensors, int64_t ranks, std::mt19937_64& random) {
  Holdings held(static_cast<size_t>(ranks));
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const Box whole = Box::whole(tensors[tensor].shape);
    const size_t dim = whole.rank() == 0 ? 0 : random() % (whole.rank() + 1);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Box box = whole;
      if (dim < whole.rank()) box.dims[dim] = split_interval(whole.dims[dim], ranks, rank);
      if (!box.empty()) held[static_cast<size_t>(rank)].push_back({tensor, box});
    }
  }
  return held;
}

Status save(Storage& storage, const std::string& dir, int64_t step, const Holdings& held,
            int64_t keep = 2) {
  const Tensors tensors;
  std::vector<int64_t> element_bytes;
  for (const ManifestTensor& one : tensors.all) element_bytes.push_back(dtype_bytes(one.dtype));
  TESSERA_TRY_VOID(begin_checkpoint(storage, dir, step));
  std::vector<std::vector<ShardPart>> parts;
  std::vector<ShardReport> reports;
  for (const std::vector<HeldBox>& share : share_out(element_bytes, held)) {
    std::vector<ShardPart>& list = parts.emplace_back();
    for (const HeldBox& one : share) list.push_back({one.tensor, one.box});
    std::vector<std::byte> bytes;
    TESSERA_TRY(ShardReport report,
                write_shard(storage, dir, step,
                            plan_shard(static_cast<int>(reports.size()), tensors.all, list),
                            [&](size_t i, int64_t begin, std::span<std::byte> out) -> Status {
                              bytes = values(tensors.all, step, share[i]);
                              std::memcpy(out.data(), bytes.data() + begin, out.size());
                              return {};
                            }));
    reports.push_back(std::move(report));
  }
  Manifest manifest;
  manifest.step = step;
  manifest.ranks = static_cast<int64_t>(held.size());
  manifest.tensors = tensors.all;
  add_shards(manifest, parts, reports);
  TESSERA_TRY_VOID(commit_checkpoint(storage, dir, manifest));
  return remove_old(storage, dir, step, keep);
}

class Checkpoints : public testing::Test {
 protected:
  Checkpoints() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    // Hundreds of checkpoints are synced, so they are in memory where there is such a folder.
    const fs::path shared = "/dev/shm";
    folder_ = ((fs::is_directory(shared) ? shared : fs::temp_directory_path()) /
               fmt::format("tessera_checkpoints_{}_{}", test->name(), ::getpid()))
                  .string();
    fs::create_directories(folder_);
  }
  ~Checkpoints() override { fs::remove_all(folder_); }

  Holdings some(int64_t ranks) {
    std::mt19937_64 random(3);
    return cut(Tensors().all, ranks, random);
  }
  std::vector<int64_t> steps(const std::string& dir) {
    std::vector<int64_t> found;
    const auto all = checkpoints_in(disk_, dir);
    EXPECT_TRUE(all);
    for (const CheckpointFolder& one : *all) found.push_back(one.step);
    return found;
  }
  // Expects that the ranks of `held` read what was saved; returns how many bytes they read.
  static int64_t expect_values(const CheckpointSource& source, int64_t step, const Holdings& held) {
    const std::vector<ManifestTensor> tensors = Tensors().all;
    const int64_t before = source.bytes_read();
    for (const auto& list : held) {
      for (const HeldBox& one : list) {
        const SourceArray* array = source.find(tensors[one.tensor].name);
        EXPECT_NE(array, nullptr);
        std::vector<std::byte> found(
            static_cast<size_t>(one.box.volume() * dtype_bytes(array->dtype)));
        const Status read = source.read(*array, one.box, array->dtype, found.data());
        EXPECT_TRUE(read) << read.error().message;
        EXPECT_EQ(found, values(tensors, step, one)) << array->name << one.box.to_string();
      }
    }
    return source.bytes_read() - before;
  }

  FileSystem disk_;
  std::string folder_;
};

int64_t held_bytes(const Holdings& held) {
  const Tensors tensors;
  int64_t bytes = 0;
  for (const auto& list : held) {
    for (const HeldBox& one : list)
      bytes += one.box.volume() * dtype_bytes(tensors.all[one.tensor].dtype);
  }
  return bytes;
}

TEST_F(Checkpoints, AnyRanksReadWhatAnyRanksWrote) {
  std::mt19937_64 random(17);
  for (int64_t i = 1; i <= 60; ++i) {
    const Holdings writers = cut(Tensors().all, 1 + static_cast<int64_t>(random() % 5), random),
                   readers = cut(Tensors().all, 1 + static_cast<int64_t>(random() % 5), random);
    ASSERT_TRUE(save(disk_, folder_, i, writers, 1));
    const auto source = open_source(folder_);  // the newest of them
    ASSERT_TRUE(source) << source.error().message;
    const auto* checkpoint = dynamic_cast<const CheckpointSource*>(source->get());
    ASSERT_NE(checkpoint, nullptr);
    EXPECT_TRUE(find_damage(checkpoint->where(), checkpoint->manifest()).empty());
    EXPECT_EQ(expect_values(*checkpoint, i, readers), held_bytes(readers));  // no byte more
  }
  EXPECT_THAT(steps(folder_), ElementsAre(60));
}

// The regions that ranks want of a checkpoint, filled by load(), each rank with its comparisons.
struct Loaded {
  std::vector<std::vector<std::byte>> data;  // of each region
  Status status;
};
std::vector<Loaded> load_all(const CheckpointSource& source, const Holdings& readers) {
  const auto compare = share_comparisons(source.manifest(), readers);
  std::vector<Loaded> ranks;
  for (size_t rank = 0; rank < readers.size(); ++rank) {
    Loaded& loaded = ranks.emplace_back();
    std::vector<WantedRegion> wanted;
    for (const HeldBox& one : readers[rank]) {
      const DType dtype = source.manifest().tensors[one.tensor].dtype;
      loaded.data.emplace_back(static_cast<size_t>(one.box.volume() * dtype_bytes(dtype)));
      wanted.push_back({one.tensor, one.box, dtype, loaded.data.back().data()});
    }
    loaded.status = source.load(wanted, compare[rank]);
  }
  return ranks;
}

// One pass gives every rank its values, and together the ranks compare all of the checkpoint once.
TEST_F(Checkpoints, RanksLoadAndCompareInOnePass) {
  std::mt19937_64 random(29);
  const std::vector<ManifestTensor> tensors = Tensors().all;
  for (int64_t i = 1; i <= 40; ++i) {
    const Holdings writers = cut(tensors, 1 + static_cast<int64_t>(random() % 5), random),
                   readers = cut(tensors, 1 + static_cast<int64_t>(random() % 5), random);
    ASSERT_TRUE(save(disk_, folder_, i, writers, 1));
    const auto source = open_checkpoint(checkpoint_path(folder_, i));
    ASSERT_TRUE(source) << source.error().message;
    const std::vector<Loaded> ranks = load_all(**source, readers);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_TRUE(ranks[rank].status) << ranks[rank].status.error().message;
      for (size_t k = 0; k < readers[rank].size(); ++k)
        EXPECT_EQ(ranks[rank].data[k], values(tensors, i, readers[rank][k]));
    }
    EXPECT_EQ((*source)->bytes_read(), held_bytes(readers));
  }
}

TEST_F(Checkpoints, EachBoxIsComparedByOneThatReadsItAnyway) {
  std::mt19937_64 random(31);
  const std::vector<ManifestTensor> tensors = Tensors().all;
  for (int64_t i = 1; i <= 40; ++i) {
    const Holdings readers = cut(tensors, 1 + static_cast<int64_t>(random() % 5), random);
    ASSERT_TRUE(save(disk_, folder_, i, cut(tensors, 3, random), 1));
    const auto source = open_checkpoint(checkpoint_path(folder_, i));
    const Manifest& manifest = (*source)->manifest();
    const auto shares = share_comparisons(manifest, readers);
    ASSERT_EQ(shares.size(), readers.size());
    std::set<size_t> files;
    std::map<std::pair<size_t, size_t>, size_t> by;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      for (const size_t file : shares[rank].files) EXPECT_TRUE(files.insert(file).second);
      for (const StoredBox& box : shares[rank].boxes)
        EXPECT_TRUE(by.emplace(std::pair(box.tensor, box.box), rank).second);
    }
    EXPECT_EQ(files.size(), manifest.files.size());
    for (size_t tensor = 0; tensor < manifest.tensors.size(); ++tensor) {
      for (size_t box = 0; box < manifest.tensors[tensor].boxes.size(); ++box) {
        const Box& stored = manifest.tensors[tensor].boxes[box].box;
        const auto reads = [&](size_t rank) {
          int64_t most = 0;
          for (const HeldBox& one : readers[rank]) {
            if (one.tensor == tensor) most = std::max(most, intersect(one.box, stored).volume());
          }
          return most;
        };
        const auto found = by.find({tensor, box});
        ASSERT_NE(found, by.end());
        for (size_t rank = 0; rank < readers.size(); ++rank)
          EXPECT_GE(reads(found->second), reads(rank));
      }
    }
  }
}

// Together, ranks that load notice every changed byte of every shard, under the cuts that were
// written and under others; so does a reader of all tensors of an opened source.
TEST_F(Checkpoints, EveryChangedByteIsNoticedWhileLoading) {
  std::mt19937_64 random(37);
  const std::vector<ManifestTensor> tensors = Tensors().all;
  ASSERT_TRUE(save(disk_, folder_, 3, some(2)));
  const Holdings all = some(1);
  const std::string folder = checkpoint_path(folder_, 3);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string path = path_in(folder, shard_name(rank));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t at = 0; at < size; ++at) {
      const auto flip = [&] {
        file.seekg(at);
        const int byte = file.get();
        file.seekp(at);
        file.put(static_cast<char>(byte ^ 0x10));
        file.flush();
      };
      flip();
      const auto source = open_checkpoint(folder);
      ASSERT_TRUE(source) << source.error().message;
      std::string message;
      for (const Loaded& one :
           load_all(**source, at % 2 == 0 ? some(2) : cut(tensors, 3, random))) {
        if (one.status) continue;
        EXPECT_EQ(one.status.error().code, ErrorCode::kFault);
        message = one.status.error().message;
      }
      EXPECT_THAT(message, HasSubstr(path + ": damaged: ")) << "byte " << at;
      const auto weights = open_source(folder);
      std::string why;
      for (const HeldBox& one : all.front()) {
        std::vector<std::byte> data(values(tensors, 3, one).size());
        const SourceArray& array = *(*weights)->find(tensors[one.tensor].name);
        const Status read = (*weights)->read(array, one.box, array.dtype, data.data());
        if (!read) why = read.error().message;
      }
      EXPECT_THAT(why, HasSubstr(path + ": damaged: ")) << "byte " << at;
      flip();
    }
  }
}

// A box that is read in small pieces is compared as a whole the first time, and only then.
TEST_F(Checkpoints, ASourceComparesWhatItReadsAPartOf) {
  const std::vector<ManifestTensor> tensors = Tensors().all;
  ASSERT_TRUE(save(disk_, folder_, 3, some(1)));
  const std::string folder = checkpoint_path(folder_, 3);
  const auto source = open_source(folder);
  ASSERT_TRUE(source) << source.error().message;
  const SourceArray& array = *(*source)->find("blocks.0.w");
  for (int64_t row = 0; row < 6; ++row) {
    Box region = Box::whole(array.shape);
    region.dims[0] = {row, 1};
    std::vector<std::byte> data(5 * 4);
    ASSERT_TRUE((*source)->read(array, region, DType::kFloat32, data.data()));  // and converts
  }
  EXPECT_EQ((*source)->bytes_read(), 6 * 5 * 8);
  const std::string path = path_in(folder, shard_name(0));
  const auto shard = SafetensorsFile::open(path);
  const int64_t last = shard->find("blocks.0.w")->begin + shard->find("blocks.0.w")->bytes - 1;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(last);
  file.put('\x7f');
  file.flush();
  Box first = Box::whole(array.shape);
  first.dims[0] = {0, 1};
  std::vector<std::byte> data(5 * 8);
  EXPECT_TRUE((*source)->read(array, first, DType::kFloat64, data.data()));  // compared before
  const auto again = open_source(folder);
  const Status read = (*again)->read(array, first, DType::kFloat64, data.data());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kFault);
  EXPECT_THAT(read.error().message,
              HasSubstr(path + ": damaged: tensor blocks.0.w, box [0:6, 0:5]: expected checksum "));
}

// Boxes are larger than a piece, in arrays of other shapes. Oracle: the plain copy.
TEST_F(Checkpoints, LargeBoxesAreReadAsSmallOnes) {
  ManifestTensor tensor;
  tensor.name = "w";
  tensor.role = "parameter";
  tensor.dtype = DType::kFloat32;
  tensor.shape = {700, 1100};  // 3 MB
  const Box whole = Box::whole(tensor.shape);
  std::vector<float> all(static_cast<size_t>(whole.volume()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  ASSERT_TRUE(begin_checkpoint(disk_, folder_, 1));
  const std::vector<ShardPart> parts{{0, whole}};
  const Shard shard = plan_shard(0, {tensor}, parts);
  const FillPart fill = [&](size_t, int64_t begin, std::span<std::byte> out) -> Status {
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(all.data()) + begin, out.size());
    return {};
  };
  std::vector<std::byte> image(static_cast<size_t>(shard.bytes()));
  ASSERT_TRUE(fill_shard(shard, fill, 0, image));
  const auto written = write_shard(disk_, folder_, 1, shard, std::span<const std::byte>(image));
  ASSERT_TRUE(written) << written.error().message;
  // Written through pieces of memory the file is the same.
  ASSERT_TRUE(begin_checkpoint(disk_, path_in(folder_, "pieces"), 1));
  const auto pieces = write_shard(disk_, path_in(folder_, "pieces"), 1, shard, fill);
  ASSERT_TRUE(pieces) << pieces.error().message;
  EXPECT_EQ(pieces->file, written->file);
  EXPECT_EQ(pieces->checksums, written->checksums);
  Manifest manifest;
  manifest.step = 1;
  manifest.tensors = {tensor};
  add_shards(manifest, {parts}, {*written});
  ASSERT_TRUE(commit_checkpoint(disk_, folder_, manifest));
  const auto source = open_checkpoint(checkpoint_path(folder_, 1));
  ASSERT_TRUE(source) << source.error().message;
  Box columns = whole, rows = whole;
  columns.dims[1] = {300, 501};
  rows.dims[0] = {100, 555};
  for (const Box& region : {whole, columns, rows}) {
    for (const bool compares : {false, true}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
        std::vector<std::byte> found(static_cast<size_t>(region.volume() * dtype_bytes(dtype)));
        const Comparisons compare{
            {0}, compares ? std::vector<StoredBox>{{0, 0}} : std::vector<StoredBox>{}};
        ASSERT_TRUE((*source)->load({{0, region, dtype, found.data()}}, compare));
        size_t at = 0;
        for (int64_t row = region.dims[0].begin; row < region.dims[0].end(); ++row) {
          for (int64_t column = region.dims[1].begin; column < region.dims[1].end(); ++column) {
            const float expected = all[static_cast<size_t>(row * 1100 + column)];
            float value = 0;
            double wide = 0;
            if (dtype == DType::kFloat32) std::memcpy(&value, &found[at * 4], 4);
            if (dtype == DType::kFloat64) std::memcpy(&wide, &found[at * 8], 8);
            ASSERT_EQ(dtype == DType::kFloat32 ? static_cast<double>(value) : wide, expected);
            ++at;
          }
        }
      }
    }
  }
}

TEST_F(Checkpoints, ShardsAreSafetensorsFilesThatHoldEachByteOnce) {
  ASSERT_TRUE(save(disk_, folder_, 5, some(3)));
  int64_t bytes = 0;
  std::set<std::string> names;
  for (int rank = 0; rank < 3; ++rank) {
    const auto file = SafetensorsFile::open(path_in(checkpoint_path(folder_, 5), shard_name(rank)));
    ASSERT_TRUE(file) << file.error().message;
    for (const ArrayEntry& array : file->arrays()) {
      EXPECT_TRUE(names.insert(array.name).second) << array.name;
      bytes += array.bytes;
    }
  }
  EXPECT_EQ(bytes, held_bytes(some(1)));
  EXPECT_TRUE(names.contains("optimizer.loss_scale"));
}

TEST_F(Checkpoints, TheNewestFewAreKept) {
  for (int64_t step = 10; step <= 50; step += 10)
    ASSERT_TRUE(save(disk_, folder_, step, some(2), 2));
  EXPECT_THAT(steps(folder_), ElementsAre(40, 50));
  EXPECT_THAT(*disk_.list(folder_), ElementsAre("step-000000000040", "step-000000000050"));
}

TEST_F(Checkpoints, LeftoversGoAndDamagedOnesAreSetAside) {
  ASSERT_TRUE(save(disk_, folder_, 1, some(2)));
  ASSERT_TRUE(begin_checkpoint(disk_, folder_, 7));
  std::ofstream(path_in(folder_, "writing-step-000000000007/rank-00000.safetensors")) << "x";
  fs::create_directories(path_in(folder_, "step-000000000009"));  // without a manifest
  EXPECT_THAT(steps(folder_), ElementsAre(1));
  const auto folders = step_folders_in(disk_, folder_);
  ASSERT_TRUE(folders);
  ASSERT_EQ(folders->size(), 2U);
  EXPECT_TRUE(folders->front().has_manifest);
  EXPECT_EQ(folders->back().step, 9);
  EXPECT_FALSE(folders->back().has_manifest);
  ASSERT_TRUE(save(disk_, folder_, 2, some(2)));
  EXPECT_FALSE(fs::exists(path_in(folder_, "writing-step-000000000007")));
  ASSERT_TRUE(set_aside(disk_, folder_, 2));
  ASSERT_TRUE(save(disk_, folder_, 2, some(2)));
  EXPECT_EQ(*set_aside(disk_, folder_, 2), path_in(folder_, "damaged-step-000000000002.2"));
  EXPECT_THAT(steps(folder_), ElementsAre(1));
}

// Entries that have the name of a checkpoint and are none, with the message that opening them
// gives.
TEST_F(Checkpoints, WhatIsNoCheckpointIsDamagedAndCanBeSetAside) {
  ASSERT_TRUE(save(disk_, folder_, 1, some(2)));
  const std::string at = checkpoint_path(folder_, 9), manifest = path_in(at, "manifest.json");
  const auto folder = [&] { fs::create_directories(at); };
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[&] { std::ofstream(at) << "x"; }, at + ": damaged: expected a folder, found a file"},
      {folder, manifest + ": damaged: expected a file, found none"},
      {[&] { fs::create_symlink("nowhere", at); },
       at + ": damaged: expected a folder, found a link that leads nowhere"},
      {[&] { fs::create_symlink(fs::path(at).filename(), at); },
       at + ": damaged: expected a folder, found a link that leads back to itself"},
      {[&] { folder(), fs::create_symlink("manifest.json", manifest); },
       manifest + ": damaged: expected a file, found a link that leads back to itself"},
      {[&] { folder(), fs::create_symlink("nowhere", manifest); },
       manifest + ": damaged: expected a file, found a link that leads nowhere"},
      {[&] { fs::create_directories(manifest); },
       manifest + ": damaged: expected a file, found a folder"},
      {[&] { folder(), ::mkfifo(manifest.c_str(), 0600); },
       manifest + ": damaged: expected a file, found a device or a pipe"},
      {[&] { folder(), std::ofstream(manifest); },
       manifest + ": damaged: expected to begin with its checksum, found text that is cut or "
                  "changed"},
  };
  for (const auto& [make, message] : cases) {
    make();
    const auto folders = step_folders_in(disk_, folder_);
    ASSERT_TRUE(folders) << folders.error().message;
    ASSERT_EQ(folders->size(), 2U) << message;
    EXPECT_EQ(folders->back().step, 9);
    const auto opened = open_checkpoint(at);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().message, message);
    EXPECT_EQ(opened.error().code, ErrorCode::kFault);
    ASSERT_TRUE(save(disk_, folder_, 2, some(2)));  // it is in nobody's way
    const auto aside = set_aside(disk_, folder_, 9);
    ASSERT_TRUE(aside) << aside.error().message;
    EXPECT_THAT(steps(folder_), ElementsAre(1, 2));
    ASSERT_TRUE(set_aside(disk_, folder_, 2));
    fs::remove_all(*aside);
  }
}

TEST_F(Checkpoints, LeftoversOfAnyKindGoAndLinksKeepTheirTargets) {
  ASSERT_TRUE(disk_.make_folder(path_in(folder_, "mine/inner")));
  std::ofstream(path_in(folder_, "mine/kept")) << "x";
  std::ofstream(path_in(folder_, "writing-step-000000000005")) << "x";
  fs::create_symlink("mine", path_in(folder_, "writing-step-000000000006"));
  fs::create_directories(path_in(folder_, "writing-step-000000000007/deep/er"));
  fs::create_symlink("../mine", path_in(folder_, "writing-step-000000000007/link"));
  ASSERT_TRUE(save(disk_, folder_, 1, some(2)));
  EXPECT_THAT(*disk_.list(folder_), ElementsAre("mine", "step-000000000001"));
  EXPECT_THAT(*disk_.list(path_in(folder_, "mine")), ElementsAre("inner", "kept"));
}

TEST_F(Checkpoints, ShardsThatAreNoFilesAreNamed) {
  for (const bool link : {true, false}) {
    const std::string dir = path_in(folder_, link ? "a" : "b");
    ASSERT_TRUE(save(disk_, dir, 1, some(2)));
    const std::string shard = path_in(checkpoint_path(dir, 1), shard_name(1));
    fs::remove(shard);
    if (link) {
      fs::create_symlink(shard_name(1), shard);
    } else {
      fs::create_directories(shard);
    }
    const auto opened = open_checkpoint(checkpoint_path(dir, 1));
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kFault);
    EXPECT_THAT(opened.error().message, HasSubstr(shard + ": damaged: expected a file of "));
    const Status copied = copy_checkpoint(disk_, checkpoint_path(dir, 1), path_in(folder_, "c"));
    EXPECT_FALSE(copied);
    EXPECT_FALSE(fs::exists(path_in(folder_, "c")));
  }
}

TEST_F(Checkpoints, NamesOfStepsAreThoseOfTheProtocol) {
  EXPECT_EQ(step_of_name("a/step-000000000012/"), 12);
  EXPECT_EQ(step_of_name("step-000000000000"), 0);
  for (const std::string name : {"", "/", "step-12", "a/step-000000000012.2", "step-00000000001x",
                                 "damaged-step-000000000012", "step--00000000001"}) {
    EXPECT_FALSE(step_of_name(name)) << name;
  }
}

// Changes every byte of every file, one after the other.
TEST_F(Checkpoints, EveryChangedByteIsFound) {
  ASSERT_TRUE(save(disk_, folder_, 3, some(2)));
  const std::string folder = checkpoint_path(folder_, 3);
  const auto names = disk_.list(folder);
  for (const std::string& name : *names) {
    const std::string path = path_in(folder, name);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t at = 0; at < size; ++at) {
      const auto flip = [&] {
        file.seekg(at);
        const int byte = file.get();
        file.seekp(at);
        file.put(static_cast<char>(byte ^ 0x10));
        file.flush();
      };
      flip();
      const auto source = open_checkpoint(folder);
      if (source) {
        const std::vector<Damage> damage = find_damage(folder, (*source)->manifest());
        ASSERT_FALSE(damage.empty()) << name << " byte " << at;
        EXPECT_EQ(damage.front().file, path);
      } else {
        EXPECT_THAT(source.error().message, HasSubstr(path));
      }
      flip();
    }
  }
}

TEST_F(Checkpoints, DamageNamesFileTensorAndBox) {
  ASSERT_TRUE(save(disk_, folder_, 3, some(1)));
  const std::string folder = checkpoint_path(folder_, 3), path = path_in(folder, shard_name(0));
  const auto end = static_cast<int64_t>(fs::file_size(path));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(end - 1).put('!');
  const auto source = open_checkpoint(folder);
  ASSERT_TRUE(source) << source.error().message;
  const auto damage = find_damage(folder, (*source)->manifest());
  ASSERT_EQ(damage.size(), 1U);
  EXPECT_THAT(
      damage[0].to_string(),
      HasSubstr(path + ": damaged: tensor optimizer.loss_scale, box []: expected checksum "));
  fs::resize_file(path, static_cast<uintmax_t>(end - 1));
  const auto torn = open_checkpoint(folder);
  ASSERT_FALSE(torn);
  EXPECT_EQ(torn.error().code, ErrorCode::kFault);
  EXPECT_EQ(torn.error().message,
            fmt::format("{}: damaged: expected a file of {} bytes, found {}", path, end, end - 1));
  fs::remove(path);
  EXPECT_THAT(open_checkpoint(folder).error().message,
              HasSubstr("bytes, found: No such file or directory"));
}

// Stops a process, or cuts a machine's power, at each operation of three saves, with whatever may
// survive. The checkpoint that is found is whole and is the newest whose save had returned (or the
// one that was being written), and the next run can save.
TEST_F(Checkpoints, WhateverIsLostTheNewestCompleteOneIsWhole) {
  constexpr int64_t kSaves = 3;
  MemoryStorage undisturbed;
  for (int64_t step = 1; step <= kSaves; ++step)
    ASSERT_TRUE(save(undisturbed, "d", step, some(2), 1));
  const int64_t operations = undisturbed.operations();
  ASSERT_GT(operations, 30);
  for (int64_t at = 1; at <= operations; ++at) {
    MemoryStorage storage({.at = at});
    int64_t done = 0;
    while (done < kSaves && save(storage, "d", done + 1, some(2), 1)) ++done;
    ASSERT_LT(done, kSaves);
    for (const Survivors survivors : kEverySurvivors) {
      SCOPED_TRACE(fmt::format("operation {}, survivors {}", at, static_cast<int>(survivors)));
      const std::string to =
          path_in(folder_, fmt::format("{}-{}", at, static_cast<int>(survivors)));
      storage.restore_to("d", to, survivors);
      const std::vector<int64_t> found = steps(to);
      const int64_t newest = found.empty() ? 0 : found.back();
      EXPECT_GE(newest, done);
      EXPECT_LE(newest, done + 1);
      if (newest > 0) {
        const auto source = open_checkpoint(checkpoint_path(to, newest));
        ASSERT_TRUE(source) << source.error().message;
        EXPECT_TRUE(find_damage((*source)->where(), (*source)->manifest()).empty());
        expect_values(**source, newest, some(3));
      }
      const Status next = save(disk_, to, newest + 1, some(2), 1);
      EXPECT_TRUE(next) << next.error().message;
      EXPECT_THAT(steps(to), ElementsAre(newest + 1));
      fs::remove_all(to);
    }
  }
}

// As above, with a disk that is full: the error names the file, and earlier checkpoints stay.
TEST_F(Checkpoints, AFullDiskLeavesTheLastOne) {
  MemoryStorage first;
  ASSERT_TRUE(save(first, "d", 1, some(2), 1));
  MemoryStorage undisturbed;
  for (int64_t step = 1; step <= 2; ++step) ASSERT_TRUE(save(undisturbed, "d", step, some(2), 1));
  int failures = 0;
  for (int64_t at = first.operations() + 1; at <= undisturbed.operations(); ++at) {
    MemoryStorage storage({.at = at, .kind = Failure::Kind::kFull});
    ASSERT_TRUE(save(storage, "d", 1, some(2), 1));
    const Status second = save(storage, "d", 2, some(2), 1);
    const std::string to = path_in(folder_, fmt::format("{}", at));
    storage.restore_to("d", to, Survivors::kOnlySynced);
    if (second) continue;  // nothing was left to write
    ++failures;
    EXPECT_EQ(second.error().code, ErrorCode::kFault);
    EXPECT_THAT(second.error().message, HasSubstr("d/writing-step-000000000002/"));
    EXPECT_THAT(second.error().message, HasSubstr("No space left on device"));
    EXPECT_THAT(steps(to), ElementsAre(1));
    EXPECT_TRUE(open_checkpoint(checkpoint_path(to, 1)));
  }
  EXPECT_GT(failures, 8);
}

TEST_F(Checkpoints, ACopyIsWholeAndParametersFitInOneFile) {
  const std::string from = path_in(folder_, "a"), to = path_in(folder_, "b");
  ASSERT_TRUE(save(disk_, from, 3, some(2)));
  ASSERT_TRUE(copy_checkpoint(disk_, checkpoint_path(from, 3), to));
  const auto copy = open_checkpoint(checkpoint_path(to, 3));
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_TRUE(find_damage((*copy)->where(), (*copy)->manifest()).empty());
  expect_values(**copy, 3, some(1));
  const Status again = copy_checkpoint(disk_, checkpoint_path(from, 3), to);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidInput);
  const std::string file = path_in(folder_, "weights.safetensors");
  std::ofstream(file + ".writing") << "left behind";
  ASSERT_TRUE(copy_to_file(disk_, **copy, file, true, DType::kBFloat16));
  const auto weights = SafetensorsFile::open(file);
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->arrays().size(), 2U);
  EXPECT_EQ(weights->find("embed")->dtype, DType::kBFloat16);
  EXPECT_EQ(weights->find("blocks.0.w")->shape, (std::vector<int64_t>{6, 5}));
}

}  // namespace
}  // namespace tessera
