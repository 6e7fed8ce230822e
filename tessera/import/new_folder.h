// A folder that exists completely or not at all: files are written to a temporary folder beside it,
// which commit() renames to the folder. Without a commit() nothing is left behind.
//
//   TESSERA_TRY(NewFolder folder, NewFolder::create("models/llama"));
//   TESSERA_TRY(SafetensorsWriter file, SafetensorsWriter::create(folder.file("model.safetensors"),
//                                                                 std::move(arrays)));
//   TESSERA_TRY_VOID(file.write(0, offset, bytes, data));
//   TESSERA_TRY_VOID(file.finish());
//   TESSERA_TRY_VOID(folder.commit());
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/state/safetensors.h"

namespace tessera {

class NewFolder {
 public:
  // Creates the folder. Returns an error (invalid input) if the path exists, or nothing can be
  // written beside it.
  static Result<NewFolder> create(const std::string& path);
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;

  // Returns the path at which to write the file of this name.
  std::string file(const std::string& name) const;
  // Puts the folder in its place. After it the folder and its files' names survive a loss of power;
  // the files' bytes do if their writers have brought them to the disk. Returns an error (fault) if
  // the folder cannot be renamed or synced.
  Status commit();

 private:
  NewFolder(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}
  std::string path_, temporary_;  // temporary: empty once there is nothing to remove
};

// Writes a safetensors file of known arrays, whose bytes come in any order.
class SafetensorsWriter {
 public:
  // Creates the file and sets its whole size, without writing it. Returns an error (fault) if it
  // cannot write.
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<ArrayEntry> arrays,
                                          const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;

  const std::vector<ArrayEntry>& arrays() const { return layout_.arrays; }  // in the order given
  // Writes bytes [offset, offset + bytes) of array number `array`, once each. The file is zero at
  // first: a MiB of zeros remains a hole of the file, which takes no room on the disk.
  Status write(size_t array, int64_t offset, int64_t bytes, const std::byte* data);
  // Brings the bytes to the disk. Returns an error (fault) if it cannot take them.
  Status finish();
  int64_t bytes() const { return layout_.bytes; }

 private:
  SafetensorsWriter(std::string path, int number, SafetensorsLayout layout)
      : path_(std::move(path)), number_(number), layout_(std::move(layout)) {}
  Status write_at(int64_t at, int64_t bytes, const std::byte* data);
  std::string path_;
  int number_;  // number of the open file; -1 once moved from
  SafetensorsLayout layout_;
};

}  // namespace tessera
