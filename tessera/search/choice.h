// A `Choice` is a point of the planner's space; write_plan() writes it as a plan text. It names no
// strategies, only a mesh of axes, and for each axis the named dims that it may cut, in the order
// of preference. An axis cuts an op along the first of these dims that the op has. So
//
//   {"dp", 8, {"batch"}}                            replicas
//   {"tp", 4, {"heads", "ffn", "vocab"}}            1-D tensor parallelism
//   {"tp", 4, {"heads", "ffn", "vocab", "seq"}}     the same; what lies between is cut by tokens
//   {"ep", 8, {"experts", "batch"}}                 experts, and replicas elsewhere
//   {"sp", 4, {"attention/heads", "seq"}}           Ulysses: tokens, but heads in attention's core
//   {"cp", 4, {"seq~kv", "seq"}}                    rings: tokens, whose keys and values travel
//
// are six values of one type, and any dims of a model can be tried. A dim with a work class before
// it ("attention/heads") holds for ops of that class only, a dim with a path in a block before it
// ("moe.router/batch") for ops under that path (scoped_dims.h). "seq~kv" holds for ops that compare
// queries of the dim `seq` with keys of the dim `kv`: the axis cuts `seq`, and the pieces of `kv`
// travel around its ranks, one in each step of a loop in time. Where an op is causal and its
// queries are cut, the plan orders the tokens so that all pieces have the same work, if the model
// allows it.
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
#include "tessera/search/fold.h"

namespace tessera {

struct ChoiceAxis {
  std::string name;
  int64_t size = 1;
  std::vector<std::string> dims;  // "heads" or "attention/heads", the preferred one first
  friend bool operator==(const ChoiceAxis&, const ChoiceAxis&) = default;
};

// How ranks treat the halos of cut dims, which ops read through windows (plan/halos.h).
struct HaloChoice {
  bool rims = false;   // compute the interior first, while halos arrive, then the rims
  int64_t layers = 1;  // consecutive ops with halos that share one exchanged halo
  friend bool operator==(const HaloChoice&, const HaloChoice&) = default;
};

// The settings in which one unit differs from the rest of the model.
struct UnitChoice {
  // By axis of the unit's stage: the dims that it may cut; empty: as the axis itself.
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
  int64_t bucket_bytes = 0;  // largest size of collectives that are joined; 0: kPlainBucket
  friend bool operator==(const TransferChoice&, const TransferChoice&) = default;
};
inline constexpr int64_t kPlainBucket = 25 << 20;  // bucket_bytes of plans that do not set it

struct Choice {
  std::vector<ChoiceAxis> axes;  // of the mesh of one stage, outermost first
  // For stages with meshes of different sizes: the axes of each stage, with the names and dims of
  // `axes`. Empty: every stage has the mesh `axes`. Stages lie on the devices one after the other.
  std::vector<std::vector<ChoiceAxis>> stage_axes;
  // The device of each rank, ranks sorted by place. Empty: rank r is on device r.
  std::vector<int64_t> device_order;
  // The settings of each unit; empty: no unit differs.
  std::vector<UnitChoice> units;
  int64_t stages = 1;  // number of places of the pipeline
  // True: neighbouring devices hold neighbouring stages, and the replicas lie farthest apart.
  // False: a stage with all its replicas lies on neighbouring devices.
  bool replicas_apart = false;
  int64_t chunks = 1;  // stages of each place, dealt to the places in turn
  std::string schedule = "1f1b";
  int64_t micro_batches = 1;
  // Rests in shards over the axes that hold copies: nothing (0), optimizer state (1), gradients too
  // (2), parameters too (3).
  int64_t sharded = 0;
  std::string recompute = "none";  // as the argument of the recipes
  HaloChoice halos;
  // The lengths of the pieces of the dim `slice_dim`, in their order; empty: the dim stays whole.
  std::vector<int64_t> slices;
  std::string slice_dim = "seq";
  // Whether each slice goes through the stages on its own; the schedule must then be one of slices.
  bool sliced_stages = false;
  TransferChoice transfers;
  DType compute = DType::kFloat32;
  // The first unit of each stage, stages * chunks entries; empty: one stage.
  std::vector<size_t> cuts;
  // The order of the units in which `cuts` counts, where branches of a graph lie in different
  // stages; no unit reads from a later unit of it. Empty: the model's order.
  std::vector<size_t> unit_order;

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
// ops read narrow copies, the parameters are only updated, in shards as their state is.
bool parameters_in_shards(int64_t sharded, DType compute);

// How an axis cuts an op.
struct AxisCut {
  std::string dim;          // the dim that the axis cuts; empty: the op is whole on each rank
  std::string travels;      // the dim whose pieces go around the ranks in steps; empty: none
  std::string str() const;  // "seq~kv", "seq" or ""
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};
// Returns the cut by the first entry of the axis's list whose dims the op has and may be cut along,
// with or without an expansion (KindInfo::expandable).
AxisCut cut_of(const Op& op, const ChoiceAxis& axis);
// Returns the dim of cut_of() alone.
std::string dim_to_cut(const Op& op, const ChoiceAxis& axis);

// Returns how an op's output lies over an axis that cuts the op: the dim of the output that is cut,
// kParts (each rank has a part of a sum), or "" (whole).
inline constexpr const char* kParts = "+";
std::string layout_of(const Graph& graph, TensorId tensor, const ChoiceAxis& axis);

// Returns whether devices of the axis hold equal parameters, which may then rest in shards over the
// axis. That is so if it cuts the batch, or leaves a good part of the parameters whole, as an axis
// that cuts tokens alone does. `times`: by op of `forward`, how often the model has it; empty:
// once.
bool holds_copies(const ChoiceAxis& axis, const Graph& forward,
                  const std::vector<int64_t>& times = {});

// Returns whether some op is cut along a dim that it reads through windows that overlap.
bool has_halos(const Graph& forward, const std::vector<ChoiceAxis>& axes);

// Returns as one text which dim of each forward op each axis cuts. Axes with equal texts and sizes
// give the same plan, whatever their lists are: where no op has two of the dims, the order of these
// in a list does not matter.
std::string cuts_of(const Graph& forward, const std::vector<ChoiceAxis>& axes);

// Returns the dims that are worth cutting: some op may be cut along them, and the ops that have
// them do at least `share` of the model's work (counted in elements of iteration spaces). The dim
// with the most work comes first. At the end stand dims for attention alone ("attention/heads"),
// because ops that compare queries with keys may be better cut otherwise than the ops around them,
// and queries with travelling keys ("seq~kv").
std::vector<std::string> dims_to_cut(const Graph& forward, double share = .02);

// Writes a canonical plan text. `heading`: a comment on its first line. Errors: a module to
// recompute that the model lacks, fewer units than stages, axes of a stage that have other names
// than `axes`.
Result<std::string> write_plan(const Choice& choice, const Graph& forward,
                               const std::vector<FoldUnit>& units, const std::string& heading);

}  // namespace tessera
