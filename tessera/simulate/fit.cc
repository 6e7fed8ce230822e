#include "tessera/simulate/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/plan/load.h"
#include "tessera/plan/prepare.h"
#include "tessera/plan/recipes.h"

namespace tessera {
namespace {

// A plan on its way: a recipe call as long as its arguments say all, then a plan.
struct Draft {
  std::optional<RecipeCall> call;
  Plan plan;  // what the call emits, or the plan itself
  std::vector<std::string> changes;
};

struct Edit {
  std::string name;
  std::function<bool(Draft&)> apply;  // false: it does not apply
};

// ---- recipe calls

bool has_number(const Draft& draft, const std::string& name) {
  return draft.call && draft.call->arguments.numbers.contains(name);
}

Edit set_text(const std::string& argument, const std::string& value) {
  return {argument + "=" + value, [=](Draft& draft) {
            if (!draft.call) return false;
            auto& texts = draft.call->arguments.texts;
            const auto it = texts.find(argument);
            if (it == texts.end() || it->second == value) return false;
            // Recomputation is not taken back.
            if (argument == "recompute" && it->second == "full") return false;
            it->second = value;
            return true;
          }};
}

Edit set_number(const std::string& argument, int64_t value) {
  return {fmt::format("{}={}", argument, value), [=](Draft& draft) {
            if (!has_number(draft, argument)) return false;
            int64_t& number = draft.call->arguments.numbers.find(argument)->second;
            if (number >= value) return false;
            number = value;
            return true;
          }};
}

// Twice as much of `more`, half as much of `less` (empty: of nothing, so more devices).
Edit exchange(const std::string& more, const std::string& less) {
  const std::string name = less.empty() ? fmt::format("{} doubled, on twice the devices", more)
                                        : fmt::format("{} doubled, {} halved", more, less);
  return {name, [=](Draft& draft) {
            if (!has_number(draft, more)) return false;
            auto& numbers = draft.call->arguments.numbers;
            if (!less.empty()) {
              if (!has_number(draft, less) || numbers.find(less)->second % 2 != 0) return false;
              numbers.find(less)->second /= 2;
            }
            numbers.find(more)->second *= 2;
            return true;
          }};
}

// ---- plans

// Axes over which the plan splits the micro-batch dim: those of the replicas.
std::vector<std::string> replica_axes(const Plan& plan) {
  std::vector<std::string> axes;
  for (const SplitEntry& split : plan.splits) {
    if (split.dim == plan.micro_batch_dim && split.over.size() > axes.size()) axes = split.over;
  }
  return axes;
}

Edit store(const std::string& name, const std::string& tensors) {
  return {name, [=](Draft& draft) {
            const std::vector<std::string> axes = replica_axes(draft.plan);
            if (draft.call || axes.empty()) return false;
            StoreEntry entry;
            entry.tensors = tensors;
            entry.over = axes;
            const auto& stores = draft.plan.stores;
            if (std::find(stores.begin(), stores.end(), entry) != stores.end()) return false;
            draft.plan.stores.push_back(std::move(entry));
            return true;
          }};
}

Edit recompute(const Graph& forward, const std::string& what) {
  return {fmt::format("recompute, {}", what), [&forward, what](Draft& draft) {
            if (draft.call) return false;
            const auto text = emit_recipe(fmt::format("recompute(recompute={})", what), forward);
            const auto plan = text ? parse_plan(*text) : Result<Plan>(Plan());
            if (!plan || plan->stores.empty()) return false;
            for (const StoreEntry& entry : plan->stores) {
              const auto& known = draft.plan.stores;
              if (std::find(known.begin(), known.end(), entry) == known.end())
                draft.plan.stores.push_back(entry);
            }
            return true;
          }};
}

Edit more_micro_batches(int64_t times) {
  return {fmt::format("{} times the micro-batches", times), [=](Draft& draft) {
            if (draft.call) return false;
            draft.plan.micro_batches *= times;
            return true;
          }};
}

Edit multiply_micro_batches(int64_t times) {
  return {fmt::format("micro_batches x {}", times), [=](Draft& draft) {
            if (!has_number(draft, "micro_batches")) return false;
            draft.call->arguments.numbers.find("micro_batches")->second *= times;
            return true;
          }};
}

Edit optimizer_on_host() {
  return {"optimizer state on the host", [](Draft& draft) {
            StoreEntry entry;
            entry.tensors = "optimizer.*";
            entry.tier = Tier::kHost;
            const auto& stores = draft.plan.stores;
            if (std::find(stores.begin(), stores.end(), entry) != stores.end()) return false;
            draft.call.reset();  // no argument says it
            draft.plan.stores.push_back(std::move(entry));
            return true;
          }};
}

std::vector<Edit> edits_for(const Graph& forward, const Draft& draft) {
  if (!draft.call) {
    return {recompute(forward, "selective"),
            recompute(forward, "full"),
            store("optimizer state sharded over the replicas", "optimizer.*"),
            store("gradients sharded over the replicas", "role:gradient"),
            store("parameters sharded over the replicas", "role:parameter"),
            more_micro_batches(2),
            more_micro_batches(4),
            more_micro_batches(8),
            optimizer_on_host()};
  }
  std::vector<Edit> edits = {set_text("recompute", "selective"), set_text("recompute", "full"),
                             set_text("sequence_shard", "true"), set_text("reshard", "true"),
                             set_text("accumulate", "shards"),   set_text("spread_state", "true")};
  const std::string zero = draft.call->recipe->name == "zero" ? "stage" : "zero";
  for (int64_t stage = 1; stage <= 3; ++stage) edits.push_back(set_number(zero, stage));
  for (const int64_t times : {2, 4, 8}) edits.push_back(multiply_micro_batches(times));
  for (const char* more : {"tp", "pp", "cp"}) edits.push_back(exchange(more, "dp"));
  for (const char* more : {"dp", "pp", "tp"}) edits.push_back(exchange(more, ""));
  edits.push_back(optimizer_on_host());
  return edits;
}

Result<Draft> first_draft(const FitQuestion& question) {
  Draft draft;
  if (!names_plan_file(question.plan)) {
    TESSERA_TRY(draft.call, parse_recipe_call(question.plan));
  }
  TESSERA_TRY(draft.plan, load_plan(question.plan, *question.forward));
  return draft;
}

double most_needed(const Simulation& simulation) {
  double most = 0;
  for (const RankResult& role : simulation.roles) most = std::max(most, role.memory.high);
  return most;
}

// Its plan anew, after its call has changed.
Status emit(Draft& draft, const Graph& forward) {
  if (!draft.call) return {};
  TESSERA_TRY(const std::string text, emit_recipe(to_string(*draft.call), forward));
  TESSERA_TRY(draft.plan, parse_plan(text, to_string(*draft.call)));
  return {};
}

Result<Remedy> try_draft(const Draft& draft, const FitQuestion& question) {
  TESSERA_TRY(const Simulation simulation,
              simulate_plan(*question.forward, draft.plan, *question.cluster, question.options));
  Remedy remedy;
  remedy.changes = draft.changes;
  remedy.is_call = draft.call.has_value();
  remedy.plan = remedy.is_call ? to_string(*draft.call) : to_toml(draft.plan);
  remedy.step_time_s = simulation.step_time_s;
  remedy.need_bytes = static_cast<int64_t>(std::ceil(most_needed(simulation)));
  remedy.fits = !find_shortage(simulation, *question.cluster);
  return remedy;
}

std::string size_text(double bytes) { return fmt::format("{:.2f} GB", bytes / 1e9); }

// "activation 41.20 GB, optimizer state 12.00 GB", largest first.
std::string by_what(const MemoryUse& memory) {
  std::map<std::string, int64_t> sums;
  for (const LiveBuffer& live : memory.at_peak) sums[live.what] += live.bytes;
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [what, bytes] : sums) order.emplace_back(-bytes, what);
  std::sort(order.begin(), order.end());
  std::vector<std::string> parts;
  for (const auto& [bytes, what] : order)
    parts.push_back(fmt::format("{} {}", what, size_text(-static_cast<double>(bytes))));
  return join(parts, ", ");
}

}  // namespace

