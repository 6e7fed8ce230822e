// Time of a batch of look-ups through a cache of rows. Look-ups follow Zipf's law, 8,192 a batch.
//   index      decisions alone, by policy and slots, of a table of 10,000,000 rows: each iteration is
//              begin() and finish() of a batch, with a window of 16 announced batches if it has one
//   step       each row of the batch is read, changed and kept (512 bytes, a file in the temporary
//              folder, in the page cache): without a cache every row is read from the file and
//              written to it; with one, rows move through the cache. The ratio is the gain
//   TMPDIR=/dev/shm build/benchmarks/row_cache_benchmark --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "tessera/sparse/cache/replay.h"
#include "tessera/sparse/cache/test_row_cache.h"

namespace tessera::sparse {
namespace {

constexpr int64_t kBatch = 8192, kBatches = 256, kWindow = 16;

const LookupTrace& trace_of(int64_t rows) {
  static std::map<int64_t, LookupTrace> traces;
  LookupTrace& trace = traces[rows];
  if (trace.ends.empty()) trace = make_trace({rows, kBatches, kBatch, 1.05, 1});
  return trace;
}

void index(benchmark::State& state) {
  constexpr int64_t kRows = 10'000'000;
  const LookupTrace& trace = trace_of(kRows);
  const std::vector<int64_t> counts = trace.counts(kRows);
  const std::string policy = cache_policy_names()[static_cast<size_t>(state.range(0))];
  auto made = CacheIndex::make(
      {.rows = kRows, .slots = state.range(1), .policy = policy, .counts = counts});
  if (!made) return state.SkipWithError(made.error().message.c_str());
  CacheIndex& index = *made;
  int64_t next = 0, announced = 0;
  CacheBatch batch;
  const auto serve = [&] {
    for (; announced <= next + kWindow; ++announced) {
      benchmark::DoNotOptimize(index.announce(trace.batch(announced % kBatches)));
    }
    benchmark::DoNotOptimize(index.begin(trace.batch(next++ % kBatches), batch));
    benchmark::DoNotOptimize(index.finish(batch, true));
  };
  for (int64_t i = 0; i < kBatches; ++i) serve();
  for ([[maybe_unused]] auto _ : state) serve();
  state.SetItemsProcessed(state.iterations() * kBatch);
  state.SetLabel(policy);
}
BENCHMARK(index)
    ->ArgNames({"policy", "slots"})
    ->ArgsProduct({{0, 1, 3, 4}, {100'000, 1'000'000}})
    ->Unit(benchmark::kMicrosecond);

constexpr int64_t kRows = 1'000'000, kRowBytes = 512;

struct TableFile {
  TableFile()
      : path((std::filesystem::temp_directory_path() /
              ("tessera_row_cache_benchmark_" + std::to_string(getpid())))
                 .string()) {
    auto opened = FileRows::open(path, {kRows, kRowBytes});
    if (opened) store = std::move(*opened);
  }
  ~TableFile() { std::filesystem::remove(path); }
  std::string path;
  std::unique_ptr<FileRows> store;
};

void change(std::byte* row) {
  float values[kRowBytes / sizeof(float)];
  std::memcpy(values, row, kRowBytes);
  for (float& value : values) value = value * 0.999F + 0.001F;
  std::memcpy(row, values, kRowBytes);
}

// Moves each row of a batch once, as a table without a cache does.
void step_uncached(benchmark::State& state) {
  TableFile table;
  if (!table.store) return state.SkipWithError("no file");
  const LookupTrace& trace = trace_of(kRows);
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < kBatches; ++i) {
    auto& ids = rows.emplace_back(trace.batch(i).begin(), trace.batch(i).end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  std::vector<std::byte> memory(kBatch * kRowBytes);
  size_t next = 0;
  const auto step = [&] {
    const auto& ids = rows[next++ % rows.size()];
    for (size_t i = 0; i < ids.size(); ++i) {
      benchmark::DoNotOptimize(table.store->read(ids[i], memory.data() + i * kRowBytes));
    }
    for (size_t i = 0; i < ids.size(); ++i) change(memory.data() + i * kRowBytes);
    for (size_t i = 0; i < ids.size(); ++i) {
      benchmark::DoNotOptimize(table.store->write(ids[i], memory.data() + i * kRowBytes));
    }
  };
  for (int64_t i = 0; i < kBatches; ++i) step();
  for ([[maybe_unused]] auto _ : state) step();
}
BENCHMARK(step_uncached)->Unit(benchmark::kMicrosecond);

void step_cached(benchmark::State& state) {
  TableFile table;
  if (!table.store) return state.SkipWithError("no file");
  const LookupTrace& trace = trace_of(kRows);
  const std::vector<int64_t> counts = trace.counts(kRows);
  auto made = RowCache::make(
      *table.store,
      {.rows = kRows, .slots = state.range(0), .policy = "lookahead", .counts = counts});
  if (!made) return state.SkipWithError(made.error().message.c_str());
  RowCache& cache = **made;
  int64_t next = 0, announced = 0;
  CacheBatch batch;
  const auto step = [&] {
    for (; announced <= next + kWindow; ++announced) {
      benchmark::DoNotOptimize(cache.announce(trace.batch(announced % kBatches)));
    }
    benchmark::DoNotOptimize(cache.begin(trace.batch(next++ % kBatches), batch));
    benchmark::DoNotOptimize(cache.move(batch));
    for (const int32_t place : batch.used) change(cache.row(place));
    benchmark::DoNotOptimize(cache.finish(batch, true));
  };
  for (int64_t i = 0; i < kBatches; ++i) step();
  const int64_t before = cache.counts().row_misses, rows = cache.counts().rows;
  for ([[maybe_unused]] auto _ : state) step();
  state.counters["row_hits"] = 1 - static_cast<double>(cache.counts().row_misses - before) /
                                       static_cast<double>(cache.counts().rows - rows);
}
BENCHMARK(step_cached)
    ->ArgName("slots")
    ->Arg(10'000)
    ->Arg(50'000)
    ->Arg(200'000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::sparse
