// Measured tables of a machine, as `tessera profile` writes them (JSON with a version). The cost
// model uses these tables in place of constants. Times are in seconds, sizes in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct Sample {
  std::vector<double> size;  // one number for each name in the family's `sizes`
  double seconds = 0;
  double spread = 0;  // (90th percentile - 10th percentile) / median of the repeats
  friend bool operator==(const Sample&, const Sample&) = default;
};
// The measured times of one family of kernels, for several sizes. Examples of families and their
// sizes: "matmul.float32.nn" with (batch, m, n, k), "layer_norm.float32" with (elements),
// "all_reduce.threads" with (ranks, bytes).
struct Family {
  std::vector<std::string> sizes;  // names of the numbers in Sample::size
  std::vector<Sample> samples;     // sorted by size
  friend bool operator==(const Family&, const Family&) = default;
};
struct Profile {
  std::string device;   // description in words
  std::string version;  // versions of the library and the format
  std::string date;     // YYYY-MM-DD
  int64_t ranks = 1;    // ranks that worked at the same time during the measurement
  std::map<std::string, Family> families;
  std::map<std::string, double> scalars;  // "host.issue_s", "overlap.compute_slowdown", ...
  friend bool operator==(const Profile&, const Profile&) = default;
};

// Version of the file format, "format" in the JSON.
inline constexpr int64_t kProfileFormat = 1;

// Reads a profile. Returns an error of one line "file: expected ..., found ..." if the text is not
// JSON, has another format, has a sample whose sizes do not match its family's, or has a time that
// is not positive.
Result<Profile> parse_profile(std::string_view json, std::string_view file);
Result<Profile> load_profile(const std::string& path);
// Writes a profile as JSON with one sample on each line. If the samples are sorted,
// parse_profile(to_json(p)) == p.
std::string to_json(const Profile& profile);

// Returns the path of the profile that `tessera profile` writes and the cluster "local" reads:
// $TESSERA_PROFILE, else ~/.local/share/tessera/profile.json.
std::string default_profile_path();

}  // namespace tessera
