// A `Choice` is a point of the planner's space; write_plan() writes it as a plan text. A choice
// names no strategies. It has a mesh of axes, and for each axis the named dims that the axis may
// cut, in the order of preference. An axis cuts an op along the first of these dims that the op
// has. So
//
//   {"dp", 8, {"batch"}}                            replicas
//   {"tp", 4, {"heads", "ffn", "vocab"}}            1-D tensor parallelism
//   {"tp", 4, {"heads", "ffn", "vocab", "seq"}}     the same; what lies between is cut by tokens
//   {"ep", 8, {"experts", "batch"}}                 experts, and replicas elsewhere
//   {"sp", 4, {"attention/heads", "seq"}}           Ulysses: tokens, but heads in attention's core
//   {"cp", 4, {"seq~kv", "seq"}}                    rings: tokens, whose keys and values travel
//
// are six values of one type, and any dims of a model can be tried. A dim with a work class before
// the slash ("attention/heads") holds for ops of that class only. A dim with a path in a block
// before the slash ("moe.router/batch") holds for ops under that path only (scoped_dims.h).
// "seq~kv" holds for ops that compare queries of the dim `seq` with keys of the dim `kv`. The axis
// cuts `seq`, and the pieces of `kv` travel around the ranks of the axis; in each step of a loop in
// time a rank works with one piece. Where an op is causal and its queries are cut, the plan
// reorders the tokens so that all pieces have equal work, if the model allows it.
//
//   TESSERA_TRY(const std::string text, write_plan(choice, forward, units, "megatron by hand"));
//   TESSERA_TRY(const Plan plan, parse_plan(text));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/shared_list.h"
#include "tessera/search/price/fold.h"

namespace tessera {

struct ChoiceAxis {
  std::string name;
  int64_t size = 1;
  // Entries such as "heads" or "attention/heads", the preferred one first.
  std::vector<std::string> dims;
  friend bool operator==(const ChoiceAxis&, const ChoiceAxis&) = default;
};

// How ranks get and use the halos of dims that are cut and that ops read through
// windows (plan/resolve/halos.h).
struct HaloChoice {
  // Whether ops compute the interior first, while halos arrive, and the rims after that.
  bool rims = false;
  int64_t layers = 1;  // number of consecutive ops with halos for which one wide halo is exchanged
  friend bool operator==(const HaloChoice&, const HaloChoice&) = default;
};

// The settings in which one unit differs from the rest of the model.
struct UnitChoice {
  // By axis of the unit's stage: the dims along which the axis may cut this unit. Empty: the axes
  // cut this unit like all others.
  std::vector<std::vector<std::string>> dims;
  std::optional<int64_t> sharded;
  std::optional<std::string> recompute;
  std::optional<int64_t> halo_layers;
  friend bool operator==(const UnitChoice&, const UnitChoice&) = default;
};

// How parameters in shards are gathered, and how small collectives are joined.
struct TransferChoice {
  // Parameters in shards are gathered this many blocks before the block that reads them.
  int64_t ahead = 1;
  // Largest size up to which small collectives are joined; 0: kPlainBucket.
  int64_t bucket_bytes = 0;
  friend bool operator==(const TransferChoice&, const TransferChoice&) = default;
};
// Value of bucket_bytes in plans that do not set it.
inline constexpr int64_t kPlainBucket = 25 << 20;

// The lists are shared, because a search ranks ten thousands of choices that differ in a setting or
// two.
struct Choice {
  SharedList<ChoiceAxis> axes;  // of the mesh of one stage, outermost first
  // For stages with meshes of different sizes: the axes of each stage, with the names and dims of
  // `axes`. Empty: every stage has the mesh `axes`. Each stage has the devices that follow those of
  // the stage before it.
  SharedList<std::vector<ChoiceAxis>> stage_axes;
  // The device of each rank; ranks are numbered place by place. Empty: rank r is on device r.
  SharedList<int64_t> device_order;
  // The settings of each unit; empty: no unit differs.
  SharedList<UnitChoice> units;
  int64_t stages = 1;  // number of places of the pipeline
  // True: the replicas are the outermost split of the devices, so neighbouring devices hold
  // neighbouring stages of one replica. False: a stage with all its replicas is on
  // neighbouring devices.
  bool replicas_apart = false;
  int64_t chunks = 1;  // stages of each place; stages are dealt to the places in turn
  std::string schedule = "1f1b";
  int64_t micro_batches = 1;
  // The tensors that rest in shards over the axes that hold copies (holds_copies()): none (0),
  // optimizer state (1), gradients too (2), parameters too (3).
  int64_t sharded = 0;
  std::string recompute = "none";  // as the argument `recompute` of recipes
  std::string offload;             // a level's name (offload_levels.h); empty: none
  HaloChoice halos;
  // The lengths of the slices into which the dim `slice_dim` is cut, in order; empty: the dim
  // stays whole.
  SharedList<int64_t> slices;
  std::string slice_dim = "seq";
  // Whether each slice goes through the stages on its own. The schedule must then be one for slices
  // (kSliceSchedules in schedule_facts.h).
  bool sliced_stages = false;
  TransferChoice transfers;
  DType compute = DType::kFloat32;
  // The first unit of each stage, stages * chunks entries. Empty: there is one stage.
  SharedList<size_t> cuts;
  // The order of units to whose positions `cuts` refers; no unit reads from a later unit of this
  // order. It differs from the model's order where branches of a graph are put into different
  // stages. Empty: the model's order.
  SharedList<size_t> unit_order;

