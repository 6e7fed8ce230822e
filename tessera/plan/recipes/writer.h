// What recipes are made of: a plan text under construction and facts about the graph. A recipe
// takes only facts from the graph, which may be the forward graph alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/plan/recipes.h"

namespace tessera::recipes {

using Axes = std::vector<std::pair<std::string, int64_t>>;  // name and size, outermost first

struct SplitEntry {
  std::string ops, dim;
  std::vector<std::string> over;
  std::string order{};              // of a time loop; empty: aligned
  std::vector<std::string> skew{};  // "-cp"
};

// A plan under construction. Axes of size 1 are left out, and so are the splits over them.
struct PlanText {
  Axes mesh{};
  int64_t micro_batches = 1;
  std::string schedule{};
  std::string expand{};   // pattern
  std::string reorder{};  // "zigzag" or "striped", of `seq`
  int64_t pieces = 1;     // of the reorder
  std::vector<SplitEntry> splits{};
  std::vector<std::pair<std::string, int64_t>> stages{};
  std::vector<std::pair<std::string, std::string>> stores{};  // tensors, over

  int64_t size(std::string_view axis) const;  // 1 if there is no such axis
  bool has(std::string_view axis) const { return size(axis) > 1; }
  // `over` is an axis or "time:N".
  void split(std::string ops, std::string dim, std::string over);
  // The same over several axes; over none of them if all have size 1.
  void split(std::string ops, std::string dim, const std::vector<std::string>& axes);
  // A loop of as many steps as the axes have ranks, in which pieces go from each rank to the next;
  // several axes: rings in rings. Nothing if there is one rank.
  void rotate(std::string ops, std::string dim, const std::vector<std::string>& axes);
  void store(std::string tensors, std::string over);
  std::string str() const;
};

// Size of `dim` in the forward ops that `pattern` selects; 0 if none has it.
int64_t size_of(const Graph& graph, const std::string& pattern, std::string_view dim);
bool has_dim(const Graph& graph, const std::string& pattern, std::string_view dim);
int64_t block_count(const Graph& graph);

// The first components of the paths of forward ops before the first block and after the last one.
// What stands between blocks belongs to no stage by name: it goes with the op before it.
std::pair<std::vector<std::string>, std::vector<std::string>> around_blocks(const Graph& graph);

// "a" or "{a,b}".
std::string alternatives(const std::vector<std::string>& patterns);

// ---- arguments of recipes
RecipeArgument number(std::string name, std::optional<std::string> otherwise, std::string meaning,
                      int64_t minimum = 1);
RecipeArgument micro_batches_argument(std::optional<std::string> otherwise);
RecipeArgument dp_argument(std::optional<std::string> otherwise);
RecipeArgument tp_argument(std::optional<std::string> otherwise);
RecipeArgument pp_argument(std::optional<std::string> otherwise);

}  // namespace tessera::recipes
