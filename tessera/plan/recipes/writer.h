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
  std::string ops, dim, over;
};

// A plan under construction. Axes of size 1 are left out, and so are the splits over them.
struct PlanText {
  Axes mesh{};
  int64_t micro_batches = 1;
  std::string schedule{};
  std::vector<SplitEntry> splits{};
  std::vector<std::pair<std::string, int64_t>> stages{};
  std::vector<std::pair<std::string, std::string>> stores{};      // tensors, over
  std::vector<std::pair<std::string, std::string>> compressed{};  // tensors, with; error feedback

  int64_t size(std::string_view axis) const;  // 1 if there is no such axis
  bool has(std::string_view axis) const { return size(axis) > 1; }
  // `over` is an axis or "time:N".
  void split(std::string ops, std::string dim, std::string over);
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
