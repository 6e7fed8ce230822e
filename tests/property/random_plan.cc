#include "random_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "random_pipeline.h"
#include "tessera/base/check.h"
#include "tessera/graph/builder.h"
#include "tessera/graph/kinds.h"
#include "tessera/graph/order.h"
#include "tessera/graph/transform.h"
#include "tessera/plan/prepare.h"

namespace tessera {
namespace {

const OpDim* find_dim(const Op& op, const std::string& name) {
  const int d = op.annotation.find(name);
  return d < 0 ? nullptr : &op.annotation.dims[static_cast<size_t>(d)];
}

// Returns whether parts along the dim have weights, so that only the op can merge them.
bool is_weighted(const Op& op, const std::string& dim) {
  for (const OperandDims& output : op.annotation.outputs) {
    if (output.combiner == Combiner::kWeighted && !output.contains(op.annotation.find(dim)))
      return true;
  }
  return false;
}

bool expandable(const Op& op, const std::string& dim) {
  const KindInfo* kind = op.info;
  if (kind == nullptr || kind->expandable == nullptr) return false;
  const std::vector<std::string> names = kind->expandable(op);
  return std::find(names.begin(), names.end(), dim) != names.end();
}

// Returns whether a loop over a group of ops may cut this dim of the op.
bool loopable(const Op& op, const std::string& name) {
  const int dim = op.annotation.find(name);
  return dim >= 0 && check_loopable(op, dim).has_value();
}

class PlanMaker {
 public:
  PlanMaker(Choices& choices, const Graph& graph, Features& features, bool meshes)
      : c_(choices), graph_(graph), features_(features), meshes_(meshes) {}

  std::string make() {
    graph_features();
    at_ = random_pipeline(c_, graph_, features_, meshes_);
    find_common_axes();
    keys_ = at_.keys;
    if (meshes_) make_precision();
    make_keys();
    shape();
    make_loops();
    make_splits();
    make_backward_splits();
    make_pins();
    make_stores();
    make_tiers();
    return keys_ + tables_ + at_.tables;
  }

 private:
  void graph_features() {
    for (const Op& op : graph_.ops()) {
      if (info_of(op).work == WorkClass::kAttention)
        features_.insert(is_causal(op) ? "graph: causal attention" : "graph: attention");
      if (info_of(op).work == WorkClass::kScan) features_.insert("graph: state scan");
      if (info_of(op).work == WorkClass::kConvolution) features_.insert("graph: convolution");
      if (info_of(op).work == WorkClass::kRouting) features_.insert("graph: mixture");
      const OpDim* seq = find_dim(op, "seq");
      const bool along_seq = seq != nullptr && seq->mark == Mark::kFrozen;
      if (along_seq && info_of(op).work == WorkClass::kNorm) features_.insert("graph: batch norm");
      if (seq != nullptr && seq->window && info_of(op).work != WorkClass::kConvolution)
        features_.insert("graph: pool");
      if (op.path.ends_with(".sum") && info_of(op).merges == Combiner::kSum)
        features_.insert("graph: skip connection");
      if (op.path == "pass.embed") features_.insert("graph: earlier pass");
    }
    const auto readers = graph_.consumers();
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.role == Role::kParameter && readers[tensor.id.index()].size() > 1)
        features_.insert("graph: shared parameter");
    }
  }

  // Finds the axes that all stages have.
  void find_common_axes() {
    for (const Axis& axis : at_.axes[0]) {
      const bool common = std::all_of(at_.axes.begin(), at_.axes.end(), [&](const MeshAxes& axes) {
        return std::any_of(axes.begin(), axes.end(),
                           [&](const Axis& other) { return other.name == axis.name; });
      });
      if (common) common_.push_back(axis);
    }
  }

