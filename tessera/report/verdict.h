// Says whether a plan fits the memory of a device, in the words of the report page: the first thing
// that a reader wants to know.
//
//   const MemoryVerdict verdict = memory_verdict(simulated_bytes, device_bytes);
//   fmt::print("{}\n", verdict.text);  // "Fits, 4.12 GiB free"
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// A plan that leaves less than this share of the device free is called tight, because the figure is
// an estimate.
inline constexpr double kTightShare = 0.05;

struct MemoryVerdict {
  enum class State : uint8_t { kUnknown, kFits, kTight, kTooLarge };
  State state = State::kUnknown;
  int64_t bytes = 0;  // free; if the plan is too large, what is missing; 0 if the state is unknown
  std::string text;   // a short sentence without a full stop
};
std::string_view state_name(MemoryVerdict::State state);  // "fits", "tight", "too large", "unknown"

// Compares the memory of the fullest rank with that of a device. `capacity_bytes` is 0 if the
// memory of the device is not known.
MemoryVerdict memory_verdict(int64_t peak_bytes, int64_t capacity_bytes);

// Returns the bytes in GiB with two or three digits: "272 GiB", "43.6 GiB", "4.12 GiB", "0.25 GiB".
std::string gib_text(int64_t bytes);

}  // namespace tessera
