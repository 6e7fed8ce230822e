// Reads and writes figures with their unit, as "312 TFLOP/s", "80 GiB", "200 Gb/s" or "5 us": a
// number, an optional blank, and a unit, which may not be left out. Decimal prefixes are powers of
// 1000, Ki Mi Gi Ti powers of 1024; B is a byte, b a bit. Upper and lower case differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

enum class Quantity : uint8_t {
  kBytes,           // B kB MB GB TB PB KiB MiB GiB TiB
  kBytesPerSecond,  // those with /s, and bits: b/s kb/s Mb/s Gb/s Tb/s
  kFlops,           // FLOP/s MFLOP/s GFLOP/s TFLOP/s PFLOP/s; one multiply-add = 2 FLOP
  kSeconds,         // s ms us ns
  kHertz,           // Hz kHz MHz GHz
};

// Returns the value in the base unit: bytes, bytes/s, FLOP/s, seconds, Hz. An error does not state
// the place: "expected a size with a unit, as '80 GB', found '80'".
Result<double> parse_quantity(std::string_view text, Quantity what);
// Returns the shortest text that parses to exactly this value.
std::string format_quantity(double value, Quantity what);
// Returns a text for people with four digits, "2.04 TB/s".
std::string short_quantity(double value, Quantity what);
// Returns what messages say is expected: "a size as '80 GB'".
std::string example_of(Quantity what);

}  // namespace tessera
