// One tier's memory of a rank: a fixed number of bytes, aligned to 64, zero, touched first by who
// uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/result.h"
#include "tessera/plan/plan.h"

namespace tessera {

class Arena {
 public:
  // kDevice and kHost: anonymous memory, in huge pages where the system gives them. kDisk: an
  // unnamed file in TMPDIR.
  static Result<Arena> create(Tier tier, int64_t bytes);
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tessera
