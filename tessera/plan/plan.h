// The plan says where and when a graph is computed. It is a TOML text, which people, recipes and
// planners write in the same form. Its reference is docs/reference/plan-language.md.
//
//   mesh = { pp = 2, dp = 2, tp = 2 }
//   micro_batches = 8
//   schedule = "1f1b"
//   precision = { compute = "bfloat16" }
//   split = [
//     { ops = "*",            dim = "batch", over = "dp" },
//     { ops = "blocks.*.mlp", dim = "ffn",   over = "tp" },    # also over = "time:4",
//   ]                                                          # order = "rotated"
//   pin = [
//     { ops = "tables.3", axis = "dp", at = 1 },               # on one coordinate of an axis alone
//   ]
//   stage = [
//     { ops = "blocks.[0-5]",  at = 0 },                       # an own mesh: mesh = { tp = 4 },
//     { ops = "blocks.[6-11]", at = 1 },                       # devices = 0
//   ]
//   store = [
//     { tensors = "optimizer.*", over = "dp" },                # also dim = "...", tier = "host",
//   ]                                                          # recompute = true
//
// A plan is used in two steps. parse_plan checks the text without a graph. resolve applies the plan
// to a graph and checks selectors, dims and sizes:
//
//   TESSERA_TRY(Plan plan, parse_plan(text, "plan.toml"));
//   TESSERA_TRY(ResolvedPlan resolved, resolve(plan, graph));
//
// If two entries say something about the same dim of an op, or about the same key of a tensor, the
// later entry counts. Every error is one line with file:line and the nearest valid name. All types
// are values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/codec.h"
#include "tessera/base/result.h"
#include "tessera/base/shared.h"
#include "tessera/cluster/mesh.h"
#include "tessera/graph/graph.h"
#include "tessera/graph/precision.h"
#include "tessera/plan/device_order.h"
#include "tessera/plan/of_place.h"
#include "tessera/plan/outer_steps.h"
#include "tessera/plan/schedules/schedule.h"

