// Internal to the command line: tessera data graph, which shows what files of graphs hold, and
// makes networks for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct GraphJob {
  std::string file;                // x.mtx, a list of edges, or the prefix of the files about nodes
  std::optional<std::string> out;  // the graph file of a network
  std::string network, sampler = "none";
  std::vector<int64_t> widths;
  int64_t hidden = 16, layers = 2;
  double dropout = 0.5;
  bool symmetric = false, mirror = false, any_order = false, json = false;
};

Result<int> run_data_graph(const GraphJob& job);

}  // namespace tessera::cli
