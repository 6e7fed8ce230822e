// Checkpoints without training: ranks that hold boxes of tensors whose elements are known. Oracles:
// the values, the bytes that were held, and, for losses, the rule that a checkpoint once complete is
// found whole whatever happens after it.
#include "tessera/state/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "tessera/state/memory_storage.h"
#include "tessera/state/safetensors.h"
#include "tessera/state/shares.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Holdings = std::vector<std::vector<Held>>;  // by rank

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

// The byte of an element depends on step, tensor, place and position alone.
std::vector<std::byte> values(const std::vector<ManifestTensor>& tensors, int64_t step,
                              const Held& held) {
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

// A tensor cut along one dim, or whole on all ranks.
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
  for (const std::vector<Held>& share : share_out(element_bytes, held)) {
    std::vector<ShardPart>& list = parts.emplace_back();
    for (const Held& one : share) list.push_back({one.tensor, one.box});
    std::vector<std::byte> bytes;
    TESSERA_TRY(ShardReport report,
                write_shard(storage, dir, step, static_cast<int>(reports.size()), tensors.all, list,
                            [&](size_t i) -> Result<std::span<const std::byte>> {
                              bytes = values(tensors.all, step, share[i]);
                              return std::span<const std::byte>(bytes);
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
    // Hundreds of checkpoints are synced: in memory, where there is such a folder.
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
  // What the ranks of `held` read is what was saved; how many bytes they read.
  static int64_t expect_values(const CheckpointSource& source, int64_t step, const Holdings& held) {
    const std::vector<ManifestTensor> tensors = Tensors().all;
    const int64_t before = source.bytes_read();
    for (const auto& list : held) {
      for (const Held& one : list) {
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
    for (const Held& one : list)
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

// Every byte of every file, one after the other.
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

// A process that is stopped, or a machine that loses power, at each operation of three saves, with
// whatever may survive: what is found is whole, is the newest that had returned (or the one that
// was being written), and the next run can save.
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

// As above, with a disk without room: the error names the file, and what was there stays.
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
