#include "tessera/cli/machine.h"

#include <fmt/format.h>

#include "tessera/cli/output.h"
#include "tessera/cluster/words.h"

namespace tessera::cli {

Result<Cluster> load_machine(const std::string& text) {
  TESSERA_TRY(Cluster cluster, load_cluster(text));
  if (std::string taken = taken_for(text); !taken.empty()) say_first(std::move(taken));
  return cluster;
}

std::string machine_title(const Cluster& cluster) {
  const int64_t nodes = cluster.nodes();
  return fmt::format("{}{} ({})", nodes > 1 ? grouped(nodes) + " x " : "", cluster.name,
                     plural(cluster.devices(), "device"));
}

}  // namespace tessera::cli
