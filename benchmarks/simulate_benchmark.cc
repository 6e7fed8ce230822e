// Measures the simulator's speed: events a second in detail, large plans from text to result, and a
// changed candidate of a search.
#include <benchmark/benchmark.h>

#include "tessera/compile/compile.h"
#include "tessera/plan/load.h"
#include "tessera/simulate/simulate.h"

namespace tessera {
namespace {

const std::string kGpt3 = "gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200";
const std::string kGpt3Plan = "megatron(tp=8,pp=16,dp=8,micro_batches=64)";

Compiled planned(const std::string& model, const std::string& plan, int64_t batch) {
  return std::move(*compile({model, plan, batch}));
}
SimulateOptions options() {
  SimulateOptions out;
  out.style = parse_style("tessera").value();
  return out;
}

// A search compares only times and sizes.
SimulateOptions quick(SimulateOptions how) {
  how.memory_details = false;
  how.critical_path = false;
  return how;
}

void count(benchmark::State& state, const Simulation& result, double events) {
  state.counters["step_s"] = result.step_time_s;
  state.counters["events"] = static_cast<double>(result.simulated_events);
  state.counters["events/s"] = benchmark::Counter(events, benchmark::Counter::kIsRate);
}

// Every item of every rank is an event of its own.
void detailed(benchmark::State& state) {
  const Compiled plan = planned("gpt:layers=8,hidden=2048,heads=16,seq=1024,vocab=51200",
                                "megatron(tp=2,pp=4,dp=4,micro_batches=16)", 64);
  const Cluster cluster = load_cluster("dgx-a100:4").value();
  SimulateOptions how = options();
  how.fold = how.compact = false;
  Simulation result;
  double events = 0;
  for (auto unused : state) {
    (void)unused;
    result = simulate(*plan.lowering, cluster, how).value();
    events += static_cast<double>(result.simulated_events);
  }
  count(state, result, events);
}
BENCHMARK(detailed)->Unit(benchmark::kMillisecond);

// Measures from the model's text to the result.
void from_text(benchmark::State& state, const std::string& model, const std::string& plan,
               const std::string& machine, int64_t batch) {
  Simulation result;
  double events = 0;
  for (auto unused : state) {
    (void)unused;
    const Compiled made = planned(model, plan, batch);
    const Cluster cluster = load_cluster(machine).value();
    result = simulate(*made.lowering, cluster, options()).value();
    events += static_cast<double>(result.simulated_events);
  }
  count(state, result, events);
}
BENCHMARK_CAPTURE(from_text, gpt3_on_1024, kGpt3, kGpt3Plan, "dgx-a100:128", 1536)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_text, gpt3_on_16384, kGpt3,
                  "megatron(tp=8,pp=16,dp=128,zero=1,micro_batches=64)", "dgx-a100:2048", 16384)
    ->Unit(benchmark::kMillisecond);
// Growth: replicas, shards over all replicas, and micro-batches (docs/results/planning-speed.md).
BENCHMARK_CAPTURE(from_text, gpt3_on_1048576, kGpt3,
                  "megatron(tp=8,pp=16,dp=8192,micro_batches=64)", "dgx-h100:131072", 524288)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_text, gpt3_on_1048576_in_shards, kGpt3,
                  "megatron(tp=8,pp=16,dp=8192,zero=1,micro_batches=64)", "dgx-h100:131072", 524288)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(from_text, gpt3_of_4096_micro_batches, kGpt3,
                  "megatron(tp=8,pp=16,dp=8,zero=1,micro_batches=4096)", "dgx-h100:128", 32768)
    ->Unit(benchmark::kMillisecond);
// MLPerf's recommender on the 16 nodes of ZionEX (docs/theory/zionex-dlrm.md, section 2), its large
// tables cut by rows inside nodes.
BENCHMARK_CAPTURE(from_text, dlrm_on_128,
                  "dlrm:dense=13,rows=40000000-39060-17295-7424-20265-3-7122-1543-63-40000000-"
                  "3067956-405282-10-2209-11938-155-4-976-14-40000000-40000000-40000000-590152-"
                  "12973-108-36,bags=3-2-1-2-6-1-1-1-1-7-3-8-1-6-9-5-1-1-1-12-100-27-10-3-1-1,"
                  "width=128,bottom=512-256-128,top=1024-1024-512-256-1,interaction=cross,"
                  "layers=3,rank=512",
                  "tables(8,by=table_row,nodes=16)", "dgx-a100-40:16", 65536)
    ->Unit(benchmark::kMillisecond);

