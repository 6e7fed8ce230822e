// Finds the modules of an imported PyTorch module. An import keeps the names of parameters
// ("model.layers.0.mlp.up.weight") and gives ops the paths for which recipes look
// (import/pt2/paths.h): "blocks.0.mlp.up". This class goes the way back.
//
//   const ModulePaths modules(graph);
//   modules.of(op)        // "model.layers.0.mlp.up"; "" is the whole module
//   modules.block(0)      // "model.layers.0"
//
// Modules are known by their parameters. An op of a module without parameters belongs to the
// nearest known module around it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/graph/graph.h"

namespace tessera::pytorch {

// Returns the path without its last part: the module of a parameter; "" for a path of one part.
std::string parent_of(std::string_view path);
// Returns whether `path` is the module or lies inside it. The module "" contains all paths.
bool inside(std::string_view path, std::string_view module);

class ModulePaths {
 public:
  explicit ModulePaths(const Graph& forward);

  const std::string& of(const Op& op) const { return of_[op.id.index()]; }
  // Returns the module of a repeated block; "" if the ops of the block have no module of their own.
  std::string block(int number) const;
  // Returns whether a parameter is the module's own, and not that of a module inside it.
  bool owns(const std::string& module) const { return owners_.contains(module); }
  int64_t blocks() const { return blocks_; }
  const std::string& list() const { return list_; }  // the module before the number of a block

 private:
  std::string find(const Graph& forward, const Op& op) const;
  std::string deepest(const std::string& path) const;  // the longest known module around a path

  std::set<std::string, std::less<>> known_, owners_;
  std::vector<std::string> of_;  // by op
  std::string list_;
  int64_t blocks_ = 0;
};

// Returns whether the graph only makes the tensor so that PyTorch has none of it: a table that is
// known at import.
bool is_constant(const Tensor& parameter);
// Returns the parameter of the module that the tensor is, or of which it is a copy (a cast); null if
// it is none.
const Tensor* parameter_read(const Graph& graph, TensorId id);

}  // namespace tessera::pytorch
