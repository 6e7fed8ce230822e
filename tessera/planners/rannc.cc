#include "tessera/planners/rannc.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "tessera/planners/unit_rows.h"
#include "tessera/search/question/question.h"

namespace tessera {
namespace {

using published::RanncPlan;
using published::RanncProblem;
using published::RanncStage;

constexpr size_t kMostBlocks = 32;
constexpr int64_t kMostMicroBatches = 32;
// Most components; if there are more units, neighbours are joined first.
constexpr size_t kMostComponents = 512;
constexpr double kMemoryShare = .9;  // share of a device's memory that a stage may use
constexpr double kRanncTooMuch[] = {1.25, 1.5, 2, 3, 5, 10, 30, 100, 1e3, 1e4, 1e6};

int64_t divided_up(int64_t n, int64_t parts) { return (n + parts - 1) / parts; }

// Returns the bytes that units with this cost hold on a device. `in_flight`: number of
// micro-batches whose activations they hold.
double held_bytes(const UnitCost& cost, const UnitPrices& prices, double in_flight) {
  return cost.resting_bytes + in_flight * cost.activation_bytes + cost.gathered_bytes +
         prices.transient_bytes + prices.overhead_bytes;
}

}  // namespace

RanncSpace::RanncSpace(PlanSearch& search)
    : search_(search),
      estimator_(*search.question().cluster, search.question().options.style, search.fold().units,
                 search.question().memory_limit_bytes) {
  const Cluster& cluster = *search.question().cluster;
  const int64_t all = fixed_or(search.question(), "devices", cluster.devices());
  const int64_t node = cluster.type_of(0).devices;
  const bool is_whole = all >= node && all % node == 0;
  hosts_ = is_whole ? all / node : 1;
  devices_a_host_ = is_whole ? node : all;
  search.say("merging units into blocks");
  find_blocks();
  measure_borders();
}

// Finds the blocks from prices with the smallest micro-batch that the published program would
// measure or, if the model cannot be built with it, the smallest that it can be built with.
void RanncSpace::find_blocks() {
  const PlanQuestion& question = search_.question();
  const std::vector<FoldUnit>& units = search_.fold().units;
  int64_t least = divided_up(question.batch, hosts_ * devices_a_host_ * kMostMicroBatches);
  auto prices = search_.pricer().price({{}, least, "none"});
  for (; !prices && 2 * least <= question.batch; least *= 2)
    prices = search_.pricer().price({{}, 2 * least, "none"});
  std::vector<UnitPrice> own(units.size());
  std::vector<double> work(units.size(), 1);
  if (!prices) refusal_ = prices.error().message;
  for (size_t u = 0; prices && u < units.size(); ++u) {
    own[u] = (*prices)->units[static_cast<size_t>(units[u].stand_in)];
    work[u] = own[u].forward_s + own[u].backward_s;
  }

  const std::vector<size_t> firsts = join_units(work, kMostComponents);
  std::vector<size_t> component_of(units.size());
  std::vector<UnitPrice> of(firsts.size());
  for (size_t u = 0, c = 0; u < units.size(); ++u) {
    if (c + 1 < firsts.size() && firsts[c + 1] == u) ++c;
    component_of[u] = c;
    of[c] = sum_of(of[c], own[u]);
  }
  published::RanncGraph graph;
  graph.components = firsts.size();
  for (const GroupBorder& border : group_borders(search_.forward(), units, component_of)) {
    for (const size_t to : border.to) graph.edges.push_back({border.from, to, border.bytes});
  }
  published::BlockOracle oracle;
  oracle.seconds = [&](const std::vector<size_t>& components) {
    double out = 0;
    for (const size_t c : components) out += of[c].forward_s + of[c].backward_s;
    return out;
  };
  const double limit = kMemoryShare * search_.limit_bytes();
  oracle.fits = [&](const std::vector<size_t>& components) {
    UnitPrice sum;
    for (const size_t c : components) sum = sum_of(sum, of[c]);
    // Assumes one replica, the best case.
    const UnitCost cost = estimator_.unit_cost(sum, question.compute, 0, {}, 1);
    return limit <= 0 || !prices || held_bytes(cost, **prices, 1) <= limit;
  };
  published::BlockOptions options;
  options.most = kMostBlocks;
  options.parts = static_cast<double>(question.batch) / static_cast<double>(least);
  options.bytes_per_second = question.cluster->type_of(0).inner.rate;
  for (const auto& components : published::rannc_blocks(graph, oracle, options)) {
    auto& block = blocks_.emplace_back();
    for (size_t u = 0; u < units.size(); ++u) {
      if (std::binary_search(components.begin(), components.end(), component_of[u]))
        block.push_back(u);
    }
  }
}

void RanncSpace::measure_borders() {
  const size_t n = blocks_.size();
  std::vector<size_t> block_of(search_.fold().units.size());
  for (size_t b = 0; b < n; ++b) {
    for (const size_t u : blocks_[b]) block_of[u] = b;
  }
  crossing_.assign(n + 1, std::vector<double>(n + 1, 0));
  const auto batch = static_cast<double>(search_.question().batch);
  const double width = static_cast<double>(dtype_bytes(search_.question().compute)) /
                       static_cast<double>(dtype_bytes(storage_dtype(search_.question().compute)));
  for (const GroupBorder& border :
       group_borders(search_.forward(), search_.fold().units, block_of)) {
    for (size_t first = 0; first < n; ++first) {
      for (size_t last = first + 1; last <= n; ++last) {
        const auto inside = [&](size_t block) { return block >= first && block < last; };
        const bool is_made = inside(border.from);
        const bool is_read = std::any_of(border.to.begin(), border.to.end(), inside);
        const bool leaves = std::any_of(border.to.begin(), border.to.end(),
                                        [&](size_t block) { return !inside(block); });
        if (is_made ? leaves : is_read) crossing_[first][last] += width * border.bytes / batch;
      }
    }
  }
}

std::string RanncSpace::recompute(const RanncSetting& setting) const {
  const std::string own = setting.micro_batches > 1 ? "full" : "none";
  return texts_of(search_.question(), "recompute", {own}).front();
}

int64_t RanncSpace::sequences(const RanncSetting& setting, int64_t replicas) const {
  return divided_up(search_.question().batch, replicas * setting.copies * setting.micro_batches);
}

const UnitPrices* RanncSpace::prices(int64_t sequences, const std::string& recompute) {
  const auto found = search_.pricer().price({{}, sequences, recompute});
  if (found) return *found;
  refusal_ = found.error().message;
  return nullptr;
}

UnitPrice RanncSpace::sum(const UnitPrices& prices, size_t first, size_t last) const {
  UnitPrice out;
  for (size_t b = first; b < last; ++b) {
    for (const size_t u : blocks_[b])
      out = sum_of(out, prices.units[static_cast<size_t>(search_.fold().units[u].stand_in)]);
  }
  return out;
}

UnitCost RanncSpace::cost(const RanncSetting& setting, const UnitPrice& sum, size_t first,
                          size_t last, int64_t replicas) const {
  size_t units = 0;
  for (size_t b = first; b < last; ++b) units += blocks_[b].size();
  UnitCost out = estimator_.unit_cost(
      sum, search_.question().compute, setting.sharded,
      {replicas * setting.copies, std::max<int64_t>(1, setting.devices / replicas), 1, 0},
      setting.devices * setting.copies);
  out.gathered_bytes /= static_cast<double>(units);
  return out;
}

std::optional<RanncStage> RanncSpace::stage(const RanncSetting& setting, size_t first, size_t last,
                                            int64_t replicas) {
  const PlanQuestion& question = search_.question();
  if (!allows(question, "dp", replicas * setting.copies)) return {};
  const int64_t own = sequences(setting, replicas);
  const UnitPrices* priced = prices(own, recompute(setting));
  if (priced == nullptr) return {};
  const UnitPrice together = sum(*priced, first, last);
  const UnitCost cost = this->cost(setting, together, first, last, replicas);
  const auto m = static_cast<double>(setting.micro_batches);
  if (setting.capacity_bytes > 0 && held_bytes(cost, *priced, m) > setting.capacity_bytes)
    return {};
  RanncStage out;
  const double passes = std::max(together.forward_s + together.backward_s, 1e-30);
  out.forward = cost.passes_s * together.forward_s / passes;
  out.backward = cost.passes_s * together.backward_s / passes;
  const Cluster& cluster = *question.cluster;
  const double bytes = crossing_[first][last] * static_cast<double>(own);
  if (cluster.devices() > 1 && bytes > 0) {
    const int64_t to = std::min<int64_t>(replicas, cluster.devices() - 1);
    out.comm = estimator_.collectives()
                   .message(0, to, static_cast<int64_t>(bytes),
                            std::min(replicas, cluster.type_of(0).devices))
                   .seconds();
  }
  return out;
}

std::optional<RanncPlan> RanncSpace::best(const RanncSetting& setting, size_t stages) {
  RanncProblem problem;
  problem.blocks = blocks_.size();
  problem.stages = stages;
  problem.devices = setting.devices;
  problem.most_replicas =
      divided_up(search_.question().batch, setting.copies * setting.micro_batches);
  Stages& known = stages_[setting];
  const size_t n = blocks_.size() + 1;
  const auto powers = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(setting.devices)));
  known.resize(n * n * powers);
  problem.stage = [&](size_t first, size_t last, int64_t replicas) {
    const auto power = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(replicas)));
    auto& known_stage = known[(first * n + last) * powers + power];
    if (!known_stage) known_stage = stage(setting, first, last, replicas);
    return *known_stage;
  };
  return published::exact_stages(problem);
}

