#include "tessera/planners/alpa.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>

#include "tessera/planners/unit_rows.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

using published::StageChoice;
using published::StagesPlan;
using published::StagesProblem;
using MeshShape = std::pair<int64_t, int64_t>;

constexpr size_t kMostLayers = 32;
constexpr size_t kMostAtoms = 256;  // most atoms (joined units) that are clustered into layers
constexpr double kImbalance = .5;   // the work of a layer is at most 1 + this times the mean
// With more hosts, sub-meshes have a power of two of hosts, or all.
constexpr int64_t kAllHosts = 8;
constexpr int64_t kAllShapes = 32;  // on more devices is_balanced() is required
// Largest ratio of the shares of work and devices, either way.
constexpr double kOutOfProportion = 2;
constexpr int64_t kAlpaSequences = 32;  // most sequences of a micro-batch on one replica
// Share of the devices' memory that plans may use by formula, because formulas err.
constexpr double kMargin = .97;
constexpr double kTooMuch[] = {1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100, 1e3, 1e4, 1e6};
// Plans slower than this many times the best by formula are dropped.
constexpr double kFarOff = 1.5;
// Ways that gather parameters in each pass (sharded 3) count as slower by this factor. The formula
// assumes that the pass hides the gathering, so this prefers the way that gathers less if two ways
// are nearly equal.
constexpr double kShardsInUse = 1.03;
// Value of most_later where memory does not limit the number of later stages.
constexpr int64_t kNoLimit = 1000000000;

// Returns the first unit of each layer.
std::vector<size_t> cluster_units(const Graph& forward, const std::vector<FoldUnit>& units,
                                  const std::vector<double>& work) {
  const std::vector<size_t> atoms = join_units(work, kMostAtoms);
  published::ClusterProblem problem;
  problem.ops.resize(atoms.size());
  problem.imbalance = kImbalance;
  std::vector<size_t> atom_of(units.size());
  double most = 0;
  for (size_t u = 0, atom = 0; u < units.size(); ++u) {
    if (atom + 1 < atoms.size() && atoms[atom + 1] == u) ++atom;
    atom_of[u] = atom;
    problem.ops[atom].flops += work[u];
    most = std::max(most, problem.ops[atom].flops);
  }
  for (const GroupBorder& border : group_borders(forward, units, atom_of))
    problem.ops[border.from].outputs.push_back({border.bytes, border.to});
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  const double bound = most > 0 ? (1 + kImbalance) * all / most : 1;
  problem.layers = std::min({kMostLayers, atoms.size(), static_cast<size_t>(std::max(1.0, bound))});
  for (; problem.layers > 1; --problem.layers) {
    const auto plan = cluster_ops(problem);
    if (!plan) continue;
    std::vector<size_t> out = {0};
    for (size_t layer = 0; layer + 1 < plan->ends.size(); ++layer)
      out.push_back(atoms[plan->ends[layer]]);
    return out;
  }
  return {0};
}

}  // namespace

AlpaSpace::AlpaSpace(PlanSearch& search, UnitCuts& cuts)
    : search_(search),
      cuts_(cuts),
      estimator_(*search.question().cluster, search.question().options.style, search.fold().units,
                 search.question().memory_limit_bytes) {
  find_shapes();
  find_layers();
}

void AlpaSpace::find_shapes() {
  const Cluster& cluster = *search_.question().cluster;
  const int64_t all = fixed_or(search_.question(), "devices", cluster.devices());
  const int64_t node = cluster.type_of(0).devices;
  const bool is_whole = all >= node && all % node == 0;
  hosts_ = is_whole ? all / node : 1;
  devices_a_host_ = is_whole ? node : all;
  for (const MeshShape& shape : published::submesh_shapes(hosts_, devices_a_host_)) {
    const bool is_power = std::has_single_bit(static_cast<uint64_t>(shape.first));
    if (hosts_ <= kAllHosts || is_power || shape.first == hosts_) shapes_.push_back(shape);
  }
}

