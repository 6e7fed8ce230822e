// Parts of tessera inspect: its answers about a model, a plan, the roles of a lowering, an op, a
// program and a cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/compile/compile.h"

namespace tessera::cli {

struct InspectOptions {
  std::string subject, plan, model, op, precision = "float32", optimizer;
  std::string cluster;  // the cluster on which the plan's axes are laid
  std::optional<int64_t> rank, place;
  int64_t batch = 0;
  std::vector<int64_t> shape;  // of a resharding or a path between layouts
  std::string mesh;            // of a path between layouts
  std::string what_if;         // of a cluster
  bool json = false, text = false, decisions = false, list_clusters = false, list_models = false;
};

Result<int> inspect_model(const InspectOptions& options);      // without a plan
Result<int> list_models(bool json);                            // the families
Result<int> inspect_plan_text(const InspectOptions& options);  // a plan file without a model
Result<int> inspect_roles(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_op(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_rank(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_place(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_decisions(const InspectOptions& options, const Compiled& planned);
// Shows the program in `file`, which takes the place of its rank's program: it is parsed, and
// verified together with the programs of the other ranks.
Result<int> inspect_program(const InspectOptions& options, const Compiled& planned,
                            const std::string& file);

// Shows "S0RR@2x4 -> S0RR@3x4": unit tasks, senders, order between two meshes of hosts x devices.
Result<int> inspect_resharding(const InspectOptions& options);

// Shows "S0R -> RS0" on the mesh of --mesh: the collectives on the way, and their price.
Result<int> inspect_path(const InspectOptions& options);

// Shows "dgx-a100:2", "local" or a cluster file: its nodes with devices and links, and the network.
Result<int> inspect_cluster(const InspectOptions& options);
Result<int> list_clusters(bool json);

}  // namespace tessera::cli
