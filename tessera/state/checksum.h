// Checksums of checkpoints: XXH3 with 64 bits (xxHash). They find accidental damage; they do not
// protect against deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Computes the checksum of bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(const std::byte* data, int64_t bytes);
  uint64_t value() const;  // checksum of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum(std::string_view bytes);

std::string checksum_text(uint64_t value);  // 16 hexadecimal digits, the highest first
std::optional<uint64_t> parse_checksum(std::string_view text);

}  // namespace tessera