void AlpaSpace::find_layers() {
  const std::vector<FoldUnit>& units = search_.fold().units;
  std::vector<double> work(units.size(), 1);
  const auto prices = search_.pricer().price({{}, cuts_.least_sequences(), "none"});
  for (size_t u = 0; prices && u < units.size(); ++u) {
    const UnitPrice& unit = (*prices)->units[static_cast<size_t>(units[u].stand_in)];
    work[u] = unit.forward_s + unit.backward_s;
  }
  layers_ = cluster_units(search_.forward(), units, work);
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    double own = 0;
    for (size_t u = layers_[layer]; u < end_of_layer(layer); ++u) own += work[u];
    work_.push_back(own / all);
  }
}

size_t AlpaSpace::end_of_layer(size_t layer) const {
  return layer + 1 < layers_.size() ? layers_[layer + 1] : search_.fold().units.size();
}

int64_t AlpaSpace::micro_batch(int64_t micro_batches) const {
  return (search_.question().batch + micro_batches - 1) / micro_batches;
}

std::vector<AlpaSpace::Logical> AlpaSpace::logical_meshes(int64_t devices) const {
  std::vector<Logical> out;
  const bool is_fixed = fixed_number(search_.question(), "tp") > 0;
  for (const int64_t inside : divisors_of(devices)) {
    const int64_t replicas = devices / inside;
    if (!allows(search_.question(), "tp", inside) || !allows(search_.question(), "dp", replicas))
      continue;
    // A single axis has the devices of a host, or a divisor of their number.
    if (is_fixed || devices_a_host_ % inside == 0) out.push_back({replicas, {1, inside}});
    if (cuts_.pairs().empty() || inside > 2 * devices_a_host_) continue;
    for (const int64_t inner : divisors_of(inside)) {
      if (inner > 1 && inner < inside && inner <= devices_a_host_)
        out.push_back({replicas, {inside / inner, inner}});
    }
  }
  return out;
}

bool AlpaSpace::is_balanced(size_t first, size_t last, int64_t devices) const {
  if (this->devices() <= kAllShapes || (first == 0 && last + 1 == layers_.size())) return true;
  double work = 0;
  for (size_t layer = first; layer <= last; ++layer) work += work_[layer];
  const double share = static_cast<double>(devices) / static_cast<double>(this->devices());
  const double most = search_.question().fixed.contains("pp") ? kOutOfProportion * kOutOfProportion
                                                              : kOutOfProportion;
  return work <= most * share && share <= most * work;
}

// Adds a way for each value of Choice::sharded.
void AlpaSpace::add_range(AlpaWay way, const UnitRange& range, int64_t micro_batches,
                          std::vector<AlpaWay>& out) const {
  const auto m = static_cast<double>(micro_batches);
  const int64_t inside = way.set->sizes[0] * way.set->sizes[1];
  const UnitLayout layout{way.replicas, inside, inside, 0};
  // The published program sums gradients once a step, so `sharded` 2 is left out.
  std::vector<int64_t> kinds = {0};
  if (way.replicas > 1) kinds = numbers_of(search_.question(), "zero", {0, 1, 3});
  for (const int64_t sharded : kinds) {
    const UnitCost cost =
        estimator_.unit_cost(range.sum, search_.question().compute, sharded, layout, devices());
    way.sharded = sharded;
    way.change_s = range.change_s;
    way.seconds = cost.passes_s + way.change_s + cost.once_s / m;
    if (sharded == 3) way.seconds *= kShardsInUse;
    way.resting_bytes = cost.resting_bytes;
    way.peak_bytes = range.alive_bytes + range.overhead_bytes +
                     cost.gathered_bytes / static_cast<double>(range.units);
    way.activation_bytes = cost.activation_bytes;
    const Cluster& cluster = *search_.question().cluster;
    if (cluster.type_of(0).device.synchronous && way.last + 1 < layers_.size()) {
      const int64_t own = way.shape.first * way.shape.second;
      const double bytes = range.sum.leaving_piece_bytes * static_cast<double>(way.set->sequences);
      way.seconds +=
          2 * estimator_.collectives()
                  .message(0, std::min(own, cluster.devices() - 1), static_cast<int64_t>(bytes),
                           std::min(own, cluster.type_of(0).devices))
                  .seconds();
    }
    out.push_back(way);
  }
}

