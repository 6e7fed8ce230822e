#include "tessera/orchestrate/live/backend_table.h"

#include <fmt/format.h>

#include <array>

#include "tessera/base/text.h"
#include "tessera/orchestrate/live/slurm.h"
#include "tessera/orchestrate/live/training.h"

namespace tessera::share {
namespace {

const std::array<BackendKind, 2> kBackends = {
    BackendKind{"processes", [] { return Result<std::vector<BackendNode>>(); }, make_processes},
    BackendKind{"slurm", slurm_nodes, make_slurm},
};

}  // namespace

Result<const BackendKind*> find_backend(const std::string& name) {
  std::vector<std::string> names;
  for (const BackendKind& kind : kBackends) {
    if (kind.name == name) return &kind;
    names.emplace_back(kind.name);
  }
  return invalid_input(
      fmt::format("--backend: expected {}, found '{}'", join(names, " or "), name));
}

}  // namespace tessera::share