// Sets the order of devices so that each copy of the pipeline has neighbouring devices. The number
// of copies is the greatest common divisor of the stages' replicas.
void RanncSpace::allocate(Choice& choice, const std::vector<int64_t>& replicas) const {
  int64_t copies = 0, devices = 0;
  for (const int64_t count : replicas) {
    copies = std::gcd(copies, count);
    devices += count;
  }
  if (copies == 1 || replicas.size() == 1) return;
  int64_t before = 0;  // devices of a copy that belong to earlier stages
  for (const int64_t count : replicas) {
    const int64_t own = count / copies;
    for (int64_t i = 0; i < count; ++i)
      choice.device_order.push_back(i / own * (devices / copies) + before + i % own);
    before += own;
  }
}

std::optional<PlanCandidate> RanncSpace::candidate(const RanncSetting& setting,
                                                   const RanncPlan& plan) {
  const size_t stages = plan.ends.size(), units = search_.fold().units.size();
  const PlanQuestion& question = search_.question();
  PlanCandidate out;
  Choice& choice = out.choice;
  choice.schedule = texts_of(question, "schedule", {"gpipe"}).front();
  choice.micro_batches = setting.micro_batches;
  choice.recompute = recompute(setting);
  choice.compute = question.compute;
  choice.sharded = setting.sharded;
  choice.stages = static_cast<int64_t>(stages);
  std::vector<int64_t> replicas;
  for (const int64_t own : plan.replicas) replicas.push_back(own * setting.copies);
  choice.axes = {{"dp", replicas.front(), {"batch"}}};
  const bool is_equal = std::count(replicas.begin(), replicas.end(), replicas.front()) ==
                        static_cast<int64_t>(stages);
  for (size_t s = 0; !is_equal && s < stages; ++s)
    choice.stage_axes.push_back({{"dp", replicas[s], {"batch"}}});
  allocate(choice, replicas);

  std::vector<const UnitPrices*> by_unit(units);
  double once_s = 0;
  for (size_t s = 0, first = 0; s < stages; ++s) {
    const int64_t own = plan.replicas[s];
    const UnitPrices* priced = this->prices(sequences(setting, own), choice.recompute);
    if (stages > 1) choice.cuts.push_back(choice.unit_order.size());
    const UnitPrice together = sum(*priced, first, plan.ends[s]);
    once_s = std::max(once_s, cost(setting, together, first, plan.ends[s], own).once_s);
    for (; first < plan.ends[s]; ++first) {
      for (const size_t u : blocks_[first]) {
        by_unit[u] = priced;
        choice.unit_order.push_back(u);
      }
    }
  }
  if (std::is_sorted(choice.unit_order.begin(), choice.unit_order.end())) choice.unit_order = {};
  const int64_t micro_batch = divided_up(question.batch, setting.micro_batches);
  out.estimate = estimator_.estimate_units(choice, by_unit, micro_batch);
  // The step's time is that of the published program: a synchronous schedule, plus the costs once
  // a step.
  out.estimate.step_s = published::synchronous_seconds(plan, setting.micro_batches) + once_s;
  return out;
}

