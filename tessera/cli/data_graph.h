// Internal to the command line: the command `tessera data graph`, which shows what graph files
// contain and writes model graphs of networks for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::cli {

struct GraphJob {
  // A matrix x.mtx, a list of edges, or the common prefix of the files of a graph with node data.
  std::string file;
  std::optional<std::string> out;  // where to write the graph of a network
  std::string network, sampler = "none";
  std::vector<int64_t> widths;
  int64_t hidden = 16, layers = 2;
  double dropout = 0.5;
  bool symmetric = false, mirror = false, any_order = false, json = false;
};

Result<int> run_data_graph(const GraphJob& job);

}  // namespace tessera::cli