std::optional<Shortage> find_shortage(const Simulation& simulation, const Cluster& cluster) {
  std::optional<Shortage> worst;
  for (const RankResult& role : simulation.roles) {
    const int64_t capacity = cluster.type_of(role.representative).device.memory_bytes;
    const auto need = static_cast<int64_t>(std::ceil(role.memory.high));
    if (capacity <= 0 || need <= capacity) continue;
    if (worst && worst->missing_bytes >= need - capacity) continue;
    worst = Shortage{role.representative, capacity, need - capacity, role.memory};
  }
  return worst;
}

Result<Simulation> simulate_plan(const Graph& forward, const Plan& plan, const Cluster& cluster,
                                 const SimulateOptions& options) {
  TESSERA_TRY(Graph graph, training_graph(forward, plan, plan.precision, OptimizerSpec{}));
  TESSERA_TRY(Prepared prepared, prepare(std::move(graph), plan));
  auto shared = std::make_shared<const Graph>(std::move(prepared.graph));
  TESSERA_TRY(const Lowering lowering,
              Lowering::create(std::move(shared), std::move(prepared.plan)));
  return simulate(lowering, cluster, options);
}

Result<FitAdvice> find_remedies(const FitQuestion& question) {
  constexpr int kMostRounds = 4;
  FitAdvice advice;
  TESSERA_TRY(Draft base, first_draft(question));
  std::set<std::string> known;
  for (int round = 0; round < kMostRounds && !advice.best; ++round) {
    std::optional<std::pair<int64_t, Draft>> smallest;
    for (const Edit& edit : edits_for(*question.forward, base)) {
      if (advice.tried.size() >= question.most_tries) break;
      Draft draft = base;
      if (!edit.apply(draft) || !emit(draft, *question.forward)) continue;
      if (draft.plan.ranks() > question.cluster->devices()) continue;
      if (!known.insert(to_toml(draft.plan)).second) continue;
      draft.changes.push_back(edit.name);
      const auto remedy = try_draft(draft, question);
      if (!remedy) continue;
      if (!smallest || remedy->need_bytes < smallest->first)
        smallest.emplace(remedy->need_bytes, draft);
      advice.tried.push_back(*remedy);
      const bool better =
          !advice.best || remedy->step_time_s < advice.tried[*advice.best].step_time_s;
      if (remedy->fits && better) advice.best = advice.tried.size() - 1;
    }
    if (!smallest) break;
    base = std::move(smallest->second);
  }
  return advice;
}