  void make_keys() {
    if (c_.one_in(3)) {
      keys_ += "bucket_bytes = 256\n";
      features_.insert("buckets");
    }
    if (at_.axes.size() > 1 && c_.one_in(2)) {
      const auto how = c_.of<std::string>({"direct", "gather"});
      keys_ += fmt::format("resharding = \"{}\"\n", how);
      features_.insert("resharding: " + how);
    }
    if (c_.one_in(5)) {
      keys_ += fmt::format("prefetch = {{ units = \"{}\", ahead = {} }}\n",
                           c_.of<std::string>({"op*", "*", "{embed,op[0-3]}"}), 1 + c_.below(3));
      features_.insert("prefetch");
    }
    const int64_t seq = graph_.tensor(graph_.ops()[0].inputs[0]).dims[1].size;
    if (at_.loop_dim.empty() && reorder_dim(graph_, "seq", "striped:1") && c_.one_in(4)) {
      const bool zigzag = c_.one_in(2);
      const int64_t pieces = zigzag ? 2 * (1 + c_.below(static_cast<uint32_t>(seq / 2)))
                                    : 1 + c_.below(static_cast<uint32_t>(seq));
      keys_ += fmt::format("reorder = [ {{ dim = \"seq\", as = \"{}\", pieces = {} }} ]\n",
                           zigzag ? "zigzag" : "striped", pieces);
      features_.insert(zigzag ? "reorder: zigzag" : "reorder: striped");
    }
    std::vector<std::string> expand;
    for (const Op& op : graph_.ops()) {
      const KindInfo* kind = op.info;
      if (kind->expand && kind->expandable == nullptr && at_.loop_dim.empty() && c_.one_in(3))
        expand.push_back('"' + op.path + '"');
    }
    if (expand.empty()) return;
    const std::string line = fmt::format("expand = [{}]\n", fmt::join(expand, ", "));
    // Attention with a bias takes its sequence in any order; the sum with the bias, into which it
    // is taken apart, does not.
    if (!shape_forward(graph_, parse_plan(keys_ + line).value(), std::nullopt)) return;
    keys_ += line;
    features_.insert("expand");
  }

  // Makes the forward graph for which splits and loops are drawn.
  void shape() {
    const auto plan = parse_plan(keys_);
    TESSERA_CHECK(plan.has_value(), "{}\n{}", plan.error().message, keys_);
    auto shaped = shape_forward(graph_, *plan, std::nullopt);
    TESSERA_CHECK(shaped.has_value(), "{}", shaped.error().message);
    shaped_ = std::move(*shaped);
    for (const Op& op : shaped_.ops()) {
      const int from = origin(graph_, op.path);
      stage_.push_back(from < 0 ? -1 : at_.stage_of[static_cast<size_t>(from)]);
    }
  }

  // ---- loops
  struct Loop {
    std::string dim;
    std::vector<bool> ops;     // of the shaped graph
    int64_t smallest = 1;      // piece
    std::optional<Axis> axis;  // an axis that may split the dim, beside the loop
    bool causal = false;       // if so, any axis may split it
  };

  void make_loops() {
    if (!at_.loop_dim.empty()) {
      Loop loop{at_.loop_dim, {}, 1, std::nullopt, false};
      int64_t size = 0;
      for (const Op& op : shaped_.ops()) {
        const OpDim* dim = find_dim(op, loop.dim);
        loop.ops.push_back(dim != nullptr);
        if (dim != nullptr) size = dim->size;
        loop.causal = loop.causal ||
                      (dim != nullptr &&
                       position_rule(op, op.annotation.find(loop.dim)) == PositionRule::kCausal);
      }
      loop.smallest = size / at_.loop_steps;
      loops_.push_back(loop);
      return;
    }
    // A loop may move sums of gradients and reorderings of inputs to other stages.
    const bool moves =
        graph_.ops()[0].path == "pass.embed" || shaped_.find_tensor("tokens.reorder").valid();
    if (moves && at_.axes.size() > 1) return;
    const uint32_t count = c_.one_in(meshes_ ? 2 : 4) ? 1 + c_.below(2) : 0;
    const Features known = features_;
    for (uint32_t i = 0; i < count; ++i) make_loop();
    if (loops_.empty() || !at_.has_table || fits_table()) return;
    loops_.clear();
    tables_.clear();
    features_ = known;
  }

