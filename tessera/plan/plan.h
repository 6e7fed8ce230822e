// The plan: where and when. It is a text (TOML) that people, recipes and planners write alike; its
// reference is docs/reference/plan-language.md.
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
// A plan is used in two steps. parse_plan checks the text alone; resolve applies it to a graph,
// where selectors, dims and sizes are checked:
//
//   TESSERA_TRY(Plan plan, parse_plan(text, "plan.toml"));
//   TESSERA_TRY(ResolvedPlan resolved, resolve(plan, graph));
//
// Where two entries speak about the same op and dim, or the same tensor and key, the later one
// counts. Every error is one line with file:line and the nearest valid name. All types are values.
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
#include "tessera/cluster/mesh.h"
#include "tessera/graph/graph.h"
#include "tessera/graph/precision.h"
#include "tessera/plan/device_order.h"
#include "tessera/plan/of_place.h"
#include "tessera/plan/schedule.h"

namespace tessera {

// A `StepOrder` says which piece a rank works on at step t of a time loop of q steps, where c are
// the rank's coordinates on the skew axes:
//   aligned  piece t, on every rank
//   rotated  piece (t + sum of c) mod q; with axes written with a minus (sum of c - t) mod q
//   nested   t and the piece are written with one digit for each axis, outermost first, and q is
//            the product of the axes' sizes n. Each digit is (c + t) mod n, with a minus
//            (c - t) mod n
enum class StepOrder : uint8_t { kAligned, kRotated, kNested };
enum class Tier : uint8_t { kDevice, kHost, kDisk };
std::string_view tier_name(Tier tier);
// A `Keep` says how long a copy of a tensor in another layout or tier is kept: as long as its block
// needs it, from the forward to the backward pass of a micro-batch, or for the whole step.
enum class Keep : uint8_t { kBlock, kMicroBatch, kStep };
std::string_view keep_name(Keep keep);

// ---- as written

// Equality of the entries below compares all members but the line.
struct SplitEntry {
  std::string ops;  // glob over op paths; matches a path or any dotted prefix of it
  // Ops of this phase only. Unset: forward ops and, by inheritance, their backward ops.
  std::optional<Phase> phase;
  std::string dim;
  std::vector<std::string> over;  // axis names, outermost first; empty: the dim is not split
  int64_t steps = 1;              // "time:4" -> 4; the loop lies inside the axes
  StepOrder order = StepOrder::kAligned;
  // Axes whose coordinates shift a rotated or nested loop. "-cp": the piece's number falls from
  // step to step.
  std::vector<std::string> skew;
  bool rims = false;  // "time:rims": the interior first, then the rims (halos.h)
  // halo = "compute": each rank computes the halo of the ops' outputs instead of receiving it.
  bool computes_halo = false;
  int line = 0;
  friend bool operator==(const SplitEntry& a, const SplitEntry& b);
};
// A `PinEntry` selects ops that only the ranks at one coordinate of an axis compute: an embedding
// table on one device.
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
  std::vector<std::pair<std::string, int64_t>> mesh;  // empty: the plan's without the stage axis
  std::optional<int64_t> devices;  // first device of its own mesh; unset: behind the stage before
  DeviceOrder device_order;        // of an own mesh, by axes
  int line = 0;
  friend bool operator==(const StageEntry& a, const StageEntry& b);
};
// A `RowCacheRule` belongs to a tensor that rests on the host or on disk: some of its rows (its
// first dim) are on the device, in slots, and ops that name rows by ids read and change them there
// (docs/strategies/row-cache.md). A table and its optimizer states have one cache, so a row travels
// with its states.
struct RowCacheRule {
  double slots = 0;  // rows on each rank that holds some; below 1: the share of its rows
  std::string policy = "lookahead";  // decides which row leaves
  int64_t window = 8;                // batches that the policy knows ahead; not all policies use it
  int64_t counted = 0;               // the number of first batches that are counted before the run
  bool prefetch = true;              // rows of the next batch come while this batch runs
  double zipf = 1.05;                // ids follow Zipf's law with this exponent: for the simulator
  friend bool operator==(const RowCacheRule&, const RowCacheRule&) = default;
};
const std::vector<std::string>& row_cache_policies();
struct StoreEntry {
  std::string tensors;  // glob over tensor names, or "role:parameter" and so on
  // Axes over which the tensor is sharded at rest, in addition to its default home.
  std::optional<std::vector<std::string>> over;
  // The tensor dim that `over` cuts. Unset: the rule of docs/reference/plan-language.md.
  std::optional<std::string> dim;
  std::optional<Tier> tier;
  // The share of the selected bytes to which `tier` and `keep` apply. Whole tensors are taken,
  // those with the latest first use before others; gradient and state of a parameter count as used
  // when the parameter is used.
  std::optional<double> fraction;
  std::optional<bool> recompute;
  std::optional<Keep> keep;
  // Those of the axes over which the tensor rests in shards that still cut the kept copy.
  std::optional<std::vector<std::string>> keep_over;
  std::optional<RowCacheRule> cache;  // with `tier`
  int line = 0;
  friend bool operator==(const StoreEntry& a, const StoreEntry& b);
};
// An edge on which a tensor may be compressed: a kind of collective, or messages between places.
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
// A `LoopEntry` is a time loop over a group of ops; split entries with "time:N" loop over one op.
struct LoopEntry {
  std::string ops;
  std::string dim;
  int64_t steps = 0;           // even pieces, the first ones larger; 0: `sizes` are given
  std::vector<int64_t> sizes;  // of the pieces, in order
  bool recompute = false;      // keep none of the tensors that are made inside a step
  bool stages = false;         // each step goes through stages of its own
  int line = 0;
  friend bool operator==(const LoopEntry& a, const LoopEntry& b);
};
// A `ReorderEntry` puts a dim of the forward graph in another order before differentiation.
struct ReorderEntry {
  std::string dim;
  std::string as;      // "zigzag", "striped"; graph/order.h
  int64_t pieces = 1;  // of the dim
  int line = 0;
  std::string order() const;  // "zigzag:8"
  friend bool operator==(const ReorderEntry& a, const ReorderEntry& b);
};
// A `Prefetch` gathers the tensors at rest that a unit of ops reads while the unit that stands
// `ahead` units before it computes. So ahead + 1 units are gathered at the same time. A unit is the
// ops whose paths have the same shortest prefix that the glob matches ("blocks.*": blocks.0,
// blocks.1, ...).
struct Prefetch {
  std::string units;
  int64_t ahead = 1;
  friend bool operator==(const Prefetch&, const Prefetch&) = default;
};
struct Plan {
  std::string file = "<plan>";
  std::vector<std::pair<std::string, int64_t>> mesh;  // row-major, last fastest
  DeviceOrder device_order;  // the devices of its ranks; empty: rank r is on device r
  int64_t micro_batches = 1;
  std::string micro_batch_dim = "batch";
  std::string stage_axis = "pp";
  std::vector<int64_t> place;  // by stage: its coordinate on the stage axis; empty: stage mod size
  std::string schedule = "1f1b";  // a schedule's name (schedule.h); unused with a table
  Schedule schedule_table;        // by place, as written in the plan; empty: the named schedule
  int64_t bucket_bytes = 25 << 20;
  std::optional<Prefetch> prefetch;
  // The bytes of device copies of tensors at rest on the host or on disk that a rank keeps from one
  // use to the next. It keeps the copies whose next use comes first.
  int64_t resident_bytes = 0;
  std::string resharding = "auto";  // way to replicas on other stages; also "direct", "gather"
  std::vector<SplitEntry> splits;
  std::vector<PinEntry> pins;  // applied behind the splits: a pinned op is not cut over its axis
  std::vector<StageEntry> stages;
  std::vector<StoreEntry> stores;
  std::vector<CompressEntry> compress;
  Precision precision;           // dtypes and loss scale
  std::vector<LoopEntry> loops;  // applied in order (shape_forward, prepare.h)
  std::vector<ReorderEntry> reorders;
  std::vector<std::string> expand;  // globs over paths of forward ops that are to be taken apart
  int micro_batches_line = 0, schedule_line = 0, place_line = 0, expand_line = 0;  // 0: not written
  int64_t ranks() const;  // product of the mesh (or the union of stage meshes)
  // Returns the steps of the loop whose steps are stages of their own; 1 without such a loop. The
  // stages that the entries name exist once for each step: stage `at` of step s has the number s *
  // named_stages() + at.
  int64_t stage_steps() const;
  int64_t named_stages() const;                          // at least 1
  friend bool operator==(const Plan& a, const Plan& b);  // except file and lines
};
Result<Plan> parse_plan(std::string_view toml, std::string_view file = "<plan>");
std::string to_toml(const Plan& plan);  // canonical text; parses back to an equal plan