namespace tessera {

// A `StepOrder` says which piece a rank works on at step t of a time loop of q steps, where c are
// the rank's coordinates on the skew axes:
//   aligned  piece t, on every rank
//   rotated  piece (t + sum of c) mod q; with axes written with a minus (sum of c - t) mod q
//   nested   t and the piece are written with one digit for each axis, outermost first, and q is
//            the product of the axes' sizes n. On each axis, the digit of the piece is
//            (c + d) mod n, where d is the digit of t; with a minus it is (c - d) mod n
enum class StepOrder : uint8_t { kAligned, kRotated, kNested };
enum class Tier : uint8_t { kDevice, kHost, kDisk };
std::string_view tier_name(Tier tier);
// A `Keep` says how long a copy of a tensor in another layout or tier is kept: as long as its block
// needs it, from the forward to the backward pass of a micro-batch, or for the whole step.
enum class Keep : uint8_t { kBlock, kMicroBatch, kStep };
std::string_view keep_name(Keep keep);

// ---- as written

// In the entries below, `line` is the line of the plan text, which == ignores.
struct SplitEntry {
  std::string ops;  // glob over op paths; matches a path or any dotted prefix of it
  // The entry selects only ops of this phase. Unset: forward ops, whose backward ops inherit
  // the split.
  std::optional<Phase> phase;
  std::string dim;
  std::vector<std::string> over;  // axis names, outermost first; empty: the dim is not split
  int64_t steps = 1;              // "time:4" -> 4; each rank loops over its piece of the axes' cut
  StepOrder order = StepOrder::kAligned;
  // Axes whose coordinates shift a rotated or nested loop. With a minus, as "-cp", the number of
  // the piece falls from step to step.
  std::vector<std::string> skew;
  bool rims = false;  // "time:rims": the interior first, then the rims (halos.h)
  // halo = "compute": each rank computes the halo of the ops' outputs instead of receiving it.
  bool computes_halo = false;
  int line = 0;
  friend bool operator==(const SplitEntry& a, const SplitEntry& b);
};
// A `PinEntry` selects ops that only the ranks at one coordinate of an axis compute, for example
// the look-ups of an embedding table that is on one device.
struct PinEntry {
  std::string ops;             // as in SplitEntry
  std::optional<Phase> phase;  // as in SplitEntry
  std::string axis;
  int64_t at = 0;
  int line = 0;
  friend bool operator==(const PinEntry& a, const PinEntry& b);
};
struct StageEntry {
  std::string ops;
  int64_t at = 0;
  // The stage's own mesh; empty: the plan's without the stage axis.
  std::vector<std::pair<std::string, int64_t>> mesh;
  // First device of its own mesh; unset: after those of the stage before.
  std::optional<int64_t> devices;
  DeviceOrder device_order;  // names axes of its own mesh
  int line = 0;
  friend bool operator==(const StageEntry& a, const StageEntry& b);
};
// A `RowCacheRule` describes the cache of a tensor that rests on the host or on disk
// (docs/strategies/row-cache.md). Some of its rows (indices of its first dim) are on the device, in
// slots. Ops that name rows by ids read and change these rows there. A table and its optimizer
// states have one cache, so a row is moved together with its states.
struct RowCacheRule {
  double slots = 0;  // rows in the cache of a rank; below 1: as a share of the rank's rows
  std::string policy = "lookahead";  // decides which row leaves the cache
  int64_t window = 8;                // number of coming batches whose ids the policy sees
  int64_t counted = 0;               // first batches whose ids are counted before the run
  bool prefetch = true;              // rows of the next batch come while this batch runs
  double zipf = 1.05;  // exponent of Zipf's law, which the simulator assumes for the ids
  friend bool operator==(const RowCacheRule&, const RowCacheRule&) = default;
};
const std::vector<std::string>& row_cache_policies();  // the values of `policy`
struct StoreEntry {
  std::string tensors;  // glob over tensor names, or "role:parameter" and so on
  // Axes over which the tensor is sharded at rest, in addition to its default home.
  std::optional<std::vector<std::string>> over;
  // The tensor dim that the axes in `over` cut. Unset: the dim by the rule in
  // docs/reference/plan-language.md.
  std::optional<std::string> dim;
  std::optional<Tier> tier;
  // The share of the bytes of the selected tensors to which `tier` and `keep` apply. The share is
  // made of whole tensors, and the tensors whose first use in the step is latest are taken first. A
  // parameter's gradient and optimizer state count as used when the parameter is.
  std::optional<double> fraction;
  std::optional<bool> recompute;
  std::optional<Keep> keep;
  // The axes over which the copy that `keep` keeps stays cut. They are among the axes over which
  // the tensor at rest is cut.
  std::optional<std::vector<std::string>> keep_over;
  std::optional<RowCacheRule> cache;  // only together with `tier`
  int line = 0;
  friend bool operator==(const StoreEntry& a, const StoreEntry& b);
};
// An edge is a way on which a tensor may be compressed: one kind of collective, or the messages
// between places. It is a number: that of the CollectiveKind, or kSendEdge for messages.
inline constexpr size_t kEdges = kCollectiveKinds + 1;
inline constexpr size_t kSendEdge = kCollectiveKinds;
std::string_view edge_name(size_t edge);  // "all_reduce", ..., "send"
struct CompressEntry {
  std::string tensors;  // as in StoreEntry
  std::string on;       // an edge_name, or "*"
  Compression with;
  int line = 0;
  friend bool operator==(const CompressEntry& a, const CompressEntry& b);
};
// A `LoopEntry` is a time loop whose steps each run a whole group of ops. A split entry with
// "time:N" instead makes each selected op a loop of its own.
struct LoopEntry {
  std::string ops;
  std::string dim;
  int64_t steps = 0;           // number of even pieces, the first ones larger; 0: `sizes` are given
  std::vector<int64_t> sizes;  // sizes of the pieces, in order
  bool recompute = false;      // keep none of the tensors that are made inside a step
  bool stages = false;         // each step goes through stages of its own
  int line = 0;
  friend bool operator==(const LoopEntry& a, const LoopEntry& b);
};
// A `ReorderEntry` puts a dim of the forward graph in another order before differentiation.
struct ReorderEntry {
  std::string dim;
  std::string as;      // "zigzag", "striped"; graph/order.h
  int64_t pieces = 1;  // pieces into which the dim is cut
  int line = 0;
  std::string order() const;  // "zigzag:8"
  friend bool operator==(const ReorderEntry& a, const ReorderEntry& b);
};
// A `Prefetch` says when the tensors at rest that a unit of ops reads are gathered: while the unit
// that is `ahead` units earlier in the program computes. So the tensors of ahead + 1 units are
// gathered at the same time. All ops form one unit whose paths have the same shortest prefix that
// the glob `units` matches ("blocks.*": the units blocks.0, blocks.1, ...).
struct Prefetch {
  std::string units;
  int64_t ahead = 1;
  friend bool operator==(const Prefetch&, const Prefetch&) = default;
};
struct Plan {
  std::string file = "<plan>";
  std::vector<std::pair<std::string, int64_t>> mesh;  // row-major, last fastest
  DeviceOrder device_order;  // the devices of the ranks; empty: rank r is on device r
  int64_t micro_batches = 1;
  std::string micro_batch_dim = "batch";
  std::string stage_axis = "pp";
  std::vector<int64_t> place;  // by stage: coordinate on the stage axis; empty: stage mod its size
  std::string schedule = "1f1b";  // a name (schedule.h); unused with `schedule_table`
  Schedule schedule_table;        // by place, as written in the plan; empty: `schedule` is used
  int64_t bucket_bytes = 25 << 20;
  std::optional<Prefetch> prefetch;
  std::optional<OuterSteps> outer;  // the first axis has islands with outer steps
  // Bytes of device memory in which a rank keeps copies of tensors that rest on the host or on disk
  // from one use to the next. It keeps the copies whose next use comes soonest.
  int64_t resident_bytes = 0;
  // How replicas at other stages get a tensor; also "direct", "gather".
  std::string resharding = "auto";
  // The execution style (cost/style.h) for which a planner found the plan; "": none is said. It
  // changes nothing in the program. Commands that price the plan take it as the default of --style.
  std::string style;
  std::vector<SplitEntry> splits;
  std::vector<PinEntry> pins;  // applied after the splits: the axis of a pin does not cut the op
  std::vector<StageEntry> stages;
  std::vector<StoreEntry> stores;
  std::vector<CompressEntry> compress;
  Precision precision;           // dtypes and loss scale
  std::vector<LoopEntry> loops;  // applied in order (shape_forward, prepare.h)
  std::vector<ReorderEntry> reorders;
  std::vector<std::string> expand;  // globs over paths of forward ops that are to be taken apart
  // Lines of the keys in the text; 0: the text does not have the key.
  int micro_batches_line = 0, schedule_line = 0, place_line = 0, expand_line = 0;
  int64_t ranks() const;  // number of ranks of the mesh, or of all meshes of stages together
  // Returns the number of steps of the loop entry that has `stages`; 1 without such an entry. Each
  // step of that loop has stages of its own, so the stages that the entries name exist once for
  // each step. Stage `at` of step s has the number s * named_stages() + at.
  int64_t stage_steps() const;
  int64_t named_stages() const;                          // stages that the entries name; at least 1
  friend bool operator==(const Plan& a, const Plan& b);  // compares all but `file` and lines
};
Result<Plan> parse_plan(std::string_view toml, std::string_view file = "<plan>");
std::string to_toml(const Plan& plan);  // canonical text; parses back to an equal plan

// Returns the mesh of each stage (at least one). Errors: a stage number is left out; there are
// several stages, but the mesh lacks the stage axis; the number of stages is no multiple of its
// size, and the plan has no `place`; a device belongs to no stage; two stages share some devices,
// but neither has all devices of the other.
Result<std::vector<Mesh>> stage_meshes(const Plan& plan);
// Returns for each place of the shape the order of its blocks. If the plan has a schedule table,
// this is the table, completed and checked; else it is the named schedule.
Result<Schedule> plan_schedule(const Plan& plan, const PipelineShape& shape);

// ---- applied to a graph

struct SkewAxis {
  AxisId axis;
  bool falls = false;  // written with a minus: the number of the piece falls
  friend bool operator==(const SkewAxis&, const SkewAxis&) = default;
};
struct DimSplit {
  Axes axes;          // axes of the mesh of the op's stage that cut the dim, outermost first
  int64_t steps = 1;  // steps of the op's own time loop over a rank's piece
  StepOrder order = StepOrder::kAligned;
  std::vector<SkewAxis> skew;
  bool rims = false;           // a loop over interior and rims (halos.h)
  bool computes_halo = false;  // as the entry says; `grown` says how far the piece grows
  // If not empty, a rank computes more of the dim than its piece, namely what later ops need on
  // this rank. These are the windows through which the later ops read the dim in turn, that of the
  // first reader first. The axes cut the dim of the last reader (grown_interval in layout.h).
  std::vector<WindowRead> grown;
  int entry = -1;  // index of the deciding entry in Plan::splits; -1: none
  bool split() const { return !axes.empty() || steps > 1; }
};
struct OpPlan {
  StageId stage;
  int stage_entry = -1;
  std::vector<DimSplit> dims;  // by dim of the op's annotation
  std::vector<AxisPin> at;     // sorted by axis; the op is computed only at these coordinates
  bool computes_at(const std::vector<int64_t>& coordinates) const;
  bool named() const;  // whether a split or pin entry decides anything about the op
};
// `EdgeCodecs` say how messages of a tensor are compressed, by edge. Most tensors have none.
class EdgeCodecs {
 public:
  // Returns the compression of an edge; unset: the message is sent as it is.
  const std::optional<Compression>& operator[](size_t edge) const {
    static const std::optional<Compression> none;
    return by_edge_ ? (*by_edge_)[edge] : none;
  }
  bool any() const { return static_cast<bool>(by_edge_); }
  void set(size_t edge, const Compression& with) {
    if (!by_edge_) by_edge_ = ByEdge();
    by_edge_.own()[edge] = with;
  }
  friend bool operator==(const EdgeCodecs&, const EdgeCodecs&) = default;

