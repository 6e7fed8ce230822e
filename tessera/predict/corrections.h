// Says which calibrated constants (constants.h) concern a machine and a framework, and in which
// form. `tessera predict` and all commands that price a plan ask this function, so that the same
// program on the same machine costs the same in each of them.
//
//   const Corrections found = corrections_of(constants.all, "torchtitan", cluster);
//   parse_style("torchtitan" + found.style);   // ",attention_efficiency=0.65,..." on A100s
#pragma once

#include <string>
#include <string_view>

#include "tessera/cluster/cluster.h"
#include "tessera/predict/predict.h"

namespace tessera {

struct Corrections {
  std::string style;    // options of the style, each as ",KEY=VALUE"; "": none
  std::string cluster;  // changes of the machine in the form of apply_what_if(); "": none
};

// Returns the settings without scope, those of the framework with this name, and those of a machine
// preset whose device all devices of the cluster are. Leaves out settings plan.KEY, which concern
// the plan of a published run. If two settings have the same key, the last one counts. A cluster with measured tables (Cluster::profile) has no settings of its machine, because
// the tables take the place of the rates that the constants correct.
Corrections corrections_of(const PredictSettings& settings, std::string_view framework,
                           const Cluster& cluster);

}  // namespace tessera
