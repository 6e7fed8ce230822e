#include "tessera/network/readers.h"

#include <fmt/format.h>

#include "tessera/base/text.h"

namespace tessera::network {
namespace {

bool has_word(std::string_view text, std::string_view word) {
  return lower_case(text).find(word) != std::string::npos;
}

// Returns whether each line is names joined by dots, as Slurm's addresses are.
bool is_addresses(std::string_view text) {
  for (const std::string& raw : split_text(text, '\n')) {
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    if (line.find_first_of(" =<{:") != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

Result<Network> read_network(const std::string& path) {
  if (path.ends_with(".toml")) {
    TESSERA_TRY(const Cluster cluster, load_cluster(path));
    return network_of(cluster);
  }
  TESSERA_TRY(const std::string text, read_file(path));
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return read_topograph(text, path);
  const std::string_view start = trim(text);
  if (start.starts_with('<')) return read_nccl(text, path);
  if (start.starts_with('{') || start.starts_with('['))
    return has_word(text, "networknodes") ? read_ec2(text, path) : read_gcp(text, path);
  if (has_word(text, "switchname=") || has_word(text, "blockname=")) return read_slurm(text, path);
  if (!start.empty() && is_addresses(text)) return read_slurm_addresses(text, path);
  return invalid_input(fmt::format(
      "{}: expected a cluster file (.toml), a topograph model (.yaml), Slurm's topology.conf or "
      "SLURM_TOPOLOGY_ADDR, the JSON of EC2 or GCP, or NCCL's XML, found another text",
      path));
}

}  // namespace tessera::network
