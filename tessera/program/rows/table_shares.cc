#include "tessera/program/rows/table_shares.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/graph/optimizers.h"
#include "tessera/graph/pieces.h"

namespace tessera {
namespace {

// Returns the buffer in which the whole home rests. If the home's buffer belongs to a row cache,
// which has only some rows, this is the cache's buffer in the other tier.
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
  const Origins origins(graph);
  const auto share_of = [&](TensorId table) {
    const PieceOrigin origin = origins.of(table);
    TableShare share;
    share.table = origin.name;
    share.rank = program.rank;
    for (const Home& home : program.homes) {
      const Buffer& buffer = whole_of(program, home);
      const Tensor& tensor = graph.tensor(home.tensor);
      if (home.tensor == table && !home.region.empty()) {
        const Box region = origin.in_whole(home.region);
        share.rows = region.dims[0];
        share.columns = region.dims[1];
        share.tier = buffer.tier;
        share.bytes += buffer.bytes();
      } else if (tensor.role == Role::kOptimizerState && tensor.of == table) {
        share.state_bytes += buffer.bytes();
      }
    }
    return share;
  };
  std::map<std::string, std::vector<TensorId>> pieces;  // by name of the whole table
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::kParameter && !tensor.producer.valid())
      pieces[origins.of(tensor.id).name].push_back(tensor.id);
  }
  std::vector<TableShare> shares;
  for (const std::string& name : tables) {
    for (const TensorId piece : pieces[name]) {
      TableShare share = share_of(piece);
      if (share.bytes + share.state_bytes > 0) shares.push_back(std::move(share));
    }
  }
  return shares;
}

}  // namespace tessera