// Returns the mesh of each stage (at least one). Errors: a stage number is left out, there are more
// stages than the stage axis has places, some devices belong to no stage, or two stages share
// devices although neither says `devices`.
Result<std::vector<Mesh>> stage_meshes(const Plan& plan);
// Returns the order of blocks by place: the plan's table, completed and checked, else the named
// schedule.
Result<Schedule> plan_schedule(const Plan& plan, const PipelineShape& shape);

// ---- applied to a graph

struct SkewAxis {
  AxisId axis;
  bool falls = false;  // written with a minus
  friend bool operator==(const SkewAxis&, const SkewAxis&) = default;
};
struct DimSplit {
  Axes axes;          // of the op's stage mesh, outermost first
  int64_t steps = 1;  // op-scoped time loop, inside the axes
  StepOrder order = StepOrder::kAligned;
  std::vector<SkewAxis> skew;
  bool rims = false;           // a loop over interior and rims, with the op's other such dims
  bool computes_halo = false;  // as the entry says; `grown` has its consequences
  // Not empty: a rank computes more than its piece, namely what readers need of it. The op's dim is
  // read through these windows, one behind the other, nearest first; the axes cut the dim behind
  // the last one.
  std::vector<WindowRead> grown;
  int entry = -1;  // index of the deciding entry in Plan::splits; -1: none
  bool split() const { return !axes.empty() || steps > 1; }
};
struct OpPlan {
  StageId stage;
  int stage_entry = -1;
  std::vector<DimSplit> dims;  // by op dim of the annotation
  std::vector<AxisPin> at;     // sorted by axis; the op is computed only at these coordinates
  bool computes_at(const std::vector<int64_t>& coordinates) const;
  bool named() const;  // whether an entry of the plan says where it is computed
};
struct TensorPlan {
  StageId home;        // the stage where it is at rest, or where it is made, if ops make it
  OfPlace<Axes> over;  // axes of the home's place
  std::string dim;     // "" = default rule
  bool has_over = false;
  Tier tier = Tier::kDevice;  // the tier where ops find it; with a cache, the device
  // Set if rows of the tensor rest in another tier.
  struct Cached {
    RowCacheRule rule;
    Tier rest = Tier::kHost;
  };
  std::optional<Cached> cache;
  bool recompute = false;
  // Unset: a copy of an activation that is cut into at least as many pieces as its home is kept
  // from the forward to the backward pass, every other copy for its block (program/walk/holds.h).
  std::optional<Keep> keep;
  // Not empty: the kept copy is cut over these axes, which also cut the tensor at rest, and over
  // those along which its reader wants it cut. The reader's own copy is made from the kept one, and
  // is kept only for the reader's block.
  OfPlace<Axes> keep_over;
  int over_entry = -1, tier_entry = -1, recompute_entry = -1, keep_over_entry = -1;
  std::array<std::optional<Compression>, kEdges> compress;  // by edge
};
struct Stage {
  Mesh mesh;
  PlaceId place;
};
// A `Place` is the devices that stages of equal mesh share. A stage finds there what another one
// leaves.
struct Place {
  Mesh mesh;
  std::vector<StageId> stages;
};
// A `WhyWhole` says why an op computes a dim whole although a split entry selects the op and names
// the dim.
enum class WhyWhole : uint8_t {
  kFrozen,  // no piece of it can be computed alone (docs/reference/plan-language.md, frozen dims)
  kWindow,  // it is read through windows, and the entry cuts it over time
  kNoAxis,  // the mesh of the op's stage lacks an axis of the entry, or has it in another size
};
struct LeftWhole {
  OpId op;
  int dim = -1;    // of the op's annotation
  int entry = -1;  // index into Plan::splits
  WhyWhole why = WhyWhole::kFrozen;
};
struct ResolvedPlan {
  Plan plan;
  std::vector<Stage> stages;  // at least one
  std::vector<Place> places;  // in the order of their first stages
  // Ranks that belong to the same places run the same order: they form a row.
  std::vector<std::vector<PlaceId>> rows;
  Schedule schedule;                  // by row
  std::vector<OpPlan> ops;            // by OpId
  std::vector<TensorPlan> tensors;    // by TensorId
  std::vector<LeftWhole> left_whole;  // by op and dim
  int64_t ranks = 1;
  RankDevices devices;
  // If one of the next two is not empty, the plan needs another graph; prepare() makes it and
  // resolves again. This one has ops whose kind freezes a dim that the plan splits, but has an
  // expansion:
  std::vector<OpId> to_expand;
  // Forward activations that backward ops read and that the plan computes again:
  std::vector<TensorId> to_recompute;

