// The bytes of a file, mapped into memory for reading. The file's descriptor is closed once it is
// mapped. As with every mapped file: if another process shortens the file while it is mapped,
// reading the bytes that are gone ends this process by a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/base/result.h"

namespace tessera {

class MappedFile {
 public:
  MappedFile() = default;
  // Opens a file. Errors: "cannot read 'a.bin': Permission denied".
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  int64_t size() const { return static_cast<int64_t>(size_); }
  const std::byte* bytes() const { return static_cast<const std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tessera
