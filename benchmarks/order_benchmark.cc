// Measures `tessera order` for plans with four axes on 256 machines, beside what it replaces: the
// full simulator for every laying of the axes that it tries. One run of a case counts:
//
//   order_s, simulate_s   processor time of the search, and of simulating the candidates one by one
//   ratio                 order_s / simulate_s
//   candidates            layings that both price
//   loss                  simulated step of the order found / of the best candidate, minus 1
//   spread                slowest candidate / fastest
//
// The plan is compiled before the clocks start. The last line sums up: in how many cases the answer
// is the same or better (loss below 1 %), and the ratio of the sums of both times.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <numeric>

#include "tessera/compile/compile.h"
#include "tessera/network/plan_order.h"
#include "tessera/plan/device_order.h"
#include "tessera/simulate/simulate.h"

namespace tessera {
namespace {

// Returns the processor time of this process, which other programs do not change.
double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

const char* const kModel = "gpt:layers=32,hidden=4096,heads=32,seq=4096,vocab=51200";

struct PlanCase {
  const char *plan, *style;
  int64_t batch;
};
const PlanCase kPlans[] = {
    {"megatron(tp=4,pp=4,cp=8,dp=16,micro_batches=8)", "torchtitan", 512},
    {"megatron(tp=8,pp=8,cp=2,dp=16,micro_batches=16)", "megatron", 512},
    {"megatron(tp=2,pp=8,cp=4,dp=32,micro_batches=8,zero=1)", "megatron", 1024},
    {"megatron(tp=4,pp=16,cp=2,dp=16,micro_batches=32)", "torchtitan", 512},
    {"megatron(tp=8,pp=2,cp=8,dp=16,micro_batches=4,zero=1)", "torchtitan", 512},
};

// 256 machines with 8 GPUs and 8 cards each. `dealt`: the machines came in no order of the racks, as
// from a scheduler.
struct NetworkCase {
  const char* name;
  int64_t rack;  // machines below a switch; 0: an ideal switch
  double oversubscription;
  bool dealt;
};
const NetworkCase kNetworks[] = {{"ideal", 0, 1, false},
                                 {"racks_of_32", 32, 8, false},
                                 {"racks_of_16", 16, 4, false},
                                 {"dealt", 16, 4, true}};

Cluster cluster_of(const NetworkCase& network) {
  Cluster cluster = load_cluster("dgx-a100:256").value();
  cluster.tiers.clear();
  cluster.rail_aligned = false;
  const double machine = 8 * cluster.parts[0].type.nic.rate;
  for (int64_t s = 0; network.rack > 0 && s < 256 / network.rack; ++s) {
    FabricSwitch one;
    one.name = fmt::format("rack{}", s);
    one.uplink_rate = machine * static_cast<double>(network.rack) / network.oversubscription;
    one.latency_s = 1e-6;
    for (int64_t m = 0; m < network.rack; ++m)
      one.nodes.push_back(network.dealt ? s + m * (256 / network.rack) : s * network.rack + m);
    cluster.switches.push_back(std::move(one));
  }
  return cluster;
}

struct Sums {
  int cases = 0, same = 0;
  double order_s = 0, simulate_s = 0;
} sums;

void order_of_axes(benchmark::State& state, const PlanCase& plan, const NetworkCase& on) {
  const Compiled made = compile({kModel, plan.plan, plan.batch, "bfloat16"}).value();
  const Cluster cluster = cluster_of(on);
  SimulateOptions how;
  how.style = parse_style(plan.style).value();
  how.memory_details = how.critical_path = false;
  const auto simulated = [&](Simulator& simulator, std::vector<int64_t> devices) {
    how.devices = RankDevices(std::move(devices));
    return simulator.run(cluster, how).value().step_time_s;
  };
  for (auto unused : state) {
    (void)unused;
    double start = processor_s();
    const PlanTraffic traffic = plan_traffic(*made.lowering).value();
    const OrderNetwork network = order_network(cluster);
    PlanOrderSearch search;
    search.least_gain = 0;
    const PlanOrder found = find_plan_order(made.plan(), traffic, network, search).value();
    const double order_s = processor_s() - start;

    // The simulator prices all candidates; the laying of the plan itself is among them.
    std::vector<double> steps;
    std::string best;
    start = processor_s();
    Simulator simulator(*made.lowering);
    for (const LayingTime& laying : found.layings) {
      std::vector<int64_t> devices(static_cast<size_t>(made.plan().ranks));
      std::iota(devices.begin(), devices.end(), 0);
      if (!laying.order.empty())
        devices = device_positions(laying.order, made.plan().plan.mesh).value();
      steps.push_back(simulated(simulator, std::move(devices)));
      if (steps.back() == *std::ranges::min_element(steps))
        best = laying.order.empty() ? "as it is" : to_toml(laying.order);
    }
    const double simulate_s = processor_s() - start;
    const double loss = simulated(simulator, found.devices) / *std::ranges::min_element(steps) - 1;
    state.counters["order_s"] = order_s;
    state.counters["simulate_s"] = simulate_s;
    state.counters["ratio"] = order_s / simulate_s;
    state.counters["loss"] = loss;
    state.counters["candidates"] = static_cast<double>(steps.size());
    state.counters["spread"] = *std::ranges::max_element(steps) / *std::ranges::min_element(steps);
    state.SetLabel(
        fmt::format("{}; of the candidates {}",
                    found.device_order.empty() ? "as it is" : to_toml(found.device_order), best));
    ++sums.cases;
    sums.same += loss < 0.01 ? 1 : 0;
    sums.order_s += order_s;
    sums.simulate_s += simulate_s;
  }
}

const bool kRegistered = [] {
  for (size_t p = 0; p < std::size(kPlans); ++p) {
    for (const NetworkCase& network : kNetworks) {
      const PlanCase& plan = kPlans[p];
      benchmark::RegisterBenchmark(
          fmt::format("plan_{}/{}", p, network.name).c_str(),
          [&plan, &network](benchmark::State& state) { order_of_axes(state, plan, network); })
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RegisterBenchmark("all", [](benchmark::State& state) {
    for (auto unused : state) (void)unused;
    state.counters["cases"] = sums.cases;
    state.counters["same"] = sums.same;
    state.counters["ratio"] = sums.order_s / sums.simulate_s;
  })->Iterations(1);
  return true;
}();

}  // namespace
}  // namespace tessera
