// Checksums of checkpoints: XXH3, 64 bits (xxHash), which find damage but withstand no forger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

class Checksum {  // checksum of bytes that come in pieces
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(const std::byte* data, int64_t bytes);
  uint64_t value() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum(std::string_view bytes);

std::string checksum_text(uint64_t value);  // 16 hexadecimal digits, the highest first
std::optional<uint64_t> parse_checksum(std::string_view text);

}  // namespace tessera
