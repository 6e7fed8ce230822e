#include "tessera/search/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "tessera/base/memory_text.h"
#include "tessera/base/text.h"
#include "tessera/plan/load.h"
#include "tessera/plan/recipes.h"

namespace tessera {
namespace {

// A plan that edits change step by step. It is a recipe call as long as the call's arguments can
// express all changes, and after that a plan without a call.
struct Draft {
  std::optional<RecipeCall> call;
  Plan plan;  // the plan that the call emits, or the changed plan if there is no call
  std::vector<std::string> changes;
};

struct Edit {
  std::string name;
  std::function<bool(Draft&)> apply;  // returns false if the edit does not apply to the draft
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
            it->second = value;
            return true;
          }};
}

// Returns an edit that recomputes `what` in addition to everything that the draft
// recomputes already.
Edit recompute_too(const std::string& what) {
  return {"recompute=" + what, [=](Draft& draft) {
            if (!draft.call) return false;
            auto& texts = draft.call->arguments.texts;
            const auto it = texts.find("recompute");
            if (it == texts.end() || it->second == what || it->second == "full") return false;
            const bool is_all = it->second == "none" || what == "full";
            // "selective" recomputes these cheap modules already
            if (it->second == "selective" && !is_all) return false;
            it->second = is_all ? what : it->second + "+" + what;
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

// Returns an edit that doubles the argument `more` and halves `less`. If `less` is empty, nothing
// is halved, so that the plan needs twice the devices.
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

// Returns the axes of the replicas: those over which the plan splits the micro-batch dim.
std::vector<std::string> replica_axes(const Plan& plan) {
  std::vector<std::string> axes;
  for (const SplitEntry& split : plan.splits) {
    if (split.dim == plan.micro_batch_dim && split.over.size() > axes.size()) axes = split.over;
  }
  return axes;
}

// Returns an edit that adds a store entry over the replicas' axes for `tensors`. It does not apply
// to a call of a recipe with the argument `zero`, which has an edit of its own.
Edit store(const std::string& zero, const std::string& name, const std::string& tensors) {
  return {name, [=](Draft& draft) {
            const std::vector<std::string> axes = replica_axes(draft.plan);
            if (has_number(draft, zero) || axes.empty()) return false;
            draft.call.reset();
            StoreEntry entry;
            entry.tensors = tensors;
            entry.over = axes;
            const auto& stores = draft.plan.stores;
            if (std::find(stores.begin(), stores.end(), entry) != stores.end()) return false;
            draft.plan.stores.push_back(std::move(entry));
            return true;
          }};
}

// Returns an edit that adds the store entries of the recipe `recompute`. It does not apply to a
// call of a recipe that has the argument `recompute`, for which there is recompute_too().
Edit recompute(const Graph& forward, const std::string& what) {
  return {fmt::format("recompute, {}", what), [&forward, what](Draft& draft) {
            if (draft.call && draft.call->arguments.texts.contains("recompute")) return false;
            const auto text = emit_recipe(fmt::format("recompute(recompute={})", what), forward);
            const auto plan = text ? parse_plan(*text) : Result<Plan>(Plan());
            if (!plan || plan->stores.empty()) return false;
            draft.call.reset();
            for (const StoreEntry& entry : plan->stores) {
              const auto& known = draft.plan.stores;
              if (std::find(known.begin(), known.end(), entry) == known.end())
                draft.plan.stores.push_back(entry);
            }
            return true;
          }};
}

Edit micro_batches(int64_t count) {
  return {fmt::format("{} micro-batches", count), [=](Draft& draft) {
            if (draft.call) return false;
            draft.plan.micro_batches = count;
            return true;
          }};
}

// Returns at most five numbers of micro-batches, larger than the plan's, that divide a replica's
// sequences. Each is at least twice the number before it, but for the last, which has one sequence
// in each micro-batch.
std::vector<int64_t> micro_batch_counts(const Graph& forward, const Plan& plan) {
  int64_t sequences = 0;
  for (const Tensor& tensor : forward.tensors()) {
    if (tensor.role != Role::kInput) continue;
    for (const Dim& dim : tensor.dims) {
      if (dim.name == plan.micro_batch_dim) sequences = dim.size;
    }
  }
  for (const std::string& axis : replica_axes(plan)) {
    for (const auto& [name, size] : plan.mesh) {
      if (name == axis && size > 0) sequences /= size;
    }
  }
  std::vector<int64_t> counts;
  for (int64_t count = 2 * plan.micro_batches; count <= sequences; ++count) {
    if (sequences % count != 0 || (!counts.empty() && count < 2 * counts.back())) continue;
    counts.push_back(count);
  }
  if (counts.empty() && sequences > plan.micro_batches) counts.push_back(sequences);
  if (!counts.empty()) counts.back() = sequences;
  constexpr size_t kMost = 5;
  if (counts.size() > kMost) counts.erase(counts.begin() + kMost - 1, counts.end() - 1);
  return counts;
}

Edit optimizer_on_host() {
  return {"optimizer state on the host", [](Draft& draft) {
            StoreEntry entry;
            entry.tensors = "optimizer.*";
            entry.tier = Tier::kHost;
            const auto& stores = draft.plan.stores;
            if (std::find(stores.begin(), stores.end(), entry) != stores.end()) return false;
            draft.call.reset();  // no recipe has an argument for this change
            draft.plan.stores.push_back(std::move(entry));
            return true;
          }};
}

// Returns the changes to try, those that usually cost the least time first.
std::vector<Edit> edits_for(const Graph& forward, const Draft& draft) {
  // The recipe's argument for which tensors rest in shards.
  const std::string zero = has_number(draft, "stage") ? "stage" : "zero";
  const std::vector<int64_t> counts = micro_batch_counts(forward, draft.plan);
  std::vector<Edit> edits = {
      recompute_too("norm+act"),
      recompute(forward, "norm+act"),
      recompute_too("selective"),
      recompute(forward, "selective"),
      set_number(zero, 1),
      store(zero, "optimizer state sharded over the replicas", "optimizer.*"),
      set_number(zero, 2),
      store(zero, "gradients sharded over the replicas", "role:gradient"),
      set_text("sequence_shard", "true"),
      set_text("accumulate", "shards"),
      set_text("spread_state", "true")};
  const auto smaller = [&](size_t i) {
    edits.push_back(set_number("micro_batches", counts[i]));
    edits.push_back(micro_batches(counts[i]));
  };
  if (!counts.empty()) smaller(0);
  edits.push_back(recompute_too("full"));
  edits.push_back(recompute(forward, "full"));
  edits.push_back(set_number(zero, 3));
  edits.push_back(store(zero, "parameters sharded over the replicas", "role:parameter"));
  edits.push_back(set_text("reshard", "true"));
  for (size_t i = 1; i < counts.size(); ++i) smaller(i);
  for (const char* more : {"tp", "pp", "cp"}) edits.push_back(exchange(more, "dp"));
  for (const char* more : {"dp", "pp", "tp"}) edits.push_back(exchange(more, ""));
  edits.push_back(optimizer_on_host());
  return edits;
}

Result<Draft> first_draft(const FitQuestion& question) {
  Draft draft;
  if (!names_plan_file(question.plan) && !is_plan_text(question.plan)) {
    TESSERA_TRY(draft.call, parse_recipe_call(question.plan));
    compute_in(question.compute, *draft.call);
  }
  TESSERA_TRY(draft.plan, load_plan(question.plan, *question.forward, "", question.compute));
  return draft;
}

// Makes the draft's plan from its call, after the call has changed. Without a call does nothing.
Status emit(Draft& draft, const Graph& forward) {
  if (!draft.call) return {};
  TESSERA_TRY(const std::string text, emit_recipe(to_string(*draft.call), forward));
  TESSERA_TRY(draft.plan, parse_plan(text, to_string(*draft.call)));
  return {};
}

// A draft's plan, lowered.
struct LoweredDraft {
  std::shared_ptr<const Lowering> lowering;
  std::unique_ptr<Simulator> simulator;
};

// Looks at drafts: whether they fit, and how long the step takes of those that do.
class Trials {
 public:
  // Plans are tried with `quick`; play_again() gives the answer for the question's own options.
  explicit Trials(const FitQuestion& question)
      : question_(question), quick_(question.options), tight_rank_(question.tight_rank) {
    quick_.memory_details = quick_.critical_path = quick_.events = false;
  }

  // Says what is known of the draft. It is not played if it does not fit or if its step takes at
  // least `limit_s`.
  Result<Remedy> look_at(const Draft& draft, double limit_s) {
    TESSERA_TRY(lowered_, lower(draft));
    Remedy out = remedy_of(draft);
    TESSERA_TRY(const bool too_large, is_too_large(out));
    if (too_large) return out;
    TESSERA_TRY_VOID(look_at_all_ranks(out));
    if (!out.fits) return out;
    TESSERA_TRY(const double least, lowered_.simulator->least_step_s(cluster(), quick_));
    if (least >= limit_s) return out;
    TESSERA_TRY(const Simulation simulation, lowered_.simulator->run(cluster(), quick_));
    out.step_time_s = simulation.step_time_s;
    return out;
  }
  // Keeps the lowered plan of the last draft for play_again().
  void keep() { kept_ = std::move(lowered_); }
  Result<Remedy> play_again(Remedy remedy) {
    SimulateOptions options = question_.options;
    options.memory_details = options.events = false;
    TESSERA_TRY(const Simulation simulation, kept_.simulator->run(cluster(), options));
    remedy.step_time_s = simulation.step_time_s;
    return remedy;
  }

  // Returns the index of the draft that needs the least memory, of equal ones the first.
  // `remedies[i]` is what look_at() said of the drafts; the memory that they need is completed as
  // far as the answer depends on it.
  std::optional<size_t> smallest(const std::vector<Draft>& drafts, std::span<Remedy> remedies) {
    std::vector<bool> complete(drafts.size(), false);
    while (true) {
      const auto least = std::ranges::min_element(remedies, {}, &Remedy::need_bytes);
      if (least == remedies.end()) return std::nullopt;
      const auto i = static_cast<size_t>(least - remedies.begin());
      if (complete[i]) return i;
      complete[i] = true;
      auto whole = lower(drafts[i]);
      if (!whole) continue;
      lowered_ = std::move(*whole);
      if (!look_at_all_ranks(*least)) continue;
    }
  }

 private:
  const Cluster& cluster() const { return *question_.cluster; }
  Compiler& compiler() {
    return question_.compiler != nullptr ? *question_.compiler : own_compiler_;
  }

  Result<LoweredDraft> lower(const Draft& draft) {
    LoweredDraft out;
    TESSERA_TRY(out.lowering,
                compiler().lower(question_.forward, draft.plan, for_price(question_.optimizer)));
    out.simulator = std::make_unique<Simulator>(*out.lowering);
    return out;
  }

  static Remedy remedy_of(const Draft& draft) {
    Remedy out;
    out.changes = draft.changes;
    out.is_call = draft.call.has_value();
    out.plan = out.is_call ? to_string(*draft.call) : to_toml(draft.plan);
    return out;
  }

  // Returns whether the rank that lacked the most memory in an earlier draft lacks memory.
  Result<bool> is_too_large(Remedy& remedy) {
    if (!tight_rank_) return false;
    TESSERA_TRY(const auto memory, lowered_.simulator->memory_of(*tight_rank_, cluster(), quick_));
    if (!memory) return false;
    remedy.need_bytes = static_cast<int64_t>(std::ceil(memory->high));
    const RankDevices& devices =
        question_.options.devices ? *question_.options.devices : lowered_.lowering->plan().devices;
    const int64_t capacity = cluster().type_of(devices.device_of(*tight_rank_)).device.memory_bytes;
    return capacity > 0 && remedy.need_bytes > capacity;
  }

  Status look_at_all_ranks(Remedy& remedy) {
    Simulation unplayed;
    TESSERA_TRY(unplayed.roles, lowered_.simulator->memory(cluster(), quick_));
    double most = 0;
    for (const RankResult& role : unplayed.roles) most = std::max(most, role.memory.high);
    remedy.need_bytes = static_cast<int64_t>(std::ceil(most));
    const std::optional<Shortage> shortage = find_shortage(unplayed, cluster());
    if (shortage) tight_rank_ = shortage->rank;
    remedy.fits = !shortage;
    return {};
  }

  const FitQuestion& question_;
  SimulateOptions quick_;
  Compiler own_compiler_;
  LoweredDraft lowered_, kept_;
  std::optional<int> tight_rank_;
};

}  // namespace

std::optional<Shortage> find_shortage(const Simulation& simulation, const Cluster& cluster) {
  std::optional<Shortage> worst;
  for (const RankResult& role : simulation.roles) {
    const int64_t capacity = cluster.type_of(role.device).device.memory_bytes;
    const auto need = static_cast<int64_t>(std::ceil(role.memory.high));
    if (capacity <= 0 || need <= capacity) continue;
    if (worst && worst->missing_bytes >= need - capacity) continue;
    worst = Shortage{role.representative, capacity, need - capacity, role.memory};
  }
  return worst;
}

std::optional<Room> find_room(const Simulation& simulation, const Cluster& cluster) {
  std::optional<Room> least;
  for (const RankResult& role : simulation.roles) {
    const int64_t capacity = cluster.type_of(role.device).device.memory_bytes;
    if (capacity <= 0) continue;
    const Room room{capacity - static_cast<int64_t>(std::ceil(role.memory.high)), capacity};
    if (!least || room.free_bytes < least->free_bytes) least = room;
  }
  return least;
}

Result<FitAdvice> find_remedies(const FitQuestion& question) {
  constexpr int kMostRounds = 4;
  FitAdvice advice;
  TESSERA_TRY(Draft base, first_draft(question));
  Trials trials(question);
  std::set<std::string> known = {to_toml(base.plan)};
  const auto is_over = [&] {
    return advice.tried.size() + advice.refused >= question.most_evaluations;
  };
  for (int round = 0; round < kMostRounds && !advice.best && !advice.cut_short; ++round) {
    std::vector<Draft> drafts;  // of this round
    for (const Edit& edit : edits_for(*question.forward, base)) {
      Draft draft = base;
      if (!edit.apply(draft)) continue;
      if (is_over()) {
        advice.cut_short = true;
        break;
      }
      if (!emit(draft, *question.forward)) {
        ++advice.refused;
        continue;
      }
      if (draft.plan.ranks() > question.cluster->devices()) continue;
      if (!known.insert(to_toml(draft.plan)).second) continue;
      draft.changes.push_back(edit.name);
      const double limit_s = advice.best ? *advice.tried[*advice.best].step_time_s
                                         : std::numeric_limits<double>::infinity();
      const auto remedy = advice.broken.run([&] { return trials.look_at(draft, limit_s); });
      if (!remedy) {
        ++advice.refused;
        continue;
      }
      advice.tried.push_back(*remedy);
      drafts.push_back(std::move(draft));
      if (!remedy->step_time_s || *remedy->step_time_s >= limit_s) continue;
      advice.best = advice.tried.size() - 1;
      trials.keep();
    }
    if (advice.best) break;
    const auto smallest = trials.smallest(drafts, std::span(advice.tried).last(drafts.size()));
    if (!smallest) break;
    base = std::move(drafts[*smallest]);
  }
  if (advice.best) {
    Remedy& best = advice.tried[*advice.best];
    TESSERA_TRY(best, advice.broken.run([&] { return trials.play_again(best); }));
  }
  return advice;
}

std::vector<std::pair<std::string, int64_t>> live_by_kind(const MemoryUse& memory) {
  std::map<std::string, int64_t> sums;
  for (const LiveBuffer& live : memory.at_peak) sums[live.what] += live.bytes;
  std::vector<std::pair<std::string, int64_t>> out(sums.begin(), sums.end());
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

// The share of the memory below which a kind of buffer is not named.
constexpr double kLeastNamed = 1e-3;

std::string fit_text(const Shortage& shortage, const FitAdvice& advice, double step_time_s) {
  const MemoryUse& memory = shortage.memory;
  std::vector<std::string> live;
  for (const auto& [what, bytes] : live_by_kind(memory)) {
    if (static_cast<double>(bytes) < kLeastNamed * memory.high) continue;
    live.push_back(fmt::format("{} {}", what, memory_text(static_cast<double>(bytes))));
  }
  std::string out = fmt::format(
      "does not fit: rank {} needs up to {} of {}: {} too much\n"
      "at the peak: {}; besides {} for context and libraries\n",
      shortage.rank, memory_text(memory.high),
      memory_text(static_cast<double>(shortage.capacity_bytes)),
      memory_text(static_cast<double>(shortage.missing_bytes)), join(live, ", "),
      memory_text(static_cast<double>(memory.overhead_bytes)));
  if (!memory.at_peak.empty()) {
    const LiveBuffer& largest = memory.at_peak.front();
    out += fmt::format("largest: '{}' ({}), {}\n", largest.name, largest.what,
                       memory_text(static_cast<double>(largest.bytes)));
  }
  std::string tried = fmt::format("{} changes tried", advice.tried.size());
  if (advice.refused > 0) tried += fmt::format(", {} more are not possible", advice.refused);
  if (advice.broken.count > 0) tried += "; " + advice.broken.left_out("change");
  if (advice.cut_short) tried += "; --evaluations ended the search";
  if (!advice.best)
    return out + fmt::format("no change of the plan that was tried makes it fit ({})\n", tried);
  const Remedy& best = advice.tried[*advice.best];
  out += fmt::format("cheapest change that fits: {} (step {:.4g} s instead of {:.4g} s, {}; {})\n",
                     join(best.changes, ", "), *best.step_time_s, step_time_s,
                     memory_text(static_cast<double>(best.need_bytes)), tried);
  return out + (best.is_call ? fmt::format("  --plan '{}'\n", best.plan)
                             : fmt::format("as a plan file:\n{}", best.plan));
}

}  // namespace tessera