  // A loop cuts the tensors that enter it; then a stage without a backward pass may get one.
  bool fits_table() const {
    const auto backward = [&](const std::string& text) {
      const auto plan = parse_plan(text);
      TESSERA_CHECK(plan.has_value(), "{}\n{}", plan.error().message, text);
      return with_backward(graph_, at_, *plan, static_cast<int64_t>(at_.axes.size()));
    };
    return backward(keys_ + at_.tables) == backward(keys_ + tables_ + at_.tables);
  }

  void make_loop() {
    std::set<std::string> dims;
    for (const Op& op : shaped_.ops()) {
      for (const OpDim& dim : op.annotation.dims) {
        const bool of_batch = dim.name == "batch" && at_.micro_batches > 1;
        if (!of_batch && dim.size > 1 && !dim.literal() && loopable(op, dim.name))
          dims.insert(dim.name);
      }
    }
    for (const Loop& loop : loops_) dims.erase(loop.dim);
    dims.erase("kv");
    if (dims.empty()) return;
    const std::vector<std::string> names(dims.begin(), dims.end());
    Loop loop;
    loop.dim = c_.one_in(2) ? c_.of<std::string>({"batch", "seq", "heads"}) : c_.of(names);
    if (!dims.contains(loop.dim)) loop.dim = c_.of(names);
    std::vector<std::string> paths;
    int64_t size = 0;
    const bool all = c_.one_in(2);
    for (const Op& op : shaped_.ops()) {
      const bool wanted = all || c_.one_in(2);
      loop.ops.push_back(wanted && selectable(op, loop.dim) && !looped(op) &&
                         (size == 0 || find_dim(op, loop.dim)->size == size));
      if (!loop.ops.back()) continue;
      paths.push_back(op.path);
      size = find_dim(op, loop.dim)->size;
      for (const OpDim& dim : op.annotation.dims)
        loop.causal = loop.causal || dim.causal_of == op.annotation.find(loop.dim);
    }
    if (paths.empty()) return;
    write_loop(loop, size, paths);
  }

  // A selector also takes the ops into which an op was taken apart, and reorderings of its
  // operands. So does a split of the op, whose ranks need not divide the steps of the ops below it.
  bool selectable(const Op& op, const std::string& dim) const {
    const auto below = [](const Op& a, const Op& b) { return a.path.starts_with(b.path + "."); };
    return loopable(op, dim) &&
           std::all_of(shaped_.ops().begin(), shaped_.ops().end(), [&](const Op& other) {
             return (!below(other, op) && !below(op, other)) || find_dim(other, dim) == nullptr;
           });
  }

  bool looped(const Op& op) const {
    return std::any_of(loops_.begin(), loops_.end(),
                       [&](const Loop& loop) { return loop.ops[op.id.index()]; });
  }

  bool reads_index_over(const Loop& loop) const {
    return std::any_of(shaped_.ops().begin(), shaped_.ops().end(), [&](const Op& op) {
      return loop.ops[op.id.index()] &&
             position_rule(op, op.annotation.find(loop.dim)) == PositionRule::kWithin;
    });
  }

