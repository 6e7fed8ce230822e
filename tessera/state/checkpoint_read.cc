// The reading half of checkpoint.h.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/checksum.h"
#include "tessera/state/safetensors.h"

namespace tessera {

void copy_elements(int64_t element_bytes, const std::byte* from, const Box& from_box, std::byte* to,
                   const Box& to_box, const Box& region) {
  if (region.empty()) return;
  const size_t rank = region.rank();
  const auto offset = [&](const Box& box, const std::vector<int64_t>& strides,
                          const std::vector<int64_t>& at) {
    int64_t sum = 0;
    for (size_t d = 0; d < rank; ++d)
      sum += (region.dims[d].begin + at[d] - box.dims[d].begin) * strides[d];
    return sum * element_bytes;
  };
  const std::vector<int64_t> from_strides = row_major_strides(from_box.shape()),
                             to_strides = row_major_strides(to_box.shape());
  // The last dims of which the region takes all on both sides, and the one before them, are one run.
  size_t outer = rank;
  int64_t run = element_bytes;
  while (outer > 0) {
    --outer;
    const int64_t size = region.dims[outer].size;
    run *= size;
    if (size != from_box.dims[outer].size || size != to_box.dims[outer].size) break;
  }
  std::vector<int64_t> at(rank, 0);
  for (;;) {
    std::memcpy(to + offset(to_box, to_strides, at), from + offset(from_box, from_strides, at),
                static_cast<size_t>(run));
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == region.dims[d - 1].size) at[--d] = 0;
    if (d == 0) return;
  }
}

namespace {

namespace fs = std::filesystem;

Box relative_to(const Box& region, const Box& box) {
  Box moved = region;
  for (size_t d = 0; d < moved.rank(); ++d) moved.dims[d].begin -= box.dims[d].begin;
  return moved;
}

tl::unexpected<Error> as_fault(const Error& error) { return fault(error.message); }

// "" if the file is there in its size.
std::string why_not_there(const std::string& path, int64_t bytes) {
  std::error_code error;
  const auto found = fs::file_size(path, error);
  if (error) return fmt::format("expected a file of {} bytes, found: {}", bytes, error.message());
  if (found == static_cast<uintmax_t>(bytes)) return "";
  return fmt::format("expected a file of {} bytes, found {}", bytes, found);
}

class FolderSource : public CheckpointSource {
 public:
  FolderSource(std::string folder, Manifest manifest)
      : folder_(std::move(folder)), manifest_(std::move(manifest)), files_(manifest_.files.size()) {
    for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
      const ManifestTensor& tensor = manifest_.tensors[i];
      arrays_.push_back({tensor.name, tensor.dtype, tensor.shape});
      by_name_[tensor.name] = i;
    }
  }

  std::string where() const override { return folder_; }
  const Manifest& manifest() const override { return manifest_; }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second];
  }
  int64_t bytes_read() const override {
    const std::scoped_lock lock(mutex_);
    int64_t bytes = 0;
    for (const auto& file : files_) bytes += file == nullptr ? 0 : file->bytes_read();
    return bytes;
  }

  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    TESSERA_CHECK(Box::whole(array.shape).contains(region), "{}: {}", array.name,
                  region.to_string());
    const ManifestTensor& tensor = manifest_.tensors[by_name_.find(array.name)->second];
    std::vector<std::byte> part;
    for (const ManifestBox& one : tensor.boxes) {
      const Box wanted = intersect(one.box, region);
      if (wanted.empty()) continue;
      TESSERA_TRY(const TensorSource* file, open(one.file));
      TESSERA_TRY(const SourceArray* stored, array_of(*file, tensor, one));
      const Box inside = relative_to(wanted, one.box);
      if (wanted == region) {
        TESSERA_TRY_VOID(file->read(*stored, inside, dtype, out));
        continue;
      }
      part.resize(static_cast<size_t>(wanted.volume() * dtype_bytes(dtype)));
      TESSERA_TRY_VOID(file->read(*stored, inside, dtype, part.data()));
      copy_elements(dtype_bytes(dtype), part.data(), wanted, out, region, wanted);
    }
    return {};
  }

 private:
  Result<const TensorSource*> open(size_t file) const {
    const std::scoped_lock lock(mutex_);
    if (files_[file] == nullptr) {
      auto opened = open_safetensors(path_in(folder_, manifest_.files[file].name));
      if (!opened) return as_fault(opened.error());
      files_[file] = std::move(*opened);
    }
    return files_[file].get();
  }
  static Result<const SourceArray*> array_of(const TensorSource& file, const ManifestTensor& tensor,
                                             const ManifestBox& box) {
    const SourceArray* array = file.find(box.name);
    if (array == nullptr || array->dtype != tensor.dtype || array->shape != box.box.shape()) {
      return fault(fmt::format("{}: '{}': expected {} {}, found {}", file.where(),
                               short_line(box.name), dtype_name(tensor.dtype),
                               Box::whole(box.box.shape()).to_string(),
                               array == nullptr ? "none" : "another dtype or shape"));
    }
    return array;
  }

  std::string folder_;
  Manifest manifest_;
  std::vector<SourceArray> arrays_;
  std::map<std::string, size_t, std::less<>> by_name_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TensorSource>> files_;  // opened when they are needed
};

}  // namespace

