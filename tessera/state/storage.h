// The file operations that writing a checkpoint uses. They are few, so that tests can make each of
// them fail in turn. FileSystem works on the machine's files. MemoryStorage (test_memory_storage.h)
// keeps its files in memory, so that tests can simulate a loss of power at any operation.
//
// After a loss of power, only what POSIX guarantees is left: the bytes that a file had at its last
// sync(), and the names that a folder had at its last sync_folder(). rename() is atomic: afterwards
// there is the old name or the new one.
//
//   FileSystem disk;
//   TESSERA_TRY(const auto file, disk.create("runs/a.bin"));
//   TESSERA_TRY_VOID(file->write(data, bytes));
//   TESSERA_TRY_VOID(file->sync());
//   TESSERA_TRY_VOID(disk.sync_folder("runs"));
//
// Large writes from memory that is aligned to kStorageBlock bypass the page cache and go to the
// device directly (O_DIRECT), if the file system can do so. This is several times as fast, and the
// cached files of other programs stay in memory. So write large files from aligned memory, in
// pieces of piece_bytes(); the size of every piece but the last is a multiple of kStorageBlock.
//
// Errors are faults of one line: "runs/a.bin: cannot write: No space left on device". A Storage is
// thread-safe; a StorageFile is used by one thread at a time.
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
  virtual ~StorageFile() = default;  // closes the file; bytes that were not synced may be lost
  virtual Status write(const std::byte* data, int64_t bytes) = 0;  // appends the bytes
  virtual Status sync() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  // Makes the folder and its missing parents and syncs their names. Does nothing if the folder
  // exists.
  virtual Status make_folder(const std::string& path) = 0;
  // Makes a new file.
  virtual Result<std::unique_ptr<StorageFile>> create(const std::string& path) = 0;
  virtual Status sync_folder(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  // Removes a folder, which must be empty.
  virtual Status remove_folder(const std::string& path) = 0;
  // Returns the sorted names in a folder; {} if there is nothing at the path, or a file, or a link
  // that does not lead to a folder.
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  // Returns the free bytes of the file system that the path is on, or would be on if it were made.
  // Changes nothing.
  virtual Result<int64_t> free_bytes(const std::string& path) = 0;
  // Returns the best size, in bytes, of one write to a large file: a multiple of kStorageBlock.
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
// Returns the folder that contains the file or folder `path`; "." for a name without a folder.
std::string parent_of(const std::string& path);

}  // namespace tessera
