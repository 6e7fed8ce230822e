#include "tessera/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/base/text.h"

namespace tessera {

std::string_view state_name(MemoryVerdict::State state) {
  switch (state) {
    case MemoryVerdict::State::kUnknown: return "unknown";
    case MemoryVerdict::State::kFits: return "fits";
    case MemoryVerdict::State::kTight: return "tight";
    case MemoryVerdict::State::kTooLarge: return "too large";
  }
  return "";
}

std::string gib_text(int64_t bytes) {
  const double gib = static_cast<double>(bytes) / 0x1p30;
  if (gib >= 99.95) return fmt::format("{:.0f} GiB", gib);
  if (gib >= 9.995) return fmt::format("{:.1f} GiB", gib);
  if (gib >= 0.01 || bytes == 0) return fmt::format("{:.2f} GiB", gib);
  return "less than 0.01 GiB";
}

MemoryVerdict memory_verdict(int64_t peak_bytes, int64_t capacity_bytes) {
  using State = MemoryVerdict::State;
  if (capacity_bytes <= 0) {
    return {State::kUnknown, 0,
            fmt::format("Needs {}; the memory of the device is not known", gib_text(peak_bytes))};
  }
  const int64_t free = capacity_bytes - peak_bytes;
  if (free < 0) return {State::kTooLarge, -free, "Does not fit by " + gib_text(-free)};
  const double share = static_cast<double>(free) / static_cast<double>(capacity_bytes);
  if (share < kTightShare) {
    return {
        State::kTight, free,
        fmt::format("Fits, but tight: {} free, {} of the device", gib_text(free), percent(share))};
  }
  return {State::kFits, free, fmt::format("Fits, {} free", gib_text(free))};
}

}  // namespace tessera
