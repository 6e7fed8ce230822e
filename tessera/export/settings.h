// What the launch settings of a training framework say of a plan: degrees and switches, in no
// framework's words. A target (target.h) writes them as its own arguments and reads them back.
//
//   plan --recognize--> ExportSettings --target.write--> text of the framework
//   text --target.read--> ExportSettings --plan_of--> plan
//
// The mesh of such a plan is, outermost first, {pp, replicas, dp, cp, ep, tp}, axes of size 1 left
// out, or with `stages_inside` {replicas, dp, pp, cp, ep, tp}. Its entries are what the recipes
// write for these degrees (plan/recipes.h), so a plan by hand, of a recipe or of a planner has
// settings exactly if it cuts, places and keeps what such a plan does (recognize.h).
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

// How the ranks that share a sequence see all of it in attention: keys and values travel around a
// ring, or all-to-alls give each rank whole sequences of some of the heads (Ulysses).
enum class ContextForm : uint8_t { kRing, kHeads };

struct ExportSettings {
  int64_t pp = 1;
  int64_t replicas = 1;  // groups of dp ranks, each of which holds all shards once
  int64_t dp = 1;        // of dense layers, beside `ep`: the batch is cut over replicas, dp and ep
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t tp = 1;
  bool stages_inside = false;  // consecutive ranks (beside cp, ep and tp) are stages, not replicas
  ContextForm context = ContextForm::kRing;
  std::string token_order = "zigzag";  // of rings: "zigzag", "striped", "none"
  bool sequence_shard = false;         // between the ops that tp cuts, tokens over tp
  bool vocabulary = true;              // does tp cut embedding, head and loss by vocab?
  int64_t chunks = 1;                  // stages of a place
  std::string schedule = "1f1b";       // a name of plan/schedule.h
  std::vector<int64_t> blocks;         // of each stage; empty: evenly, the first ones longer by one
  int64_t micro_batches = 1;
  int64_t batch = 1;  // sequences of a step over all ranks
  int64_t zero = 0;   // what rests in shards: optimizer state (1), gradients (2), parameters (3)
  int64_t gathered_ahead = 0;      // blocks between the gathering of parameters and their use
  std::string recompute = "none";  // as the argument of the recipes: "full", "norm+core"
  DType compute = DType::kFloat32;
  DType gradient = DType::kFloat32;     // in which parameter gradients are accumulated and reduced
  std::optional<int64_t> bucket_bytes;  // unset: the plan's default

  int64_t replicas_of_batch() const { return replicas * dp * ep; }
  int64_t ranks() const { return pp * replicas * dp * cp * ep * tp; }
  int64_t micro_batch_size() const { return batch / (replicas_of_batch() * micro_batches); }
  // "pp=2 dp=4 tp=8 micro_batches=16 zero=1 recompute=full": what differs from the defaults.
  std::string str() const;
  friend bool operator==(const ExportSettings&, const ExportSettings&) = default;
};

// Which entry of a plan a setting came from, by the setting's name ("cp", "recompute"): text for
// messages, `plan.toml:7 ({ ops = "*", dim = "seq", over = "cp" })`.
using Origins = std::map<std::string, std::string, std::less<>>;

// The plan with these settings, of a model's forward graph. Errors: what the recipes refuse (too
// few heads, no attention).
Result<Plan> plan_of(const ExportSettings& settings, const Graph& forward);

bool has_experts(const Graph& forward);

// How many blocks each stage has where nothing else is said.
std::vector<int64_t> even_blocks(int64_t blocks, int64_t stages);

}  // namespace tessera
