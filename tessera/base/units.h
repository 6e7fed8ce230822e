// Reads and writes numbers with their unit, such as "312 TFLOP/s", "80 GiB", "200 Gb/s" or "5 us".
// The text is a number, an optional blank, and a unit, which may not be left out. Decimal prefixes
// are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024. B is a byte, b is a bit. Upper and
// lower case are different.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

enum class Quantity : uint8_t {
  kBytes,           // B kB MB GB TB PB KiB MiB GiB TiB
  kBytesPerSecond,  // units of kBytes with /s, and in bits b/s kb/s Mb/s Gb/s Tb/s
  kFlops,           // FLOP/s MFLOP/s GFLOP/s TFLOP/s PFLOP/s; one multiply-add = 2 FLOP
  kSeconds,         // s ms us ns
  kHertz,           // Hz kHz MHz GHz
};

// Returns the value in the base unit: bytes, bytes/s, FLOP/s, seconds, Hz. The message of an error
// does not say in which file or key the text is: "expected a size with a unit, as '80 GB', found
// '80'".
Result<double> parse_quantity(std::string_view text, Quantity what);
// Returns the shortest text with a unit that parses to exactly this value.
std::string format_quantity(double value, Quantity what);
// Returns a short text for people, rounded to at most four digits: "2.04 TB/s".
std::string short_quantity(double value, Quantity what);
// Returns the words with which messages say what is expected: "a size as '80 GB'".
std::string example_of(Quantity what);

}  // namespace tessera