void AlpaSpace::add_ways(const MeshShape& shape, const Logical& logical, int64_t micro_batches,
                         const CutSet& set, std::vector<AlpaWay>& out) const {
  const auto m = static_cast<double>(micro_batches);
  AlpaWay way;
  way.shape = shape;
  way.replicas = logical.replicas;
  way.set = &set;
  way.weights = {1 / m,
                 cuts_.gradient_rate(logical.replicas, logical.sizes[0] * logical.sizes[1]) / m};
  const int64_t own = shape.first * shape.second;
  std::vector<std::optional<size_t>> kinds;
  if (set.cuts.size() > 1) kinds.emplace_back();
  for (size_t c = 0; c < set.cuts.size(); ++c) kinds.emplace_back(c);
  for (size_t first = 0; first < layers_.size(); ++first) {
    size_t last = layers_.size();
    while (last > first && !is_balanced(first, last - 1, own)) --last;
    if (last == first) continue;
    for (const auto& kind : kinds) {
      const auto ranges = cuts_.ranges(set, layers_[first], end_of_layer(last - 1), way.weights,
                                       kind ? std::vector<size_t>{*kind} : std::vector<size_t>{});
      way.first = first;
      way.cut = kind;
      for (way.last = first; way.last < last; ++way.last) {
        if (!is_balanced(first, way.last, own)) continue;
        add_range(way, ranges[end_of_layer(way.last) - layers_[first]], micro_batches, out);
      }
    }
  }
}

std::vector<AlpaSpace::Sizes> AlpaSpace::common_sizes() const {
  if (devices() <= kAllShapes) return {{0, 0}};
  std::vector<Sizes> out;
  for (const MeshShape& shape : shapes_) {
    for (const Logical& logical : logical_meshes(shape.first * shape.second)) {
      if (std::find(out.begin(), out.end(), logical.sizes) == out.end())
        out.push_back(logical.sizes);
    }
  }
  return out;
}

std::vector<AlpaWay> AlpaSpace::ways(int64_t micro_batches, const std::string& recompute,
                                     const Sizes& common) {
  std::vector<AlpaWay> all;
  const int64_t micro = micro_batch(micro_batches);
  for (const MeshShape& shape : shapes_) {
    for (const Logical& logical : logical_meshes(shape.first * shape.second)) {
      const int64_t sequences = micro / logical.replicas;
      if (common[0] > 0 && logical.sizes != common) continue;
      if (micro % logical.replicas != 0) continue;
      if (sequences > kAlpaSequences && !search_.question().fixed.contains("micro_batches"))
        continue;
      const CutSet& set = cuts_.candidates(logical.sizes, sequences, recompute);
      if (!set.cuts.empty()) add_ways(shape, logical, micro_batches, set, all);
    }
  }
  // Keeps the ways that no other way of the same layers and shape beats. A way that cuts all units
  // alike is dropped only for another one that does so, because it needs no changes of layout,
  // whose price is uncertain.
  const auto key = [](const AlpaWay& way) { return std::tuple(way.first, way.last, way.shape); };
  std::stable_sort(all.begin(), all.end(), [&](const AlpaWay& a, const AlpaWay& b) {
    if (key(a) != key(b)) return key(a) < key(b);
    return a.seconds < b.seconds;
  });
  std::vector<AlpaWay> out;
  for (size_t i = 0, group = 0; i < all.size(); ++i) {
    if (i == 0 || key(all[i]) != key(all[i - 1])) group = out.size();
    const AlpaWay& way = all[i];
    const bool is_beaten = std::any_of(
        out.begin() + static_cast<std::ptrdiff_t>(group), out.end(), [&](const AlpaWay& other) {
          return (other.cut || !way.cut) &&
                 other.resting_bytes + other.peak_bytes <= way.resting_bytes + way.peak_bytes &&
                 other.activation_bytes <= way.activation_bytes;
        });
    if (!is_beaten) out.push_back(way);
  }
  return out;
}

