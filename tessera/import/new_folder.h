// Makes a folder that exists completely or not at all. Files are first written to a temporary
// folder in the same parent folder; commit() renames this folder to its final name. Without a
// commit() the temporary folder is removed.
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
  // Creates the folder. Returns an error (invalid input) if the path exists, or if its parent
  // folder cannot be written to.
  static Result<NewFolder> create(const std::string& path);
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;

  // Returns the path at which to write the file of this name.
  std::string file(const std::string& name) const;
  // Gives the folder its final name. After this call the folder and the names of its files survive
  // a loss of power; the bytes of the files survive it if their writers have called finish().
  // Returns an error (fault) if the folder cannot be renamed or synced.
  Status commit();

 private:
  NewFolder(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}
  std::string path_, temporary_;  // `temporary_` is empty if there is nothing to remove
};

// Takes the bytes of arrays, which are known at the beginning, in any order.
class ArrayWriter {
 public:
  virtual ~ArrayWriter() = default;
  // Writes bytes [offset, offset + bytes) of array number `array`, row-major; each byte may be
  // written once.
  virtual Status write(size_t array, int64_t offset, int64_t bytes, const std::byte* data) = 0;
};

// Writes a safetensors file.
class SafetensorsWriter : public ArrayWriter {
 public:
  // Creates the file, writes its header and sets its full size; the arrays' bytes are written
  // later. Returns an error (fault) if the file cannot be written.
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<ArrayEntry> arrays,
                                          const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter() override;
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;

  const std::vector<ArrayEntry>& arrays() const { return layout_.arrays; }  // in the order given
  // Writes bytes, as above. The file is zero at first, so a MiB of zeros is not written: it remains
  // a hole, which takes no space on the disk.
  Status write(size_t array, int64_t offset, int64_t bytes, const std::byte* data) override;
  // Syncs the file to the disk. Returns an error (fault) if this fails.
  Status finish();
  int64_t bytes() const { return layout_.bytes; }

 private:
  SafetensorsWriter(std::string path, int number, SafetensorsLayout layout)
      : path_(std::move(path)), number_(number), layout_(std::move(layout)) {}
  Status write_at(int64_t at, int64_t bytes, const std::byte* data);
  std::string path_;
  int number_;  // descriptor of the open file; -1 after a move
  SafetensorsLayout layout_;
};

}  // namespace tessera
