// Implements the reading half of checkpoint.h.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/one_line.h"
#include "tessera/base/text_file.h"
#include "tessera/state/box_reader.h"
#include "tessera/state/checkpoint.h"
#include "tessera/state/checksum.h"
#include "tessera/state/safetensors.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// The limit on a manifest's bytes. A manifest has a line for each box; the limit has room for the
// boxes of a million tensors on 16,384 ranks.
constexpr int64_t kMostManifestBytes = kMostDataTextBytes;

// Returns "" if the path is a file of `bytes` bytes; else what was found.
std::string why_not_there(const std::string& path, int64_t bytes) {
  std::error_code error;
  const auto found = fs::file_size(path, error);
  if (error) return fmt::format("expected a file of {} bytes, found: {}", bytes, error.message());
  if (found == static_cast<uintmax_t>(bytes)) return "";
  return fmt::format("expected a file of {} bytes, found {}", bytes, found);
}

std::string checksums_differ(uint64_t expected, uint64_t found) {
  return fmt::format("expected checksum {}, found {}", checksum_text(expected),
                     checksum_text(found));
}

// Returns "" if `array` has the dtype and shape of the box; else what was found.
std::string why_no_array(const ArrayEntry* array, const ManifestTensor& tensor,
                         const ManifestBox& box) {
  if (array != nullptr && array->dtype == tensor.dtype && array->shape == box.box.shape())
    return "";
  return fmt::format("expected the array '{}', found {}", short_line(box.name),
                     array == nullptr ? "none" : "it in another dtype or shape");
}