namespace {

class RanncPlanning {
 public:
  RanncPlanning(PlanSearch& search, RanncSpace& space) : search_(search), space_(space) {}

  std::vector<PlanCandidate> run() {
    const double limit = search_.limit_bytes();
    for (const int64_t sharded : numbers_of(search_.question(), "zero", {0, 1})) {
      if (found_.empty()) look(sharded, kMemoryShare * limit);
    }
    for (const double factor : kRanncTooMuch) {
      if (found_.empty() && limit > 0)
        look(numbers_of(search_.question(), "zero", {1}).front(), factor * limit);
    }
    return std::move(found_);
  }

 private:
  bool is_stopped() const { return search_.question().stop && search_.question().stop(); }

  std::vector<int64_t> counts() const {
    const int64_t batch = search_.question().batch;
    std::vector<int64_t> own;
    for (int64_t m = 1; m <= std::min(batch, kMostMicroBatches); m *= 2) own.push_back(m);
    return numbers_of(search_.question(), "micro_batches", own);
  }

  // Adds all plans with the smallest number of stages for which there is a plan.
  void look(int64_t sharded, double capacity) {
    const auto most = static_cast<int64_t>(space_.blocks().size());
    int64_t stages = 1;
    for (const int64_t nodes : divisors_of(space_.hosts())) {
      const int64_t devices = nodes * space_.devices_a_host();
      for (; stages <= std::min(most, devices); ++stages) {
        if (!allows(search_.question(), "pp", stages)) continue;
        search_.say(fmt::format("{} stages on {} devices", stages, devices));
        for (const int64_t m : counts()) {
          if (is_stopped()) return;
          const RanncSetting setting{devices, space_.hosts() / nodes, m, sharded, capacity};
          const auto plan = space_.best(setting, static_cast<size_t>(stages));
          if (!plan) continue;
          if (auto candidate = space_.candidate(setting, *plan)) found_.push_back(*candidate);
        }
        if (!found_.empty()) return;
      }
    }
  }

  PlanSearch& search_;
  RanncSpace& space_;
  std::vector<PlanCandidate> found_;
};

Status check_fixed(const PlanQuestion& question) {
  const auto refuse = [&](const std::string& key, const std::string& why) {
    return invalid_input(fmt::format("plan: --fix {}={}: {}", key, question.fixed.at(key), why));
  };
  const std::string schedule = texts_of(question, "schedule", {"gpipe"}).front();
  if (schedule != "gpipe" && schedule != "1f1b")
    return refuse("schedule", "rannc has gpipe and 1f1b");
  if (!allows(question, "chunks", 1)) return refuse("chunks", "rannc has one stage at each place");
  if (!allows(question, "tp", 1)) return refuse("tp", "rannc does not cut layers");
  if (fixed_number(question, "devices") > question.cluster->devices())
    return refuse("devices", fmt::format("the cluster has {}", question.cluster->devices()));
  return {};
}

}  // namespace

Result<PlanAnswer> rannc_plan(const PlanQuestion& question) {
  TESSERA_TRY_VOID(check_fixed(question));
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  RanncSpace space(*search);
  std::vector<PlanCandidate> found = RanncPlanning(*search, space).run();
  return search->answer(found, space.last_refusal());
}

}  // namespace tessera
