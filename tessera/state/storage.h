// The file operations that writing a checkpoint uses, few enough that tests fail each in turn.
// FileSystem uses the machine's files; MemoryStorage (test_memory_storage.h) is one for tests,
// whose power can be cut at any operation.
//
// A loss of power leaves what POSIX guarantees: the bytes of a file after its sync(), its name
// after sync_folder() of the folder that holds it. rename() is atomic: the old name or the new one.
//
//   FileSystem disk;
//   TESSERA_TRY(const auto file, disk.create("runs/a.bin"));
//   TESSERA_TRY_VOID(file->write(data, bytes));
//   TESSERA_TRY_VOID(file->sync());
//   TESSERA_TRY_VOID(disk.sync_folder("runs"));
//
// Large writes from memory that is aligned to kStorageBlock go to the device directly, past the
// page cache (O_DIRECT), if the file system can: several times as fast as through it, and the
// cached files of other programs stay in memory. So write much from such memory, in pieces of
// piece_bytes(), of which all but the last are whole blocks.
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

inline constexpr int64_t kStorageBlock = 4096;  // bytes

class StorageFile {
 public:
  virtual ~StorageFile() = default;  // closes; what was not synced may be lost
  virtual Status write(const std::byte* data, int64_t bytes) = 0;  // appends to the bytes before
  virtual Status sync() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  // Makes the folder and its parents and syncs their names; does nothing if the folder exists.
  virtual Status make_folder(const std::string& path) = 0;
  virtual Result<std::unique_ptr<StorageFile>> create(const std::string& path) = 0;  // a new file
  virtual Status sync_folder(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  virtual Status remove_folder(const std::string& path) = 0;  // the folder must be empty
  // Returns the sorted names in a folder; {} if the path is no folder: nothing, a file, or a link
  // that leads to no folder.
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  // Returns the bytes free where the path is, or will be made; changes nothing.
  virtual Result<int64_t> free_bytes(const std::string& path) = 0;
  // Returns the bytes of one write to a large file: a multiple of kStorageBlock.
  virtual int64_t piece_bytes() const = 0;
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
  Result<int64_t> free_bytes(const std::string& path) override;
  int64_t piece_bytes() const override { return int64_t{8} << 20; }
};

// Returns "folder/name".
std::string path_in(const std::string& folder, const std::string& name);
// Returns the folder that holds what the path names; "." for a bare name.
std::string parent_of(const std::string& path);

}  // namespace tessera