  void write_loop(Loop loop, int64_t size, const std::vector<std::string>& paths) {
    int64_t steps = std::min<int64_t>(size, 2 + c_.below(3));
    std::string text =
        fmt::format("[[loop]]\nops = \"{{{}}}\"\ndim = \"{}\"\n", fmt::join(paths, ","), loop.dim);
    if (!common_.empty() && !reads_index_over(loop) && c_.one_in(2)) loop.axis = c_.of(common_);
    int64_t shards = 1;
    if (loop.axis) {  // the axis as every stage has it
      for (const MeshAxes& axes : at_.axes) {
        for (const Axis& axis : axes) {
          if (axis.name == loop.axis->name) shards = std::lcm(shards, axis.size);
        }
      }
      if (size % shards != 0) loop.axis.reset();
      if (!loop.axis) shards = 1;
      steps = std::min(steps, size / shards);
    }
    if (!loop.axis && c_.one_in(2)) {
      std::vector<int64_t> sizes;
      for (int64_t left = size; left > 0; left -= sizes.back())
        sizes.push_back(1 + c_.below(static_cast<uint32_t>(left)));
      loop.smallest = *std::min_element(sizes.begin(), sizes.end());
      text += fmt::format("sizes = [{}]\n", fmt::join(sizes, ", "));
      features_.insert("loop: sizes");
    } else {
      // Each step takes a part of every shard, and ops that join the steps have that many blocks.
      loop.smallest = shards > 1 ? shards : size / steps;
      text += fmt::format("steps = {}\n", steps);
    }
    if (c_.one_in(3)) {
      text += "recompute = true\n";
      features_.insert("loop: recompute");
    }
    const bool named = loop.dim == "batch" || loop.dim == "seq" || loop.dim == "heads";
    features_.insert("loop: " + (named ? loop.dim : std::string("features")));
    tables_ += text;
    loops_.push_back(std::move(loop));
  }

  // ---- splits
  // Returns the most steps that a time loop over the dim may have; loops shorten it.
  int64_t most_steps(const OpDim& dim) const {
    int64_t size = dim.name == "batch" ? dim.size / at_.micro_batches : dim.size;
    for (const Loop& loop : loops_) {
      if (loop.dim == dim.name || (loop.dim == "seq" && dim.name == "kv"))
        size = std::min(size, loop.smallest);
    }
    return size;
  }

  bool may_split(size_t op, const std::string& dim, const Axis& axis) const {
    return std::all_of(loops_.begin(), loops_.end(), [&](const Loop& loop) {
      return loop.dim != dim || op >= loop.ops.size() || !loop.ops[op] || loop.causal ||
             (loop.axis && loop.axis->name == axis.name);
    });
  }

  bool in_loop(size_t op, const std::string& dim) const {
    return std::any_of(loops_.begin(), loops_.end(), [&](const Loop& loop) {
      return loop.dim == dim && op < loop.ops.size() && loop.ops[op];
    });
  }

  // Draws the axes of a loop that is not aligned: order and skew.
  std::string skewed(const MeshAxes& axes, int64_t most, int64_t& steps) {
    const bool nested = c_.one_in(3);
    MeshAxes skew{c_.of(axes)};
    if (axes.size() > 1 && c_.one_in(2)) {
      skew.push_back(axes[0].name == skew[0].name ? axes[1] : axes[0]);
    }
    int64_t product = 1;
    for (const Axis& axis : skew) product *= axis.size;
    if (nested && (product > most || product == 1)) return "";
    if (nested) steps = product;
    const bool falls = c_.one_in(2);
    std::vector<std::string> names;
    for (const Axis& axis : skew) {
      const bool minus = nested && skew.size() > 1 ? c_.one_in(2) : falls;
      names.push_back(fmt::format("\"{}{}\"", minus ? "-" : "", axis.name));
    }
    const std::string order = nested ? "nested" : "rotated";
    features_.insert("order: " + order + (skew.size() > 1 ? " over two axes" : ""));
    if (!nested && falls) features_.insert("order: rotated, falling");
    return fmt::format("order = \"{}\"\nskew = [{}]\n", order, fmt::join(names, ", "));
  }

