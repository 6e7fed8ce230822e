#include "tessera/search/unequal_meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "tessera/base/text.h"
#include "tessera/search/infinity.h"
#include "tessera/search/question.h"

namespace tessera {
namespace {

// A starting choice is tried if it promises less than this share of the best time.
constexpr double kPromise = .98;
// Stages may take up to this many times the best time, because the sum over units is an upper bound
// of a stage's time.
constexpr double kFormulaErrs = 1.3;
// A starting choice whose dynamic program needs more work is left out.
constexpr double kMostWork = 5e7;
constexpr int64_t kMostStages = 8;
// Starting choices may need up to this many times the memory, because more devices may make
// them fit.
constexpr double kNearlyInMemory = 2;

class MeshSearch {
 public:
  MeshSearch(PlanSearch& search, Ranking& ranking, const Space& space)
      : search_(search),
        question_(search.question()),
        estimator_(ranking.estimator()),
        space_(space),
        units_(search.fold().units),
        is_small_(is_small(question_, search.fold())) {
    const int64_t fixed = fixed_number(question_, "devices");
    devices_ = fixed > 0 ? fixed : question_.cluster->devices();
  }

  std::vector<PlanCandidate> run(const std::vector<PlanCandidate>& ranked) {
    std::vector<PlanCandidate> out;
    if (devices_ < 3 || devices_ > std::min(kMostMeshDevices, question_.cluster->devices()) ||
        !allows(question_, "chunks", 1) || !allows(question_, "replicas_apart", 0))
      return out;
    for (const Choice& seed : seeds(ranked)) {
      if (question_.stop && question_.stop()) break;
      search_.say("unequal meshes like " + seed.str());
      solve(seed, out);
    }
    return out;
  }

 private:
  // A sub-mesh, and the costs of units on it.
  struct Mesh {
    int64_t replicas = 1, inside = 1;
    std::vector<const UnitPrices*> by_kind;  // prices on each kind of nodes
    // Prefix sums over the units: the seconds of all micro-batches by kind of nodes and unit, and
    // the bytes by unit.
    std::vector<std::vector<double>> seconds;
    std::vector<double> resting, activations;
    double overhead_bytes = 0;
    int64_t devices() const { return replicas * inside; }
  };
  struct State {
    double slowest = kInfinity, sum = kInfinity;
    size_t from_units = 0, mesh = 0;
    int64_t from_devices = 0;
    bool operator<(const State& other) const {
      return slowest != other.slowest ? slowest < other.slowest : sum < other.sum;
    }
  };

  // Returns the starting choices that promise the fastest step, each with its number of stages.
  // Choices that differ in shards alone count as one.
  std::vector<Choice> seeds(const std::vector<PlanCandidate>& ranked) {
    for (const PlanCandidate& one : ranked) {
      if (one.estimate.fits()) best_s_ = std::min(best_s_, one.estimate.step_s);
    }
    if (allows(question_, "meshes", "equal") && question_.fixed.contains("meshes")) return {};
    const bool is_asked = question_.fixed.contains("meshes");
    if (is_asked) best_s_ = kInfinity;  // choices with equal meshes are then no answer
    struct Promise {
      double seconds = 0;
      int64_t stages = 1;
      const Choice* from = nullptr;
    };
    std::vector<Promise> order;
    for (const PlanCandidate& one : ranked) {
      const Choice& choice = one.choice;
      const Estimate& estimate = one.estimate;
      const bool is_plain = choice.chunks == 1 && choice.axes.size() <= 2 &&
                            !choice.replicas_apart && choice.units.empty() &&
                            choice.slices.empty() &&
                            choice.schedule == space_.schedules.front().name;
      const bool is_far_too_large =
          estimate.capacity_bytes > 0 &&
          estimate.memory_bytes > kNearlyInMemory * estimate.capacity_bytes;
      if (!is_plain || is_far_too_large) continue;
      const auto m = static_cast<double>(choice.micro_batches);
      for (const int64_t stages : stage_counts()) {
        const double seconds = estimate.work_s * (m + static_cast<double>(stages) - 1) / m *
                               static_cast<double>(choice.ranks()) / static_cast<double>(devices_);
        if (is_asked || seconds < kPromise * best_s_) order.push_back({seconds, stages, &choice});
      }
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Promise& a, const Promise& b) { return a.seconds < b.seconds; });
    std::vector<Choice> out;
    std::set<std::string> known;
    for (const Promise& promise : order) {
      if (!is_small_ && out.size() == kMeshQuestions) break;
      Choice choice = *promise.from;
      choice.stages = promise.stages;
      const ChoiceAxis inside = choice.axes.size() > 1 ? choice.axes[1] : ChoiceAxis{};
      const std::string key = fmt::format("{} {} {}[{}] {}", choice.stages, choice.micro_batches,
                                          inside.size, join(inside.dims, ","), choice.recompute);
      if (!known.insert(key).second || estimator_.schedule_of(choice) == nullptr) continue;
      out.push_back(std::move(choice));
    }
    return out;
  }

