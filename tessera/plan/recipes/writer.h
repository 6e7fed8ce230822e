// Tools for recipes: a plan text under construction, facts about the graph, and patterns that
// select ops. The graph may be the forward graph alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/plan/recipes.h"

namespace tessera::recipes {

using Axes = std::vector<std::pair<std::string, int64_t>>;  // name and size, outermost first

// One entry of a list of the plan: its keys and values, as they are written in the text.
using Entry = std::vector<std::pair<std::string, std::string>>;

// A `Rotation` is the order of the steps of a time loop: aligned, or rotated by the coordinates on
// the axes `skew`.
struct Rotation {
  std::string skew;  // axes with commas between; "" = aligned
};

// A `PlanText` is a plan under construction. Lists of axes are texts with commas between:
// "dp,row,time:4". Axes of size 1 are left out of the plan, and so is an entry without an axis.
struct PlanText {
  // Comments at the top: where the plan differs from the recipe, and why.
  std::vector<std::string> notes{};
  Axes mesh{};
  int64_t micro_batches = 1;
  std::string schedule{};
  // Axes or devices with commas between, as in the plan's key `device_order`; "": the key is
  // left out.
  std::string device_order{};
  std::string precision{};  // dtype of the computation; "": that of the model
  std::string expand{};     // pattern of ops to expand
  std::string prefetch{};   // pattern of the units of Prefetch (plan.h)
  int64_t ahead = 1;        // Prefetch::ahead
  std::string reorder{};    // new order of `seq`: "zigzag" or "striped"
  int64_t pieces = 1;       // pieces of the new order
  std::vector<Entry> splits{}, pins{}, stores{};
  struct StageLine {
    std::string ops;
    int64_t at = 0;
    std::string mesh;     // the stage's own mesh; "": that of the text without the stage axis
    std::string devices;  // first device of its own mesh; "": after the stage before
  };
  std::vector<StageLine> stages{};
  Axes stage_axes{};                 // axes of the stages' own meshes that `mesh` lacks
  std::vector<std::string> loops{};  // the text of each entry
  std::vector<int64_t> place{};      // the key `place`; empty: left out
  std::vector<Entry> compressed{};

  int64_t size(std::string_view axis) const;  // 1 if there is no such axis
  bool has(std::string_view axis) const { return size(axis) > 1; }
  int64_t product(const std::string& axes) const;  // product of the sizes of the axes
  // Adds a split. If no axis of `over` has several ranks, the entry says that the dim is not split;
  // it is written only if an earlier entry splits a dim of this name.
  void split(const std::string& ops, const std::string& dim, const std::string& over,
             const Rotation& rotation = {});
  // Pins ops to one coordinate of an axis; does nothing if the axis has one rank.
  void pin(const std::string& ops, const std::string& axis, int64_t at);
  // Adds a loop with one step for each rank of the axes, in which pieces move from each rank to the
  // next one on a ring. Several axes make nested rings. Does nothing if the axes have one rank.
  void rotate(const std::string& ops, const std::string& dim, const std::string& axes);
  // Adds a store entry that cuts the tensors at rest over the axes. A second call for the same
  // tensors adds its axes to the first entry.
  void store(const std::string& tensors, const std::string& over);
  // Adds a loop entry. `how` is the text of its other keys, such as "steps = 4, recompute = true".
  void loop(std::string_view ops, std::string_view dim, std::string_view how);
  void recompute(const std::string& tensors, bool yes = true);
  // Adds a store entry by which a share of the tensors' bytes rests in the tier. `fraction` and
  // `keep` are the values of the entry's keys of these names.
  void rest_in(const std::string& tensors, const std::string& tier, const std::string& fraction,
               const std::string& keep = "");
  // Adds a store entry that says how long gathered copies of the tensors are kept.
  void keep(const std::string& tensors, const std::string& keep);
  // Adds a store entry by which the copies that are kept for the backward pass are cut over these
  // axes. Does nothing if no axis has several ranks.
  void keep_over(const std::string& tensors, const std::string& axes);
  // Sets the dtype of the computation; "float32" changes nothing. With a narrower dtype, parameters
  // are wide masters of narrow copies and part of the optimizer state. So they are cut at rest over
  // the axes over which the optimizer state is cut, unless the plan says where parameters rest. A
  // narrow copy is then gathered once in each training step and kept for that step
  // (docs/strategies/data-parallel.md section 2).
  void compute_in(const std::string& dtype);
  std::string device_order_line() const;
  std::string str() const;
};

// Returns the size of `dim` in the forward ops that `pattern` selects; 0 if none has it.
int64_t size_of(const Graph& graph, const std::string& pattern, std::string_view dim);
bool has_dim(const Graph& graph, const std::string& pattern, std::string_view dim);
int64_t block_count(const Graph& graph);
// Returns the number of passes without gradient, whose ops are "pass.<p>.<...>".
int64_t pass_count(const Graph& graph);

// Returns patterns for the forward ops before the first block, and for those after the last block:
// the first components of their paths, or longer ones where both sides have the same component.
// Ops between two blocks are in neither list, because they get the stage of the op before them
// anyway.
std::pair<std::vector<std::string>, std::vector<std::string>> around_blocks(const Graph& graph);

// Returns patterns that together select exactly these forward ops. They are prefixes of paths, with
// ranges of numbers ("layers.[0-2]"). There is one exception: if the path of a wanted op is a
// prefix of the path of another op, that other op is selected, too.
std::vector<std::string> patterns_of(const Graph& graph, const std::vector<OpId>& ops);

// Returns patterns that select these ops and, if `dim` is not "", may also select ops
// that lack the dim. If every block has these ops, "*" stands for the number of the
// block: "blocks.*.attn.{row,start}".
std::vector<std::string> patterns_of(const Graph& graph, const std::vector<OpId>& ops,
                                     const std::string& dim);

// Returns the forward ops that the pattern selects by any prefix of their paths, as in a
// plan (selector.h).
std::vector<OpId> selected(const Graph& graph, const std::string& pattern);

// `Blocks` are the repeated blocks of a model in order, from which recipes make stages. Block i is
// the ops blocks.<i>.<...>. In a graph without such ops, a block is one repetition of the ops that
// repeat (graph/repeat.h).
class Blocks {
 public:
  explicit Blocks(const Graph& graph);
  int64_t count() const { return count_; }
  // Returns a pattern that selects `size` blocks, starting with block `first`: "blocks.[0-2]".
  std::string run(int64_t first, int64_t size) const;
  // Returns a pattern whose shortest matching prefixes are the blocks ("blocks.*"). If the ops of a
  // block have no common prefix, the pattern matches each part of the block that has one.
  std::string each() const;
  // `before` returns patterns of the ops before the first block, `after` those of the ops after the
  // last block.
  const std::vector<std::string>& before() const { return before_; }
  const std::vector<std::string>& after() const { return after_; }