// Prices one plan after another of a model, as a search does: the model and the training graph
// exist, the plan is new each time. `how` says whether equal stages are lowered once.
void new_plan(benchmark::State& state, const std::vector<std::string>& plans,
              const std::string& machine, int64_t batch, const CompileOptions& how) {
  Compiler compiler;
  const Cluster cluster = load_cluster(machine).value();
  const auto model = compiler.model(kGpt3, batch, DType::kFloat32).value();
  const auto price = [&](const std::string& text) {
    const Plan plan = load_plan(text, model->graph).value();
    const auto lowering = compiler.lower(forward_of(model), plan, how).value();
    return simulate(*lowering, cluster, quick(options())).value();
  };
  Simulation result = price(plans[0]);
  double events = 0;
  size_t turn = 0;
  for (auto unused : state) {
    (void)unused;
    turn = (turn + 1) % plans.size();
    result = price(plans[turn]);
    events += static_cast<double>(result.simulated_events);
  }
  count(state, result, events);
}
const std::vector<std::string> kOn1024 = {kGpt3Plan,
                                          "megatron(tp=8,pp=16,dp=8,micro_batches=64,zero=1)"};
const std::vector<std::string> kOn16384 = {"megatron(tp=8,pp=16,dp=128,zero=1,micro_batches=64)",
                                           "megatron(tp=8,pp=16,dp=128,zero=2,micro_batches=64)"};
const std::vector<std::string> kInterleaved = {
    "megatron(tp=8,pp=16,dp=8,micro_batches=64,schedule=interleaved,chunks=6)",
    "megatron(tp=8,pp=16,dp=8,micro_batches=64,schedule=interleaved,chunks=6,zero=1)"};
BENCHMARK_CAPTURE(new_plan, gpt3_on_1024, kOn1024, "dgx-a100:128", 1536, for_price())
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(new_plan, gpt3_on_1024_all_stages, kOn1024, "dgx-a100:128", 1536,
                  CompileOptions())
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(new_plan, gpt3_interleaved, kInterleaved, "dgx-a100:128", 1536, for_price())
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(new_plan, gpt3_interleaved_all_stages, kInterleaved, "dgx-a100:128", 1536,
                  CompileOptions())
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(new_plan, gpt3_on_16384, kOn16384, "dgx-a100:2048", 16384, for_price())
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(new_plan, gpt3_on_16384_all_stages, kOn16384, "dgx-a100:2048", 16384,
                  CompileOptions())
    ->Unit(benchmark::kMillisecond);

// The programs exist; the machine or the style changes from one simulation to the next.
void candidate(benchmark::State& state, const std::string& plan, int64_t batch, bool style) {
  const Compiled made = planned(kGpt3, plan, batch);
  std::vector<Cluster> clusters(2, load_cluster("dgx-a100:128").value());
  std::vector<SimulateOptions> hows(2, options());
  if (style) {
    hows[1].style.matmul_efficiency *= 0.9;
  } else {
    clusters[1].parts[0].type.inner.rate *= 2;
    clusters[1].parts[0].type.nic.rate *= 2;
  }
  for (SimulateOptions& how : hows) how = quick(how);
  Simulation result;
  double events = 0;
  Simulator simulator(*made.lowering);
  size_t turn = 0;
  result = simulator.run(clusters[turn], hows[turn]).value();
  for (auto unused : state) {
    (void)unused;
    turn = 1 - turn;
    result = simulator.run(clusters[turn], hows[turn]).value();
    events += static_cast<double>(result.simulated_events);
  }
  count(state, result, events);
}
BENCHMARK_CAPTURE(candidate, gpt3_on_1024_machine, kGpt3Plan, 1536, false)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(candidate, gpt3_on_1024_style, kGpt3Plan, 1536, true)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera

BENCHMARK_MAIN();
