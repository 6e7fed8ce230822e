// A storage for tests: folders and files in memory that stop at a chosen operation, and then show
// what a machine would find when it starts again.
//
//   MemoryStorage storage({.at = 7, .kind = Failure::Kind::kStop});
//   const Status saved = save(storage);                        // fails at the 7th operation
//   storage.restore_to("folder", Survivors::kOnlySynced);      // real files, to resume from
//
// May be lost, and must be recovered from: everything that was not synced, in whole or in part, in
// any of the ways of Survivors. Operations are counted from 1, in the order in which they begin:
// each call of Storage and of a file, but list() and free_bytes(), which change nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/state/storage.h"

namespace tessera {

struct Failure {
  enum class Kind : uint8_t {
    kStop,  // this operation and all behind it fail: the process is dead. Of a write, half is done
    kFull,  // no more room: every write from this operation on fails after half of it
  };
  int64_t at = 0;  // 0: never
  Kind kind = Kind::kStop;
};

// What is left after a loss.
enum class Survivors : uint8_t {
  kAll,         // a killed process: what was written is there
  kOnlySynced,  // a loss of power: names and bytes that were synced
  kNames,       // all names, with the bytes that were synced (a rename before its data)
  kTorn,        // all names; of bytes that were not synced the first half, then zeros
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
  int64_t piece_bytes() const override { return kStorageBlock; }  // files of tests have several

  int64_t operations() const;  // begun so far
  // Writes what the folder `from` holds after the loss below the real folder `to`.
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

}  // namespace tessera