 private:
  using ByEdge = std::array<std::optional<Compression>, kEdges>;
  Shared<ByEdge> by_edge_;  // none: all edges are unset
};
struct TensorPlan {
  StageId home;        // the stage where the tensor is at rest, or where an op makes it
  OfPlace<Axes> over;  // axes that cut it at rest, of the mesh of the home's place
  std::string dim;     // the dim that `over` cuts; "": by the default rule
  bool has_over = false;
  Tier tier = Tier::kDevice;  // the tier in which ops find the tensor; the device if it has a cache
  // Set if the tensor has a cache of rows: all rows rest in the tier `rest`, some are on
  // the device.
  struct Cached {
    RowCacheRule rule;
    Tier rest = Tier::kHost;
  };
  std::optional<Cached> cache;
  bool recompute = false;
  // How long copies in another layout are kept. Unset: a copy of an activation is kept from the
  // forward to the backward pass if it is cut into at least as many pieces as the tensor at its
  // home. Every other copy is kept for its block (program/walk/holds.h).
  std::optional<Keep> keep;
  // If not empty, the copy that is kept is cut over these axes, which also cut the tensor at rest,
  // and over the axes along which its reader wants it cut. The reader's own copy is made from the
  // kept copy and lives only in the reader's block.
  OfPlace<Axes> keep_over;
  int over_entry = -1, tier_entry = -1, recompute_entry = -1, keep_over_entry = -1;
  EdgeCodecs compress;
};
struct Stage {
  Mesh mesh;
  PlaceId place;
};
// A `Place` is a set of devices on which all stages of one mesh run. A tensor that one of these
// stages leaves there is found there by the others, without a message.
struct Place {
  Mesh mesh;
  std::vector<StageId> stages;
};
// A `WhyWhole` is the reason why a dim of an op is not cut although a split entry selects the op
// and names the dim.
enum class WhyWhole : uint8_t {
  kFrozen,  // the dim is frozen for this kind of op (docs/reference/plan-language.md)
  kWindow,  // the op reads the dim through windows, and the entry cuts it over time
  kNoAxis,  // the mesh of the op's stage lacks an axis of the entry, or its size differs
};
struct LeftWhole {
  OpId op;
  int dim = -1;    // index into the dims of the op's annotation
  int entry = -1;  // index of the entry in Plan::splits
  WhyWhole why = WhyWhole::kFrozen;
};
struct ResolvedPlan {
  Plan plan;
  std::vector<Stage> stages;  // at least one
  std::vector<Place> places;  // in the order of their first stages
  // By row: its places. A row is all ranks that belong to the same set of places; they run their
  // blocks in the same order.
  std::vector<std::vector<PlaceId>> rows;
  Schedule schedule;                  // by row: the order of its blocks
  std::vector<OpPlan> ops;            // by OpId
  std::vector<TensorPlan> tensors;    // by TensorId
  std::vector<LeftWhole> left_whole;  // sorted by op and dim
  int64_t ranks = 1;
  RankDevices devices;
  // If `to_expand` or `to_recompute` is not empty, the plan needs another graph, which prepare()
  // makes before it resolves the plan again. `to_expand` has the ops whose kind freezes a dim that
  // the plan splits, but has an expansion.
  std::vector<OpId> to_expand;
  // The forward activations that backward ops read and that the plan wants computed again.
  std::vector<TensorId> to_recompute;

