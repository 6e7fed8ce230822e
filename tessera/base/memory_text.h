// The one way in which answers write an amount of memory, so that two numbers of one answer can be
// compared: three digits in GiB, "43.6 GiB", "734 GiB"; amounts below a tenth of a GiB in MiB or KiB.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

// Returns the amount as a text of two or three digits before the unit; from 1000 GiB on, of whole
// GiB.
inline std::string memory_text(double bytes) {
  constexpr std::array<std::pair<double, std::string_view>, 3> kUnits = {
      {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}}};
  for (const auto& [unit, name] : kUnits) {
    const double value = bytes / unit;
    const double size = std::abs(value);
    if (size < .0995) continue;
    const int digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, name);
  }
  return fmt::format("{:.0f} B", bytes);
}

}  // namespace tessera
