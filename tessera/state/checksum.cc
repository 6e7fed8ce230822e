#include "tessera/state/checksum.h"

#include <fmt/format.h>

#include <charconv>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

struct Checksum::State {
  XXH3_state_t state;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->state); }
Checksum::~Checksum() = default;

void Checksum::add(const std::byte* data, int64_t bytes) {
  XXH3_64bits_update(&state_->state, data, static_cast<size_t>(bytes));
}
uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->state); }

uint64_t checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_text(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> parse_checksum(std::string_view text) {
  constexpr size_t kHexDigits = 16;
  constexpr int kBase = 16;
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (text.size() != kHexDigits || text.find_first_of("ABCDEF") != std::string_view::npos)
    return std::nullopt;
  const auto [last, error] = std::from_chars(text.data(), end, value, kBase);
  if (error != std::errc{} || last != end) return std::nullopt;
  return value;
}

}  // namespace tessera
