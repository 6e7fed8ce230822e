#include "tessera/program/table_shares.h"

#include <algorithm>

#include "tessera/graph/optimizers.h"

namespace tessera {
namespace {

// Where all of the home is: not where some of its rows are (RowCache).
const Buffer& whole_of(const Program& program, const Home& home) {
  const int cache = cache_of(program, home.buffer);
  if (cache < 0) return program.buffer(home.buffer);
  const RowCache& of = program.caches[static_cast<size_t>(cache)];
  const auto at = std::find(of.held.begin(), of.held.end(), home.buffer) - of.held.begin();
  return program.buffer(of.rests[static_cast<size_t>(at)]);
}

}  // namespace

std::vector<std::string> tables_of(const Graph& forward) {
  std::vector<std::string> names;
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role == Role::kParameter && is_only_looked_up(forward, tensor.id))
      names.push_back(tensor.name);
  }
  return names;
}

std::vector<TableShare> table_shares(const Program& program, const std::vector<std::string>& tables,
                                     const Graph& graph) {
  std::vector<TableShare> shares;
  for (const std::string& name : tables) {
    const TensorId table = graph.find_tensor(name);
    TableShare share;
    share.table = name;
    share.rank = program.rank;
    for (const Home& home : program.homes) {
      const Buffer& buffer = whole_of(program, home);
      const Tensor& tensor = graph.tensor(home.tensor);
      if (home.tensor == table && !home.region.empty()) {
        share.rows = home.region.dims[0];
        share.columns = home.region.dims[1];
        share.tier = buffer.tier;
        share.bytes += buffer.bytes();
      } else if (tensor.role == Role::kOptimizerState && tensor.of == table) {
        share.state_bytes += buffer.bytes();
      }
    }
    if (share.bytes + share.state_bytes > 0) shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace tessera