  std::vector<int64_t> stage_counts() const {
    const int64_t most = std::min({kMostStages, devices_ - 1, std::ssize(units_)});
    std::vector<int64_t> out;
    for (int64_t stages = 2; stages <= most; ++stages) {
      if (allows(question_, "pp", stages)) out.push_back(stages);
    }
    return out;
  }

  std::vector<Mesh> meshes(const Choice& seed) {
    const int64_t micro_batch = question_.batch / seed.micro_batches;
    std::set<int64_t> sizes = {1};
    int64_t node = 1;
    for (const ClusterPart& part : question_.cluster->parts)
      node = std::max(node, part.type.devices);
    if (seed.axes.size() > 1) {
      for (const int64_t size : divisors_of(2 * seed.axes[1].size)) {
        if (size <= node) sizes.insert(size);
      }
    }
    std::vector<Mesh> out;
    for (const int64_t inside : sizes) {
      for (const int64_t replicas : divisors_of(micro_batch)) {
        if (replicas * inside > devices_ - seed.stages + 1 || !allows(question_, "tp", inside) ||
            !allows(question_, "dp", replicas))
          continue;
        if (auto mesh = priced(seed, replicas, inside)) out.push_back(std::move(*mesh));
      }
    }
    return out;
  }

  std::optional<Mesh> priced(const Choice& seed, int64_t replicas, int64_t inside) {
    Mesh out;
    out.replicas = replicas;
    out.inside = inside;
    UnitQuestion asked;
    if (inside > 1) asked.axes = {{seed.axes[1].name, inside, seed.axes[1].dims}};
    asked.sequences = question_.batch / seed.micro_batches / replicas;
    asked.recompute = seed.recompute;
    const auto m = static_cast<double>(seed.micro_batches);
    const UnitLayout layout{replicas, inside, inside, 0};
    for (size_t kind = 0; kind < estimator_.kinds().count(); ++kind) {
      asked.on = &estimator_.kinds().cluster(kind);
      const auto prices = search_.pricer().price(asked);
      if (!prices) return {};
      out.by_kind.push_back(*prices);
      out.overhead_bytes =
          std::max(out.overhead_bytes, (*prices)->overhead_bytes + (*prices)->transient_bytes);
      std::vector<UnitCost> costs;  // by unit of the folded model
      for (const UnitPrice& unit : (*prices)->units) {
        costs.push_back(
            estimator_.unit_cost(unit, question_.compute, seed.sharded, layout, devices_));
      }
      std::vector<double>& seconds = out.seconds.emplace_back(1, 0.0);
      out.resting.assign(1, 0.0);
      out.activations.assign(1, 0.0);
      for (const FoldUnit& unit : units_) {
        const UnitCost& cost = costs[static_cast<size_t>(unit.stand_in)];
        seconds.push_back(seconds.back() + m * cost.passes_s + cost.once_s);
        out.resting.push_back(out.resting.back() + cost.resting_bytes);
        out.activations.push_back(out.activations.back() + cost.activation_bytes);
      }
    }
    return out;
  }

  // Returns the kinds of nodes that a mesh uses if it begins at the device. Empty if the devices of
  // one replica would be on several nodes.
  std::vector<size_t> kinds_under(const Mesh& mesh, int64_t first) const {
    std::vector<size_t> out;
    const Cluster& cluster = *question_.cluster;
    for (int64_t group = first; group < first + mesh.devices(); group += mesh.inside) {
      if (cluster.locate(group).node != cluster.locate(group + mesh.inside - 1).node) return {};
      const size_t kind = estimator_.kinds().of_device(group);
      if (std::find(out.begin(), out.end(), kind) == out.end()) out.push_back(kind);
    }
    return out;
  }

