// The launch settings of a training framework that describe a plan: degrees and switches, in no
// framework's words. A target (target.h) writes them as its own arguments and reads them back.
//
//   plan --recognize--> ExportSettings --target.write--> text of the framework
//   text --target.read--> ExportSettings --plan_of--> plan
//
// The mesh of such a plan is, outermost first, {pp, replicas, dp, cp, ep, tp}, or with
// `stages_inside` {replicas, dp, pp, cp, ep, tp}, without axes of size 1. Its entries are those
// that the recipes write for these degrees (plan/recipes.h). So any plan, by hand, of a recipe or
// of a planner, has settings exactly if it cuts, places and keeps the same as such a plan
// (recognize.h).
//
//   ExportSettings settings;
//   settings.tp = 4;
//   settings.dp = 2;
//   TESSERA_TRY(const Plan plan, plan_of(settings, model.graph));
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"
#include "tessera/graph/graph.h"
#include "tessera/plan/plan.h"

namespace tessera {

// `ContextForm` says how ranks that share a sequence see all of it in attention: keys and values
// travel around a ring, or all-to-alls give each rank whole sequences of some heads (Ulysses).
enum class ContextForm : uint8_t { kRing, kHeads };

struct ExportSettings {
  int64_t pp = 1;
  int64_t replicas = 1;  // groups of dp ranks, each of which holds all shards once
  int64_t dp = 1;        // for dense layers, beside `ep`: replicas, dp and ep cut the batch
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t tp = 1;
  bool stages_inside = false;  // consecutive ranks (beside cp, ep and tp) are stages, not replicas
  ContextForm context = ContextForm::kRing;
  std::string token_order = "zigzag";  // for rings: "zigzag", "striped", "none"
  bool sequence_shard = false;         // tokens are cut over tp between the ops that tp cuts
  bool vocabulary = true;              // tp cuts embedding, head and loss by vocab
  int64_t chunks = 1;                  // stages on each place of the pipeline
  std::string schedule = "1f1b";       // a name of plan/schedule.h
  std::vector<int64_t> blocks;         // of each stage; empty: evenly, the first ones longer by one
  int64_t micro_batches = 1;
  int64_t batch = 1;           // sequences of a step over all ranks
  int64_t zero = 0;            // in shards rest optimizer state (1), gradients (2), parameters (3)
  int64_t gathered_ahead = 0;  // blocks between the gathering of parameters and their use
  std::string recompute = "none";  // as the argument of the recipes: "full", "norm+core"
  DType compute = DType::kFloat32;
  DType gradient = DType::kFloat32;     // parameter gradients are accumulated and reduced in it
  std::optional<int64_t> bucket_bytes;  // unset: the plan's default

  int64_t replicas_of_batch() const { return replicas * dp * ep; }
  int64_t ranks() const { return pp * replicas * dp * cp * ep * tp; }
  int64_t micro_batch_size() const { return batch / (replicas_of_batch() * micro_batches); }
  // Returns what differs from the defaults, as "pp=2 dp=4 tp=8 micro_batches=16 zero=1
  // recompute=full".
  std::string str() const;
  friend bool operator==(const ExportSettings&, const ExportSettings&) = default;
};

// For each setting ("cp", "recompute"), the entry of the plan that it came from, as text for
// messages: `plan.toml:7 ({ ops = "*", dim = "seq", over = "cp" })`.
using Origins = std::map<std::string, std::string, std::less<>>;

// Returns the plan with these settings for a model's forward graph. Errors: those of the recipes
// (too few heads, no attention).
Result<Plan> plan_of(const ExportSettings& settings, const Graph& forward);

bool has_experts(const Graph& forward);

// Returns the number of blocks of each stage where no setting says otherwise.
std::vector<int64_t> even_blocks(int64_t blocks, int64_t stages);

}  // namespace tessera
