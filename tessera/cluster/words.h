// Clusters as people say them: "8xH100", "h100:8", "a100", "64xA100". Such a text names a device
// and how many there are. The table words.toml says which preset is meant by a device.
//
//   TESSERA_TRY(const auto meant, cluster_words("16xH100"));
//   // meant->preset == "dgx-h100", meant->devices == 16; a node has 8, so the cluster has 2 nodes
//
// A number after the name of a preset counts nodes ("dgx-h100:2"), a number after a word or before
// an x counts devices ("h100:16", "16xH100", "16xa100-pcie").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct ClusterWords {
  std::string preset;
  int64_t devices = 0;  // 0: all of one node
};

// Reads a text. Returns nothing for a text of another form (a preset, a file, an unknown word).
// Error: the number of devices is not a number from 1 to kMostRanks.
Result<std::optional<ClusterWords>> cluster_words(std::string_view text);
// Returns what load_cluster() takes such a text for, "8xH100 is dgx-h100:1" or "2xH100 is 2 of the 8
// devices of a dgx-h100". Returns "" for a text of another form.
std::string taken_for(std::string_view text);
// Returns all words of the table, for messages that name the nearest one.
std::vector<std::string> all_cluster_words();

// The table's text, as the program holds it. Errors have file:line: an unknown key, a word twice.
struct ClusterWord {
  std::string word, preset;
};
Result<std::vector<ClusterWord>> parse_cluster_words(std::string_view toml, std::string_view file);

}  // namespace tessera
