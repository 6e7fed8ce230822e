// Reads prices of devices, and the words of users that say what a plan should make small.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/cluster/cluster.h"
#include "tessera/search/question/objective.h"

namespace tessera::cli {

// Returns USD an hour of a device of each type. `prices`: TYPE=USD for each type, or USD alone if
// there is one type. Empty if `prices` is. Errors: a type that is unknown, twice or without a price; a
// price that is no number from 0 to a million.
Result<std::vector<double>> read_prices(const std::vector<std::string>& prices,
                                        const std::vector<std::string>& types);

// The words of the user; "" where he said nothing.
struct ObjectiveOptions {
  std::string goal = "time", within;
  std::vector<std::string> prices;
};
// Reads the objective of a plan on the cluster. Steps may take a tenth longer than those of the
// fastest plan where devices or memory are to be few and the user says nothing; where money is, as
// long as they like. Errors: those of read_prices(); --within with the goal time, or that is neither
// a share of at least 0 % nor a time; the goal money without prices.
Result<Objective> read_objective(const ObjectiveOptions& options, const Cluster& cluster);

}  // namespace tessera::cli