  PlaceId place_of(StageId stage) const { return stages[stage.index()].place; }
  std::vector<PlaceId> places_of(int64_t rank) const;  // at least one
  size_t row_of(int64_t rank) const;
};
// Sets the places of the stages and the rows, as the stages' meshes require.
void make_places(ResolvedPlan& plan, const std::vector<Mesh>& meshes);
// Returns what the schedule must order: which row runs which stage, and which stage waits for
// which.
PipelineShape pipeline_shape(const ResolvedPlan& plan, const Graph& graph);
// Checks everything that needs the graph, and completes what the text leaves open:
//   - the stage of an op that no entry names: a backward op has that of its mirror, an update op
//     that of the parameter's first reader, a forward op that of the nearest named op before it in
//     graph order, or else after it;
//   - the splits of a backward op: those of its mirror, by dim name; its pins: those of its mirror.
// Nothing else is inferred: an op that no entry names is not split.
Result<ResolvedPlan> resolve(const Plan& plan, const Graph& graph);
// Returns which entry (file:line) decided the stage and each dim of an op, one line each.
std::string explain(const ResolvedPlan& plan, const Graph& graph, OpId op);
// `WholeOps` are ops of one kind that one entry leaves whole for one reason.
struct WholeOps {
  LeftWhole first;
  std::vector<OpId> ops;  // in graph order
};
std::vector<WholeOps> ops_left_whole(const ResolvedPlan& plan, const Graph& graph);
// Returns a text: "plan.toml:3 (ops = "*", dim = "height") leaves 20 ops whole, as the kind 'conv'
// freezes it: embed.conv, blocks.0.conv_1 and 18 more".
std::string to_text(const WholeOps& whole, const ResolvedPlan& plan, const Graph& graph);
// Returns which entry decided a tensor's store keys; only its name if no entry names it.
std::string explain_tensor(const ResolvedPlan& plan, const Graph& graph, TensorId tensor);

}  // namespace tessera