class FolderSource : public CheckpointSource {
 public:
  FolderSource(std::string folder, Manifest manifest, bool compares)
      : folder_(std::move(folder)),
        manifest_(std::move(manifest)),
        compares_(compares),
        files_(manifest_.files.size()),
        compared_(manifest_.tensors.size()) {
    for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
      const ManifestTensor& tensor = manifest_.tensors[i];
      arrays_.push_back({tensor.name, tensor.dtype, tensor.shape});
      by_name_[tensor.name] = i;
      compared_[i].resize(tensor.boxes.size());
    }
  }

  std::string where() const override { return folder_; }
  const Manifest& manifest() const override { return manifest_; }
  const std::vector<SourceArray>& arrays() const override { return arrays_; }
  const SourceArray* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &arrays_[found->second];
  }
  int64_t bytes_read() const override { return bytes_read_; }

  Status read(const SourceArray& array, const Box& region, DType dtype,
              std::byte* out) const override {
    TESSERA_CHECK(Box::whole(array.shape).contains(region), "{}: {}", array.name,
                  region.to_string());
    const size_t tensor = by_name_.find(array.name)->second;
    const BoxTarget target{region, dtype, out};
    const std::vector<ManifestBox>& boxes = manifest_.tensors[tensor].boxes;
    for (size_t i = 0; i < boxes.size(); ++i) {
      if (intersect(boxes[i].box, region).empty()) continue;
      const bool compare = compares_ && !is_compared(tensor, i);
      TESSERA_TRY_VOID(read_box({tensor, i}, target, compare));
      if (compare) set_compared(tensor, i);
    }
    return {};
  }

  Status load(const std::vector<WantedRegion>& wanted, const Comparisons& compare) const override {
    for (const size_t file : compare.files) TESSERA_TRY_VOID(open(file));
    // The tasks are sorted by file and by position in the file, so that each file is read from
    // front to back.
    std::map<std::pair<size_t, int64_t>, Task> tasks;
    std::map<size_t, std::vector<const WantedRegion*>> by_tensor;
    for (const WantedRegion& one : wanted) by_tensor[one.tensor].push_back(&one);
    for (const auto& [tensor, regions] : by_tensor) {
      const std::vector<ManifestBox>& boxes = manifest_.tensors[tensor].boxes;
      for (size_t i = 0; i < boxes.size(); ++i) {
        for (const WantedRegion* region : regions) {
          if (intersect(boxes[i].box, region->region).empty()) continue;
          TESSERA_TRY(Task * task, task_of({tensor, i}, tasks));
          task->targets.push_back({region->region, region->dtype, region->out});
        }
      }
    }
    for (const StoredBox& box : compare.boxes) {
      TESSERA_TRY(Task * task, task_of(box, tasks));
      task->compare = true;
    }
    for (auto& [place, task] : tasks) {
      if (task.targets.empty()) {
        task.targets.push_back(
            {at(task.box).box, manifest_.tensors[task.box.tensor].dtype, nullptr});
      }
      for (const BoxTarget& target : task.targets)
        TESSERA_TRY_VOID(read_box(task.box, target, std::exchange(task.compare, false)));
    }
    return {};
  }

 private:
  struct Task {
    StoredBox box;
    bool compare = false;
    std::vector<BoxTarget> targets;
  };

  const ManifestBox& at(const StoredBox& box) const {
    return manifest_.tensors[box.tensor].boxes[box.box];
  }
  Result<Task*> task_of(const StoredBox& box,
                        std::map<std::pair<size_t, int64_t>, Task>& tasks) const {
    TESSERA_TRY(const SafetensorsFile* file, open(at(box).file));
    TESSERA_TRY(const ArrayEntry* entry, entry_of(*file, box));
    Task& task = tasks[{at(box).file, entry->begin}];
    task.box = box;
    return &task;
  }
  Result<const SafetensorsFile*> open(size_t file) const {
    const std::scoped_lock lock(mutex_);
    if (!files_[file]) {
      const ManifestFile& one = manifest_.files[file];
      const std::string path = path_in(folder_, one.name);
      auto opened = SafetensorsFile::open(path);
      if (!opened) return fault(Damage{path, "", "", opened.error().message}.to_string());
      if (opened->head_checksum() != one.head_checksum) {
        const std::string why = checksums_differ(one.head_checksum, opened->head_checksum());
        return fault(Damage{path, "", "", "head: " + why}.to_string());
      }
      opened->announce();
      files_[file] = std::move(*opened);
    }
    return &*files_[file];
  }
  tl::unexpected<Error> damaged(const StoredBox& box, const std::string& path,
                                std::string what) const {
    const std::string& tensor = manifest_.tensors[box.tensor].name;
    return fault(Damage{path, tensor, at(box).box.to_string(), std::move(what)}.to_string());
  }
  Result<const ArrayEntry*> entry_of(const SafetensorsFile& file, const StoredBox& box) const {
    const ArrayEntry* entry = file.find(at(box).name);
    const std::string why = why_no_array(entry, manifest_.tensors[box.tensor], at(box));
    if (!why.empty()) return damaged(box, file.path(), why);
    return entry;
  }
  Status read_box(const StoredBox& box, const BoxTarget& target, bool compare) const {
    TESSERA_TRY(const SafetensorsFile* file, open(at(box).file));
    TESSERA_TRY(const ArrayEntry* entry, entry_of(*file, box));
    BoxReader reader(*file, *entry, at(box).box, target);
    if (compare) {
      TESSERA_TRY(const uint64_t found, reader.read_all());
      if (found != at(box).checksum)
        return damaged(box, file->path(), checksums_differ(at(box).checksum, found));
    } else {
      TESSERA_TRY_VOID(reader.read_needed());
    }
    bytes_read_ += reader.needed_bytes();
    return {};
  }
  bool is_compared(size_t tensor, size_t box) const {
    const std::scoped_lock lock(mutex_);
    return compared_[tensor][box];
  }
  void set_compared(size_t tensor, size_t box) const {
    const std::scoped_lock lock(mutex_);
    compared_[tensor][box] = true;
  }

  std::string folder_;
  Manifest manifest_;
  bool compares_;
  std::vector<SourceArray> arrays_;
  std::map<std::string, size_t, std::less<>> by_name_;
  mutable std::mutex mutex_;                                   // guards the members below
  mutable std::vector<std::optional<SafetensorsFile>> files_;  // opened when they are needed
  mutable std::vector<std::vector<bool>> compared_;            // boxes that have been compared
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace

bool is_checkpoint(const std::string& folder) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path_in(folder, std::string(kManifestName)), error));
}

