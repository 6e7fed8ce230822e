// A storage for tests: folders and files in memory. It fails from a chosen operation on, and can
// then show which files a machine would find when it starts again.
//
//   MemoryStorage storage({.at = 7, .kind = Failure::Kind::kStop});
//   const Status saved = save(storage);                        // fails at the 7th operation
//   storage.restore_to("runs", dir, Survivors::kOnlySynced);   // real files, to resume from
//
// Everything that was not synced may be lost, in whole or in part; Survivors lists the ways, and a
// run must recover from each of them. Operations are counted from 1, in the order in which they
// begin. Each call of a Storage or a StorageFile is an operation, except those that change nothing:
// list(), free_bytes() and make_folder() of a folder that exists.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/state/storage.h"

namespace tessera {

struct Failure {
  enum class Kind : uint8_t {
    // This operation and all later ones fail, as if the process was killed. If this operation is a
    // write, half of its bytes are written.
    kStop,
    kFull,  // the disk is full: from this operation on, every write fails after half of its bytes
  };
  int64_t at = 0;  // the number of the first operation that fails; 0: none fails
  Kind kind = Kind::kStop;
};

// The names and bytes that are left after a killed process or a loss of power.
enum class Survivors : uint8_t {
  kAll,         // after a killed process: everything that was written
  kOnlySynced,  // after a loss of power: only the names and bytes that were synced
  kNames,       // all names, but only synced bytes, as if a rename came before its data
  kTorn,        // all names; of bytes that were not synced, the first half, then zeros
};
inline constexpr Survivors kEverySurvivors[] = {Survivors::kAll, Survivors::kOnlySynced,
                                                Survivors::kNames, Survivors::kTorn};

class MemoryStorage : public Storage {
 public:
  explicit MemoryStorage(Failure failure = {});
  ~MemoryStorage() override;

  Status make_folder(const std::string& path) override;
  Result<std::unique_ptr<StorageFile>> create(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<int64_t> free_bytes(const std::string& path) override;
  // Returns a small size, so that the files of tests have several pieces.
  int64_t piece_bytes() const override { return kStorageBlock; }

  int64_t operations() const;  // operations begun so far
  // Writes the contents of the folder `from` that are left after the loss to real files in the
  // folder `to`.
  void restore_to(const std::string& from, const std::string& to, Survivors survivors) const;

 private:
  struct Node;
  class File;
  Status begin(const std::string& path);  // counts an operation
  std::shared_ptr<Node> find(const std::string& path) const;

  mutable std::mutex mutex_;
  Failure failure_;
  int64_t operations_ = 0;
  std::shared_ptr<Node> root_;
};

// A folder or a file, with its current names or bytes and those that were last synced.
struct MemoryStorage::Node {
  explicit Node(bool is_folder) : folder(is_folder) {}
  bool folder;
  std::map<std::string, std::shared_ptr<Node>> names, synced_names;
  std::string bytes, synced_bytes;
};

class MemoryStorage::File : public StorageFile {
 public:
  File(MemoryStorage& storage, std::string path, std::shared_ptr<Node> node)
      : storage_(storage), path_(std::move(path)), node_(std::move(node)) {}

  Status write(const std::byte* data, int64_t bytes) override {
    const std::scoped_lock lock(storage_.mutex_);
    Status begun = storage_.begin(path_);
    const Failure& failure = storage_.failure_;
    const bool late = failure.at > 0 && storage_.operations_ >= failure.at;
    if (late && failure.kind == Failure::Kind::kFull)
      begun = fault(path_ + ": cannot write: No space left on device");
    // A process that had stopped before writes nothing.
    const bool stopped = failure.kind == Failure::Kind::kStop && storage_.operations_ > failure.at;
    const int64_t written = begun ? bytes : stopped ? 0 : bytes / 2;
    node_->bytes.append(reinterpret_cast<const char*>(data), static_cast<size_t>(written));
    return begun;
  }
  Status sync() override {
    const std::scoped_lock lock(storage_.mutex_);
    TESSERA_TRY_VOID(storage_.begin(path_));
    node_->synced_bytes = node_->bytes;
    return {};
  }

