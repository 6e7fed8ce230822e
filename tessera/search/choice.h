// A point of the planner's space, and the plan text that it is written as. There are no strategies
// here: a mesh of axes, and for each axis the named dims that it may cut, in the order of
// preference. An op is cut along the first of them that it has. So
//
//   {"dp", 8, {"batch"}}                            replicas
//   {"tp", 4, {"heads", "ffn", "vocab"}}            1-D tensor parallelism
//   {"tp", 4, {"heads", "ffn", "vocab", "seq"}}     the same; what lies between is cut by tokens
//   {"ep", 8, {"experts", "batch"}}                 experts, and replicas elsewhere
//
// are four values of one type, and whatever dims a model has can be tried.
//
//   TESSERA_TRY(const std::string text, write_plan(choice, forward, units, "megatron by hand"));
//   TESSERA_TRY(const Plan plan, parse_plan(text));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/search/fold.h"

namespace tessera {

struct ChoiceAxis {
  std::string name;
  int64_t size = 1;
  std::vector<std::string> dims;  // names, the preferred one first
  friend bool operator==(const ChoiceAxis&, const ChoiceAxis&) = default;
};

struct Choice {
  std::vector<ChoiceAxis> axes;  // of the mesh of a stage, outermost first
  int64_t stages = 1;            // places of the pipeline
  int64_t chunks = 1;            // stages of each place, one after the other around the places
  std::string schedule = "1f1b";
  int64_t micro_batches = 1;
  // What rests in shards over the axes that cut the batch: nothing (0), optimizer state (1),
  // gradients too (2), parameters too (3).
  int64_t sharded = 0;
  std::string recompute = "none";  // as the argument of the recipes
  DType compute = DType::kFloat32;
  // The first unit of each stage, stages * chunks of them; empty: one stage.
  std::vector<size_t> cuts;

  int64_t ranks() const;
  // Sizes of the axes that cut the batch of some op.
  int64_t replicas() const;
  // "pp=4 dp=2[batch] tp=8[heads,ffn,vocab] 1f1b micro_batches=16 sharded=1 recompute=selective"
  std::string str() const;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// The dim of the op that the axis cuts: the first of its list that the op has and may be cut along,
// be it by an expansion (KindInfo::expandable). Empty: none.
std::string dim_to_cut(const Op& op, const ChoiceAxis& axis);

// Names of dims along which a cut divides work of the model: of all dims that some op may be cut
// along, those whose ops have at least `share` of the work (elements of the iteration spaces). The
// dim of most work comes first.
std::vector<std::string> dims_to_cut(const Graph& forward, double share = .02);

// A canonical plan text. `heading`: a comment on its first line. Errors: a module to recompute that
// the model lacks, fewer units than stages.
Result<std::string> write_plan(const Choice& choice, const Graph& forward,
                               const std::vector<FoldUnit>& units, const std::string& heading);

}  // namespace tessera