namespace {

// Returns what is at a path where something else was expected; "" if that cannot be found out, for
// example without permission.
std::string what_is_at(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error.value() == ELOOP) return "a link that leads back to itself";
  if (status.type() == fs::file_type::not_found) {
    std::error_code of_link;
    return fs::is_symlink(fs::symlink_status(path, of_link)) ? "a link that leads nowhere" : "none";
  }
  if (error) return "";
  if (fs::is_directory(status)) return "a folder";
  return fs::is_regular_file(status) ? "a file" : "a device or a pipe";
}

// Returns why there is no manifest; "" if there is one, or if that cannot be found out.
std::string why_no_manifest(const std::string& folder, const std::string& manifest) {
  for (const auto& [path, expected] :
       {std::pair(folder, "a folder"), std::pair(manifest, "a file")}) {
    const std::string found = what_is_at(path);
    if (found.empty()) return "";
    if (found != expected)
      return fmt::format("{}: damaged: expected {}, found {}", path, expected, found);
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> open_checkpoint(const std::string& folder,
                                                          bool compares) {
  const std::string path = path_in(folder, std::string(kManifestName));
  if (std::string why = why_no_manifest(folder, path); !why.empty()) return fault(std::move(why));
  TESSERA_TRY(const std::string text, read_text_file(path, kMostManifestBytes));
  TESSERA_TRY(Manifest manifest, parse_manifest(text, path));
  for (const ManifestFile& file : manifest.files) {
    const std::string shard = path_in(folder, file.name);
    const std::string why = why_not_there(shard, file.bytes);
    if (!why.empty()) return fault(fmt::format("{}: damaged: {}", shard, why));
  }
  return std::make_unique<FolderSource>(folder, std::move(manifest), compares);
}

std::string Damage::to_string() const {
  if (tensor.empty()) return fmt::format("{}: damaged: {}", file, what);
  return fmt::format("{}: damaged: tensor {}, box {}: {}", file, short_line(tensor), box, what);
}

namespace {

struct BoxOfFile {
  const ManifestTensor* tensor;
  const ManifestBox* box;
};

// Compares the head and the boxes of one file with their checksums, from front to back.
class FileCheck {
 public:
  FileCheck(std::string path, const ManifestFile& file, std::vector<Damage>& out)
      : path_(std::move(path)), file_(file), out_(out) {}

  void run(const std::vector<BoxOfFile>& boxes) {
    std::string why = why_not_there(path_, file_.bytes);
    if (!why.empty()) return add({}, std::move(why));
    const auto opened = SafetensorsFile::open(path_);
    // If the head cannot be read, this error reports the damage, so checksums are not compared.
    if (!opened) return add({}, opened.error().message);
    if (opened->head_checksum() != file_.head_checksum)
      add({}, "head: " + checksums_differ(file_.head_checksum, opened->head_checksum()));
    for (const BoxOfFile& one : boxes) check(*opened, one);
  }

 private:
  void add(const BoxOfFile& box, std::string what) {
    if (box.tensor == nullptr) {
      out_.push_back({path_, "", "", std::move(what)});
    } else {
      out_.push_back({path_, box.tensor->name, box.box->box.to_string(), std::move(what)});
    }
  }
  void check(const SafetensorsFile& file, const BoxOfFile& one) {
    const ArrayEntry* array = file.find(one.box->name);
    std::string why = why_no_array(array, *one.tensor, *one.box);
    if (!why.empty()) return add(one, std::move(why));
    const BoxTarget nothing{one.box->box, one.tensor->dtype, nullptr};
    const auto found = BoxReader(file, *array, one.box->box, nothing).read_all();
    if (!found) return add(one, found.error().message);
    if (*found != one.box->checksum) add(one, checksums_differ(one.box->checksum, *found));
  }

  std::string path_;
  const ManifestFile& file_;
  std::vector<Damage>& out_;
};

}  // namespace

std::vector<Damage> find_damage(const std::string& folder, const Manifest& manifest) {
  std::vector<std::vector<BoxOfFile>> boxes(manifest.files.size());
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (const ManifestBox& box : tensor.boxes) boxes[box.file].push_back({&tensor, &box});
  }
  std::vector<Damage> damage;
  for (size_t file = 0; file < manifest.files.size(); ++file) {
    const ManifestFile& one = manifest.files[file];
    FileCheck(path_in(folder, one.name), one, damage).run(boxes[file]);
  }
  return damage;
}

}  // namespace tessera