 private:
  const Graph& graph_;
  std::vector<std::vector<OpId>> found_;  // the ops of each repetition; empty if blocks have names
  int64_t count_ = 0;
  std::vector<std::string> before_, after_;
};

// The functions below also take the repetitions as blocks in a graph without ops blocks.<i>.

// `Blocked` says for each op of a graph the number of its block. The number is -1 if the op is in
// no block, as for all backward and update ops. Ops blocks.<name>.<...> are in a block even if
// <name> is no number.
struct Blocked {
  explicit Blocked(const Graph& the_graph);
  bool holds(const Op& op) const { return block[op.id.index()] >= 0; }
  const Graph& graph;
  std::vector<int64_t> block;  // by op: number of its block
  bool named = true;           // blocks are found by paths; false: by repetition
};

// Returns one pattern that selects these ops of blocks; "" if there are none. If blocks have names,
// the pattern selects the ops of the same names in all blocks that `layers` matches:
// "blocks.*.attn.{q,k,v}". Else it selects exactly these ops; if `dim` is given, it may also select
// ops without the dim.
std::string pattern_in_blocks(const Blocked& blocks, const std::vector<OpId>& ops,
                              const std::string& dim = "", const std::string& layers = "*");

// Returns one pattern of the forward ops of blocks that have all dims of `with` ("heads,hidden")
// and lack the dim `without`, such as "blocks.*.attn.{q,k,v}"; "" if there is no such op. `layers`:
// a pattern of block numbers.
std::string ops_with(const Graph& graph, const std::string& with, const std::string& without = "",
                     const std::string& layers = "*");

// Returns "blocks.*.<scope>" if some op there has the dim. In a graph without ops blocks.<i>,
// returns a pattern of the ops of blocks that have the dim and lack the dim experts. Returns "" if
// there is no such op.
std::string scope_with(const Graph& graph, const std::string& scope, const std::string& dim,
                       const std::string& layers = "*");
// Returns the names among embed, head and loss whose ops have the dim vocab. In a graph without ops
// blocks.<i>, returns patterns of the ops with this dim before and after the blocks.
std::vector<std::string> scopes_with_vocab(const Graph& graph);

// Returns one pattern of the ops of blocks that have the dims `features` and hidden and sum over
// one of them: over hidden if `which` is kInto (products that make the features), over `features`
// if it is kOutOf (products that read them). Returns "" if there is no such op.
enum class Products : uint8_t { kInto, kOutOf };
std::string products(const Graph& graph, const std::string& features, Products which);

// Returns the paths of forward ops outside blocks that have all dims of `with`, each once.
std::vector<std::string> ops_outside(const Graph& graph, const std::string& with);
// Returns "loss". In a graph without ops blocks.<i>, returns the paths of the ops outside blocks
// that have the dim vocab and lack hidden (they come after the head), and of the ops that work on
// their results.
std::vector<std::string> loss_ops(const Graph& graph);

// Returns the name of an op inside its block: "attn.q" for the path "blocks.0.attn.q".
std::string name_in_block(const std::string& path);

// Returns one pattern that matches all these names, grouped by their scopes: "{ln_1,attn.{q,k}}".
std::string by_scope(const std::vector<std::string>& names);

// Returns one pattern that matches what any of the patterns matches: "a" or "{a,b}".
std::string alternatives(const std::vector<std::string>& patterns);

// ---- arguments of recipes
RecipeArgument number(std::string name, std::optional<std::string> otherwise, std::string meaning,
                      int64_t minimum = 1);
RecipeArgument flag(std::string name, bool otherwise, std::string meaning);
RecipeArgument choice(std::string name, std::string otherwise, std::vector<std::string> choices,
                      std::string meaning);
RecipeArgument precision_argument();
RecipeArgument device_order_argument();
RecipeArgument micro_batches_argument(std::optional<std::string> otherwise);
RecipeArgument dp_argument(std::optional<std::string> otherwise);
RecipeArgument tp_argument(std::optional<std::string> otherwise);
RecipeArgument pp_argument(std::optional<std::string> otherwise);

}  // namespace tessera::recipes