std::string fit_text(const Shortage& shortage, const FitAdvice& advice, double step_time_s) {
  const MemoryUse& memory = shortage.memory;
  std::string out = fmt::format(
      "does not fit: rank {} needs up to {} of {}: {} ({} bytes) too much\n"
      "at the peak: {}; besides {} for context and libraries\n",
      shortage.rank, size_text(memory.high),
      size_text(static_cast<double>(shortage.capacity_bytes)),
      size_text(static_cast<double>(shortage.missing_bytes)), shortage.missing_bytes,
      by_what(memory), size_text(static_cast<double>(memory.overhead_bytes)));
  if (!memory.at_peak.empty()) {
    const LiveBuffer& largest = memory.at_peak.front();
    out += fmt::format("largest: '{}' ({}), {}\n", largest.name, largest.what,
                       size_text(static_cast<double>(largest.bytes)));
  }
  if (!advice.best) {
    return out + fmt::format("no change of the plan that was tried makes it fit ({} tried)\n",
                             advice.tried.size());
  }
  const Remedy& best = advice.tried[*advice.best];
  out += fmt::format("cheapest change that fits: {} (step {:.4g} s instead of {:.4g} s, {})\n",
                     join(best.changes, ", "), best.step_time_s, step_time_s,
                     size_text(static_cast<double>(best.need_bytes)));
  return out + (best.is_call ? fmt::format("  --plan '{}'\n", best.plan)
                             : fmt::format("as a plan file:\n{}", best.plan));
}

}  // namespace tessera
