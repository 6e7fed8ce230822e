// The tools of recipes: a plan text under construction and facts about the graph. A recipe takes
// only facts from the graph, which may be the forward graph alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/plan/recipes.h"

namespace tessera::recipes {

using Axes = std::vector<std::pair<std::string, int64_t>>;  // name and size, outermost first

// One entry of a list: keys and values, as they are written.
using Entry = std::vector<std::pair<std::string, std::string>>;

// A `Rotation` orders steps in time: aligned, or rotated by the coordinates on these axes.
struct Rotation {
  std::string skew;  // axes with commas between; "" = aligned
};

// A `PlanText` is a plan under construction. Lists of axes are written with commas between:
// "dp,row,time:4". Axes of size 1 are left out, and so are entries that then say nothing.
struct PlanText {
  std::vector<std::string> notes{};  // comments above the plan: deviations that the model requires
  Axes mesh{};
  int64_t micro_batches = 1;
  std::string schedule{};
  // Axes or devices with commas between, as the plan's key lists them; "": left out.
  std::string device_order{};
  std::string precision{};  // dtype of the computation; "": as the model
  std::string expand{};     // pattern
  std::string prefetch{};   // units whose tensors at rest are gathered ahead
  int64_t ahead = 1;        // units between the fetch and its reader
  std::string reorder{};    // "zigzag" or "striped", of `seq`
  int64_t pieces = 1;       // of the reorder
  std::vector<Entry> splits{}, pins{}, stores{};
  struct StageLine {
    std::string ops;
    int64_t at = 0;
    std::string mesh;     // the stage's own mesh; "": the text's, without the stage axis
    std::string devices;  // first device of its own mesh; "": behind the stage before
  };
  std::vector<StageLine> stages{};
  Axes stage_axes{};                 // of the stages' own meshes, beyond those of `mesh`
  std::vector<std::string> loops{};  // whole entries
  std::vector<int64_t> place{};      // empty: left out
  std::vector<Entry> compressed{};

  int64_t size(std::string_view axis) const;  // 1 if there is no such axis
  bool has(std::string_view axis) const { return size(axis) > 1; }
  int64_t product(const std::string& axes) const;  // of their sizes
  // Adds a split. Over nothing (""), it is written only if an earlier entry splits the same dim.
  void split(const std::string& ops, const std::string& dim, const std::string& over,
             const Rotation& rotation = {});
  // Pins ops to one coordinate of an axis; does nothing if the axis has one rank.
  void pin(const std::string& ops, const std::string& axis, int64_t at);
  // Adds a loop of as many steps as the axes have ranks, in which pieces go from each rank to the
  // next; several axes make rings in rings. Does nothing if there is one rank.
  void rotate(const std::string& ops, const std::string& dim, const std::string& axes);
  // Adds a store entry. A second call for the same tensors adds axes to the first entry.
  void store(const std::string& tensors, const std::string& over);
  // Adds a loop. `how`: the other keys, "steps = 4, recompute = true".
  void loop(std::string_view ops, std::string_view dim, std::string_view how);
  void recompute(const std::string& tensors, bool yes = true);
  // Lets a share of the tensors' bytes rest in the tier; `keep` as in the plan.
  void rest_in(const std::string& tensors, const std::string& tier, const std::string& fraction,
               const std::string& keep = "");
  // Says how long gathered copies are kept.
  void keep(const std::string& tensors, const std::string& keep);
  // Cuts the copies that are kept for the backward pass over these axes; writes nothing without an
  // axis.
  void keep_over(const std::string& tensors, const std::string& axes);
  // Sets the dtype of the computation; "float32" says nothing. With a narrower dtype the wide
  // masters of narrow copies rest where the optimizer state does, whose part they are in mixed
  // precision, unless the plan says where parameters rest; a copy is then gathered once a step and
  // kept for it (docs/strategies/data-parallel.md section 2).
  void compute_in(const std::string& dtype);
  std::string device_order_line() const;
  std::string str() const;
};

// Returns the size of `dim` in the forward ops that `pattern` selects; 0 if none has it.
int64_t size_of(const Graph& graph, const std::string& pattern, std::string_view dim);
bool has_dim(const Graph& graph, const std::string& pattern, std::string_view dim);
int64_t block_count(const Graph& graph);
int64_t pass_count(const Graph& graph);  // passes without gradient, "pass.<p>.<...>"

// Returns the first components of the paths of forward ops before the first block and after the
// last one. Ops between two blocks are in neither list: they go with the op before them.
std::pair<std::vector<std::string>, std::vector<std::string>> around_blocks(const Graph& graph);

// Returns patterns that together select exactly these forward ops: prefixes of paths, with ranges
// of numbers ("layers.[0-2]"). An op whose path is a prefix of another op's path is selected with
// that op.
std::vector<std::string> patterns_of(const Graph& graph, const std::vector<OpId>& ops);

// Returns patterns of those of the ops that have the dim ("": of all); they may select others too.
// Where every block has these ops, "*" stands for the numbers of blocks:
// "blocks.*.attn.{row,start}".
std::vector<std::string> patterns_of(const Graph& graph, const std::vector<OpId>& ops,
                                     const std::string& dim);

// Returns the forward ops that the pattern selects: by any prefix of a path, as in a plan.
std::vector<OpId> selected(const Graph& graph, const std::string& pattern);

// `Blocks` are the repeated blocks of a model in order, for stages: ops blocks.<i>.<...>, or, in a
// graph without such ops, what repeats in it (graph/repeat.h).
class Blocks {
 public:
  explicit Blocks(const Graph& graph);
  int64_t count() const { return count_; }
  // Returns a pattern of `size` blocks from `first` on: "blocks.[0-2]".
  std::string run(int64_t first, int64_t size) const;
  // Returns a pattern that matches every block once (or its pieces, if a block's ops share no
  // prefix).
  std::string each() const;
  // Returns patterns of the ops before the first block; `after` returns those behind the last one.
  const std::vector<std::string>& before() const { return before_; }
  const std::vector<std::string>& after() const { return after_; }