  PlaceId place_of(StageId stage) const { return stages[stage.index()].place; }
  std::vector<PlaceId> places_of(int64_t rank) const;  // places with this rank; at least one
  size_t row_of(int64_t rank) const;
};
// Sets the members `stages`, `places` and `rows` of the plan from the mesh of each stage.
void make_places(ResolvedPlan& plan, const std::vector<Mesh>& meshes);
// Returns the shape that a schedule of the plan must fit: which rows run which stage, and for which
// stages each stage waits. A row of the plan is a place of the shape.
PipelineShape pipeline_shape(const ResolvedPlan& plan, const Graph& graph);
// Checks everything that needs the graph, and completes what the text leaves open:
//   - the stage of an op that no stage entry names. A backward op gets the stage of its mirror,
//     an update op that of the first reader of its parameter. A forward op gets the stage of the
//     nearest named op before it in graph order, or else of the first named op (stages.h lists
//     the exceptions);
//   - the splits and pins of a backward op, which are those of its mirror. Dims are matched
//     by name.
// Nothing else is inferred, so an op that no split entry names is not split.
Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph);
// Returns a text that says which entry (file:line) decided the stage of the op, and which entry
// decided each of its dims, one line each.
std::string explain(const ResolvedPlan& plan, const Graph& graph, OpId op);
// `WholeOps` are the ops that one split entry selects but does not cut, all for the same reason.
struct WholeOps {
  LeftWhole first;
  std::vector<OpId> ops;  // in graph order
};
std::vector<WholeOps> ops_left_whole(const ResolvedPlan& plan, const Graph& graph);
// Returns a text like "plan.toml:3 (ops = "*", dim = "height") leaves 20 ops whole, as the kind
// 'conv' freezes it: embed.conv, blocks.0.conv_1 and 18 more".
std::string to_text(const WholeOps& whole, const ResolvedPlan& plan, const Graph& graph);
// Returns a text that says which entry decided each store key of the tensor. If no entry names the
// tensor, the text has only its name and role.
std::string explain_tensor(const ResolvedPlan& plan, const Graph& graph, TensorId tensor);

}  // namespace tessera
