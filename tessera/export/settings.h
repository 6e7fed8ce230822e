// The launch settings of a training framework that describe a plan: degrees and switches, in terms
// that belong to no framework. A target (target.h) writes the settings as its framework's arguments
// and reads them back.
//
//   plan --recognize--> ExportSettings --target.write--> text of the framework
//   text --target.read--> ExportSettings --plan_of--> plan
//
// The mesh of such a plan has the axes {pp, replicas, dp, cp, ep, tp}, outermost first, or with
// `stages_inside` {replicas, dp, pp, cp, ep, tp}; axes of size 1 are left out. Its entries are
// those that the recipes write for these degrees (plan/recipes.h). A plan from elsewhere (written
// by hand, by a recipe or by a planner) has settings if and only if it cuts, places and keeps the
// same as such a plan (recognize.h).
//
//   ExportSettings settings;
//   settings.tp = 4;
//   settings.dp = 2;
//   TESSERA_TRY(const Plan plan, plan_of(settings, model.graph));
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// How attention works when several ranks share a sequence. kRing: keys and values travel around a
// ring of the ranks. kHeads: all-to-alls give each rank whole sequences of some heads (Ulysses).
// kGather: each rank gathers the keys and values of all tokens.
enum class ContextForm : uint8_t { kRing, kHeads, kGather };

struct ExportSettings {
  int64_t pp = 1;
  // Number of groups of `dp` ranks. Each group holds all shards once.
  int64_t replicas = 1;
  // For dense layers, `ep` cuts the batch, too: the batch is cut over replicas, dp and ep.
  int64_t dp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t tp = 1;
  // Whether the mesh is ordered {replicas, dp, pp, cp, ep, tp} instead of {pp, replicas, dp, cp,
  // ep, tp}. Neighbouring ranks (apart from cp, ep and tp) are then stages instead of replicas.
  bool stages_inside = false;
  ContextForm context = ContextForm::kRing;
  std::string token_order = "zigzag";  // for kRing and kGather: "zigzag", "striped", "none"
  bool sequence_shard = false;         // whether tp cuts the tokens between the ops that it cuts
  // The dims that tp leaves whole, of `heads` (attention), `ffn` (MLP) and `vocab` (embedding, head
  // and loss), as far as the model has them.
  std::set<std::string, std::less<>> whole;
  int64_t chunks = 1;             // number of stages on each place of the pipeline
  std::string schedule = "1f1b";  // a name of plan/schedules/schedule.h
  // By stage, its number of blocks. Empty: even, the first stages one block longer if need be.
  std::vector<int64_t> blocks;
  int64_t micro_batches = 1;
  int64_t batch = 1;  // sequences of a step over all ranks
  // Which tensors rest in shards: 0 none, 1 optimizer state, 2 also gradients, 3 also parameters.
  int64_t zero = 0;
  int64_t gathered_ahead = 0;      // how many blocks before its use a parameter is gathered
  std::string recompute = "none";  // as the recipes' argument: "none", "full", "norm+core"
  DType compute = DType::kFloat32;
  DType gradient = DType::kFloat32;     // of the accumulation and reduction of parameter gradients
  std::optional<int64_t> bucket_bytes;  // unset: the plan's default

  int64_t replicas_of_batch() const { return replicas * dp * ep; }
  int64_t ranks() const { return pp * replicas * dp * cp * ep * tp; }
  int64_t micro_batch_size() const { return batch / (replicas_of_batch() * micro_batches); }
  // Returns the settings that differ from the defaults: "pp=2 dp=4 tp=8 micro_batches=16 zero=1
  // recompute=full".
  std::string str() const;
  // Returns what `whole` names, as text for messages: "attention by heads and the MLP by ffn".
  std::string whole_text() const;
  friend bool operator==(const ExportSettings&, const ExportSettings&) = default;
};

// For each setting ("cp", "recompute"): the entry of the plan that decided it, as text for
// messages: `plan.toml:7 ({ ops = "*", dim = "seq", over = "cp" })`.
using Origins = std::map<std::string, std::string, std::less<>>;

// Makes the plan that has these settings for a model's forward graph. Errors: those of the recipes
// (too few heads, no attention).
Result<Plan> plan_of(const ExportSettings& settings, const Graph& forward);

bool has_experts(const Graph& forward);

// Returns the number of blocks of each stage if ExportSettings::blocks is empty.
std::vector<int64_t> even_blocks(int64_t blocks, int64_t stages);

}  // namespace tessera