std::optional<StagesPlan> AlpaSpace::stages(const std::vector<AlpaWay>& ways, int64_t micro_batches,
                                            double capacity, double most_s) const {
  StagesProblem problem;
  problem.layers = layers_.size();
  problem.micro_batches = micro_batches;
  problem.stages = static_cast<size_t>(fixed_number(search_.question(), "pp"));
  const bool is_gpipe = texts_of(search_.question(), "schedule", {"1f1b"}).front() == "gpipe";
  const auto m = static_cast<double>(micro_batches);
  std::vector<size_t> way_of;
  int64_t unit = devices();  // greatest common divisor of the numbers of devices
  for (size_t i = 0; i < ways.size(); ++i) {
    const AlpaWay& way = ways[i];
    if (m * way.seconds > most_s) continue;
    int64_t later = kNoLimit;
    if (capacity > 0) {
      const double most = std::min(m, static_cast<double>(layers_.size()));
      const double held = way.peak_bytes + way.resting_bytes;
      later = published::most_later_stages(capacity, way.peak_bytes, way.resting_bytes,
                                           way.activation_bytes);
      if (held + (is_gpipe ? m : most) * way.activation_bytes <= capacity) {
        later = kNoLimit;
      } else if (is_gpipe) {
        continue;
      }
    }
    if (later < 0) continue;
    const bool follows = !way_of.empty() && ways[way_of.back()].first == way.first &&
                         ways[way_of.back()].last == way.last &&
                         ways[way_of.back()].shape == way.shape;
    // Ways of the same layers and shape are in the order of rising time.
    if (follows && problem.choices.back().most_later >= later) continue;
    problem.choices.push_back(
        {way.first, way.last, 1, way.shape.first * way.shape.second, way.seconds, later});
    way_of.push_back(i);
    unit = std::gcd(unit, way.shape.first * way.shape.second);
  }
  for (StageChoice& choice : problem.choices) choice.devices /= unit;
  problem.devices = devices() / unit;
  auto plan = best_stages(problem);
  if (!plan || plan->seconds > most_s) return {};
  for (size_t& choice : plan->choices) choice = way_of[choice];
  return plan;
}

// Sets the meshes of the stages if they are unequal, and the device of each rank if needed. Sets
// `refused` if the sub-meshes do not fill the cluster.
void AlpaSpace::place(PlanCandidate& out, const std::vector<const AlpaWay*>& stages) const {
  Choice& choice = out.choice;
  const auto axes_of = [&](const AlpaWay& way) {
    std::vector<ChoiceAxis> axes = choice.axes;
    axes.front().size = way.replicas;
    if (axes.size() == 3) axes[1].size = way.set->sizes[0];
    if (axes.size() > 1) axes.back().size = way.set->sizes[1];
    return axes;
  };
  choice.axes = axes_of(*stages.front());
  const bool is_equal = std::all_of(stages.begin(), stages.end(), [&](const AlpaWay* way) {
    return axes_of(*way) == choice.axes && way->shape == stages.front()->shape;
  });
  if (is_equal) return;
  std::vector<MeshShape> shapes;
  int64_t next = 0;
  bool in_order = true;  // whether the stages fit hosts if each begins right after the one before
  for (const AlpaWay* way : stages) {
    choice.stage_axes.push_back(axes_of(*way));
    shapes.push_back(way->shape);
    const int64_t local = next % devices_a_host_, own = way->shape.first * way->shape.second;
    in_order = in_order && (local == 0 || local + own <= devices_a_host_);
    next += own;
  }
  if (in_order) return;
  const auto places = published::place_submeshes(shapes, hosts_, devices_a_host_);
  if (!places) {
    out.refused = places.error().message;
    return;
  }
  for (size_t s = 0; s < shapes.size(); ++s) {
    const int64_t first = (*places)[s].host * devices_a_host_ + (*places)[s].device;
    for (int64_t i = 0; i < shapes[s].first * shapes[s].second; ++i)
      choice.device_order.push_back(first + i);
  }
}

