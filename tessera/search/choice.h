// A point of the planner's space, and the plan text that it is written as. There are no strategies
// here: a mesh of axes, and for each axis the named dims that it may cut, in the order of
// preference. An op is cut along the first of them that it has. So
//
//   {"dp", 8, {"batch"}}                            replicas
//   {"tp", 4, {"heads", "ffn", "vocab"}}            1-D tensor parallelism
//   {"tp", 4, {"heads", "ffn", "vocab", "seq"}}     the same; what lies between is cut by tokens
//   {"ep", 8, {"experts", "batch"}}                 experts, and replicas elsewhere
//   {"sp", 4, {"attention/heads", "seq"}}           Ulysses: tokens, but heads in attention's core
//   {"cp", 4, {"seq~kv", "seq"}}                    rings: tokens, whose keys and values travel
//
// are six values of one type, and whatever dims a model has can be tried. A dim with a work class
// before it ("attention/heads") is meant in ops of that class only, one with a path in a block before
// it ("moe.router/batch") in ops there (scoped_dims.h). "seq~kv" is meant in ops that compare queries
// of the dim `seq` with keys of the dim `kv`: the axis cuts `seq`, and the pieces of `kv` travel around
// its ranks, one in each step of a loop in time. Where an op is causal and its queries are cut, the plan
// orders the tokens so that all pieces have the same work, if the model allows it.
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
  bool rims = false;   // the interior first, while halos arrive, the rims behind it
  int64_t layers = 1;  // ops with halos, one behind the other, for which one halo is exchanged
  friend bool operator==(const HaloChoice&, const HaloChoice&) = default;
};

// What one unit does otherwise than the rest of the model.
struct UnitChoice {
  // By axis of the unit's stage, the dims that it may cut; empty: those of the axes.
  std::vector<std::vector<std::string>> dims;
  std::optional<int64_t> sharded;
  std::optional<std::string> recompute;
  std::optional<int64_t> halo_layers;
  friend bool operator==(const UnitChoice&, const UnitChoice&) = default;
};

// How parameters in shards are gathered, and how small collectives are joined.
struct TransferChoice {
  // Parameters in shards are gathered so many blocks before the one that reads them.
  int64_t ahead = 1;
  int64_t bucket_bytes = 0;  // up to which small collectives are joined; 0: kPlainBucket
  friend bool operator==(const TransferChoice&, const TransferChoice&) = default;
};
inline constexpr int64_t kPlainBucket = 25 << 20;  // of plans that do not say it

struct Choice {
  std::vector<ChoiceAxis> axes;  // of the mesh of a stage, outermost first
  // Meshes of different sizes: the axes of each stage, with the names and dims of `axes`. Empty:
  // every stage has the mesh `axes`. Stages lie on the devices one after the other.
  std::vector<std::vector<ChoiceAxis>> stage_axes;
  // By rank, place by place: its device. Empty: rank r is on device r.
  std::vector<int64_t> device_order;
  // By unit; empty: no unit differs.
  std::vector<UnitChoice> units;
  int64_t stages = 1;  // places of the pipeline
  // Neighbouring devices hold neighbouring stages, and the replicas lie farthest apart. Otherwise a
  // stage with all its replicas lies on neighbouring devices.
  bool replicas_apart = false;
  int64_t chunks = 1;  // stages of each place, one after the other around the places
  std::string schedule = "1f1b";
  int64_t micro_batches = 1;
  // What rests in shards over the axes that hold copies: nothing (0), optimizer state (1),
  // gradients too (2), parameters too (3).
  int64_t sharded = 0;
  std::string recompute = "none";  // as the argument of the recipes
  HaloChoice halos;
  // The pieces of the dim `slice_dim`, which follow one another; empty: it stays whole.
  std::vector<int64_t> slices;
  std::string slice_dim = "seq";
  // Each slice goes through the stages on its own; the schedule must be one of slices.
  bool sliced_stages = false;
  TransferChoice transfers;
  DType compute = DType::kFloat32;
  // The first unit of each stage, stages * chunks of them; empty: one stage.
  std::vector<size_t> cuts;
  // The order of the units in which `cuts` counts, where branches of a graph lie in different
  // stages; nothing reads what comes later in it. Empty: the model's order.
  std::vector<size_t> unit_order;

  size_t unit_at(size_t place) const { return unit_order.empty() ? place : unit_order[place]; }
  const std::vector<ChoiceAxis>& axes_of_stage(size_t stage) const;
  int64_t ranks() const;
  // "pp=4 dp=2[batch] tp=8[heads,ffn,vocab] 1f1b micro_batches=16 sharded=1 recompute=selective"
  std::string str() const;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// An entry of a list of dims, taken apart. "attention/seq~kv": in ops of attention, cut `seq`, and let
// the pieces of `kv` travel.
struct ListEntry {
  std::string_view scope;    // a work class, or a path in a block; empty: all ops
  std::string_view dim;      // that is cut
  std::string_view travels;  // whose pieces travel; empty: nothing does
};
ListEntry parse_entry(std::string_view entry);

// Do parameters themselves rest in shards (`sharded`: as Choice::sharded)? Beside narrow copies they are
// only updated, in shards as their state is.
bool parameters_in_shards(int64_t sharded, DType compute);

// How an axis cuts an op.
struct AxisCut {
  std::string dim;      // that the axis cuts; empty: the op is whole on each of its ranks
  std::string travels;  // whose pieces go around the ranks, one step after the other; empty: none
  std::string str() const;  // "seq~kv", "seq" or ""
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};
// By the first entry of the axis's list whose dims the op has and may be cut along, be it by an
// expansion (KindInfo::expandable).
AxisCut cut_of(const Op& op, const ChoiceAxis& axis);
// The dim alone.
std::string dim_to_cut(const Op& op, const ChoiceAxis& axis);

// How what an op made lies over an axis that cuts the op: by which of its dims it is cut, kParts (each
// rank has a part of a sum), or "" (whole).
inline constexpr const char* kParts = "+";
std::string layout_of(const Graph& graph, TensorId tensor, const ChoiceAxis& axis);

// Do devices of the axis hold parameters alike, which may then rest in shards over it? That is so if it
// cuts the batch, or leaves a good part of the parameters whole, as one does that cuts tokens alone.
// `times`: by op of `forward`, how often the model has it; empty: once.
bool holds_copies(const ChoiceAxis& axis, const Graph& forward,
                  const std::vector<int64_t>& times = {});

// Is some op cut along a dim that it reads through windows that overlap?
bool has_halos(const Graph& forward, const std::vector<ChoiceAxis>& axes);

// Which dim of each forward op each axis cuts, as one text. Axes with equal texts and sizes give the
// same plan, whatever their lists are: where no op has both dims, their order does not matter.
std::string cuts_of(const Graph& forward, const std::vector<ChoiceAxis>& axes);

// The dims that are worth cutting: some op may be cut along them, and the ops that have them do at
// least `share` of the model's work (counted in elements of iteration spaces). The dim with the
// most work comes first. At the end stand dims for attention alone ("attention/heads"), because ops
// that compare queries with keys may be better cut otherwise than the ops around them, and queries
// with travelling keys ("seq~kv").
std::vector<std::string> dims_to_cut(const Graph& forward, double share = .02);

// A canonical plan text. `heading`: a comment on its first line. Errors: a module to recompute that
// the model lacks, fewer units than stages, axes of a stage that have other names than `axes`.
Result<std::string> write_plan(const Choice& choice, const Graph& forward,
                               const std::vector<FoldUnit>& units, const std::string& heading);

}  // namespace tessera