bool is_checkpoint(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(path_in(folder, std::string(kManifestName)), error);
}

Result<std::unique_ptr<CheckpointSource>> open_checkpoint(const std::string& folder) {
  const std::string path = path_in(folder, std::string(kManifestName));
  TESSERA_TRY(const std::string text, read_file(path));
  TESSERA_TRY(Manifest manifest, parse_manifest(text, path));
  for (const ManifestFile& file : manifest.files) {
    const std::string shard = path_in(folder, file.name);
    const std::string why = why_not_there(shard, file.bytes);
    if (!why.empty()) return fault(fmt::format("{}: damaged: {}", shard, why));
  }
  return std::make_unique<FolderSource>(folder, std::move(manifest));
}

std::string Damage::to_string() const {
  if (tensor.empty()) return fmt::format("{}: damaged: {}", file, what);
  return fmt::format("{}: damaged: tensor {}, box {}: {}", file, short_line(tensor), box, what);
}

namespace {

struct StoredBox {
  const ManifestTensor* tensor;
  const ManifestBox* box;
};

// Compares one file, front to back.
class FileCheck {
 public:
  FileCheck(std::string path, const ManifestFile& file, std::vector<Damage>& out)
      : path_(std::move(path)), file_(file), out_(out) {}

  void run(const std::vector<StoredBox>& boxes) {
    std::string why = why_not_there(path_, file_.bytes);
    if (!why.empty()) return add({}, std::move(why));
    const auto opened = SafetensorsFile::open(path_);
    // The head is compared also where it cannot be read: then its checksum says the same.
    if (!opened) return add({}, opened.error().message);
    int64_t head = file_.bytes;
    for (const ArrayEntry& array : opened->arrays()) head = std::min(head, array.begin);
    std::string text(static_cast<size_t>(head), '\0');
    std::ifstream in(path_, std::ios::binary);
    if (!in.read(text.data(), head)) return add({}, "the head cannot be read");
    compare({}, file_.head_checksum, checksum(text));
    for (const StoredBox& one : boxes) check(*opened, one);
  }

 private:
  void add(const StoredBox& box, std::string what) {
    if (box.tensor == nullptr) {
      out_.push_back({path_, "", "", std::move(what)});
    } else {
      out_.push_back({path_, box.tensor->name, box.box->box.to_string(), std::move(what)});
    }
  }
  void compare(const StoredBox& box, uint64_t expected, uint64_t found) {
    if (expected == found) return;
    add(box, fmt::format("{}expected checksum {}, found {}", box.tensor == nullptr ? "head: " : "",
                         checksum_text(expected), checksum_text(found)));
  }
  void check(const SafetensorsFile& file, const StoredBox& one) {
    constexpr int64_t kPieceBytes = 4 << 20;
    const ArrayEntry* array = file.find(one.box->name);
    if (array == nullptr || array->dtype != one.tensor->dtype ||
        array->shape != one.box->box.shape()) {
      return add(one, fmt::format("expected the array '{}', found {}", short_line(one.box->name),
                                  array == nullptr ? "none" : "it in another dtype or shape"));
    }
    Checksum sum;
    std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, array->bytes)));
    for (int64_t at = 0; at < array->bytes; at += kPieceBytes) {
      const int64_t bytes = std::min(kPieceBytes, array->bytes - at);
      const Status read = file.read(*array, at, bytes, piece.data());
      if (!read) return add(one, read.error().message);
      sum.add(piece.data(), bytes);
    }
    compare(one, one.box->checksum, sum.value());
  }

  std::string path_;
  const ManifestFile& file_;
  std::vector<Damage>& out_;
};

}  // namespace

std::vector<Damage> find_damage(const std::string& folder, const Manifest& manifest, size_t share,
                                size_t of) {
  std::vector<std::vector<StoredBox>> boxes(manifest.files.size());
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (const ManifestBox& box : tensor.boxes) boxes[box.file].push_back({&tensor, &box});
  }
  std::vector<Damage> damage;
  for (size_t file = share; file < manifest.files.size(); file += of) {
    const ManifestFile& one = manifest.files[file];
    FileCheck(path_in(folder, one.name), one, damage).run(boxes[file]);
  }
  return damage;
}

}  // namespace tessera