std::optional<PlanCandidate> AlpaSpace::candidate(const std::vector<AlpaWay>& ways,
                                                  const StagesPlan& plan, int64_t micro_batches,
                                                  const std::string& recompute) {
  const size_t units = search_.fold().units.size();
  PlanCandidate out;
  Choice& choice = out.choice;
  choice.schedule = texts_of(search_.question(), "schedule", {"1f1b"}).front();
  choice.micro_batches = micro_batches;
  choice.recompute = recompute;
  choice.compute = search_.question().compute;
  choice.stages = static_cast<int64_t>(plan.choices.size());
  std::vector<const AlpaWay*> stages;
  std::vector<const UnitPrices*> prices(units);
  // By unit: dims of the outer and of the inner axis.
  std::vector<std::vector<DimList>> dims(units);
  std::vector<int64_t> sharded(units);
  bool has_inner = false, has_outer = false;
  double slowest_change = 0;
  for (const size_t number : plan.choices) {
    const AlpaWay& way = ways[number];
    stages.push_back(&way);
    const size_t first = layers_[way.first], last = end_of_layer(way.last);
    if (plan.choices.size() > 1) choice.cuts.push_back(first);
    std::vector<size_t> chosen(last - first, way.cut.value_or(0));
    if (!way.cut) chosen = cuts_.chosen(*way.set, first, last, way.weights);
    for (size_t u = first; u < last; ++u) {
      const UnitCut& cut = way.set->cuts[chosen[u - first]];
      prices[u] = cut.prices;
      sharded[u] = way.sharded;
      dims[u].resize(2);
      for (size_t a = 0; a < cut.axes.size(); ++a)
        dims[u][a + 2 - cut.axes.size()] = cut.axes[a].dims;
    }
    has_inner = has_inner || way.set->sizes[1] > 1;
    has_outer = has_outer || way.set->sizes[0] > 1;
    slowest_change = std::max(slowest_change, way.change_s);
  }
  // The most frequent settings become those of the choice; units with others get their own.
  const auto most_frequent = [](const auto& values, const auto& counts) {
    size_t best = values.size(), most = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!counts(i)) continue;
      const auto same = static_cast<size_t>(std::count(values.begin(), values.end(), values[i]));
      if (same > most) best = i;
      most = std::max(most, same);
    }
    return best;
  };
  const size_t usual =
      most_frequent(dims, [&](size_t u) { return !dims[u][1].empty() || !has_inner; });
  choice.sharded = sharded[most_frequent(sharded, [](size_t) { return true; })];
  choice.axes = {{"dp", 1, {"batch"}}};
  if (has_outer) choice.axes.push_back({"tp_outer", 1, dims[usual][0]});
  if (has_inner || has_outer) choice.axes.push_back({"tp", 1, dims[usual][1]});
  std::vector<UnitChoice> own(units);
  for (size_t u = 0; u < units; ++u) {
    if (sharded[u] != choice.sharded) own[u].sharded = sharded[u];
    // These units have no axes, or the usual dims.
    if (dims[u][1].empty() || dims[u] == dims[usual]) continue;
    own[u].dims = {{"batch"}};
    if (has_outer) own[u].dims.push_back(dims[u][0]);
    own[u].dims.push_back(dims[u][1]);
  }
  const bool differs = std::any_of(own.begin(), own.end(),
                                   [](const UnitChoice& unit) { return unit != UnitChoice{}; });
  if (differs) choice.units = std::move(own);
  place(out, stages);
  if (!out.refused.empty()) return {};
  out.estimate = estimator_.estimate_units(choice, prices, micro_batch(micro_batches));
  out.estimate.step_s += static_cast<double>(micro_batches) * slowest_change;
  return out;
}

namespace {

// Runs the search over recomputation and numbers of micro-batches, and keeps the candidates.
class AlpaPlanning {
 public:
  AlpaPlanning(PlanSearch& search, UnitCuts& cuts) : search_(search), space_(search, cuts) {}

  std::vector<PlanCandidate> run() {
    const auto levels = texts_of(search_.question(), "recompute", {"none", "full"});
    for (const std::string& recompute : levels) {
      for (const int64_t m : counts()) {
        if (is_stopped()) return std::move(found_);
        search_.say(fmt::format("stages, {} micro-batches, recompute {}", m, recompute));
        solve(m, recompute);
      }
      if (!binds_) break;  // recomputation would help no plan, because memory does not bind
    }
    for (const double factor : kTooMuch) {
      if (!found_.empty() || search_.limit_bytes() <= 0 || is_stopped()) break;
      for (const int64_t m : counts()) add(m, levels.back(), factor * search_.limit_bytes());
    }
    return std::move(found_);
  }

 private:
  bool is_stopped() const { return search_.question().stop && search_.question().stop(); }

  // Returns the numbers of micro-batches to try: the powers of two that divide the batch, or the
  // fixed number.
  std::vector<int64_t> counts() const {
    const int64_t batch = search_.question().batch;
    if (search_.question().fixed.contains("micro_batches"))
      return {std::min(batch, fixed_number(search_.question(), "micro_batches"))};
    std::vector<int64_t> out;
    for (int64_t m = 1; m <= batch && batch % m == 0; m *= 2) out.push_back(m);
    return out;
  }

