// Measured tables of a machine, as `tessera profile` writes them (JSON, versioned): the cost model
// prefers them over constants. Times are seconds, sizes bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct Sample {
  std::vector<double> size;  // what the family's `sizes` name, in order
  double seconds = 0;
  double spread = 0;  // relative: (90th percentile - 10th) / median of the repeats
  friend bool operator==(const Sample&, const Sample&) = default;
};
// One measured kernel family: "matmul.float32.nn" over (batch, m, n, k), "layer_norm.float32" over
// (elements), "all_reduce.threads" over (ranks, bytes), ...
struct Family {
  std::vector<std::string> sizes;  // names of the coordinates
  std::vector<Sample> samples;     // sorted by size
  friend bool operator==(const Family&, const Family&) = default;
};
struct Profile {
  std::string device;   // in words
  std::string version;  // of library and format
  std::string date;     // YYYY-MM-DD
  int64_t ranks = 1;    // that worked side by side while it was measured
  std::map<std::string, Family> families;
  std::map<std::string, double> scalars;  // "host.issue_s", "overlap.compute_slowdown", ...
  friend bool operator==(const Profile&, const Profile&) = default;
};

// Version of the file format, "format" in the JSON.
inline constexpr int64_t kProfileFormat = 1;

// Reads a profile. Errors are one line "file: expected ..., found ...": no JSON, another format, a
// sample with other sizes than its family, a time that is not positive.
Result<Profile> parse_profile(std::string_view json, std::string_view file);
Result<Profile> load_profile(const std::string& path);
// Writes one sample a line; parse_profile(to_json(p)) == p if the samples are sorted.
std::string to_json(const Profile& profile);

// Returns the path at which `tessera profile` writes and `local` reads: $TESSERA_PROFILE, else
// ~/.local/share/tessera/profile.json.
std::string default_profile_path();

}  // namespace tessera