  size_t unit_at(size_t place) const { return unit_order.empty() ? place : unit_order[place]; }
  const std::vector<ChoiceAxis>& axes_of_stage(size_t stage) const;
  int64_t ranks() const;
  // Returns "pp=4 dp=2[batch] tp=8[heads,ffn,vocab] 1f1b micro_batches=16 sharded=1
  // recompute=selective".
  std::string str() const;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// An entry of a list of dims, taken apart. "attention/seq~kv" means: in ops of attention, cut
// `seq`, and let the pieces of `kv` travel.
struct ListEntry {
  std::string_view scope;    // a work class, or a path in a block; empty: all ops
  std::string_view dim;      // the dim that is cut
  std::string_view travels;  // the dim whose pieces travel; empty: nothing travels
};
ListEntry parse_entry(std::string_view entry);

// Returns whether the parameters themselves rest in shards (`sharded`: as Choice::sharded). Where
// ops read narrow copies of the parameters, this is so from `sharded` 1 on, because the parameters
// are then needed for the update only, which works on shards.
bool parameters_in_shards(int64_t sharded, DType compute);

// How an axis cuts an op.
struct AxisCut {
  std::string dim;          // the dim that the axis cuts; empty: each rank has the whole op
  std::string travels;      // the dim whose pieces travel around the ranks; empty: none
  std::string str() const;  // "seq~kv", "seq" or ""
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};
// Returns the cut by the first entry of the axis's list whose dims the op has and may be cut along,
// with or without an expansion (KindInfo::expandable).
AxisCut cut_of(const Op& op, const ChoiceAxis& axis);
// Returns the member `dim` of cut_of().
std::string dim_to_cut(const Op& op, const ChoiceAxis& axis);

// Returns how the tensor, the output of an op that the axis cuts, is divided over the axis: the
// dim of the tensor that is cut, kParts (each rank has a part of a sum), or "" (each rank has the
// whole tensor).
inline constexpr const char* kParts = "+";
std::string layout_of(const Graph& graph, TensorId tensor, const ChoiceAxis& axis);

// Returns whether devices of the axis hold equal parameters, which may then rest in shards over the
// axis. That is so if the axis cuts the batch, or if it leaves a good part of the parameters whole,
// as an axis does that cuts tokens alone. `times`: for each op of `forward` how often the model has
// the op; empty: once each.
bool holds_copies(const ChoiceAxis& axis, const Graph& forward,
                  const std::vector<int64_t>& times = {});

// Returns whether one of the axes cuts some op along a dim that the op reads through
// overlapping windows.
bool has_halos(const Graph& forward, const std::vector<ChoiceAxis>& axes);

// Returns a text that says for each forward op which dim each axis cuts. Axes with equal texts and
// sizes give the same plan even if their lists differ, for example in the order of two dims that no
// op has both.
std::string cuts_of(const Graph& forward, const std::vector<ChoiceAxis>& axes);

// Returns the dims that are worth cutting: some op may be cut along them, and the ops that have
// them do at least `share` of the model's work (counted in elements of iteration spaces). The dim
// with the most work comes first. The last entries are dims for attention alone
// ("attention/heads"), because ops that compare queries with keys may be better cut along another
// dim than the ops around them, and queries with travelling keys ("seq~kv").
std::vector<std::string> dims_to_cut(const Graph& forward, double share = .02);

// Writes a canonical plan text. `heading`: a comment on its first line. Errors: a module to
// recompute that the model lacks, fewer units than stages, axes of a stage whose names differ from
// those of `axes`.
Result<std::string> write_plan(const Choice& choice, const Graph& forward,
                               const std::vector<FoldUnit>& units, const std::string& heading);

}  // namespace tessera