  void solve(const Choice& seed, std::vector<PlanCandidate>& out) {
    const size_t stages = static_cast<size_t>(seed.stages), n = units_.size();
    const auto devices = static_cast<size_t>(devices_);
    const std::vector<Mesh> all = meshes(seed);
    const auto square = static_cast<double>(n * n);
    if (square * static_cast<double>(stages * devices * all.size()) > kMostWork) return;
    const ScheduleFacts* facts = estimator_.schedule_of(seed);
    const double limit = search_.limit_bytes();
    // Index of a state by the numbers of stages, units and devices that are used up.
    const auto at = [&](size_t s, size_t u, size_t d) {
      return (s * (n + 1) + u) * (devices + 1) + d;
    };
    std::vector<State> best((stages + 1) * (n + 1) * (devices + 1));
    best[0].slowest = best[0].sum = 0;
    for (size_t d = 0; d < devices; ++d) {
      for (size_t mesh = 0; mesh < all.size(); ++mesh) {
        const Mesh& on = all[mesh];
        const size_t after = d + static_cast<size_t>(on.devices());
        if (after > devices) continue;
        const std::vector<size_t> kinds = kinds_under(on, static_cast<int64_t>(d));
        if (kinds.empty()) continue;
        for (size_t s = 0; s < stages; ++s) {
          const double held = facts->held[s];
          for (size_t u = s; u + (stages - s) <= n; ++u) {
            const State& before = best[at(s, u, d)];
            if (before.slowest == kInfinity) continue;
            for (size_t end = u + 1; end + (stages - s - 1) <= n; ++end) {
              double seconds = 0;
              for (const size_t kind : kinds)
                seconds = std::max(seconds, on.seconds[kind][end] - on.seconds[kind][u]);
              const double bytes = on.resting[end] - on.resting[u] + on.overhead_bytes +
                                   held * (on.activations[end] - on.activations[u]);
              if (seconds > kFormulaErrs * best_s_ || (limit > 0 && bytes > limit)) break;
              State next{std::max(before.slowest, seconds), before.sum + seconds, u, mesh,
                         static_cast<int64_t>(d)};
              State& known = best[at(s + 1, end, after)];
              if (next < known) known = next;
            }
          }
        }
      }
    }
    size_t used = 0;
    for (size_t d = 1; d <= devices; ++d) {
      if (best[at(stages, n, d)] < best[at(stages, n, used)]) used = d;
    }
    if (best[at(stages, n, used)].slowest == kInfinity) return;
    std::vector<const Mesh*> chosen(stages);
    std::vector<size_t> cuts(stages);
    for (size_t s = stages, u = n, d = used; s > 0; --s) {
      const State& state = best[at(s, u, d)];
      chosen[s - 1] = &all[state.mesh];
      cuts[s - 1] = u = state.from_units;
      d = static_cast<size_t>(state.from_devices);
    }
    add(seed, chosen, cuts, out);
  }

  void add(const Choice& seed, const std::vector<const Mesh*>& chosen,
           const std::vector<size_t>& cuts, std::vector<PlanCandidate>& out) {
    const auto differs = [&](const Mesh* mesh) {
      return mesh->replicas != chosen.front()->replicas || mesh->inside != chosen.front()->inside;
    };
    if (std::none_of(chosen.begin(), chosen.end(), differs)) return;
    Choice choice = seed;
    choice.cuts = cuts;
    const bool has_inside = std::any_of(chosen.begin(), chosen.end(),
                                        [](const Mesh* mesh) { return mesh->inside > 1; });
    if (!has_inside) choice.axes.resize(1);
    std::vector<const UnitPrices*> prices;
    for (size_t s = 0; s < chosen.size(); ++s) {
      std::vector<ChoiceAxis> axes = choice.axes;
      axes.front().size = chosen[s]->replicas;
      if (has_inside) axes.back().size = chosen[s]->inside;
      choice.stage_axes.push_back(std::move(axes));
    }
    choice.axes = choice.stage_axes.front();
    for (size_t s = 0; s < chosen.size(); ++s) {
      const UnitPrices* slowest =
          estimator_.slowest_at(choice, static_cast<int64_t>(s), chosen[s]->by_kind);
      prices.resize(s + 1 < cuts.size() ? cuts[s + 1] : units_.size(), slowest);
    }
    for (const SpaceSchedule& schedule : space_.schedules) {
      if (schedule.chunks != std::vector<int64_t>{1}) continue;
      choice.schedule = schedule.name;
      const ScheduleFacts* facts = estimator_.schedule_of(choice);
      if (facts == nullptr || (facts->splits_backward && choice.recompute != "none")) continue;
      if (!allows(question_, "schedule", schedule.name)) continue;
      for (const int64_t sharded : numbers_of(question_, "zero", {0, 1, 2, 3})) {
        choice.sharded = sharded;
        PlanCandidate candidate;
        candidate.choice = choice;
        candidate.estimate =
            estimator_.estimate_units(choice, prices, question_.batch / choice.micro_batches);
        out.push_back(std::move(candidate));
      }
    }
  }

  PlanSearch& search_;
  const PlanQuestion& question_;
  Estimator& estimator_;
  const Space& space_;
  const std::vector<FoldUnit>& units_;
  bool is_small_;  // small models try all starting choices
  int64_t devices_ = 1;
  double best_s_ = kInfinity;  // least time of the ranked choices that fit
};

}  // namespace

std::vector<PlanCandidate> unequal_meshes(PlanSearch& search, Ranking& ranking, const Space& space,
                                          const std::vector<PlanCandidate>& ranked) {
  return MeshSearch(search, ranking, space).run(ranked);
}

}  // namespace tessera
