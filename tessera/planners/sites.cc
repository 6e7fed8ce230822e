#include "tessera/planners/sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/cluster/subcluster.h"
#include "tessera/compile/compile.h"
#include "tessera/plan/islands.h"
#include "tessera/planners/all_planners.h"
#include "tessera/planners/device_links.h"
#include "tessera/search/fit.h"
#include "tessera/search/plan_search.h"
#include "tessera/search/price/simulate_islands.h"

namespace tessera {
namespace {

using Sites = std::vector<std::vector<int64_t>>;

// Returns the devices of the nodes, ascending.
std::vector<int64_t> devices_of(const Cluster& cluster, const std::vector<int64_t>& nodes) {
  std::vector<int64_t> out;
  for (int64_t device = 0; device < cluster.devices(); ++device) {
    if (std::binary_search(nodes.begin(), nodes.end(), cluster.locate(device).node))
      out.push_back(device);
  }
  return out;
}

// Returns the plan in which each site follows the plan of one, and the parameters are compared
// after `every` steps.
Result<Plan> with_outer_steps(const Plan& of_site, const Cluster& cluster, const Sites& sites,
                              int64_t every) {
  Plan plan = of_site;
  OuterSteps outer;
  outer.axis = "site";
  outer.every = every;
  plan.mesh.insert(plan.mesh.begin(), {outer.axis, std::ssize(sites)});
  plan.outer = std::move(outer);
  TESSERA_TRY(const RankDevices inside, rank_devices(of_site));
  plan.device_order = {};
  for (const std::vector<int64_t>& nodes : sites) {
    const std::vector<int64_t> devices = devices_of(cluster, nodes);
    for (int64_t rank = 0; rank < of_site.ranks(); ++rank) {
      const auto local = static_cast<size_t>(inside.device_of(rank));
      if (local >= devices.size()) {
        return invalid_input(fmt::format("plan: expected {} devices at each site, found {}",
                                         local + 1, devices.size()));
      }
      plan.device_order.devices.push_back(devices[local]);
    }
  }
  const std::vector<int64_t>& order = plan.device_order.devices;
  if (order.back() + 1 == std::ssize(order) && std::is_sorted(order.begin(), order.end()))
    plan.device_order = {};
  return plan;
}

// Finds the plan for one site, and simulates it at all sites with outer steps.
Result<PlanAnswer> find_with_outer_steps(const PlanQuestion& question, const Sites& sites,
                                         const FindPlan& find) {
  const auto islands = std::ssize(sites);
  if (question.batch % islands != 0) {
    return invalid_input(fmt::format("plan: expected a batch that the {} sites divide, found {}",
                                     islands, question.batch));
  }
  const Cluster site = only_nodes(*question.cluster, sites.front());
  PlanQuestion inside = question;
  inside.cluster = &site;
  inside.batch = question.batch / islands;
  inside.explain = false;
  inside.found = {};  // a plan of one site is none for all of them
  inside.fixed.erase("outer_every");
  if (const int64_t devices = fixed_number(question, "devices"); devices > 0) {
    if (devices % islands != 0) return invalid_input("the sites do not divide the devices");
    inside.fixed["devices"] = std::to_string(devices / islands);
  }
  TESSERA_TRY(PlanAnswer answer, find(inside));
  if (!answer.best) return answer;
  const int64_t every = fixed_or(question, "outer_every", kOuterEvery);
  const std::string name = fmt::format("{} at each of {} sites, outer steps every {} steps",
                                       answer.simulated[*answer.best].name(), islands, every);
  TESSERA_TRY(const Plan of_site, parse_plan(answer.plan));
  TESSERA_TRY(Plan plan, with_outer_steps(of_site, *question.cluster, sites, every));
  TESSERA_TRY(const RankDevices devices, rank_devices(plan));
  Compiler compiler;
  TESSERA_TRY(const auto model,
              compiler.model(question.model, inside.batch, storage_dtype(question.compute)));
  TESSERA_TRY(const Compiled compiled,
              compiler.compile(model, plan, question.compute, for_price(question.optimizer)));
  TESSERA_TRY(Simulation simulation,
              simulate_islands(compiled, *question.cluster, question.options));
  PlanCandidate candidate = answer.simulated[*answer.best];
  candidate.call = name;
  candidate.step_s = simulation.step_time_s;
  candidate.used = question.objective.used(*question.cluster, simulation.ranks, devices);
  candidate.need_bytes = 0;
  for (const RankResult& role : simulation.roles)
    candidate.need_bytes = std::max(candidate.need_bytes, role.memory.high);
  candidate.fits = !find_shortage(simulation, *question.cluster) &&
                   (answer.limit_bytes <= 0 || candidate.need_bytes <= answer.limit_bytes);
  answer.simulated = {candidate};
  answer.best = candidate.fits ? std::optional<size_t>(0) : std::nullopt;
  answer.plan = fmt::format("# {}; lossy: sites compare their parameters only once in {} steps\n{}",
                            name, every, to_toml(plan));
  answer.simulation = std::move(simulation);
  answer.blocks.clear();
  return answer;
}

}  // namespace

Result<PlanAnswer> find_over_sites(const PlanQuestion& question, const FindPlan& find) {
  const Sites sites = sites_of(*question.cluster);
  if (question.fixed.contains("outer_every")) {
    if (!question.allows_lossy)
      return refuse_fixed(question, "outer_every", "expected --allow lossy, found none");
    if (sites.size() < 2)
      return refuse_fixed(question, "outer_every", "the cluster has no lines between sites");
    return find_with_outer_steps(question, sites, find);
  }
  TESSERA_TRY(PlanAnswer answer, find(question));
  if (sites.size() < 2) return answer;
  const auto say = [&](const std::string& what) {
    if (question.progress) question.progress(what);
  };
  const auto consider = [&](const std::string& name, Result<PlanAnswer> other) {
    if (other) {
      answer = better_of(question, std::move(answer), *std::move(other));
      return;
    }
    PlanCandidate refused;
    refused.call = name;
    refused.refused = other.error().message;
    answer.simulated.push_back(std::move(refused));
  };
  // A planner that does not choose what the question fixes would leave it out of its plans.
  const auto ask = [&](const std::string& name) -> Result<PlanAnswer> {
    const std::vector<Planner>& planners = all_planners();
    const auto planner = std::find_if(planners.begin(), planners.end(),
                                      [&](const Planner& one) { return one.name == name; });
    TESSERA_TRY_VOID(check_own_keys(question, *planner, planners));
    return planner->find(question);
  };
  const auto stopped = [&] { return question.stop && question.stop(); };
  const double bound = answer.bound_s;
  const std::string bound_of = answer.bound_of;
  if (!stopped()) {
    say("chains of devices over the lines (opfence)");
    consider("opfence", ask("opfence"));
  }
  if (!stopped()) {
    say("groups of devices over the lines (dtfm)");
    consider("dtfm", ask("dtfm"));
  }
  if (question.allows_lossy && !stopped()) {
    say("outer steps between the sites");
    consider("outer steps", find_with_outer_steps(question, sites, find));
  }
  // The bound of one site is none for all of them.
  answer.bound_s = bound;
  answer.bound_of = bound_of;
  return answer;
}

}  // namespace tessera