  struct Drawn {
    std::string over, extra;
  };
  struct OpLoops {  // over time, of one op
    bool steps = false, rims = false;
  };
  // Draws how one dim is split; takes axes from `free`.
  Drawn draw_split(const Op& op, size_t index, const OpDim& dim, const MeshAxes& axes,
                   MeshAxes& free, OpLoops& loops) {
    std::vector<std::string> over;
    const bool over_time_only = is_weighted(op, dim.name);
    Drawn out;
    while (!over_time_only && !free.empty() && c_.one_in(3)) {
      const size_t pick = c_.below(static_cast<uint32_t>(free.size()));
      if (!may_split(index, dim.name, free[pick])) break;
      over.push_back('"' + free[pick].name + '"');
      free.erase(free.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    const int64_t most = most_steps(dim);
    const size_t over_axes = over.size();
    if (over_axes == 1) features_.insert("split: one axis");
    if (over_axes == 2) features_.insert("split: two axes");
    if (over_axes > 0 && dim.mark == Mark::kFrozen) features_.insert("split: frozen dim");
    if (over_axes > 0 && dim.window) features_.insert("split: dim read through windows");
    if (over_axes > 0 && in_loop(index, dim.name)) features_.insert("loop: split over an axis");
    // Pieces of a dim that is read through windows do not move around rings.
    if (!loops.steps && !loops.rims && most >= 2 && c_.one_in(5)) {
      int64_t steps = std::min<int64_t>(most, c_.of<int64_t>({2, 3, 4}));
      if (!dim.window && c_.one_in(2)) out.extra = skewed(axes, most, steps);
      over.push_back(fmt::format("\"time:{}\"", steps));
      loops.steps = true;
      features_.insert(over_axes > 0 ? "split: axis and time" : "split: time");
      if (over_time_only) features_.insert("split: keys over time");
    }
    const bool cut = over_axes > 0 && over.size() == over_axes;
    if (cut && dim.window && !loops.steps && c_.one_in(2)) {
      over.emplace_back("\"time:rims\"");
      features_.insert("split: rims");
      loops.rims = true;
    }
    // The halo that readers with windows need is computed, not sent.
    if (cut && has_windows() && c_.one_in(2)) {
      out.extra += "halo = \"compute\"\n";
      features_.insert("split: halo computed");
    }
    out.over = fmt::format("{}", fmt::join(over, ", "));
    return out;
  }

  bool has_windows() const {
    return std::any_of(shaped_.ops().begin(), shaped_.ops().end(), [](const Op& op) {
      return std::any_of(op.annotation.dims.begin(), op.annotation.dims.end(),
                         [](const OpDim& dim) { return dim.window.has_value(); });
    });
  }

  static bool splittable(const Op& op, const OpDim& dim) {
    if (dim.mark == Mark::kFrozen && !expandable(op, dim.name)) return false;
    return !dim.name.empty() && !dim.literal();
  }

  void make_splits() {
    for (const Op& op : shaped_.ops()) {
      const int stage = stage_[op.id.index()];
      if (stage < 0 || op.kind == "reorder") continue;  // a reorder is split with its op
      const MeshAxes& axes = at_.axes[static_cast<size_t>(stage)];
      if (axes.empty()) continue;
      MeshAxes free = axes;
      OpLoops loops;
      for (const OpDim& dim : op.annotation.dims) {
        if (!splittable(op, dim)) continue;
        const Drawn drawn = draw_split(op, op.id.index(), dim, axes, free, loops);
        if (drawn.extra.starts_with("order")) skewed_.insert(op.path);
        if (drawn.over.empty()) continue;
        tables_ += fmt::format("[[split]]\nops = \"{}\"\ndim = \"{}\"\nover = [{}]\n{}", op.path,
                               dim.name, drawn.over, drawn.extra);
      }
    }
  }

  // Splits a backward op otherwise than its forward op.
  void make_backward_splits() {
    if (!loops_.empty() || !c_.one_in(3)) return;
    const auto graph = differentiate(shaped_, OptimizerSpec{});
    TESSERA_CHECK(graph.has_value(), "{}", graph.error().message);
    for (const Op& op : graph->ops()) {
      if (op.phase != Phase::kBackward || !op.mirror.valid() || !c_.one_in(5)) continue;
      const bool prefix =
          std::any_of(graph->ops().begin(), graph->ops().end(), [&](const Op& other) {
            return other.phase == Phase::kBackward && other.path.starts_with(op.path + ".");
          });
      const int stage = stage_[op.mirror.index()];
      if (prefix || stage < 0 || op.kind == "reorder") continue;
      if (op.kind == "add_n") continue;  // sums may be in another stage
      const MeshAxes& axes = at_.axes[static_cast<size_t>(stage)];
      if (axes.empty()) continue;
      MeshAxes free = axes;
      OpLoops loops;
      for (const OpDim& dim : op.annotation.dims) {
        if (!splittable(op, dim)) continue;
        const Drawn drawn = draw_split(op, shaped_.ops().size(), dim, axes, free, loops);
        if (drawn.extra.starts_with("order")) skewed_.insert(graph->op(op.mirror).path);
        tables_ += fmt::format(
            "[[split]]\nops = \"{}\"\nphase = \"backward\"\ndim = \"{}\"\nover = [{}]\n{}", op.path,
            dim.name, drawn.over, drawn.extra);
        features_.insert("split: backward");
      }
    }
  }

  // ---- pins
  // Pins a few ops to one coordinate of an axis, with all ops that the selector also takes.
  void make_pins() {
    if (!loops_.empty() || !c_.one_in(4)) return;
    for (const Op& op : shaped_.ops()) {
      const int stage = stage_[op.id.index()];
      if (stage < 0 || op.annotation.dims.empty() || !c_.one_in(4)) continue;
      const MeshAxes& axes = at_.axes[static_cast<size_t>(stage)];
      const bool skewed = std::any_of(skewed_.begin(), skewed_.end(), [&](const std::string& path) {
        return path == op.path || path.starts_with(op.path + ".");
      });
      if (axes.empty() || skewed) continue;
      const Axis& axis = c_.of(axes);
      tables_ += fmt::format("[[pin]]\nops = \"{}\"\naxis = \"{}\"\nat = {}\n", op.path, axis.name,
                             c_.below(static_cast<uint32_t>(axis.size)));
      features_.insert("pin");
    }
  }

  // ---- stores
  std::string over_text(const MeshAxes& axes) {
    MeshAxes over{c_.of(axes)};
    if (axes.size() > 1 && c_.one_in(3))
      over.push_back(axes[0].name == over[0].name ? axes[1] : axes[0]);
    if (over.size() > 1) features_.insert("store: two axes");
    std::vector<std::string> names;
    for (const Axis& axis : over) names.push_back('"' + axis.name + '"');
    return fmt::format("over = [{}]\n", fmt::join(names, ", "));
  }

  // Returns an entry with only the first of its axes: `over = ["a"]`.
  static std::string first_of(const std::string& over) {
    const size_t comma = over.find(',');
    return comma == std::string::npos ? over : over.substr(0, comma) + "]\n";
  }

  // `over`: the axes, some of which may be left out in the kept copy.
  std::string keep_text(const std::string& over = "") {
    if (!c_.one_in(2)) return "";
    if (!over.empty() && c_.one_in(2)) {
      features_.insert("store: keep over");
      return "keep_" + over;
    }
    const auto keep = c_.of<std::string>({"block", "micro_batch", "step"});
    if (keep != "block") features_.insert("store: keep " + keep);
    return fmt::format("keep = \"{}\"\n", keep);
  }

  void make_tiers() {
    for (const char* role : {"optimizer_state", "gradient", "parameter", "activation"}) {
      if (!c_.one_in(10)) continue;
      const auto tier = c_.of<std::string>({"host", "disk"});
      features_.insert("store: tier " + tier);
      tables_ += fmt::format("[[store]]\ntensors = \"role:{}\"\ntier = \"{}\"\n", role, tier);
      if (c_.one_in(2))
        tables_ += fmt::format("fraction = {}\n", c_.of<std::string>({"0.3", "0.7", "1.0"}));
      tables_ += keep_text();
    }
  }

  // Parameters are cast to the type in which ops compute, and their gradients back, by ops that no
  // entry of the plan names.
  void make_precision() {
    const auto compute = c_.of<std::string>({"", "bfloat16", "bfloat16", "float16", "float32"});
    if (compute.empty()) return;
    std::string text = fmt::format("compute = \"{}\"", compute);
    if (c_.one_in(4)) text += fmt::format(", gradient = \"{}\"", compute);
    if (c_.one_in(4)) text += ", parameter = \"bfloat16\"";
    if (c_.one_in(4)) text += ", state = \"float32\"";
    keys_ += fmt::format("precision = {{ {} }}\n", text);
    features_.insert("precision: " + compute);
  }

  // Writes stores of all tensors of a role over axes of one stage that first reads a parameter.
  // Tensors of other stages rest as they would without the stores.
  void make_mixed_stores() {
    const auto readers = graph_.consumers();
    std::vector<MeshAxes> homes;
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.role != Role::kParameter) continue;
      const OpId first = readers[tensor.id.index()].front();
      const MeshAxes& axes = at_.axes[static_cast<size_t>(at_.stage_of[first.index()])];
      if (!axes.empty()) homes.push_back(axes);
    }
    for (const std::string role : {"optimizer_state", "gradient", "parameter"}) {
      if (homes.empty() || !c_.one_in(2)) continue;
      tables_ += fmt::format("[[store]]\ntensors = \"role:{}\"\n{}", role, over_text(c_.of(homes)));
      features_.insert("store: " + role);
    }
  }