 private:
  const Graph& graph_;
  std::vector<std::vector<OpId>> found_;  // by repetition; empty: by name
  int64_t count_ = 0;
  std::vector<std::string> before_, after_;
};

// Below, the blocks of a graph without ops blocks.<i> are what repeats in it, too.

// `Blocked` has the block of each op of a graph, by number; -1: the op is in none (as backward and
// update ops). Ops blocks.<name>.<...> are in a block even if <name> is no number.
struct Blocked {
  explicit Blocked(const Graph& the_graph);
  bool holds(const Op& op) const { return block[op.id.index()] >= 0; }
  const Graph& graph;
  std::vector<int64_t> block;  // by op
  bool named = true;           // by their paths; false: by their repetition
};

// Returns these ops of blocks as one pattern; "" if there are none. If blocks have names, it also
// selects the ops of the same names in the other blocks that `layers` matches:
// "blocks.*.attn.{q,k,v}". Elsewhere it selects exactly these ops, or, with `dim`, these and others
// without the dim.
std::string pattern_in_blocks(const Blocked& blocks, const std::vector<OpId>& ops,
                              const std::string& dim = "", const std::string& layers = "*");

// Returns the forward ops of blocks that have all dims of `with` ("heads,hidden") and lack the dim
// `without`, as one pattern: "blocks.*.attn.{q,k,v}"; "" if there is none. `layers`: a pattern of
// block numbers.
std::string ops_with(const Graph& graph, const std::string& with, const std::string& without = "",
                     const std::string& layers = "*");

// Returns "blocks.*.attn" if some op there has the dim; in a graph without ops blocks.<i> the ops
// of blocks that have it and belong to no experts; "" if there is none.
std::string scope_with(const Graph& graph, const std::string& scope, const std::string& dim,
                       const std::string& layers = "*");
// Returns those of {embed,head,loss} that have the dim vocab; in a graph without ops blocks.<i>,
// patterns of the ops around its blocks.
std::vector<std::string> scopes_with_vocab(const Graph& graph);

// Returns, as one pattern, the ops of blocks with the dims `features` and hidden that sum over
// hidden (products into the features) or over `features` (products out of them); "" if there is
// none.
enum class Products : uint8_t { kInto, kOutOf };
std::string products(const Graph& graph, const std::string& features, Products which);

// Returns the paths of forward ops outside blocks that have all dims of `with`, each once.
std::vector<std::string> ops_outside(const Graph& graph, const std::string& with);
// Returns "loss"; in a graph without ops blocks.<i>, the ops outside blocks that have the dim vocab
// and not hidden (they come behind the head), and the ops that work on their results.
std::vector<std::string> loss_ops(const Graph& graph);

// Returns "attn.q" for "blocks.0.attn.q".
std::string name_in_block(const std::string& path);

// Returns names as one pattern, each once: "{ln_1,attn.{q,k}}".
std::string by_scope(const std::vector<std::string>& names);

// Returns "a" or "{a,b}".
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