 private:
  MemoryStorage& storage_;
  std::string path_;
  std::shared_ptr<Node> node_;
};

inline MemoryStorage::MemoryStorage(Failure failure)
    : failure_(failure), root_(std::make_shared<Node>(true)) {}
inline MemoryStorage::~MemoryStorage() = default;

inline Status MemoryStorage::begin(const std::string& path) {
  ++operations_;
  if (failure_.kind == Failure::Kind::kStop && failure_.at > 0 && operations_ >= failure_.at)
    return fault(fmt::format("{}: operation {}: the process has stopped", path, operations_));
  return {};
}

inline std::shared_ptr<MemoryStorage::Node> MemoryStorage::find(const std::string& path) const {
  std::shared_ptr<Node> at = root_;
  for (const std::string& name : split_text(path, '/')) {
    if (name.empty() || name == ".") continue;
    const auto next = at->names.find(name);
    if (next == at->names.end()) return nullptr;
    at = next->second;
  }
  return at;
}

namespace memory_storage {
inline std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }
inline tl::unexpected<Error> missing(const std::string& path) {
  return fault(path + ": No such file or directory");
}
}  // namespace memory_storage

inline Status MemoryStorage::make_folder(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  if (find(path) != nullptr) return {};
  TESSERA_TRY_VOID(begin(path));
  std::shared_ptr<Node> at = root_;
  for (const std::string& name : split_text(path, '/')) {
    if (name.empty() || name == ".") continue;
    std::shared_ptr<Node>& next = at->names[name];
    if (next == nullptr) next = at->synced_names[name] = std::make_shared<Node>(true);
    at = next;
  }
  return {};
}

inline Result<std::unique_ptr<StorageFile>> MemoryStorage::create(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  TESSERA_TRY_VOID(begin(path));
  const auto folder = find(parent_of(path));
  if (folder == nullptr) return memory_storage::missing(path);
  const auto [place, made] =
      folder->names.try_emplace(memory_storage::last_name(path), std::make_shared<Node>(false));
  if (!made) return fault(path + ": cannot create: File exists");
  return std::make_unique<File>(*this, path, place->second);
}

inline Status MemoryStorage::sync_folder(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  TESSERA_TRY_VOID(begin(path));
  const auto folder = find(path);
  if (folder == nullptr) return memory_storage::missing(path);
  folder->synced_names = folder->names;
  return {};
}

inline Status MemoryStorage::rename(const std::string& from, const std::string& to) {
  const std::scoped_lock lock(mutex_);
  TESSERA_TRY_VOID(begin(from));
  const auto node = find(from);
  const auto folder = find(parent_of(to));
  if (node == nullptr || folder == nullptr) return memory_storage::missing(from);
  const auto there = find(to);
  if (there != nullptr && there->folder && !there->names.empty())
    return fault(from + ": cannot rename to " + to + ": Directory not empty");
  find(parent_of(from))->names.erase(memory_storage::last_name(from));
  folder->names[memory_storage::last_name(to)] = node;
  return {};
}

inline Status MemoryStorage::remove_file(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  TESSERA_TRY_VOID(begin(path));
  const auto node = find(path);
  if (node == nullptr) return memory_storage::missing(path);
  if (node->folder) return fault(path + ": cannot remove: Is a directory");
  find(parent_of(path))->names.erase(memory_storage::last_name(path));
  return {};
}

inline Status MemoryStorage::remove_folder(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  TESSERA_TRY_VOID(begin(path));
  const auto node = find(path);
  if (node == nullptr) return memory_storage::missing(path);
  if (!node->names.empty()) return fault(path + ": Directory not empty");
  find(parent_of(path))->names.erase(memory_storage::last_name(path));
  return {};
}

inline Result<std::vector<std::string>> MemoryStorage::list(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  const auto folder = find(path);
  if (folder == nullptr) return names;
  for (const auto& [name, node] : folder->names) names.push_back(name);
  return names;
}

inline Result<int64_t> MemoryStorage::free_bytes(const std::string& /*path*/) {
  return std::numeric_limits<int64_t>::max() / 2;  // Failure::Kind::kFull says when there is none
}

inline int64_t MemoryStorage::operations() const {
  const std::scoped_lock lock(mutex_);
  return operations_;
}

inline void MemoryStorage::restore_to(const std::string& from, const std::string& to,
                                      Survivors survivors) const {
  const std::scoped_lock lock(mutex_);
  const bool only_synced = survivors == Survivors::kOnlySynced;
  std::shared_ptr<Node> top = root_;
  for (const std::string& name : split_text(from, '/')) {
    if (name.empty() || name == ".") continue;
    const auto& names = only_synced ? top->synced_names : top->names;
    const auto next = names.find(name);
    if (next == names.end()) return;
    top = next->second;
  }
  std::vector<std::pair<const Node*, std::filesystem::path>> open{{top.get(), to}};
  while (!open.empty()) {
    const auto [node, path] = open.back();
    open.pop_back();
    if (node->folder) {
      std::filesystem::create_directories(path);
      for (const auto& [name, child] : only_synced ? node->synced_names : node->names)
        open.emplace_back(child.get(), path / name);
      continue;
    }
    std::string bytes = survivors == Survivors::kAll ? node->bytes : node->synced_bytes;
    if (survivors == Survivors::kTorn && node->bytes.size() > bytes.size()) {
      const size_t kept = (bytes.size() + node->bytes.size()) / 2;
      bytes = node->bytes.substr(0, kept) + std::string(node->bytes.size() - kept, '\0');
    }
    std::ofstream(path, std::ios::binary) << bytes;
  }
}

}  // namespace tessera