  void make_stores() {
    if (meshes_) {
      make_mixed_stores();
    } else if (!common_.empty()) {
      for (const std::string role : {"optimizer_state", "gradient", "parameter", "input"}) {
        if (!c_.one_in(3)) continue;
        const std::string over = over_text(common_);
        tables_ += fmt::format("[[store]]\ntensors = \"role:{}\"\n{}", role, over);
        if (role == "parameter") {
          const std::string keep = keep_text(first_of(over));
          keeps_over_ = keep.starts_with("keep_over");
          tables_ += keep;
        }
        features_.insert("store: " + role);
      }
    }
    make_parameter_stores();
    for (const Op& op : graph_.ops()) {
      if (!c_.one_in(12) || op.id == graph_.tensor(graph_.loss).producer) continue;
      const Tensor& tensor = graph_.tensor(op.outputs[0]);
      if (!shaped_.find_tensor(tensor.name).valid()) continue;  // taken apart
      tables_ += fmt::format("[[store]]\ntensors = \"{}\"\nrecompute = true\n", tensor.name);
      features_.insert("store: recompute");
    }
  }

  // Stores single parameters, with the dim that is cut.
  void make_parameter_stores() {
    const auto readers = graph_.consumers();
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.role != Role::kParameter || !c_.one_in(meshes_ ? 4 : 8)) continue;
      const OpId first = readers[tensor.id.index()].front();
      const MeshAxes& axes = at_.axes[static_cast<size_t>(at_.stage_of[first.index()])];
      if (axes.empty()) continue;
      const std::string over = over_text(axes);
      const std::string of = meshes_ ? c_.of<std::string>({"", "grad.", "optimizer.*."}) : "";
      tables_ += fmt::format("[[store]]\ntensors = \"{}{}\"\n{}", of, tensor.name, over);
      if (!of.empty()) continue;
      tables_ += fmt::format("dim = \"{}\"\n", c_.of(tensor.dims).name);
      const std::string keep = keep_text();
      // If the entry of all parameters says keep_over, its axes need not be among the parameter's
      // own: so the parameter says its own, which goes with every keep except "block".
      if (keeps_over_) tables_ += "keep_" + first_of(over);
      if (!keeps_over_ || keep.find("block") == std::string::npos) tables_ += keep;
      features_.insert("store: dim");
    }
  }

  bool keeps_over_ = false;       // whether the entry of all parameters says keep_over
  std::set<std::string> skewed_;  // paths of ops in loops that some axis skews
  Choices& c_;
  const Graph& graph_;
  Features& features_;
  bool meshes_;
  Pipeline at_;
  MeshAxes common_;
  Graph shaped_;
  std::vector<int> stage_;  // by op of the shaped graph
  std::vector<Loop> loops_;
  std::string keys_, tables_;
};

}  // namespace

std::string random_plan(Choices& choices, const Graph& graph, Features& features, bool meshes) {
  return PlanMaker(choices, graph, features, meshes).make();
}

}  // namespace tessera
