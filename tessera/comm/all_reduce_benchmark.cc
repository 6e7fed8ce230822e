// Measures the time of one all-reduce among threads. Arguments: ranks, bytes of each rank's array.
// Iterations run inside the ranks; the time reported is wall time of rank 0 for one call.
//   build/tessera_comm_benchmark --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <chrono>

#include "tessera/comm/communicator.h"
#include "tessera/comm/region.h"

namespace tessera::comm {
namespace {

constexpr int kCalls = 50;

void all_reduce(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const int64_t elements = state.range(1) / static_cast<int64_t>(sizeof(float));
  const Box box = Box::whole({elements});
  Redistribution what{CollectiveKind::kAllReduce, Combiner::kSum, DType::kFloat32, {}, {}};
  what.hold.assign(static_cast<size_t>(ranks), box);
  what.need = what.hold;
  std::vector<int> members;
  for (int i = 0; i < ranks; ++i) members.push_back(i);

  for ([[maybe_unused]] auto _ : state) {
    double seconds = 0;
    const Status status = run_threads(ranks, {}, [&](Communicator& comm) {
      std::vector<float> in(static_cast<size_t>(elements), 1.0F);
      std::vector<float> out(static_cast<size_t>(elements));
      const int group = comm.group(members);
      const Item item = {&what, packed_view(reinterpret_cast<std::byte*>(in.data()), box),
                         packed_view(reinterpret_cast<std::byte*>(out.data()), box)};
      const auto call = [&] { comm.wait(comm.issue(group, {item}, {"benchmark", "x", "dp"})); };
      for (int i = 0; i < 5; ++i) call();
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) call();
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      if (comm.rank() == 0) seconds = spent.count() / kCalls;
    });
    if (!status) state.SkipWithError(status.error().message.c_str());
    state.SetIterationTime(seconds);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(1));
}
BENCHMARK(all_reduce)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2, 4, 8}, {4, 64 << 10, 4 << 20}})
    ->Iterations(5)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::comm
