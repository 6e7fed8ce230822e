// The parts of `tessera inspect`: what it shows about a model, a plan, the rank classes of a
// lowering, an op, a program and a cluster.
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
  std::string cluster;  // the cluster whose devices the plan's axes are mapped to
  std::optional<int64_t> rank, place;
  int64_t batch = 0;
  std::vector<int64_t> shape;  // for resharding, and for a path between layouts
  std::string mesh;            // for a path between layouts
  std::string what_if;         // for a cluster
  bool json = false, text = false, decisions = false, list_clusters = false, list_models = false;
};

Result<int> inspect_model(const InspectOptions& options);      // if no plan is given
Result<int> list_models(bool json);                            // lists the families of models
Result<int> inspect_plan_text(const InspectOptions& options);  // if only a plan file is given
Result<int> inspect_roles(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_op(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_rank(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_place(const InspectOptions& options, const Compiled& planned);
Result<int> inspect_decisions(const InspectOptions& options, const Compiled& planned);
// Shows the program in `file`. It replaces the program of its rank: it is parsed, and verified
// together with the programs of the other ranks.
Result<int> inspect_program(const InspectOptions& options, const Compiled& planned,
                            const std::string& file);

// Shows a resharding between two meshes of hosts x devices, such as "S0RR@2x4 -> S0RR@3x4": its
// unit tasks, their senders and their order.
Result<int> inspect_resharding(const InspectOptions& options);

// Shows how a layout is converted to another on the mesh of --mesh, such as "S0R -> RS0": the
// collectives of the path and their costs.
Result<int> inspect_path(const InspectOptions& options);

// Shows a cluster ("dgx-a100:2", "local" or a cluster file): its nodes with devices and links, and
// the network.
Result<int> inspect_cluster(const InspectOptions& options);
Result<int> list_clusters(bool json);

}  // namespace tessera::cli
