// The operations on files that writing a checkpoint is made of, few enough to be failed one by one.
// FileSystem is the machine's; MemoryStorage (memory_storage.h) is one for tests, whose power can
// be cut at any operation.
//
// What survives a loss of power follows POSIX: the bytes of a file after sync() of it, its name
// after sync_folder() of the folder that holds it. rename() is atomic: the old name or the new one.
//
//   FileSystem disk;
//   TESSERA_TRY(const auto file, disk.create("runs/a.bin"));
//   TESSERA_TRY_VOID(file->write(data, bytes));
//   TESSERA_TRY_VOID(file->sync());
//   TESSERA_TRY_VOID(disk.sync_folder("runs"));
//
// Errors are faults of one line: "runs/a.bin: cannot write: No space left on device". Thread-safe;
// a StorageFile is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

class StorageFile {
 public:
  virtual ~StorageFile() = default;  // closes; what was not synced may be lost
  virtual Status write(const std::byte* data, int64_t bytes) = 0;  // behind what was written before
  virtual Status sync() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  // With its parents, and their names are synced; nothing happens if it exists.
  virtual Status make_folder(const std::string& path) = 0;
  virtual Result<std::unique_ptr<StorageFile>> create(const std::string& path) = 0;  // a new file
  virtual Status sync_folder(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  virtual Status remove_folder(const std::string& path) = 0;  // an empty one
  // The names in a folder, sorted; none if there is no such folder.
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
};

class FileSystem : public Storage {
 public:
  Status make_folder(const std::string& path) override;
  Result<std::unique_ptr<StorageFile>> create(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
};

// "folder/name".
std::string path_in(const std::string& folder, const std::string& name);
// The folder that holds what the path names; "." of a bare name.
std::string parent_of(const std::string& path);

}  // namespace tessera
