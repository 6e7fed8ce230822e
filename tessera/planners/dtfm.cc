#include "tessera/planners/dtfm.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "tessera/planners/device_links.h"
#include "tessera/planners/published/dtfm.h"
#include "tessera/planners/unit_rows.h"

namespace tessera {
namespace {

using published::RegionPlan;
using published::RegionProblem;

constexpr double kMostPartitions = 2e4;  // beyond it the genetic search
constexpr int64_t kLocalMoves = 5'000;   // of one genetic search
constexpr double kGigabyte = 1e9;

class RegionPlanning {
 public:
  explicit RegionPlanning(PlanSearch& search)
      : search_(search),
        estimator_(*search.question().cluster, search.question().options.style, search.fold().units,
                   search.question().memory_limit_bytes),
        devices_(fixed_or(search.question(), "devices", search.question().cluster->devices())),
        links_(device_links(estimator_.collectives(), devices_)) {}

  Result<PlanAnswer> run() {
    const PlanQuestion& question = search_.question();
    const auto units = static_cast<int64_t>(search_.fold().units.size());
    for (const int64_t stages : numbers_of(question, "pp", divisors_of(devices_))) {
      const int64_t replicas = devices_ / stages;
      if (stages * replicas != devices_ || stages > units || !allows(question, "dp", replicas))
        continue;
      if (question.stop && question.stop()) break;
      look(stages, replicas);
    }
    return search_.answer(std::move(found_), refusal_);
  }

 private:
  // Returns the gradient of a stage and the activations that a replica sends in a step, in GB.
  std::pair<double, double> sizes(const UnitPrices& prices, int64_t stages, int64_t replicas) {
    const PlanQuestion& question = search_.question();
    double gradient = 0;
    for (const FoldUnit& unit : search_.fold().units)
      gradient += prices.units[static_cast<size_t>(unit.stand_in)].gradient_bytes;
    // The mean over all borders between units: where the cuts will be is not known yet.
    const size_t units = search_.fold().units.size();
    std::vector<size_t> own(units);
    for (size_t u = 0; u < units; ++u) own[u] = u;
    double crossing = 0;
    for (const GroupBorder& border : group_borders(search_.forward(), search_.fold().units, own)) {
      const size_t last = *std::max_element(border.to.begin(), border.to.end());
      if (last > border.from) crossing += border.bytes * static_cast<double>(last - border.from);
    }
    crossing *= static_cast<double>(dtype_bytes(question.compute)) /
                static_cast<double>(dtype_bytes(storage_dtype(question.compute)));
    const auto borders = static_cast<double>(std::max<size_t>(1, units - 1));
    return {gradient / static_cast<double>(stages) / kGigabyte,
            crossing / borders / static_cast<double>(replicas) / kGigabyte};
  }

  // Returns the best groups, each in the order in which its members send to one another.
  RegionPlan groups(int64_t stages, int64_t replicas, const UnitPrices& prices) {
    RegionProblem problem;
    problem.stages = static_cast<size_t>(stages);
    std::tie(problem.gradient_gb, problem.activation_gb) = sizes(prices, stages, replicas);
    problem.delay_seconds = links_.latency_seconds;
    problem.gbit_per_second = links_.bytes_per_second;
    for (auto& row : problem.gbit_per_second) {
      for (double& rate : row) rate *= 8 / kGigabyte;
    }
    const bool is_small = published::count_partitions(static_cast<size_t>(devices_),
                                                      problem.stages) <= kMostPartitions;
    RegionPlan plan = is_small
                          ? published::exact_regions(problem).plan
                          : published::genetic_regions(
                                problem, {.local_moves = kLocalMoves}, [&](std::string_view what) {
                                  search_.say(fmt::format("{} stages: {}", stages, what));
                                });
    plan.groups = published::matched_groups(problem, plan.groups);
    return plan;
  }

  // Returns the prices of the units for a micro-batch on each kind of device; empty if a program is
  // refused.
  std::vector<const UnitPrices*> prices(int64_t sequences, const std::string& recompute) {
    std::vector<const UnitPrices*> out;
    for (size_t kind = 0; kind < estimator_.kinds().count(); ++kind) {
      UnitQuestion question{{}, sequences, recompute};
      if (estimator_.kinds().count() > 1) question.on = &estimator_.kinds().cluster(kind);
      const auto found = search_.pricer().price(question);
      if (!found) {
        refusal_ = found.error().message;
        return {};
      }
      out.push_back(*found);
    }
    return out;
  }

  // Adds all candidates with so many stages. The groups follow from sizes that neither micro-batches
  // nor recomputation change.
  void look(int64_t stages, int64_t replicas) {
    const PlanQuestion& question = search_.question();
    std::vector<int64_t> counts;
    const int64_t most = std::min(question.batch / replicas, kMostLinkedMicroBatches);
    for (int64_t m = 1; m <= most; m *= 2) counts.push_back(m);
    std::vector<int64_t> order;
    RegionPlan plan;
    for (const int64_t m : numbers_of(question, "micro_batches", counts)) {
      const int64_t sequences = question.batch / (replicas * m);
      if (sequences < 1) {
        refusal_ = fmt::format(
            "a batch of {} has no sequence for each of {} replicas and {} "
            "micro-batches",
            question.batch, replicas, m);
        continue;
      }
      for (const std::string& recompute : texts_of(question, "recompute", {"none", "full"})) {
        const auto by_kind = prices(sequences, recompute);
        if (by_kind.empty()) continue;
        if (order.empty()) {
          plan = groups(stages, replicas, *by_kind.front());
          for (const auto& group : plan.groups) {
            for (const size_t device : group) order.push_back(static_cast<int64_t>(device));
          }
        }
        for (const std::string& schedule : texts_of(question, "schedule", {"1f1b", "gpipe"})) {
          if (schedule == "gpipe" && stages == 1 && !found_.empty()) continue;
          PlanCandidate& candidate = found_.emplace_back();
          Choice& choice = candidate.choice;
          choice.axes = {{"dp", replicas, {"batch"}}};
          choice.stages = stages;
          choice.schedule = schedule;
          choice.micro_batches = m;
          choice.recompute = recompute;
          choice.compute = question.compute;
          choice.sharded = numbers_of(question, "zero", {0}).front();
          // The formula knows devices in their order only; what the groups send is the score.
          candidate.estimate = estimator_.estimate(choice, by_kind, sequences);
          candidate.estimate.step_s = candidate.estimate.work_s + plan.seconds;
          if (!std::is_sorted(order.begin(), order.end())) choice.device_order = order;
        }
      }
    }
  }

  PlanSearch& search_;
  Estimator estimator_;
  int64_t devices_;
  DeviceLinks links_;
  std::vector<PlanCandidate> found_;
  std::string refusal_;
};

}  // namespace

Result<PlanAnswer> find_by_dtfm(const PlanQuestion& question) {
  TESSERA_TRY_VOID(check_linked_question(question, "dtfm"));
  const int64_t devices = fixed_or(question, "devices", question.cluster->devices());
  if (fixed_number(question, "pp") > 0 && devices % fixed_number(question, "pp") != 0) {
    return refuse_fixed(
        question, "pp",
        fmt::format("dtfm has equal stages: expected a divisor of {} devices", devices));
  }
  TESSERA_TRY(const auto search, PlanSearch::begin(question));
  return RegionPlanning(*search).run();
}

}  // namespace tessera