  void solve(int64_t m, const std::string& recompute) {
    const double limit = search_.limit_bytes();
    for (const auto& sizes : space_.common_sizes()) {
      if (is_stopped()) return;
      const std::vector<AlpaWay> ways = space_.ways(m, recompute, sizes);
      const double most = best_s_ > 0 ? kFarOff * best_s_ : 1e300;
      if (limit > 0 && !binds_) {
        const auto free = space_.stages(ways, m, 0, most);
        const auto bound = space_.stages(ways, m, kMargin * limit, most);
        binds_ = free && (!bound || bound->seconds > free->seconds);
      }
      const auto plan = space_.stages(ways, m, kMargin * limit, most);
      add_plan(ways, plan, m, recompute);
      // Also adds the best plan without changes of layout inside a stage.
      if (!plan || sizes[0] > 0 || !has_own(ways, *plan)) continue;
      std::vector<AlpaWay> alike;
      for (const AlpaWay& way : ways) {
        if (way.cut) alike.push_back(way);
      }
      add_plan(alike, space_.stages(alike, m, kMargin * limit, most), m, recompute);
    }
  }

  static bool has_own(const std::vector<AlpaWay>& ways, const StagesPlan& plan) {
    return std::any_of(plan.choices.begin(), plan.choices.end(),
                       [&](size_t way) { return !ways[way].cut; });
  }

  void add(int64_t m, const std::string& recompute, double capacity) {
    for (const auto& sizes : space_.common_sizes()) {
      const std::vector<AlpaWay> ways = space_.ways(m, recompute, sizes);
      add_plan(ways, space_.stages(ways, m, capacity, 1e300), m, recompute);
    }
  }

  void add_plan(const std::vector<AlpaWay>& ways, const std::optional<StagesPlan>& plan, int64_t m,
                const std::string& recompute) {
    if (!plan) return;
    auto candidate = space_.candidate(ways, *plan, m, recompute);
    if (!candidate || !names_.insert(text_of(*candidate)).second) return;
    const double limit = search_.limit_bytes();
    if (limit <= 0 || candidate->estimate.memory_bytes <= limit) {
      if (best_s_ == 0 || plan->seconds < best_s_) best_s_ = plan->seconds;
    }
    found_.push_back(std::move(*candidate));
  }

  std::string text_of(const PlanCandidate& candidate) const {
    return write_plan(candidate.choice, search_.forward(), search_.fold().units, "")
        .value_or(candidate.choice.str());
  }

  PlanSearch& search_;
  AlpaSpace space_;
  std::vector<PlanCandidate> found_;
  std::set<std::string> names_;
  double best_s_ = 0;   // least time of the plans that fit
  bool binds_ = false;  // whether memory binds: without the limit some plan would be faster
};

}  // namespace

Result<PlanAnswer> alpa_plan(const PlanQuestion& question) {
  const std::string schedule = texts_of(question, "schedule", {"1f1b"}).front();
  if (schedule != "1f1b" && schedule != "gpipe") {
    return invalid_input(fmt::format("plan: --fix schedule={}: alpa has 1f1b and gpipe", schedule));
  }
  if (!allows(question, "chunks", 1)) {
    return invalid_input(fmt::format("plan: --fix chunks={}: alpa has one stage at each place",
                                     texts_of(question, "chunks", {""}).front()));
  }
  const int64_t all = question.cluster->devices();
  if (fixed_or(question, "devices", all) > all) {
    return invalid_input(fmt::format("plan: --fix devices={}: the cluster has {}",
                                     fixed_number(question, "devices"), all));
  }
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  UnitCuts cuts(*search);
  const int64_t node =
      std::min(question.cluster->type_of(0).devices, fixed_or(question, "devices", all));
  const std::vector<int64_t> sizes =
      divisors_of(fixed_or(question, "tp", std::max<int64_t>(node, 1)));
  if (sizes.size() > 1) cuts.find(sizes[1], sizes.back() % 4 == 0);
  std::vector<PlanCandidate> found = AlpaPlanning(*search, cuts).run();
  TESSERA_TRY(PlanAnswer answer, search->answer(found, cuts.last_refusal()));
  answer.lists = cuts.lists();
  return answer;
}

}  // namespace tessera
